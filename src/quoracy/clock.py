"""Clocks, the only readers of time: everything else receives a Clock, or a reading of one.

Invariants
    * `now()` is monotonic and independent of the wall clock, which may jump.  Durations are measured
      with it.
    * `wall()` may jump in either direction.  It is only for times that must outlive the process.
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
    """A call in the future, which can be cancelled."""

    def cancel(self) -> object: ...


class Clock(Protocol):
    """A monotonic time in seconds, a sleep that follows it, and the wall clock."""

    def now(self) -> float: ...

    def wall(self) -> float:
        """Seconds since 1970, according to this machine."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the running loop, `seconds` from now."""
        ...


class SystemClock:
    """The machine's clocks."""

    # Without wrapper functions: a busy server reads both for every request.
    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class BootClock(SystemClock):
    """A `SystemClock` that continues while the machine is suspended, if the system supports it.

    It is for holders of something that expires by another machine's clock: the monotonic clock of Linux
    stands still while a laptop is suspended, and the server's clock does not.  Sleeps and timers that
    became due in that time fire late, but `now()` is right at once.
    """

    @staticmethod
    def now() -> float:
        return time.clock_gettime(_BOOT_TIME)


# macOS has no such clock; its monotonic clock is used instead.
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
        """Set the clock on the wall, as a person or NTP does; `now()` does not notice."""
        self._wall_ahead = wall - self._now

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), wake))
        await wake

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wake.add_done_callback(lambda woken: None if woken.cancelled() else callback())
        if seconds <= 0:  # due already, whether or not the clock ever moves
            wake.set_result(None)
        else:
            heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), wake))
        return wake

    async def advance(self, seconds: float) -> None:
        """Let time pass as it does when all is well: every sleeper wakes at its own moment."""
        until = self._now + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            deadline, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            if not wake.done():
                wake.set_result(None)
            await _settle()
        self._now = max(self._now, until)  # a sleeper may have jumped further: it never goes back

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
