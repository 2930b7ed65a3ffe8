"""The values of membership: members, their states, and the events about them.

The life of a member, as any other member sees it:

    (unknown) --> ALIVE <--> SUSPECT --> DEAD --> (forgotten)
                    |          |           |
                    +----------+-----> LEFT --> (forgotten)

Within one incarnation a state only moves to the right.  It returns to ALIVE by a higher incarnation,
which only the member itself can choose.
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeAlias

import msgspec

from quoracy.membership.machine import Address
from quoracy.membership.settings import META_BYTES_MAX, NAME_BYTES_MAX

__all__ = [
    "ADDRESS_CHARS_MAX", "INCARNATION_MAX", "BoundedAddress", "Conflict", "Incarnation", "JoinAnswered",
    "Member", "MemberChange", "MemberChangeKind", "MemberName", "MemberState", "Message", "Meta",
    "SwimEvent", "SwimStatistics",
]  # fmt: skip


ADDRESS_CHARS_MAX = 270  # a domain name of 253, a port, brackets
INCARNATION_MAX = 2**53

# What is checked when one is decoded.
MemberName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
BoundedAddress: TypeAlias = Annotated[Address, msgspec.Meta(min_length=1, max_length=ADDRESS_CHARS_MAX)]
Incarnation: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=INCARNATION_MAX)]
Meta: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=META_BYTES_MAX)]


class MemberState(enum.IntEnum):
    """What is believed of a member."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2  # it failed, as far as anyone can tell
    LEFT = 3  # it said goodbye


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member as it is known here, and as it is sent in a stream.

    address: where its packets go.  incarnation: how often it had to say that it is alive, or changed
    its metadata.  meta: what it says of itself, at most 512 bytes.

    >>> Member("a", "10.0.0.1:7946", 1).state.name
    'ALIVE'
    """

    name: MemberName
    address: BoundedAddress
    incarnation: Incarnation
    state: MemberState = MemberState.ALIVE
    meta: Meta = b""

    @property
    def is_present(self) -> bool:
        """Alive, or at least not known to be dead."""
        return self.state <= MemberState.SUSPECT


class MemberChangeKind(enum.Enum):
    JOINED = "joined"  # new, or back from dead or left
    SUSPECTED = "suspected"
    RECOVERED = "recovered"  # was suspected, and said that it is alive
    DIED = "died"
    LEFT = "left"
    UPDATED = "updated"  # other metadata
    FORGOTTEN = "forgotten"  # dead or gone for so long that nothing is kept of it


class MemberChange(msgspec.Struct, frozen=True):
    """Something changed about another member; `member` is how it is now.

    by: the member whose message caused the change, where that is known: an accuser, or ourselves.
    """

    kind: MemberChangeKind
    member: Member
    by: str | None = None


class Message(msgspec.Struct, frozen=True):
    """What a member sent to us (`is_broadcast` false) or to everyone."""

    sender: str
    payload: bytes
    is_broadcast: bool


class Conflict(msgspec.Struct, frozen=True):
    """Two addresses claim one name; the one that is known is kept."""

    known: Member
    claimed_by: Address


class JoinAnswered(msgspec.Struct, frozen=True):
    """A seed took us in; `members_count` is how many it knows."""

    seed: Address
    members_count: int


SwimEvent: TypeAlias = MemberChange | Message | Conflict | JoinAnswered


class SwimStatistics(msgspec.Struct, frozen=True):
    """What one member did since it started.

    streams_only: probes that only a reliable message got through for: datagrams are lost on that way.
    turned_away: newcomers beyond `members_max`, or whose name or address is too long in bytes.
    news_dropped: updates beyond `updates_max`.
    differences: comparisons of whole tables that found one.  pauses: how often we were stopped.
    """

    probes: int
    probes_failed: int
    streams_only: int
    suspicions: int
    refutations: int
    deaths: int
    differences: int
    pauses: int
    turned_away: int
    news_dropped: int
    news_waiting: int
    health: int
