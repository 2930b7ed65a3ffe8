"""One timer for many: everyone is called in time, and nobody who was discarded."""

from __future__ import annotations

import pytest

from quoracy.client.timer_wheel import Reminders
from quoracy.clock import ManualClock


async def test_each_is_called_at_its_own_time_with_one_timer() -> None:
    clock, called = ManualClock(), list[tuple[str, float]]()
    reminders = Reminders(clock, 1.0)
    reminders.add(lambda: called.append(("a", clock.now())))
    await clock.advance(0.4)
    discarded = reminders.add(lambda: called.append(("b", clock.now())))
    reminders.add(lambda: called.append(("c", clock.now())))
    reminders.discard(discarded)
    await clock.advance(2.0)
    assert called == [("a", 1.0), ("c", pytest.approx(1.4))]


async def test_it_is_set_again_after_it_rang_for_nobody() -> None:
    clock, called = ManualClock(), list[float]()
    reminders = Reminders(clock, 1.0)
    reminders.discard(reminders.add(lambda: called.append(0.0)))
    await clock.advance(3.0)
    reminders.add(lambda: called.append(clock.now()))
    await clock.advance(1.0)
    assert called == [4.0]


async def test_what_is_called_may_discard_another_and_add_itself_again() -> None:
    clock, called = ManualClock(), list[float]()
    reminders = Reminders(clock, 1.0)

    def again() -> None:
        called.append(clock.now())
        reminders.discard(other)
        reminders.add(again)

    reminders.add(again)
    other = reminders.add(lambda: called.append(-1.0))
    await clock.advance(2.5)
    assert called == [1.0, 2.0]


async def test_closed_it_calls_nobody() -> None:
    clock, called = ManualClock(), list[float]()
    reminders = Reminders(clock, 1.0)
    reminders.add(lambda: called.append(clock.now()))
    reminders.close()
    await clock.advance(2.0)
    assert not called
