"""The values of gossip: changes and statistics."""

from __future__ import annotations

import msgspec

__all__ = ["GossipStatistics", "StateChanged"]


class StateChanged(msgspec.Struct, frozen=True):
    """The key of another participant has another value here than before; None: it was removed.

    version: the owner's version of the change.  For a key that was removed by a new generation, or
    whose deletion is no longer remembered, it is the version of the state that no longer has it.
    """

    owner: str
    key: str
    value: bytes | None
    version: int
    generation: int


class GossipStatistics(msgspec.Struct, kw_only=True):
    """Counters since the start, and the sizes of the tables now.

    exchanges: begun here.  differences: exchanges of others in which our hash differed.
    rumours: deltas sent because they were new.  asked: owners requested after a gap or a hint.
    packets, streams, bytes: what was sent.
    applied: deltas with something new.  stale: deltas without.  gaps: deltas that begin after what is
    known here.
    refused: deltas over a bound of ours.  owners_refused: owners beyond `owners_max`.
    revenants: mentions of forgotten owners that were ignored.
    skips: how often another participant knew a later version of us, so that our generation had to grow.
    """

    exchanges: int = 0
    differences: int = 0
    rumours: int = 0
    asked: int = 0
    packets: int = 0
    streams: int = 0
    bytes: int = 0
    applied: int = 0
    stale: int = 0
    gaps: int = 0
    refused: int = 0
    owners_refused: int = 0
    revenants: int = 0
    skips: int = 0
    owners_count: int = 0
    forgotten_count: int = 0
    hot_count: int = 0
