"""What a member of SWIM did so far: a value."""

from __future__ import annotations

import msgspec

__all__ = ["SwimStatistics"]


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
