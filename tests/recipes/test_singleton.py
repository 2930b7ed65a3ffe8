"""Singleton: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
import functools
import itertools
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.recipes.singleton import Singleton
from quoracy.clock import ManualClock
from quoracy.fencing import MemoryGate
from tests.support.asking import eventually, turns, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples


async def nothing_left(place: Place) -> bool:
    return not (await place.store.range(place.corner, keys_only=True)).kvs


async def lose_session(q: quoracy.Connection) -> None:
    session = await q.session()
    await q.store.revoke(session.id)
    session.lease_not_found()  # sooner or later the server tells


async def test_one_runs_at_a_time_with_growing_tokens(place: Place) -> None:
    tokens: list[int] = []
    running = 0

    async def work(term: quoracy.Term) -> int:
        nonlocal running
        running += 1
        assert running == 1
        tokens.append(term.token)
        await asyncio.sleep(0.002)
        term.check()
        running -= 1
        return term.token

    async def process() -> list[int]:
        async with place.connect() as q:
            return [await Singleton(q, "w").run(work) for _ in range(3)]

    results = await asyncio.gather(*(process() for _ in range(3)))
    assert tokens == sorted(set(tokens)) == sorted(itertools.chain(*results))
    assert len(tokens) == 9
    assert await nothing_left(place)


async def test_work_moves_on_loss_and_its_process_stands_again(place: Place) -> None:
    async with place.connect(identity="one") as one, place.connect(identity="two") as two:
        runs: list[tuple[str, int]] = []
        cancelled: list[str] = []
        news = asyncio.Event()

        async def work(name: str, term: quoracy.Term) -> None:
            runs.append((name, term.token))
            news.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(name)
                raise

        async def until_runs(count: int) -> None:
            async with asyncio.timeout(20):
                while len(runs) < count:
                    news.clear()
                    await news.wait()

        first = asyncio.create_task(Singleton(one, "w").run(functools.partial(work, "one")))
        await until_runs(1)
        second = asyncio.create_task(Singleton(two, "w").run(functools.partial(work, "two")))

        async def both() -> bool:
            return len(await one.election("w").candidates()) == 2

        await eventually(both)
        runner = await Singleton(two, "w").runner()
        assert runner is not None
        assert (runner.value, runner.token) == runs[0]
        await lose_session(one)
        await until_runs(2)
        await eventually(both)  # the one that lost stands again
        await lose_session(two)
        await until_runs(3)
        assert [name for name, _ in runs] == ["one", "two", "one"]
        await until(lambda: cancelled == ["one", "two"])
        assert runs == sorted(runs, key=lambda run: run[1])
        for task in (first, second):
            task.cancel()
        await asyncio.wait([first, second])
        await eventually(
            lambda: nothing_left(place)
        )  # a place in a queue is given up in the background


async def test_run_that_was_overtaken_is_refused_by_its_token(timed: Place) -> None:
    gate = MemoryGate()
    async with timed.connect() as one, timed.connect() as two:
        began, proceed = asyncio.Event(), asyncio.Event()
        refused: list[quoracy.StaleToken] = []

        async def stubborn(term: quoracy.Term) -> None:
            """Goes on although it was cancelled."""
            began.set()
            try:
                await proceed.wait()
            except asyncio.CancelledError:
                await proceed.wait()
                try:
                    await gate.admit("r", term.token)
                except quoracy.StaleToken as error:
                    refused.append(error)
                raise

        async def quick(term: quoracy.Term) -> int:
            await gate.admit("r", term.token)
            return term.token

        slow = asyncio.create_task(Singleton(one, "w").run(stubborn))
        await began.wait()
        await lose_session(one)
        token = await Singleton(two, "w").run(quick)
        proceed.set()
        await asyncio.wait_for(asyncio.shield(slow), 20)
        assert [error.highest for error in refused] == [token]


async def test_result_that_comes_after_the_loss_does_not_count(q: quoracy.Connection) -> None:
    runs: list[int] = []

    @Singleton(q, "w")
    async def work(term: quoracy.Term) -> int:
        runs.append(term.token)
        if len(runs) == 1:
            await lose_session(q)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return 0  # swallowed
        return term.token

    assert await asyncio.wait_for(work(), 30) == runs[1] > runs[0]


async def test_exception_is_raised_after_stepping_down(place: Place, q: quoracy.Connection) -> None:
    async def fails() -> None:
        raise LookupError("a mistake")

    async def loses_something_else() -> None:
        raise quoracy.LockLost("a lock of its own")

    with pytest.raises(LookupError, match="a mistake"):
        await Singleton(q, "w").run(fails)
    with pytest.raises(quoracy.LockLost, match="of its own"):
        await Singleton(q, "w", restart=True).run(loses_something_else)
    assert await nothing_left(place)


async def test_restart_waits_longer_each_time(
    timed: Place, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []
    long_run_at = 6

    async def work() -> str:
        starts.append(clock.now())
        if len(starts) == long_run_at:
            await clock.sleep(100)
        if len(starts) == 8:
            return "done"
        raise LookupError("a mistake")

    async with timed.connect(session_ttl=10_000) as q, timed.connect(session_ttl=10_000) as other:
        singleton = Singleton(q, "w", restart=True, restart_first=1, restart_max=8)
        running = asyncio.create_task(singleton.run(work))
        await turns()
        assert await Singleton(other, "w").run(answer, timeout=0) == 42  # it has stepped down meanwhile
        while not running.done():
            await clock.advance(0.25)
        assert await running == "done"
    pauses = [later - before for before, later in itertools.pairwise(starts)]
    for pause, most in zip(pauses[:5], (1, 2, 4, 8, 8), strict=True):
        assert most / 2 <= pause <= most + 0.5
    assert 100.5 <= pauses[5] <= 101.5  # it ran for long: the pauses begin anew
    assert 1 <= pauses[6] <= 2.5
    assert caplog.text.count("w failed") == 7


async def answer() -> int:
    return 42


async def test_waiting_for_the_turn_takes_a_timeout(place: Place, q: quoracy.Connection) -> None:
    async def work() -> None:
        with pytest.raises(quoracy.TimedOut):
            await Singleton(q, "w").run(answer, timeout=0.02)
        with pytest.raises(quoracy.TimedOut):
            await Singleton(q, "w", restart=True).run(answer, timeout=0)

    await Singleton(q, "w").run(work)
    assert await Singleton(q, "w").run(answer, timeout=0) == 42
    assert await nothing_left(place)


async def test_work_takes_the_term_or_nothing(timed: Place) -> None:
    async with timed.connect() as q:
        singleton = Singleton(q, "w")

        async def with_default(number: int = 7) -> int:
            return number

        async def two(term: quoracy.Term, number: int) -> int:
            return number

        async def keyword(*, number: int) -> int:
            return number

        assert await singleton.run(with_default) == 7
        assert await singleton(with_default)() == 7
        assert await singleton.run(functools.partial(two, number=8)) == 8
        assert singleton(answer).__name__ == "answer"
        for wrong in (two, keyword):
            with pytest.raises(quoracy.InvalidRequest, match="takes the term, or nothing"):
                singleton(wrong)  # type: ignore[arg-type]
        with pytest.raises(quoracy.InvalidRequest, match="restart_first"):
            Singleton(q, "w", restart_first=0)


async def test_cancelled_anywhere_nothing_is_left(timed: Place) -> None:
    async with timed.connect() as q, timed.connect() as other:

        async def work() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            await other.store.put(b"x")

        async def use() -> None:
            await Singleton(q, "w").run(work)

        async for attempt in cancelled_everywhere(use):
            assert not attempt.swallowed
            await eventually(lambda: nothing_left(timed))
            await turns()
            assert not q._tasks


async def test_closed_connection_ends_it(timed: Place) -> None:
    async with timed.connect() as holder, holder.lock("w"):
        async with timed.connect() as q:
            waiting = asyncio.create_task(Singleton(q, "w", restart=True).run(answer))
            await turns()
        with pytest.raises(quoracy.QuoracyError):
            await asyncio.wait_for(waiting, 20)


# -- any schedule ----------------------------------------------------------------------------------

STEPS = st.tuples(st.sampled_from(["start", "return", "raise", "lose", "cancel"]), st.integers(0, 2))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(STEPS, max_size=15))
def test_the_first_in_line_runs_and_nobody_else(schedule: list[tuple[str, int]]) -> None:
    """Three processes against a plain queue: who returns, raises or is cancelled is out of it, and who
    loses its session is at its end.
    """

    async def run() -> None:
        async with quoracy.open_store("memory:") as store, AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(quoracy.connect(store)) for _ in range(3)]
            line: list[int] = []
            tasks: dict[int, asyncio.Task[str]] = {}
            running: dict[int, asyncio.Future[str]] = {}
            tokens: list[int] = []

            async def work(at: int, term: quoracy.Term) -> str:
                assert not running
                tokens.append(term.token)
                running[at] = asyncio.get_running_loop().create_future()
                try:
                    return await running[at]
                finally:
                    del running[at]

            async def joined(count: int) -> bool:
                return len(await connections[0].election("w").candidates()) == count

            for kind, at in schedule:
                if kind == "start" and at not in line:
                    singleton = Singleton(connections[at], "w")
                    tasks[at] = asyncio.create_task(singleton.run(functools.partial(work, at)))
                    line.append(at)
                elif kind == "return" and at in running:
                    running[at].set_result("done")
                    assert await tasks.pop(at) == "done"
                    line.remove(at)
                elif kind == "raise" and at in running:
                    running[at].set_exception(LookupError("a mistake"))
                    with pytest.raises(LookupError):
                        await tasks.pop(at)
                    line.remove(at)
                elif kind == "lose" and at in line:
                    session = await connections[at].session()
                    session.lease_not_found()  # here first, as with a session that ran out
                    await turns(5)
                    await store.revoke(session.id)
                    line.remove(at)
                    line.append(at)
                elif kind == "cancel" and at in line:
                    tasks[at].cancel()
                    await asyncio.wait([tasks.pop(at)])
                    line.remove(at)
                await until(lambda: list(running) == line[:1])
                await eventually(lambda: joined(len(line)))
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            assert tokens == sorted(set(tokens))

    asyncio.run(run())
