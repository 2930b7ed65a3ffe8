"""Queue: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.in_flight import Outcome
from quoracy.client.queue_items import PUT_MANY_MAX, Window
from quoracy.client.recipes.queue import Queue
from quoracy.clock import ManualClock
from quoracy.store.model import KeyRange, Txn
from tests.support.asking import eventually, turns, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples


class Parcel(msgspec.Struct, frozen=True):
    number: int
    to: str


@pytest.fixture
async def here() -> AsyncIterator[quoracy.Connection]:
    """Where the kind of store makes no difference."""
    async with quoracy.connect("memory:") as connection:
        yield connection


async def drained(queue: Queue[int]) -> list[int]:
    items = []
    while (item := await queue.try_get()) is not None:
        items.append(item)
    return items


async def test_items_come_out_in_the_order_they_were_put(q: quoracy.Connection) -> None:
    queue = q.queue("a", int)
    for number in range(5):
        await queue.put(number)
    await queue.put_many(range(5, 12))
    assert await queue.size() == 12
    assert await queue.peek() == 0
    assert [await queue.get(timeout=5) for _ in range(6)] == list(range(6))
    assert await queue.try_get() == 6
    assert await drained(queue) == list(range(7, 12))
    assert (await queue.peek(), await queue.try_get(), await queue.size()) == (None, None, 0)


async def test_order_is_that_of_commits_over_all_producers(place: Place) -> None:
    """Also across buckets, and for batches: a batch stays together and in order."""
    puts: list[tuple[int, list[int]]] = []
    numbers = iter(range(10_000))
    async with place.connect() as one, place.connect() as other, place.connect() as reader:

        async def produce(q: quoracy.Connection, seed: int) -> None:
            rng = random.Random(seed)
            queue = q.queue("a", int)
            for _ in range(12):
                batch = [next(numbers) for _ in range(rng.choice((1, 1, 1, 3, 40)))]
                puts.append((await queue.put_many(batch), batch))

        await asyncio.gather(*(produce(q, seed) for seed, q in enumerate((one, one, other, other))))
        buckets = {
            kv.key.rpartition(b"/")[0]
            for kv in (await place.store.range(KeyRange.prefix(place.key("a/items/")))).kvs
        }
        assert len(buckets) > 1
        expected = [number for _, batch in sorted(puts) for number in batch]
        assert await drained(reader.queue("a", int)) == expected


async def test_many_consumers_get_every_item_once(place: Place) -> None:
    count = 120
    got: list[int] = []
    async with place.connect() as one, place.connect() as two, place.connect() as three:
        first = one.queue("a", int)

        async def consume(q: quoracy.Connection) -> None:
            mine: list[int] = []
            async for item in q.queue("a", int):
                if item < 0:
                    break
                mine.append(item)
                got.append(item)
            # Each consumer sees the order of the queue.
            assert mine == sorted(mine)

        consumers = [asyncio.create_task(consume(q)) for q in (one, two, two, three, three)]
        for number in range(0, count, 4):
            await first.put_many(range(number, number + 4))
        await first.put_many([-1] * len(consumers))
        await asyncio.wait_for(asyncio.gather(*consumers), 30)
    assert sorted(got) == list(range(count))


async def test_wait_ends_with_the_item_that_is_put(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        waiting = [asyncio.create_task(one.queue("a", str).get()) for _ in range(3)]
        shared = other.queue("a", str)
        waiting += [asyncio.create_task(shared.get(timeout=60)) for _ in range(3)]
        for number in range(6):
            await shared.put(f"item {number}")
        done = await asyncio.wait_for(asyncio.gather(*waiting), 30)
        assert sorted(done) == [f"item {number}" for number in range(6)]


async def test_wait_that_is_over_raises_and_takes_nothing(q: quoracy.Connection) -> None:
    queue = q.queue("a", bytes)
    with pytest.raises(quoracy.TimedOut):
        await queue.get(timeout=0.02)
    with pytest.raises(quoracy.TimedOut):
        await queue.get(timeout=0)
    await queue.put(b"x")
    assert await queue.size() == 1
    assert await queue.get(timeout=0) == b"x"


async def test_timeout_follows_the_clock_of_the_connection(timed: Place, clock: ManualClock) -> None:
    async with timed.connect() as q:
        getting = asyncio.create_task(q.queue("a", bytes).get(timeout=5))
        await turns()
        await clock.advance(4.9)
        assert not getting.done()
        await clock.advance(0.2)
        with pytest.raises(quoracy.TimedOut):
            await getting


async def test_items_are_of_the_type_of_the_queue(here: quoracy.Connection) -> None:
    parcels = here.queue("a", Parcel)
    await parcels.put(Parcel(7, "ann"))
    assert await parcels.peek() == Parcel(7, "ann")
    assert await parcels.get() == Parcel(7, "ann")
    text = here.queue("b", str)
    await text.put("grün")
    assert await text.get() == "grün"
    with pytest.raises(quoracy.InvalidRequest):
        await here.queue("c", bytes).put("text")  # type: ignore[arg-type]


async def test_unreadable_item_is_kept_aside_and_the_queue_goes_on(
    place: Place, q: quoracy.Connection
) -> None:
    await q.queue("a", bytes).put(b"\xff not JSON")
    parcels = q.queue("a", Parcel)
    await parcels.put(Parcel(1, "bob"))
    with pytest.raises(quoracy.ValueUnreadable):
        await parcels.get()
    kept = (await place.store.range(KeyRange.prefix(place.key("a/unreadable/")))).kvs
    assert [kv.value for kv in kept] == [b"\xff not JSON"]
    assert await parcels.get() == Parcel(1, "bob")


async def test_batch_is_all_or_nothing_and_bounded(q: quoracy.Connection) -> None:
    queue = q.queue("a", int)
    assert await queue.put_many([]) == 0
    await queue.put_many(range(PUT_MANY_MAX))
    with pytest.raises(quoracy.InvalidRequest, match="128"):
        await queue.put_many(range(PUT_MANY_MAX + 1))
    with pytest.raises(quoracy.InvalidRequest):
        await queue.put_many([1, object()])  # type: ignore[list-item]
    assert await queue.size() == PUT_MANY_MAX
    # So large that the tail moves with every batch: the largest transaction there is.
    await queue.put_many(range(PUT_MANY_MAX, 2 * PUT_MANY_MAX))
    await queue.put_many(range(2 * PUT_MANY_MAX, 3 * PUT_MANY_MAX))
    assert await drained(queue) == list(range(3 * PUT_MANY_MAX))


async def test_cancelled_get_loses_nothing_and_keeps_the_order(place: Place) -> None:
    async with place.connect() as q, place.connect() as other:
        queue, elsewhere = q.queue("a", int), other.queue("a", int)
        await queue.put_many(range(4))
        assert await elsewhere.try_get() == 0  # and it has seen the others
        seen: list[int] = []

        async def get() -> None:
            seen.append(await queue.get(timeout=20))

        async for attempt in cancelled_everywhere(get):
            if attempt.completed:
                break

            async def all_back() -> bool:
                return await queue.size() == 3

            await eventually(all_back)
            assert not seen
        assert seen == [1]
        assert await drained(elsewhere) == [2, 3]


async def test_cancelled_wait_leaves_nothing_behind(place: Place) -> None:
    async with place.connect() as q:
        queue = q.queue("a", int)

        async def wait() -> None:
            with pytest.raises(quoracy.TimedOut):
                await queue.get(timeout=0.01)

        async for attempt in cancelled_everywhere(wait):
            assert not attempt.swallowed
        assert (await place.store.range(place.corner)).kvs == ()
        await queue.put(1)
        assert await queue.get(timeout=5) == 1


async def test_item_given_back_comes_first_also_for_who_looked_ahead(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        ahead, cancelled = one.queue("a", int), other.queue("a", int)
        await ahead.put_many(range(5))
        assert await ahead.get() == 0  # it knows 1 to 4 now
        held = await cancelled.get()
        assert held == 1
        key = place.key("a/items/") + b"0" * 12 + b"/back"
        await place.store.put(key, b"1")
        assert await drained(ahead) == [1, 2, 3, 4]


async def test_queue_that_was_deleted_begins_again(place: Place) -> None:
    async with place.connect() as q:
        queue = q.queue("a", int)
        for _ in range(4):
            await queue.put_many(range(16))  # the tail moves on, and the head after it
            assert await drained(queue) == list(range(16))
        await queue.put(1)
        await place.store.delete(KeyRange.prefix(place.key("a/")))
        assert await queue.try_get() is None
        await queue.put_many([7, 8])
        assert await drained(queue) == [7, 8]


async def test_consumer_that_was_away_finds_the_head_behind_many_empty_buckets(place: Place) -> None:
    async with place.connect() as q:
        queue, late = q.queue("a", int), q.queue("a", int)
        await queue.put(0)
        assert await late.get() == 0
        await place.store.put(place.key("a/tail"), b"%012x" % 3000)  # as after much traffic
        await queue.put_many([1, 2])
        assert await late.get(timeout=0) == 1
        assert await drained(q.queue("a", int)) == [2]


async def test_bucket_larger_than_a_look_keeps_its_order(place: Place) -> None:
    """Many producers that put at once, before any of them can move the tail."""
    async with place.connect() as q, place.connect() as other:
        producers = [other.queue("a", int) for _ in range(7)]
        for producer in producers:
            await producer._items._find_tail()
        revisions = await asyncio.gather(
            *(
                producer.put_many(range(at * 100, at * 100 + 100))
                for at, producer in enumerate(producers)
            )
        )
        order = sorted(range(7), key=lambda at: revisions[at])
        expected = [at * 100 + step for at in order for step in range(100)]
        found = await place.store.range(KeyRange.prefix(place.key("a/items/")), keys_only=True)
        assert len({kv.key.rpartition(b"/")[0] for kv in found.kvs}) == 1
        queue = q.queue("a", int)
        assert [await queue.get(timeout=0) for _ in range(120)] == expected[:120]


async def test_item_put_between_the_look_and_the_watch_is_not_missed(
    q: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, producer = q.queue("a", int), q.queue("a", int)
    look = queue._head.look

    async def look_then_put() -> Window:
        monkeypatch.undo()
        window = await look()
        await producer.put(7)
        return window

    monkeypatch.setattr(queue._head, "look", look_then_put)
    assert await queue.get(timeout=10) == 7


async def test_store_that_cannot_be_asked_while_waiting_is_asked_again(
    timed: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with timed.connect() as q:
        queue, producer = q.queue("a", int), q.queue("a", int)

        async def unavailable() -> Window:
            raise quoracy.Unavailable("no leader")

        with monkeypatch.context() as patch:
            patch.setattr(queue._head, "look", unavailable)
            with pytest.raises(quoracy.Unavailable):  # before it waited, the caller is told
                await queue.get(timeout=5)
        getting = asyncio.create_task(queue.get(timeout=5))
        await turns()
        with monkeypatch.context() as patch:
            patch.setattr(queue._head, "look", unavailable)
            await producer.put(7)
            await turns()
            assert not getting.done()
        await clock.advance(1)
        assert await getting == 7


class Losing:
    """A store that loses the answer to the next deletion."""

    def __init__(self, context: quoracy.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.applied = False
        begin = context.writes.begin

        def lossy(txn: Txn) -> Outcome:
            outcome = Outcome(asyncio.get_running_loop())
            real = begin(txn)

            def answered(done: Outcome) -> None:
                self.applied = done.result().succeeded
                outcome.done(None, quoracy.Indeterminate("the connection broke"))

            real.add_done_callback(answered)
            monkeypatch.undo()
            return outcome

        monkeypatch.setattr(context.writes, "begin", lossy)


async def test_get_whose_answer_is_lost_says_that_an_item_may_be_gone(
    here: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = here.queue("a", int)
    await queue.put_many([1, 2])
    losing = Losing(here, monkeypatch)
    with pytest.raises(quoracy.Indeterminate, match="removed that nobody received"):
        await queue.get()
    assert losing.applied
    assert await drained(queue) == [2]


async def test_consumers_that_want_the_same_head_each_get_one_with_few_requests(
    timed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty that all see the same twenty items: a loser has the next with the same request."""
    async with timed.connect() as q:
        producer = q.queue("a", int)
        await producer.put_many(range(100))
        consumers = [q.queue("a", int) for _ in range(20)]
        sent = 0
        begin = q.writes.begin

        def counted(txn: Txn) -> Outcome:
            nonlocal sent
            sent += 1
            return begin(txn)

        monkeypatch.setattr(q.writes, "begin", counted)
        got: list[int] = []
        for _ in range(5):
            got += await asyncio.gather(*(queue.get() for queue in consumers))
        assert sorted(got) == list(range(100))
        assert sent < 5 * 100


