"""Who leads, as one peer sees it; keeps the promises about events and terms that all electors make."""

from __future__ import annotations

from quoracy.membership.elections.interface import LeaderElected, LeaderLost, LossReason
from quoracy.membership.elections.peers import Peers
from quoracy.membership.machine import Effect, Tell

__all__ = ["LeaderView", "Seen"]


class LeaderView:
    """The leader and the term; says what to tell when they change.

    >>> view = LeaderView()
    >>> view.elected("b", 1)
    [Tell(event=LeaderElected(leader='b', term=1))]
    >>> view.elected("b", 1)
    []
    >>> [type(told.event).__name__ for told in view.elected("c", 2)]
    ['LeaderLost', 'LeaderElected']
    """

    __slots__ = ("leader", "term")

    def __init__(self, term: int = 0) -> None:
        self.leader: str | None = None
        self.term = term

    def elected(self, leader: str, term: int) -> list[Effect]:
        assert term >= self.term, (leader, term, self.term)
        if (leader, term) == (self.leader, self.term):
            return []
        effects = self.lost(LossReason.SUPERSEDED)
        self.leader, self.term = leader, term
        return [*effects, Tell(LeaderElected(leader, term))]

    def lost(self, reason: LossReason) -> list[Effect]:
        """Nobody leads now.  Nothing to tell if nobody did."""
        if self.leader is None:
            return []
        leader, self.leader = self.leader, None
        return [Tell(LeaderLost(leader, self.term, reason))]

    def advanced(self, term: int) -> list[Effect]:
        """A newer term has begun; nobody leads in it yet."""
        assert term > self.term, (term, self.term)
        effects = self.lost(LossReason.SUPERSEDED)
        self.term = term
        return effects


class Seen:
    """What every elector shows of itself, from its peers and its view."""

    _peers: Peers
    _view: LeaderView

    @property
    def name(self) -> str:
        return self._peers.name

    @property
    def leader(self) -> str | None:
        """Who leads, as far as this peer knows."""
        return self._view.leader

    @property
    def term(self) -> int:
        """The term of the leader, or of the last one there was."""
        return self._view.term

    @property
    def is_leader(self) -> bool:
        return self._view.leader == self.name
