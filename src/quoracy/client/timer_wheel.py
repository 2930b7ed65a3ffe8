"""One timer for many who want to be called a fixed time from now, most of whom change their mind.

A lock is mostly held for less time than it takes until its key is watched: a timer for each was made
and taken down with each cycle.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from quoracy.clock import Clock, Timer

__all__ = ["Reminders"]


class Reminders:
    """Calls each callback `seconds` after it was added, in that order, unless it was discarded.

    The timer is left to ring when nobody waits any more; it is then not set again.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._next = 1
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._timer: Timer | None = None

    def add(self, callback: Callable[[], None], now: float | None = None) -> int:
        """Call it, `seconds` from now; the number it can be discarded by, which is never 0."""
        number = self._next
        self._next += 1
        self._due[number] = ((self._clock.now() if now is None else now) + self._seconds, callback)
        if self._timer is None:
            # Set in the next turn: who adds something has just got what it waited for, and to begin a
            # hold took 22 us, this timer included, in a process that had been idle.
            self._timer = asyncio.get_running_loop().call_soon(self._set)
        return number

    def discard(self, number: int) -> None:
        self._due.pop(number, None)

    def close(self) -> None:
        """Call nobody any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        """For the first that is due; for nobody in particular if all of them are over again by now."""
        first = next(iter(self._due.values()))[0] if self._due else math.inf
        left_s = min(self._seconds, max(0.0, first - self._clock.now()))
        self._timer = self._clock.call_later(left_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock.now()
        late = [number for number, (due, _) in self._due.items() if due <= now]
        for number in late:
            entry = self._due.pop(number, None)  # whoever was called may have discarded it
            if entry is not None:
                entry[1]()
        if self._due and self._timer is None:
            self._set()
