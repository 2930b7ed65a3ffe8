"""Clocks for tests: one that stands still until it is moved, and one that can be paused.

A `VirtualClock` governs everything it is given to, whatever loop and thread that runs in: leases of a
server in a thread of its own, sessions of clients in the test's.  A `PausableClock` is how one
connection sees a clock: paused, its timers and sleepers stand still while time itself goes on, as in a
process that was stopped.

Invariants
    * Time moves only when a test moves it; `advance` wakes every sleeper at its own moment, in order.
    * After each of them `advance` waits until everything has come to rest: what the sleeper caused has
      happened, on every loop and over every link, before time goes on.
    * Waiting for rest is bounded, in turns and in real seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable

from quoracy.clock import Clock, Timer
from quoracy.errors import InvalidRequest

__all__ = ["PausableClock", "VirtualClock"]

# The effects of one event on a loop happen within far fewer turns than these.
_TURNS = 20
# How often every loop gets these turns, while there is traffic between them.
_ROUNDS_MAX = 100
_REST_S = 10.0


class VirtualClock:
    """A clock for tests: `await clock.advance(30)` and half a minute has passed, at once.

        clock = VirtualClock()
        async with quoracy.testing.memory(clock=clock) as place, place.connect() as q:
            async with q.lock("reports"):
                await clock.advance(30)      # the session is renewed meanwhile, as in real life

    Give it to a server, a store in memory or a connection.  Any thread may read it and move it, one at
    a time.
    """

    def __init__(self, *, wall: float = 1_700_000_000.0) -> None:
        self._now = 0.0
        self._wall_ahead = wall
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._loops: set[asyncio.AbstractEventLoop] = set()
        self._traffic: dict[int, Callable[[], int]] = {}

    def now(self) -> float:
        """Seconds since this clock was made."""
        return self._now

    def wall(self) -> float:
        """Seconds since 1970, on a date that never changes from run to run."""
        return self._now + self._wall_ahead

    def set_wall(self, wall: float) -> None:
        """Set the clock on the wall, as a person or NTP does; `now()` does not notice."""
        self._wall_ahead = wall - self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until this time was made to pass."""
        await self._wake_after(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the running loop once this time was made to pass."""
        if seconds <= 0:  # due already, whether or not the clock ever moves
            return asyncio.get_running_loop().call_soon(callback)
        wake = self._wake_after(seconds)
        wake.add_done_callback(lambda woken: None if woken.cancelled() else callback())
        return wake

    async def advance(self, seconds: float) -> None:
        """Let time pass as it does when all is well: every sleeper wakes at its own moment."""
        if not seconds >= 0:
            raise InvalidRequest(f"time cannot pass by {seconds} s. Give 0 or more.")
        until = self._now + seconds
        await self._rest()
        while (due := self._next(until)) is not None:
            deadline, wake = due
            self._now = max(self._now, deadline)
            wake.get_loop().call_soon_threadsafe(_wake, wake)
            await self._rest()
        self._now = max(self._now, until)
        await self._rest()

    def advance_sync(self, seconds: float) -> None:
        """`advance` for a test without a loop: returns when the time has passed."""
        asyncio.run(self.advance(seconds))

    def jump(self, seconds: float) -> None:
        """Move at once, as when a whole machine was suspended: sleepers wake late, at the next
        `advance`.
        """
        self._now += seconds

    def follow(self, traffic: Callable[[], int]) -> Callable[[], None]:
        """Wait for rest while this count grows: of messages between a client and a server.

        The function returned ends that.
        """
        with self._lock:
            number = next(self._order)
            self._traffic[number] = traffic
        return lambda: self._traffic.pop(number, None) and None

    # -- sleepers ----------------------------------------------------------------------------

    def _wake_after(self, seconds: float) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        wake: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._loops.add(loop)
            heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), wake))
        return wake

    def _next(self, until: float) -> tuple[float, asyncio.Future[None]] | None:
        with self._lock:
            while self._sleepers and self._sleepers[0][0] <= until:
                deadline, _, wake = heapq.heappop(self._sleepers)
                if not wake.done() and not wake.get_loop().is_closed():
                    return deadline, wake
        return None

    # -- rest --------------------------------------------------------------------------------

    async def _rest(self) -> None:
        here = asyncio.get_running_loop()
        for _ in range(_ROUNDS_MAX):
            before = self._traffic_count()
            await _turns()
            with self._lock:
                self._loops = {loop for loop in self._loops if not loop.is_closed()}
                others = [loop for loop in self._loops if loop is not here and loop.is_running()]
            for loop in others:
                await _turns_on(loop)
            if others:
                await _turns()
            if self._traffic_count() == before:
                return

    def _traffic_count(self) -> int:
        return sum(count() for count in list(self._traffic.values()))


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _turns_on(loop: asyncio.AbstractEventLoop) -> None:
    turns = asyncio.run_coroutine_threadsafe(_turns(), loop)
    try:
        async with asyncio.timeout(_REST_S):
            await asyncio.wrap_future(turns)
    except TimeoutError:
        if not loop.is_running():
            return  # it ended meanwhile, and nothing is on its way there
        raise RuntimeError(
            f"time cannot pass: an event loop that lives by this clock did not turn for {_REST_S:g} s. "
            "Something blocks it; a coroutine must not call what waits, such as time.sleep."
        ) from None


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class PausableClock:
    """A clock whose timers and sleepers can be made to stand still, while `now()` goes on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # What came due during the pause, in order: to be called, on its loop, when it is over.
        self._held: deque[tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = deque()
        self._is_paused = False

    @property
    def is_paused(self) -> bool:
        """Whether it stands still for its users."""
        return self._is_paused

    def now(self) -> float:
        """As the clock behind it."""
        return self._clock.now()

    def wall(self) -> float:
        """As the clock behind it."""
        return self._clock.wall()

    async def sleep(self, seconds: float) -> None:
        """Sleep; and in a pause, until that is over."""
        await self._clock.sleep(seconds)
        await self.running()

    async def running(self) -> None:
        """Wait for the end of the pause, if there is one."""
        while self._is_paused:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._hold(lambda over=over: _wake(over)):  # type: ignore[misc]
                await over

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the running loop; in a pause, when that is over."""
        return _PausableTimer(self._clock, seconds, callback, self._hold)

    def pause(self) -> None:
        """Nothing that lives by this clock goes on."""
        self._is_paused = True

    def resume(self) -> None:
        """Everything goes on; what came due meanwhile comes now, in its order."""
        with self._lock:
            self._is_paused = False
            held, self._held = self._held, deque()
        for loop, callback in held:
            with contextlib.suppress(RuntimeError):  # closed, and nothing waits there
                loop.call_soon_threadsafe(callback)

    def _hold(self, callback: Callable[[], object]) -> bool:
        with self._lock:
            if self._is_paused:
                self._held.append((asyncio.get_running_loop(), callback))
            return self._is_paused


class _PausableTimer:
    def __init__(
        self,
        clock: Clock,
        seconds: float,
        callback: Callable[[], object],
        hold: Callable[[Callable[[], object]], bool],
    ) -> None:
        self._callback: Callable[[], object] | None = callback
        self._hold = hold
        self._timer = clock.call_later(seconds, self._due)

    def cancel(self) -> None:
        self._callback = None
        self._timer.cancel()

    def _due(self) -> None:
        if not self._hold(self._due) and self._callback is not None:
            self._callback()
