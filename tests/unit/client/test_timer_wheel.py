"""One timer for many: everyone is called in time, and nobody who was discarded."""

from __future__ import annotations

import pytest

from quoracy.client.context import TimerWheel
from quoracy.clock import ManualClock


async def test_each_is_called_at_its_own_time_with_one_timer() -> None:
    clock, called = ManualClock(), list[tuple[str, float]]()
    timers = TimerWheel(clock, 1.0)
    timers.add(lambda: called.append(("a", clock.now())))
    await clock.advance(0.4)
    discarded = timers.add(lambda: called.append(("b", clock.now())))
    timers.add(lambda: called.append(("c", clock.now())))
    timers.discard(discarded)
    await clock.advance(2.0)
    assert called == [("a", 1.0), ("c", pytest.approx(1.4))]


async def test_it_is_set_again_after_it_rang_for_nobody() -> None:
    clock, called = ManualClock(), list[float]()
    timers = TimerWheel(clock, 1.0)
    timers.discard(timers.add(lambda: called.append(0.0)))
    await clock.advance(3.0)
    timers.add(lambda: called.append(clock.now()))
    await clock.advance(1.0)
    assert called == [4.0]


async def test_what_is_called_may_discard_another_and_add_itself_again() -> None:
    clock, called = ManualClock(), list[float]()
    timers = TimerWheel(clock, 1.0)

    def again() -> None:
        called.append(clock.now())
        timers.discard(other)
        timers.add(again)

    timers.add(again)
    other = timers.add(lambda: called.append(-1.0))
    await clock.advance(2.5)
    assert called == [1.0, 2.0]


async def test_closed_it_calls_nobody() -> None:
    clock, called = ManualClock(), list[float]()
    timers = TimerWheel(clock, 1.0)
    timers.add(lambda: called.append(clock.now()))
    timers.close()
    await clock.advance(2.0)
    assert not called
