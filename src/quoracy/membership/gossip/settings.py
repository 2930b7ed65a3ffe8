"""The settings of gossip, with defaults for small state on a local network."""

from __future__ import annotations

import enum
import math

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.settings import NAME_BYTES_MAX

__all__ = ["GossipMode", "GossipSettings"]


class GossipMode(enum.Enum):
    """How news travels.

    PUSH: what is new is sent to random peers for some rounds, as a rumour.  Quick at first; a peer that
    is missed by all of them learns nothing until the owner writes again.
    PULL: each round one random peer is asked for what it knows better.  Slow at first, quick at last.
    PUSH_PULL: each round state is compared with one random peer, and both learn.
    MIXED: rumours for speed, and PUSH_PULL for certainty.
    """

    PUSH = "push"
    PULL = "pull"
    PUSH_PULL = "push-pull"
    MIXED = "mixed"

    @property
    def pushes(self) -> bool:
        return self in (GossipMode.PUSH, GossipMode.MIXED)

    @property
    def compares(self) -> bool:
        return self is not GossipMode.PUSH


class GossipSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one participant behaves.  All of a cluster should have the same.

    mode: how news travels.
    exchange_interval_s: how often state is compared with one random peer.  Equal state costs one packet
    of about a dozen bytes.
    push_interval_s, push_fanout: while there is news, it is sent to `push_fanout` random peers in each
    interval.  push_mult: news is sent push_mult * ceil(log10(n + 1)) times.
    tombstone_s: how long a deletion is remembered.  A participant that was away for longer is sent all
    of the owner's state instead of what changed.
    forget_s: how long a forgotten owner of the same generation is refused.

    key_bytes_max, value_bytes_max, entries_max, owner_bytes_max: what one owner may have.  Own writes
    beyond raise `InvalidRequest`; foreign deltas that lead beyond are dropped and counted, and the
    owner stays as it was.
    tombstones_max: deletions that are remembered of one owner; beyond, the oldest is dropped early,
    as if its time had come.
    owners_max: owners that are kept; further ones are passed over and counted.
    hot_max: owners with news to push; beyond, the one that was pushed most is dropped, and its news
    spreads by comparing.

    packet_bytes_max: size of a datagram.
    stream_above_bytes: more than this for one peer goes as one reliable message, not as datagrams.
    stream_bytes_max: the largest reliable message, sent or taken.
    buckets: the number of parts in which state is compared when it differs.
    """

    mode: GossipMode = GossipMode.MIXED
    exchange_interval_s: float = 1.0
    push_interval_s: float = 0.2
    push_fanout: int = 3
    push_mult: int = 4
    tombstone_s: float = 3_600.0
    forget_s: float = 86_400.0
    key_bytes_max: int = 256
    value_bytes_max: int = 8_192
    entries_max: int = 256
    owner_bytes_max: int = 262_144
    tombstones_max: int = 256
    owners_max: int = 65_536
    hot_max: int = 1_024
    packet_bytes_max: int = 1_350
    stream_above_bytes: int = 8_192
    stream_bytes_max: int = 4_194_304
    buckets: int = 256

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidRequest(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.tombstones_max < 0:
            raise InvalidRequest(f"tombstones_max must not be negative, not {self.tombstones_max}")
        needed = 4 * self.buckets + 64
        if self.packet_bytes_max < max(needed, 512):
            raise InvalidRequest(
                f"packet_bytes_max must be at least {max(needed, 512)} with {self.buckets} buckets, "
                f"not {self.packet_bytes_max}: allow larger packets or have fewer buckets"
            )
        largest = (self.owner_bytes_max + 64 * self.entries_max) + self._tombstone_bytes_max + 1_024
        if self.stream_bytes_max < largest:
            raise InvalidRequest(
                f"stream_bytes_max must be at least {largest}, not {self.stream_bytes_max}: "
                "all state of one owner must fit into one message"
            )

        digests = 4 * self.owners_max // self.buckets * (NAME_BYTES_MAX + 32)
        if self.stream_bytes_max < digests:
            raise InvalidRequest(
                f"stream_bytes_max must be at least {digests}, not {self.stream_bytes_max}: "
                "one bucket of owners must fit into one message; have more buckets or fewer owners"
            )

    @property
    def _tombstone_bytes_max(self) -> int:
        return self.tombstones_max * (self.key_bytes_max + 64)

    def pushes_max(self, participants_count: int) -> int:
        """In how many rounds each participant sends a rumour.

        >>> GossipSettings().pushes_max(participants_count=1_000)
        16
        """
        return self.push_mult * math.ceil(math.log10(participants_count + 1))


_POSITIVE = (
    "exchange_interval_s", "push_interval_s", "push_fanout", "push_mult", "tombstone_s", "forget_s",
    "key_bytes_max", "value_bytes_max", "entries_max", "owner_bytes_max", "owners_max", "hot_max",
    "stream_above_bytes", "buckets",
)  # fmt: skip
