"""How much the connections of a server may have unanswered, all together: globalOutstandingLimit.

A connection that has something unanswered waits while too much is; one that has nothing may always ask
for one thing.  So a server under load makes everybody slower and nobody starve, as ZooKeeper does.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["OUTSTANDING_BYTES_MAX", "Throttle", "Waiting"]

# ZooKeeper counts requests only (and large ones in bytes, where that is set up).  A request may be a
# megabyte long, so here the bytes of all of them are counted as well.
OUTSTANDING_BYTES_MAX = 64 << 20


class Waiting(Protocol):
    def go_on(self) -> None: ...


class Throttle:
    """Counts what is unanswered; `waiting` are those to be told when there is less, in their order."""

    __slots__ = ("bytes_max", "count", "count_max", "size", "waiting")

    def __init__(self, count_max: int, bytes_max: int = OUTSTANDING_BYTES_MAX) -> None:
        self.count_max, self.bytes_max = count_max, bytes_max
        self.count = self.size = 0
        self.waiting: dict[Waiting, None] = {}

    @property
    def is_full(self) -> bool:
        return self.count > self.count_max or self.size > self.bytes_max

    def let_go_on(self) -> None:
        """Wake those who wait, each once at most and only while there is room."""
        for _ in range(len(self.waiting)):
            if self.is_full or not self.waiting:
                return
            first = next(iter(self.waiting))
            del self.waiting[first]
            first.go_on()
