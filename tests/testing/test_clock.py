"""The clock of tests: it moves when it is told, wakes everyone in order, and waits for what follows."""

from __future__ import annotations

import asyncio

import pytest

import quoracy
from quoracy.testing import VirtualClock
from quoracy.testing.clock import PausableClock
from quoracy.threads.loop_thread import LoopThread


async def test_sleepers_wake_in_order_each_at_its_moment() -> None:
    clock = VirtualClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now()))
        await clock.sleep(1)
        woken.append((name, clock.now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep("b", 2))
        group.create_task(sleep("a", 1))
        await asyncio.sleep(0)
        await clock.advance(10)
    assert woken == [("a", 1), ("b", 2), ("a", 2), ("b", 3)]
    assert clock.now() == 10


async def test_timer_that_was_cancelled_does_not_ring() -> None:
    clock = VirtualClock()
    rung: list[str] = []
    clock.call_later(1, lambda: rung.append("kept"))
    clock.call_later(1, lambda: rung.append("cancelled")).cancel()
    await clock.advance(2)
    assert rung == ["kept"]


async def test_jump_wakes_nobody_until_time_goes_on() -> None:
    clock = VirtualClock()
    rung: list[float] = []
    clock.call_later(1, lambda: rung.append(clock.now()))
    clock.jump(5)
    assert rung == []
    await clock.advance(0)
    assert rung == [5]


async def test_clock_on_the_wall_moves_with_time_and_by_hand() -> None:
    clock = VirtualClock(wall=1000)
    await clock.advance(5)
    assert clock.wall() == 1005
    clock.set_wall(1)
    assert (clock.wall(), clock.now()) == (1, 5)


async def test_time_does_not_go_back() -> None:
    with pytest.raises(quoracy.InvalidRequest, match="0 or more"):
        await VirtualClock().advance(-1)


async def test_sleepers_of_other_threads_have_done_their_work_when_time_has_passed() -> None:
    clock = VirtualClock()
    thread = LoopThread("another")
    thread.start()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.now())

    async def start() -> asyncio.Task[None]:
        task = asyncio.create_task(tick())
        await asyncio.sleep(0)
        return task

    try:
        thread.call(start)
        await clock.advance(3)
        assert ticks == [1, 2, 3]
        await asyncio.to_thread(clock.advance_sync, 2)
        assert ticks == [1, 2, 3, 4, 5]
    finally:
        thread.stop()
    await clock.advance(1)  # a loop that is gone is not waited for
    assert ticks == [1, 2, 3, 4, 5]


async def test_pause_holds_timers_and_sleepers_and_lets_them_go_in_order() -> None:
    clock = VirtualClock()
    paused = PausableClock(clock)
    rung: list[str] = []
    paused.call_later(2, lambda: rung.append("second"))
    paused.call_later(1, lambda: rung.append("first"))
    cancelled = paused.call_later(2, lambda: rung.append("cancelled"))

    async def sleep() -> None:
        await paused.sleep(3)
        rung.append("sleeper")

    sleeping = asyncio.create_task(sleep())
    await asyncio.sleep(0)
    paused.pause()
    await clock.advance(5)
    assert rung == []
    assert paused.now() == 5
    cancelled.cancel()
    paused.resume()
    await sleeping
    assert rung == ["first", "second", "sleeper"]
