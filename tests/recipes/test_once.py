"""Once: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.connection import Connection
from quoracy.client.recipes.lock import Lock
from quoracy.client.recipes.once import Once
from quoracy.clock import ManualClock
from tests.support.asking import contents, eventually, turns, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.meddling import Meddling
from tests.support.places import Place
from tests.support.profiles import examples
from tests.support.unreliable_store import Unreliable


class Report(msgspec.Struct):
    rows: int


class Step:
    """A step that counts how often it is begun, and ends when it is let."""

    def __init__(self, *, waits: bool = False) -> None:
        self.begun = 0
        self.running = asyncio.Event()
        self.go = asyncio.Event()
        if not waits:
            self.go.set()

    async def __call__(self) -> Report:
        self.begun += 1
        self.running.set()
        await self.go.wait()
        return Report(self.begun)


async def test_step_runs_once_and_its_result_is_remembered(place: Place) -> None:
    step = Step()
    async with place.connect() as q:
        once = Once(q, "migrate", Report)
        assert (await once.is_done(), await once.result()) == (False, None)
        assert await once.run(step) == Report(1)
    async with place.connect() as q:  # another process, later
        once = Once(q, "migrate", Report)
        assert await once.run(step) == Report(1)
        assert await once.run(step, timeout=0) == Report(1)
        assert (await once.is_done(), await once.result()) == (True, Report(1))
    assert step.begun == 1
    assert list(await contents(place.store, place.corner)) == [place.key("migrate") + b"/result"]


async def test_who_calls_meanwhile_waits_for_the_result(place: Place) -> None:
    step = Step(waits=True)
    async with place.connect() as one, place.connect() as other:
        running = asyncio.create_task(Once(one, "migrate", Report).run(step))
        await step.running.wait()
        waiting = [
            asyncio.create_task(Once(q, "migrate", Report).run(step)) for q in (one, other, other)
        ]
        with pytest.raises(quoracy.TimedOut):
            await Once(other, "migrate", Report).run(step, timeout=0.05)
        with pytest.raises(quoracy.TimedOut):
            await Once(other, "migrate", Report).run(step, timeout=0)
        step.go.set()
        async with asyncio.timeout(20):
            assert await asyncio.gather(running, *waiting) == [Report(1)] * 4
        assert step.begun == 1

        async def only_the_result() -> bool:
            return len(await contents(place.store, place.corner)) == 1

        await eventually(only_the_result)


async def test_step_that_raises_is_not_remembered_and_the_next_may_try(place: Place) -> None:
    failing, begun = asyncio.Event(), asyncio.Event()

    async def fail() -> Report:
        begun.set()
        await failing.wait()
        raise ZeroDivisionError

    step = Step()
    async with place.connect() as one, place.connect() as other:
        first = asyncio.create_task(Once(one, "migrate", Report).run(fail))
        await begun.wait()
        second = asyncio.create_task(Once(other, "migrate", Report).run(step))
        await asyncio.sleep(0)
        failing.set()
        async with asyncio.timeout(20):
            with pytest.raises(ZeroDivisionError):
                await first
            assert await second == Report(1)


async def test_runner_that_dies_lets_another_try_with_a_larger_token(place: Place) -> None:
    tokens: list[int] = []

    async def hang(token: int) -> Report:
        tokens.append(token)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def finish(token: int) -> Report:
        tokens.append(token)
        return Report(7)

    async with place.connect() as one, place.connect() as other:
        first = asyncio.create_task(Once(one, "migrate", Report).run_fenced(hang))
        await until(lambda: bool(tokens))
        second = asyncio.create_task(Once(other, "migrate", Report).run_fenced(finish))
        session = await one.session()
        await place.store.revoke(session.id)
        session.lease_not_found()
        async with asyncio.timeout(20):
            with pytest.raises(quoracy.LockLost):
                await first
            assert await second == Report(7)
    assert tokens[0] < tokens[1]


async def test_stale_runner_records_nothing(place: Place) -> None:
    async with place.connect() as one:
        step = Step(waits=True)
        running = asyncio.create_task(Once(one, "migrate", Report).run(step))
        await step.running.wait()
        await place.store.delete((await Lock(one, "migrate/run").contenders())[0].key)
        step.go.set()  # it may end its step before it hears of it
        async with asyncio.timeout(20):
            with pytest.raises(quoracy.LockLost):
                await running
        assert not await Once(one, "migrate", Report).is_done()


async def test_result_recorded_before_our_turn_came_is_found_although_nobody_told(
    timed: Place,
) -> None:
    meddling = Meddling(timed.store)
    step = Step(waits=True)
    async with (
        timed.connect() as one,
        quoracy.connect(meddling.as_store, clock=timed.clock, namespace=timed.namespace) as other,
    ):
        first = asyncio.create_task(Once(one, "migrate", Report).run(step))
        await step.running.wait()
        asked = 0

        async def deaf(_: object) -> None:
            nonlocal asked
            asked += 1
            if asked == 2:  # whoever listens for the result hears nothing
                await asyncio.get_running_loop().create_future()

        meddling.before_range = deaf
        second = asyncio.create_task(Once(other, "migrate", Report).run(step))
        await turns()
        step.go.set()
        async with asyncio.timeout(20):
            assert (await first, await second) == (Report(1), Report(1))
    assert (step.begun, asked) == (1, 3)


async def test_result_ends_the_wait_whoever_holds_the_lock(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        async with Lock(one, "migrate/run"):
            waiting = asyncio.create_task(Once(other, "migrate", int).run(Step()))  # type: ignore[arg-type]
            await asyncio.sleep(0.02)
            await place.store.put(place.key("migrate/result"), b"7")
            async with asyncio.timeout(20):
                assert await waiting == 7


async def test_result_of_another_type_is_not_recorded(q: Connection) -> None:
    async def wrong() -> int:
        return "seven"  # type: ignore[return-value]

    with pytest.raises(quoracy.ValueUnreadable):
        await Once(q, "migrate", int).run(wrong)

    async def unstorable() -> bytes:
        return 7  # type: ignore[return-value]

    with pytest.raises(quoracy.InvalidRequest):
        await Once(q, "migrate", bytes).run(unstorable)
    assert not await Once(q, "migrate", int).is_done()


async def test_step_without_a_result_is_remembered_too(q: Connection) -> None:
    ran = 0

    async def step() -> None:
        nonlocal ran
        ran += 1

    for _ in range(2):
        await Once(q, "migrate", type(None)).run(step)
    assert ran == 1
    assert await Once(q, "migrate", type(None)).forget()
    assert not await Once(q, "migrate", type(None)).forget()
    await Once(q, "migrate", type(None)).run(step)
    assert ran == 2


async def test_unknown_outcome_is_told_and_asking_again_gives_the_result(
    timed: Place, clock: ManualClock
) -> None:
    store = Unreliable(timed.store)
    async with quoracy.connect(store, clock=clock) as q:  # type: ignore[arg-type]

        async def step() -> int:
            store.loses = True
            return 7

        with pytest.raises(quoracy.Indeterminate):
            await Once(q, "migrate", int).run(step)
        store.loses = False
        assert await Once(q, "migrate", int).run(step, timeout=5) == 7


async def test_cancelled_anywhere_nothing_is_left_and_the_step_can_be_run(place: Place) -> None:
    async with place.connect() as q:
        once = Once(q, "migrate", Report)

        async def use() -> None:
            await once.run(Step())

        async def nothing_but_the_result() -> bool:
            keys = set(await contents(place.store, place.corner))
            return keys <= {place.key("migrate") + b"/result"}

        async for attempt in cancelled_everywhere(use):
            await eventually(nothing_but_the_result)
            if not attempt.completed:
                await once.forget()
        assert not [t for t in asyncio.all_tasks() if t.get_name() == "quoracy-once"]


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from(["fails", "cancelled", "works", "lost"]), min_size=1, max_size=6))
async def test_any_schedule_of_runners_records_one_result(fates: list[str]) -> None:
    async with quoracy.open_store("memory:") as store:
        done: list[int] = []
        busy = 0

        async def one(number: int, fate: str) -> int | None:
            async def step() -> int:
                nonlocal busy
                busy += 1
                assert busy == 1, "two steps at once"
                try:
                    await asyncio.sleep(0)
                    if fate == "fails":
                        raise ZeroDivisionError
                    if fate == "cancelled":
                        asyncio.current_task().cancel()  # type: ignore[union-attr]
                        await asyncio.sleep(0)
                    if fate == "lost":
                        await store.revoke((await q.session()).id)
                        (await q.session()).lease_not_found()
                        await asyncio.get_running_loop().create_future()
                finally:
                    busy -= 1
                done.append(number)
                return number

            async with quoracy.connect(store) as q:
                try:
                    return await Once(q, "o", int).run(step)
                except (ZeroDivisionError, asyncio.CancelledError, quoracy.LockLost):
                    return None

        tasks = [asyncio.create_task(one(n, fate)) for n, fate in enumerate(fates)]
        async with asyncio.timeout(20):
            results = await asyncio.gather(*tasks)
        assert len(done) == (1 if "works" in fates else 0)
        assert {result for result in results if result is not None} == set(done)
