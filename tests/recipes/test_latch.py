"""CountDownLatch: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.connection import Connection
from quoracy.client.recipes.latch import CountDownLatch
from tests.support.asking import contents, turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.meddling import Meddling
from tests.support.places import Place
from tests.support.profiles import examples
from tests.support.unreliable_store import Unreliable


async def test_it_opens_at_zero_and_stays_there(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        latch = CountDownLatch(one, "ready", 3)
        waiting = asyncio.create_task(CountDownLatch(other, "ready", 3).wait())
        assert await latch.count_down() == 2
        assert await CountDownLatch(other, "ready").count_down() == 1  # it is set: no need to know
        assert await latch.remaining() == 1
        with pytest.raises(quoracy.TimedOut):
            await latch.wait(timeout=0.05)
        with pytest.raises(quoracy.TimedOut):
            await latch.wait(timeout=0)
        assert not waiting.done()
        assert await latch.count_down() == 0
        async with asyncio.timeout(20):
            await waiting
        await latch.wait(timeout=0)
        assert await latch.count_down() == 0  # never below, never up again


async def test_every_count_of_many_at_once_counts(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        latches = [CountDownLatch(q, "ready", 20) for q in (one, other)]
        counts = await asyncio.gather(*(latches[at % 2].count_down() for at in range(20)))
        assert sorted(counts) == list(range(20))
        await latches[0].wait(timeout=0)


async def test_one_caller_counts_once(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        latch = CountDownLatch(one, "ready", 3)
        assert [await latch.count_down(by="ann"), await latch.count_down(by="ann")] == [2, 2]
        again = await asyncio.gather(
            *(CountDownLatch(q, "ready", 3).count_down(by="bob") for q in (one, other, one, other))
        )
        assert set(again) == {1}
        assert await latch.remaining() == 1


async def test_one_caller_counts_once_also_between_two_looks(timed: Place) -> None:
    meddling = Meddling(timed.store)
    async with (
        quoracy.connect(meddling.as_store, clock=timed.clock, namespace=timed.namespace) as one,
        timed.connect() as other,
    ):
        asked = 0

        async def count_first(_: object) -> None:
            nonlocal asked
            asked += 1
            if asked == 2:  # it has looked whether ann has counted, and looks at the count next
                await CountDownLatch(other, "ready", 3).count_down(by="ann")

        meddling.before_range = count_first
        assert await CountDownLatch(one, "ready", 3).count_down(by="ann") == 2


async def test_count_is_set_once(q: Connection) -> None:
    assert await CountDownLatch(q, "ready", 3).set()
    assert not await CountDownLatch(q, "ready", 3).set()
    for refused in (
        CountDownLatch(q, "ready", 4).set(),
        CountDownLatch(q, "ready", 4).count_down(),
        CountDownLatch(q, "ready", 4).wait(timeout=1),
    ):
        with pytest.raises(quoracy.InvalidRequest, match="same count"):
            await refused
    assert await CountDownLatch(q, "ready").remaining() == 3


async def test_nobody_can_count_what_was_not_set(q: Connection) -> None:
    with pytest.raises(quoracy.InvalidRequest, match="not known"):
        await CountDownLatch(q, "ready").count_down()
    with pytest.raises(quoracy.InvalidRequest, match="not known"):
        await CountDownLatch(q, "ready").set()
    with pytest.raises(quoracy.InvalidRequest, match="1 or more"):
        CountDownLatch(q, "ready", 0)
    with pytest.raises(quoracy.InvalidRequest, match="1 or more"):
        await CountDownLatch(q, "ready", 2).count_down(0)


async def test_reset_begins_anew_and_who_waited_passes_all_the_same(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        latch = CountDownLatch(one, "ready", 1)
        waiting = asyncio.create_task(CountDownLatch(other, "ready", 1).wait())
        with pytest.raises(quoracy.TimedOut):
            await CountDownLatch(other, "ready", 1).wait(timeout=0.05)
        await latch.count_down(by="ann")
        await latch.reset()
        async with asyncio.timeout(20):
            await waiting
        assert await contents(place.store, place.corner) == {}
        assert await CountDownLatch(one, "ready", 5).count_down(by="ann") == 4


async def test_lost_answer_is_told_and_a_named_count_can_be_repeated(timed: Place) -> None:
    store = Unreliable(timed.store)
    async with quoracy.connect(store, clock=timed.clock) as q:  # type: ignore[arg-type]
        latch = CountDownLatch(q, "ready", 3)
        store.loses = True
        with pytest.raises(quoracy.Indeterminate):
            await latch.count_down(by="ann")
        store.loses = False
        assert await latch.count_down(by="ann") == 2


async def test_cancelled_anywhere_a_named_count_counts_once(place: Place) -> None:
    async with place.connect() as q:
        latch = CountDownLatch(q, "ready", 3)

        async def count() -> None:
            await latch.count_down(by="ann")

        async for _ in cancelled_everywhere(count):
            await turns()
        assert await latch.count_down(by="ann") == 2


@settings(max_examples=examples(30), deadline=None)
@given(
    total=st.integers(1, 6),
    calls=st.lists(
        st.tuples(st.integers(1, 3), st.none() | st.sampled_from(["ann", "bob"])), max_size=10
    ),
)
async def test_any_calls_at_once_leave_what_a_plain_count_would(
    total: int, calls: list[tuple[int, str | None]]
) -> None:
    async with quoracy.connect("memory:") as q:
        latch = CountDownLatch(q, "ready", total)
        # What counts of one caller is whichever came first: let all of one caller be the same.
        calls = [(1 if by else n, by) for n, by in calls]
        await asyncio.gather(*(latch.count_down(n, by=by) for n, by in calls))
        counted = sum(n for n, by in calls if by is None) + len({by for _, by in calls if by})
        assert await latch.remaining() == max(0, total - counted)
