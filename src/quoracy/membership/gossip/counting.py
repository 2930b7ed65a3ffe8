"""The counters behind `GossipStatistics`."""

from __future__ import annotations

from quoracy.membership.gossip.model import GossipStatistics

__all__ = ["Counters"]


class Counters:
    """How often what happened; see `GossipStatistics`."""

    __slots__ = (
        "applied", "asked", "bytes", "differences", "exchanges", "gaps", "owners_refused", "packets",
        "refused", "revenants", "rumours", "skips", "stale", "streams",
    )  # fmt: skip

    def __init__(self) -> None:
        self.exchanges = self.differences = self.rumours = self.asked = 0
        self.packets = self.streams = self.bytes = 0
        self.applied = self.stale = self.gaps = 0
        self.refused = self.owners_refused = self.revenants = self.skips = 0

    def statistics(
        self, *, owners_count: int, forgotten_count: int, hot_count: int
    ) -> GossipStatistics:
        counts: dict[str, int] = {name: getattr(self, name) for name in self.__slots__}
        return GossipStatistics(
            **counts,
            owners_count=owners_count,
            forgotten_count=forgotten_count,
            hot_count=hot_count,
        )
