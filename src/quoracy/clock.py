"""Clocks: the only code that reads the time.  Everything else is given a Clock, or a reading.

Invariants
    * `now()` is monotonic and independent of the wall clock, which may jump.  It measures
      durations.
    * `wall()` may jump either way.  It is only for what has to outlive the process.
    * ManualClock moves only when a test moves it, so a test controls every expiry and every age.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["BootClock", "Clock", "ManualClock", "SystemClock", "Timer"]


class Timer(Protocol):
    """A pending call that can be cancelled."""

    def cancel(self) -> object: ...


class Clock(Protocol):
    """A monotonic time in seconds, sleeping by it, and the wall clock."""

    def now(self) -> float: ...

    def wall(self) -> float:
        """Seconds since 1970, by this machine's clock."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the running loop, `seconds` from now."""
        ...


class SystemClock:
    """The machine's clocks."""

    # Without functions of our own in between: a busy server reads both for every request.
    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class BootClock(SystemClock):
    """A `SystemClock` that continues while the machine is suspended, where the system offers that.

    It is for the holder of a lease that ends by another machine's clock: the monotonic clock of Linux
    stops while a laptop is suspended, and the server's does not.  A sleep or a timer wakes late after
    a suspension; `now()` is right at once.
    """

    @staticmethod
    def now() -> float:
        return time.clock_gettime(_BOOT_TIME)


# macOS lacks it, and has only the monotonic clock.
_BOOT_TIME: int = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1))


class ManualClock:
    """A clock that stands still until a test calls `advance` or `jump`.

    >>> clock = ManualClock()
    >>> clock.jump(5.0)
    >>> clock.now()
    5.0
    """

    def __init__(self, now: float = 0.0, *, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall_ahead = wall - now
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_ahead

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, as a person or NTP does; `now()` does not change."""
        self._wall_ahead = wall - self._now

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), wake))
        await wake

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wake.add_done_callback(lambda woken: None if woken.cancelled() else callback())
        if seconds <= 0:  # due already, even if the clock never moves
            wake.set_result(None)
        else:
            heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), wake))
        return wake

    async def advance(self, seconds: float) -> None:
        """Let time pass: every sleeper wakes at its deadline."""
        until = self._now + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            deadline, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            if not wake.done():
                wake.set_result(None)
            await _settle()
        self._now = max(self._now, until)  # a sleeper may have jumped further

    def jump(self, seconds: float) -> None:
        """Move at once, as after a stopped process or a suspended machine: sleepers wake late.

        They wake at the next `advance`, all at the new time.
        """
        self._now += seconds


async def _settle() -> None:
    # A woken sleeper runs in the next turn of the loop and usually sleeps again in that same
    # turn; the second turn lets what it scheduled with call_soon run as well.
    for _ in range(3):
        await asyncio.sleep(0)
