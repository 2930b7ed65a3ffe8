"""How much the connections of a server may have unanswered, all together: globalOutstandingLimit.

While too much is unanswered, a connection takes a request only if it has none unanswered itself; so it
goes on, one by one, as its own are answered.  A server under load makes everybody slower, and nobody
starve, as ZooKeeper does.
"""

from __future__ import annotations

__all__ = ["OUTSTANDING_BYTES_MAX", "Throttle"]

# ZooKeeper counts requests only (and large ones in bytes, where that is set up).  A request may be a
# megabyte long, so here the bytes of all of them are counted as well.
OUTSTANDING_BYTES_MAX = 64 << 20


class Throttle:
    """What was taken and is not answered yet: connections count it in place."""

    __slots__ = ("bytes_max", "count", "count_max", "size")

    def __init__(self, count_max: int, bytes_max: int = OUTSTANDING_BYTES_MAX) -> None:
        self.count_max, self.bytes_max = count_max, bytes_max
        self.count = self.size = 0

    @property
    def is_full(self) -> bool:
        return self.count > self.count_max or self.size > self.bytes_max
