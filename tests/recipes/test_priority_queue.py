"""PriorityQueue: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.recipes.priority_queue import PriorityQueue
from tests.support.asking import eventually
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples


@pytest.fixture
async def here() -> AsyncIterator[quoracy.Connection]:
    """Where the kind of store makes no difference."""
    async with quoracy.connect("memory:") as connection:
        yield connection


async def drained(queue: PriorityQueue[str]) -> list[str]:
    items = []
    while (item := await queue.try_get()) is not None:
        items.append(item)
    return items


async def test_most_urgent_first_and_in_order_among_equals(q: quoracy.Connection) -> None:
    queue = q.priority_queue("a", str)
    for item, priority in (("c", 5), ("a", -2), ("d", 5), ("b", 0), ("e", 2**62), ("first", -(2**63))):
        await queue.put(item, priority=priority)
    await queue.put_many(["f", "g"], priority=5)
    assert await queue.size() == 8
    assert await queue.peek() == "first"
    assert await drained(queue) == ["first", "a", "b", "c", "d", "f", "g", "e"]
    assert (await queue.peek(), await queue.size()) == (None, 0)


async def test_more_urgent_item_overtakes_what_a_consumer_has_seen(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        consumer, producer = one.priority_queue("a", str), other.priority_queue("a", str)
        await producer.put_many(["x", "y", "z"], priority=3)
        assert await consumer.get() == "x"  # and it knows y and z
        await producer.put("urgent", priority=2)
        await producer.put("later", priority=4)
        assert await consumer.get() == "urgent"
        assert await drained(consumer) == ["y", "z", "later"]


async def test_order_within_a_priority_is_that_of_commits(place: Place) -> None:
    puts: list[tuple[int, int, list[str]]] = []
    names = map(str, itertools.count())
    async with place.connect() as one, place.connect() as other:

        async def produce(q: quoracy.Connection, priority: int) -> None:
            queue = q.priority_queue("a", str)
            for count in (1, 40, 1, 20):
                batch = [next(names) for _ in range(count)]
                puts.append((priority, await queue.put_many(batch, priority=priority), batch))

        await asyncio.gather(*(produce(q, priority) for q in (one, other) for priority in (1, 2)))
        expected = [item for _, _, batch in sorted(puts) for item in batch]
        assert await drained(one.priority_queue("a", str)) == expected


async def test_waiting_consumers_get_each_item_once(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        queues = [one.priority_queue("a", str), other.priority_queue("a", str)]
        waiting = [asyncio.create_task(queues[at % 2].get(timeout=60)) for at in range(6)]
        for number in range(6):
            await queues[0].put(str(number), priority=number % 2)
        assert sorted(await asyncio.gather(*waiting)) == list("012345")
        with pytest.raises(quoracy.TimedOut):
            await queues[0].get(timeout=0)
        with pytest.raises(quoracy.TimedOut):
            await queues[0].get(timeout=0.01)


async def test_priority_out_of_range_is_refused(here: quoracy.Connection) -> None:
    queue = here.priority_queue("a", str)
    for priority in (2**63, -(2**63) - 1):
        with pytest.raises(quoracy.InvalidRequest, match="64 bits"):
            await queue.put("x", priority=priority)
    assert await queue.size() == 0


async def test_cancelled_get_loses_nothing_and_keeps_the_order(place: Place) -> None:
    async with place.connect() as q:
        queue = q.priority_queue("a", str)
        await queue.put_many(["b", "c"], priority=1)
        await queue.put("d", priority=2)
        await queue.put("a", priority=0)
        seen: list[str] = []

        async def get() -> None:
            seen.append(await queue.get(timeout=20))

        async for attempt in cancelled_everywhere(get):
            if attempt.completed:
                break

            async def all_back() -> bool:
                return await queue.size() == 4

            await eventually(all_back)
        assert seen == ["a"]
        assert await drained(queue) == ["b", "c", "d"]


@settings(max_examples=examples(40), deadline=None)
@given(
    steps=st.lists(st.one_of(st.none(), st.tuples(st.integers(-2, 2), st.integers(1, 3))), max_size=40)
)
def test_any_sequence_behaves_like_a_heap(steps: list[tuple[int, int] | None]) -> None:
    """Puts through one connection, gets in turns through two: against the naive model."""
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[int, int] | None]) -> None:
    async with (
        quoracy.open_store("memory:") as store,
        quoracy.connect(store) as one,
        quoracy.connect(store) as other,
    ):
        producer, model = one.priority_queue("a", int), list[tuple[int, int]]()
        consumers = itertools.cycle([one.priority_queue("a", int), other.priority_queue("a", int)])
        numbers = itertools.count()
        for step in steps:
            if step is None:
                expected = heapq.heappop(model)[1] if model else None
                assert await next(consumers).try_get() == expected
            else:
                priority, count = step
                batch = [next(numbers) for _ in range(count)]
                await producer.put_many(batch, priority=priority)
                for number in batch:
                    heapq.heappush(model, (priority, number))