async def test_one_item_is_one_request_however_many_tasks_of_a_process_wait(
    here: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, producer = here.queue("a", int), here.queue("a", int)
    waiting = [asyncio.create_task(queue.get()) for _ in range(10)]
    await producer.put(0)
    sent = 0
    begin = here.writes.begin

    def counted(txn: Txn) -> Outcome:
        nonlocal sent
        sent += 1
        return begin(txn)

    async def done(count: int) -> None:
        await until(lambda: sum(task.done() for task in waiting) >= count)

    await done(1)
    monkeypatch.setattr(here.writes, "begin", counted)
    for number in range(1, 10):
        await producer.put(number)
        await done(number + 1)
    assert sent == 9 + 9


async def test_get_that_was_refused_leaves_the_first_item_the_first(
    here: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = here.queue("a", int)
    await queue.put_many([1, 2, 3])

    def refused(_: Txn) -> Outcome:
        outcome = Outcome(asyncio.get_running_loop())
        outcome.done(None, quoracy.Unavailable("no leader"))
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(here.writes, "begin", refused)
        with pytest.raises(quoracy.Unavailable):
            await queue.get()
    assert await drained(queue) == [1, 2, 3]


async def test_item_wakes_few_of_many_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty consumers wait on an empty queue: once they met, one item is not twenty requests."""
    async with quoracy.open_store("memory:") as store, quoracy.connect(store) as q:
        got: asyncio.Queue[int] = asyncio.Queue()
        sent = 0
        begin = q.writes.begin

        def counted(txn: Txn) -> Outcome:
            nonlocal sent
            sent += 1
            return begin(txn)

        async def consume() -> None:
            async for item in q.queue("a", int):
                got.put_nowait(item)

        consumers = [asyncio.create_task(consume()) for _ in range(20)]
        producer = q.queue("a", int)
        monkeypatch.setattr(q.writes, "begin", counted)
        for number in range(20):
            await producer.put(number)
            assert await got.get() == number
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        assert sent < 20 * 20 / 2


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 5)),
        st.tuples(st.just("get"), st.integers(0, 2)),
        st.tuples(st.just("cancel"), st.integers(0, 2)),
        st.tuples(st.just("turn"), st.integers(1, 6)),
    ),
    max_size=40,
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=_STEPS)
def test_any_schedule_gives_each_item_once(steps: list[tuple[str, int]]) -> None:
    """Puts, gets and cancellations in any order: nothing is lost, nothing comes twice."""
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, int]]) -> None:
    async with (
        quoracy.open_store("memory:") as store,
        quoracy.connect(store) as one,
        quoracy.connect(store) as other,
    ):
        queues = [one.queue("a", int), one.queue("a", int), other.queue("a", int)]
        put, numbers = Counter[int](), iter(range(10_000))
        gets: list[asyncio.Task[int | None]] = []
        for step, argument in steps:
            if step == "put":
                batch = [next(numbers) for _ in range(argument)]
                await queues[batch[0] % 3].put_many(batch)
                put.update(batch)
            elif step == "get":
                gets.append(asyncio.create_task(queues[argument].get()))
            elif step == "cancel" and gets:
                gets[argument % len(gets)].cancel()
            else:
                await turns(argument)
        for get in gets:
            get.cancel()
        ends = await asyncio.gather(*gets, return_exceptions=True)
        got = [end for end in ends if isinstance(end, int)]
        await turns(100)
        left = await drained(queues[0])
        assert Counter(got) + Counter(left) == put
