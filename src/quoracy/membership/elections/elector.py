"""What all elections among peers share: who takes part, the events, and what is assumed.

An elector is a `Machine` whose addresses are the names of the peers.  It says who leads, and in which
term.  Terms are numbers that grow from leader to leader; whatever acts on the word of a leader should
refuse a term that is smaller than one it has seen.

Invariants
    * `term` never decreases while the elector lives, and is the leader's term while there is a leader.
    * Events alternate: every `LeaderElected` is followed by a `LeaderLost` of the same leader and term
      before the next `LeaderElected`.
"""

from __future__ import annotations

import abc
import enum
import math
import random
from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeAlias

import msgspec

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.machine import Address, Effect, Tell
from quoracy.membership.settings import NAME_BYTES_MAX

__all__ = ["PEERS_MAX", "Assumptions", "ElectionEvent", "Elector", "LeaderElected", "LeaderLost",
           "LossReason", "RankedElector", "RankedSettings", "require"]  # fmt: skip

PEERS_MAX = 1_000


class LossReason(enum.Enum):
    """Why there is no leader any more, or another one."""

    SILENT = "silent"  # it was not heard for too long
    SUSPECTED = "suspected"  # a failure detector said so
    SUPERSEDED = "superseded"  # a newer leader or a newer term is known
    NO_QUORUM = "no quorum"  # we led, and did not hear a majority for too long


class LeaderElected(msgspec.Struct, frozen=True):
    """This peer has learned that `leader` leads in `term`; it may be this peer itself.

    >>> LeaderElected("c", 4)
    LeaderElected(leader='c', term=4)
    """

    leader: str
    term: int


class LeaderLost(msgspec.Struct, frozen=True):
    """For this peer, `leader` leads no longer.  If it was this one: stop what only a leader does.

    >>> LeaderLost("c", 4, LossReason.SILENT).reason.value
    'silent'
    """

    leader: str
    term: int
    reason: LossReason


