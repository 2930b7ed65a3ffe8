"""What all elections among peers share: the questions one may ask, the events, and what is assumed.

An elector is a `Machine` whose addresses are the names of the peers.  It says who leads, and in which
term.  Terms are numbers that grow from leader to leader; whoever acts on the word of a leader should
refuse a term that is smaller than one it has seen.

Invariants
    * `term` never decreases while the elector lives, and is the leader's term while there is a leader.
    * Events alternate: every `LeaderElected` is followed by a `LeaderLost` of the same leader and term
      before the next `LeaderElected`.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from quoracy.membership.machine import Effect, Machine

__all__ = ["Assumptions", "ElectionEvent", "Elector", "LeaderElected", "LeaderLost", "LossReason"]


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
    time. messages: how many it sends.  may, may_not: what a caller may and may not do with the answer.
    """

    algorithm: str
    assumes: tuple[str, ...]
    two_leaders: str
    messages: str
    may: str
    may_not: str


class Elector(Machine, Protocol):
    """A machine that knows a leader.

    All answers are those of the last call: a process that was stopped for a minute believes what it
    believed a minute ago until `tick` was called.
    """

    assumptions: ClassVar[Assumptions]

    @property
    def name(self) -> str:
        """This peer."""
        ...

    @property
    def leader(self) -> str | None:
        """Who leads, as far as this peer knows."""
        ...

    @property
    def term(self) -> int:
        """The newest term this peer takes part in; the leader's, while there is one.  0: none yet."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this peer believes that it leads.  Others may know better."""
        ...

    def suspect(self, peer: str, now: float) -> list[Effect]:
        """A failure detector thinks that the peer failed."""
        ...
