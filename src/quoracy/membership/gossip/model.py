"""What gossip tells its owner: values only."""

from __future__ import annotations

import msgspec

__all__ = ["GossipStatistics", "StateChanged"]


class StateChanged(msgspec.Struct, frozen=True):
    """Somebody else's key has another value here than before; None: it is gone.

    version: how far the owner had written.  For a key that went with its owner's past life, or whose
    deletion is no longer remembered, it is the version of the state that no longer has it.
    """

    owner: str
    key: str
    value: bytes | None
    version: int
    generation: int


class GossipStatistics(msgspec.Struct, kw_only=True):
    """Counters since the start, and the sizes of the tables now.

    exchanges: begun here.  differences: exchanges of others that found us different.
    rumours: deltas sent because they were new.  asked: owners asked for, after a gap or a hint.
    packets, streams, bytes: what was sent.
    applied: deltas that brought something new.  stale: deltas that did not.  gaps: deltas that begin
    after what is known here.
    refused: deltas over a bound of ours.  owners_refused: owners that are not kept since there are too
    many.  revenants: mentions of forgotten owners that were passed over.
    skips: how often somebody knew more of us than we do, so that our generation had to grow.
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