ElectionEvent: TypeAlias = LeaderElected | LeaderLost


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an algorithm needs to be true, and what may be built on it, in words.

    assumes: what must hold for it to end with one leader.  two_leaders: when there can be two at one
    time.  messages: how many it sends.  may, may_not: what a caller may and may not do with the answer.
    """

    algorithm: str
    assumes: tuple[str, ...]
    two_leaders: str
    messages: str
    may: str
    may_not: str


def require(holds: bool, otherwise: str) -> None:
    """Raise `InvalidRequest` unless a setting or an argument makes sense."""
    if not holds:
        raise InvalidRequest(otherwise)


class Elector(abc.ABC):
    """A machine that knows a leader.

    leader: who leads, as far as this peer knows, or None.
    term: the newest term this peer takes part in; the leader's, while there is one.  0: none yet.

    All answers are those of the last call: a process that was stopped for a minute believes what it
    believed a minute ago until `tick` is called.

    Peers are ordered by priority, the higher first, and by name where priorities are equal.  The list
    and the priorities must be the same at every peer; nothing changes them while an elector lives.
    """

    assumptions: ClassVar[Assumptions]

    def __init__(
        self, name: str, peers: Iterable[str], priorities: Mapping[str, int] | None,
        rng: random.Random, term: int,
    ) -> None:  # fmt: skip
        self.name, self.term = name, term
        self.leader: str | None = None
        self.next_due = math.inf
        self._peers, self._rng = tuple(peers), rng
        priorities = priorities or {}
        self._ranks = {peer: (priorities.get(peer, 0), peer) for peer in self._peers}
        listed = ", ".join(sorted(self._peers))
        count = len(self._peers)
        require(len(self._ranks) == count, f"a peer is listed twice: {listed}. Name each once.")
        require(
            name in self._ranks,
            f"{name!r} is not in its own list of peers. List all peers, itself included.",
        )
        require(
            count <= PEERS_MAX,
            f"{count:,} peers, and at most {PEERS_MAX:,} can elect. Let a few vote for all.",
        )
        for peer in self._peers:
            fits = 0 < len(peer.encode()) <= NAME_BYTES_MAX
            require(fits, f"the name {peer!r} must have 1 to {NAME_BYTES_MAX} bytes of UTF-8")
        for peer in priorities:
            known = peer in self._ranks
            require(known, f"a priority is set for {peer!r}, which is not one of the peers")
        self._others = tuple(peer for peer in self._peers if peer != name)

    @property
    def is_leader(self) -> bool:
        """Whether this peer believes that it leads.  Others may know better."""
        return self.leader == self.name

    @abc.abstractmethod
    def start(self, now: float) -> list[Effect]:
        """Begin.  Nothing else is called before."""

    @abc.abstractmethod
    def tick(self, now: float) -> list[Effect]:
        """Do what is due: end a wait, miss a leader, send heartbeats."""

    @abc.abstractmethod
    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """A message from another peer.  Raises `ProtocolError` if it makes no sense."""

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """The same messages, however they come."""
        return self.receive(data, sender, now)

    @abc.abstractmethod
    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """A reliable message could not be delivered."""

    @abc.abstractmethod
    def suspect(self, peer: str, now: float) -> list[Effect]:
        """A failure detector thinks that the peer failed; believed until the peer is heard again."""

    def _rank(self, peer: str) -> tuple[int, str]:
        """What peers are ordered by; the greatest should lead."""
        return self._ranks[peer]

    def _outranks(self, one: str, other: str) -> bool:
        return self._ranks[one] > self._ranks[other]

    def _check_suspect(self, peer: str) -> None:
        require(peer in self._others, f"{peer!r} is not one of the other peers of {self.name!r}")

    def _check_peers(self, sender: str, *named: str) -> None:
        """Raise `ProtocolError` unless a message comes from another peer and names peers only."""
        for peer in (sender, *named):
            if peer not in self._ranks or sender == self.name:
                raise ProtocolError(
                    f"{self.name} got an election message from {sender!r} that is not from or about "
                    f"its peers: {peer!r}. Give all peers the same list."
                )

    def _elected(self, leader: str, term: int) -> list[Effect]:
        assert term >= self.term, (leader, term, self.term)
        if (leader, term) == (self.leader, self.term):
            return []
        effects = self._lost(LossReason.SUPERSEDED)
        self.leader, self.term = leader, term
        return [*effects, Tell(LeaderElected(leader, term))]

    def _lost(self, reason: LossReason) -> list[Effect]:
        """Nobody leads now.  No event if nobody did."""
        if self.leader is None:
            return []
        leader, self.leader = self.leader, None
        return [Tell(LeaderLost(leader, self.term, reason))]


class RankedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `Bully` and the rings can be set to: times, all more than 0."""

    heartbeat_interval_s: float = 1.0
    leader_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            require(0 < value < math.inf, f"{field} must be more than 0, not {value}")
        require(
            self.leader_timeout_s >= 2 * self.heartbeat_interval_s,
            f"leader_timeout_s ({self.leader_timeout_s}) must be at least twice heartbeat_interval_s "
            f"({self.heartbeat_interval_s}): one lost heartbeat is no failure",
        )


class RankedElector(Elector):
    """An elector that makes the highest peer that lives the leader, without a majority.

    Announcements are ordered by term, then by the rank of the leader.  No announcement that is older
    than the newest accepted one changes anything, and a peer never follows one that it outranks.
    """

    def __init__(
        self, name: str, peers: Iterable[str], priorities: Mapping[str, int] | None,
        rng: random.Random, term: int,
    ) -> None:  # fmt: skip
        super().__init__(name, peers, priorities, rng, term)
        self._newest: tuple[int, tuple[int, str]] = (term, (-1 << 63, ""))
        self._term_seen = term

    def _is_old(self, leader: str, term: int) -> bool:
        self._term_seen = max(self._term_seen, term)
        return (term, self._rank(leader)) < self._newest

    def _follow(self, leader: str, term: int) -> list[Effect]:
        self._newest = (term, self._rank(leader))
        return self._elected(leader, term)

    def _stretched(self, seconds: float) -> float:
        """Up to a fifth longer, at random, so that not all peers act at once."""
        return seconds * self._rng.uniform(1.0, 1.2)
