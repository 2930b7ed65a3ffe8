"""The last intervals between heartbeats, and their mean and deviation, in constant time.

Running sums of floats drift: what is added and later taken out again leaves its rounding error behind,
and the difference of two large squares can even go negative.  Here intervals are whole nanoseconds and
the sums are integers, which Python keeps exact, so the variance is that of the window to the last bit
however many intervals have passed through it.

Invariants
    * At most `size_max` intervals are kept; a new one takes the place of the oldest.
    * An interval is between 0 and INTERVAL_MAX_S; what is longer counts as that long.
"""

from __future__ import annotations

import math
from array import array

__all__ = ["INTERVAL_MAX_S", "IntervalWindow"]

INTERVAL_MAX_S = 1e6  # eleven days
_NANOSECONDS = 1_000_000_000


class IntervalWindow:
    """A sliding window of intervals.

    >>> window = IntervalWindow(2)
    >>> for interval_s in (100.0, 1.0, 2.0):
    ...     window.add(interval_s)
    >>> window.mean_s, window.deviation_s, len(window)
    (1.5, 0.5, 2)
    """

    __slots__ = ("_next", "_ring", "_size_max", "_squares", "_sum")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._ring = array("q")
        self._next = 0  # the oldest, once the window is full
        self._sum = 0
        self._squares = 0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, interval_s: float) -> None:
        """Take in an interval, in place of the oldest if the window is full."""
        interval = round(min(max(interval_s, 0.0), INTERVAL_MAX_S) * _NANOSECONDS)
        if len(self._ring) < self._size_max:
            self._ring.append(interval)
        else:
            oldest = self._ring[self._next]
            self._sum -= oldest
            self._squares -= oldest * oldest
            self._ring[self._next] = interval
            self._next = (self._next + 1) % self._size_max
        self._sum += interval
        self._squares += interval * interval

    def clear(self) -> None:
        """Forget all intervals."""
        del self._ring[:]
        self._next = self._sum = self._squares = 0

    @property
    def mean_s(self) -> float:
        """The mean; there must be an interval."""
        return self._sum / (len(self._ring) * _NANOSECONDS)

    @property
    def deviation_s(self) -> float:
        """The standard deviation of these very intervals (not of those they may be a sample of)."""
        count = len(self._ring)
        return math.sqrt(count * self._squares - self._sum * self._sum) / (count * _NANOSECONDS)
