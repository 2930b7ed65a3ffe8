"""RateLimit: what it promises, on every kind of store, and on clocks that the test owns."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.connection import Connection
from quoracy.client.recipes.rate_limit import AHEAD_S_MAX, RateLimit
from quoracy.clock import ManualClock
from tests.support.asking import contents, turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples
from tests.support.unreliable_store import Unreliable


async def test_burst_is_had_at_once_by_all_together_and_no_more(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        limits = [RateLimit(q, "api", rate=0.001, burst=5) for q in (one, other)]
        got = await asyncio.gather(*(limits[at % 2].try_take() for at in range(12)))
        assert sum(got) == 5
        with pytest.raises(quoracy.TimedOut):
            await limits[0].take(timeout=0.5)
        with pytest.raises(quoracy.TimedOut):
            await limits[1].take(timeout=0)
        assert -0.001 <= await limits[1].free() < 1


async def test_waiting_takers_get_their_turn(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        limits = [RateLimit(q, "api", rate=200, burst=2) for q in (one, other)]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(20):
            await asyncio.gather(*(limits[at % 2].take() for at in range(12)))
        # Ten had to flow back; clocks of one machine agree.
        assert loop.time() - begun >= 10 / 200 - 0.005


async def test_what_makes_no_sense_is_refused(q: Connection) -> None:
    for rate, burst in ((0, 1), (-1, 1), (float("inf"), 1), (1, 0.5), (float("nan"), 1)):
        with pytest.raises(quoracy.InvalidRequest, match="rate"):
            RateLimit(q, "api", rate=rate, burst=burst)
    limit = RateLimit(q, "api", rate=1, burst=2)
    for n in (0, -1, 3, float("nan")):
        with pytest.raises(quoracy.InvalidRequest, match="burst"):
            await limit.take(n)
        with pytest.raises(quoracy.InvalidRequest, match="burst"):
            await limit.try_take(n)


# -- on the test's own time ------------------------------------------------------------------------


async def test_taker_cancelled_anywhere_gives_back_what_it_reserved(timed: Place) -> None:
    async with timed.connect() as q:
        limit = RateLimit(q, "api", rate=1, burst=2)
        await limit.take(2)

        async def reserve() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):  # of real time: the clock of the limit stands still
                    await limit.take(2)

        points = 0
        async for _ in cancelled_everywhere(reserve):
            points += 1
            await turns()
            assert await limit.free() == 0
        assert points > 2


async def test_takers_are_served_at_their_rate_and_in_their_order(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as one, timed.connect() as other:
        served: list[tuple[float, int]] = []

        async def work(number: int) -> None:
            q = (one, other)[number % 2]
            await RateLimit(q, "api", rate=2, burst=2).take()
            served.append((clock.now(), number))

        begun = clock.now()
        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(work(number)))
            await turns()
        await clock.advance(10)
        await asyncio.gather(*tasks)
        assert [number for _, number in served] == list(range(6))
        assert [at - begun for at, _ in served] == pytest.approx([0, 0, 0.5, 1.0, 1.5, 2.0])


async def test_timeout_is_told_as_soon_as_it_is_known_and_takes_nothing(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as q:
        limit = RateLimit(q, "api", rate=1, burst=3)
        await limit.take(3)
        with pytest.raises(quoracy.TimedOut):
            await limit.take(2, timeout=1.5)
        assert await limit.free() == 0
        taking = asyncio.create_task(limit.take(2, timeout=2))
        await clock.advance(1.9)
        assert not taking.done()
        await clock.advance(0.2)
        await taking


async def test_demand_far_beyond_the_rate_is_served_in_the_end(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as one, timed.connect() as other:
        limits = [RateLimit(q, "api", rate=1, burst=1) for q in (one, other)]
        begun, served = clock.now(), []

        async def work(number: int) -> None:
            await limits[number % 2].take()
            served.append(clock.now() - begun)

        tasks = [asyncio.create_task(work(number)) for number in range(30)]
        await turns(200)
        assert await limits[0].free() >= -AHEAD_S_MAX  # nobody reserves more than that
        for _ in range(800):
            await clock.advance(0.1)
        await asyncio.gather(*tasks)
        assert all(later - earlier >= 1 - 1e-6 for earlier, later in pairwise(served))


async def test_cancelled_reservation_that_others_count_on_is_not_given_back(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as q:
        limit = RateLimit(q, "api", rate=1, burst=1)
        begun = clock.now()
        await limit.take()
        second, third = (asyncio.create_task(limit.take()) for _ in range(2))
        await turns()
        assert await limit.free() == -2
        second.cancel()
        await turns()
        assert await limit.free() == -2
        third.cancel()
        await turns()
        assert await limit.free() == -1
        last = asyncio.create_task(limit.take())
        await turns()
        while not last.done():
            await clock.advance(0.1)
        assert clock.now() - begun == pytest.approx(2, abs=0.11)


async def test_clock_far_ahead_locks_nobody_out(timed: Place, clock: ManualClock) -> None:
    astray = ManualClock(wall=clock.wall() + 1e8)
    async with timed.connect() as one, timed.connect(clock=astray) as other:
        assert await RateLimit(other, "api", rate=1, burst=4).try_take(4)
        limit = RateLimit(one, "api", rate=1, burst=4)
        assert not await limit.try_take()
        await clock.advance(1)
        assert await limit.try_take()  # one has flowed back, as it could witness
        assert not await limit.try_take()
        taking = asyncio.create_task(limit.take(4))
        await clock.advance(4.1)
        await taking


async def test_clock_that_jumps_ahead_gives_its_owner_nothing(timed: Place, clock: ManualClock) -> None:
    async with timed.connect() as q:
        limit = RateLimit(q, "api", rate=1, burst=4)
        await limit.take(4)
        clock.set_wall(clock.wall() + 3600)
        assert not await limit.try_take()
        clock.set_wall(clock.wall() - 7200)
        await clock.advance(1)
        assert await limit.try_take()
        assert not await limit.try_take()


async def test_new_process_with_a_clock_ahead_gets_one_burst_at_most(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as q, AsyncExitStack() as stack:
        await RateLimit(q, "api", rate=1, burst=4).take(4)
        got = 0
        for _ in range(3):
            astray = ManualClock(wall=clock.wall() + 3600)
            other = await stack.enter_async_context(timed.connect(clock=astray))
            limit = RateLimit(other, "api", rate=1, burst=4)
            while await limit.try_take():
                got += 1
        assert got == 4


async def test_unknown_outcome_is_told_and_admits_nobody(timed: Place, clock: ManualClock) -> None:
    store = Unreliable(timed.store)
    async with quoracy.connect(store, clock=clock) as q:  # type: ignore[arg-type]
        limit = RateLimit(q, "api", rate=1, burst=2)
        store.loses = True
        with pytest.raises(quoracy.Indeterminate):
            await limit.take()
        with pytest.raises(quoracy.Indeterminate):
            await limit.try_take()
        store.loses = False
        assert await limit.free() >= 0
        assert len(await contents(timed.store)) == 1


@settings(max_examples=examples(30), deadline=None)
@given(
    rate=st.sampled_from([0.5, 2.0, 10.0]),
    burst=st.sampled_from([1, 3]),
    takes=st.lists(
        st.tuples(st.integers(0, 2), st.floats(0, 1), st.sampled_from([None, 0, 0.7])), max_size=20
    ),
)
async def test_any_schedule_keeps_to_the_limit(
    rate: float, burst: int, takes: list[tuple[int, float, float | None]]
) -> None:
    clock = ManualClock()
    async with quoracy.open_store("memory:", clock=clock) as store, AsyncExitStack() as stack:
        limits = []
        for _ in range(3):
            q = await stack.enter_async_context(quoracy.connect(store, clock=clock))
            limits.append(RateLimit(q, "api", rate=rate, burst=burst))
        granted: list[float] = []

        async def take(who: int, timeout: float | None) -> None:
            asked = clock.now()
            try:
                await limits[who].take(timeout=timeout)
            except quoracy.TimedOut:
                assert timeout is not None
                return
            assert timeout is None or clock.now() <= asked + timeout + 1e-6
            granted.append(clock.now())

        tasks = []
        for who, pause_s, timeout in takes:
            tasks.append(asyncio.create_task(take(who, timeout)))
            await turns()  # a grant counts from the moment it is asked for: let it arrive
            await clock.advance(pause_s)
        while not all(task.done() for task in tasks):
            await turns()
            await clock.advance(0.05)
        await asyncio.gather(*tasks)
        for first, start in enumerate(granted):
            for count, end in enumerate(granted[first:], 1):
                # Seconds since 1970 in a float are exact to a quarter of a microsecond.
                assert count <= rate * (end - start + 1e-6) + burst
        assert len(granted) >= sum(timeout is None for _, _, timeout in takes)
