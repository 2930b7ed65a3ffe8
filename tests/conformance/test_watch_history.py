"""A watch can start at any kept revision and misses nothing between history and now."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.errors import Compacted, InvalidRequest
from quoracy.store.api import Store
from quoracy.store.model import EventKind, KeyRange, Put, Txn
from tests.support.asking import (
    EVERYTHING,
    contents,
    failure_of,
    read_to,
    stays_silent,
    take,
    told,
    turns,
)
from tests.support.engines import Capability, Engine

PUT, DELETE = EventKind.PUT, EventKind.DELETE


async def test_after_a_revision_tells_everything_since_and_not_that_revision(store: Store) -> None:
    for i in range(5):
        await store.put(b"k", b"%d" % i)
    for after in range(1, 6):
        async with store.watch(b"k", after=after) as stream:
            batches = await read_to(stream, 6)
            assert [batch.revision for batch in batches] == list(range(after + 1, 7))


@pytest.mark.parametrize("after", [0, 1])
async def test_from_the_beginning_tells_everything(store: Store, after: int) -> None:
    await store.put(b"k", b"1")
    await store.delete(b"k")
    async with store.watch(EVERYTHING, after=after) as stream:
        assert told(await take(stream, 2)) == [(2, [(PUT, b"k", b"1")]), (3, [(DELETE, b"k", b"")])]


async def test_after_the_newest_revision_is_from_now(store: Store) -> None:
    revision = (await store.put(b"k", b"old")).revision
    async with store.watch(b"k", after=revision) as stream:
        await store.put(b"k", b"new")
        assert told([await anext(stream)]) == [(3, [(PUT, b"k", b"new")])]


async def test_a_negative_revision_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        async with store.watch(b"k", after=-1):
            pass


async def test_a_watch_misses_nothing_between_read_and_watch(store: Store) -> None:
    before = await store.range(b"jobs")
    await store.put(b"jobs", b"1")
    async with store.watch(b"jobs", after=before.revision) as stream:
        assert told([await anext(stream)]) == [(2, [(PUT, b"jobs", b"1")])]


async def test_history_and_live_events_join_without_gap_or_repetition(store: Store) -> None:
    """Watches start while a writer is busy; each must hear every revision after its start once."""
    last = 151

    async def write() -> None:
        for i in range(150):
            await store.put(b"k%d" % (i % 7), b"%d" % i)

    async def watch(after: int, pause: int) -> None:
        await turns(pause)
        async with store.watch(EVERYTHING, after=after) as stream:
            heard = [batch.revision for batch in await read_to(stream, last)]
        assert heard == list(range(after + 1, last + 1))

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        for i in range(30):
            group.create_task(watch(after=1 + i % 3, pause=i * 15))


async def test_a_watch_resumed_where_another_stopped_repeats_and_misses_nothing(
    store: Store,
) -> None:
    for i in range(30):
        await store.txn(Txn(then=(Put(b"a%d" % i), Put(b"other"))))
    heard: list[int] = []
    after = 1
    while len(heard) < 30:
        async with store.watch(KeyRange.prefix(b"a"), after=after) as stream:
            heard += [batch.revision for batch in await take(stream, 3)]
            after = stream.revision
    assert heard == list(range(2, 32))


async def test_the_streams_revision_is_that_of_what_was_delivered(store: Store) -> None:
    for i in range(3):
        await store.put(b"k", b"%d" % i)
    async with store.watch(b"k", after=1) as stream:
        assert stream.revision == 1
        for _ in range(3):
            batch = await anext(stream)
            assert stream.revision == batch.revision


async def test_the_streams_revision_is_never_past_an_event_it_still_owes(store: Store) -> None:
    async with store.watch(b"k") as stream:
        for i in range(3):
            await store.put(b"k", b"%d" % i)
            await store.put(b"other")
        seen = stream.revision
        assert seen < 2
        async with store.watch(b"k", after=seen) as again:
            assert told([await anext(again)]) == told([await anext(stream)])


# -- the future -------------------------------------------------------------------------------


async def test_a_watch_that_starts_in_the_future_tells_nothing_earlier(store: Store) -> None:
    async with store.watch(b"k", after=4) as stream:
        assert stream.revision <= 4
        for i in range(2, 7):
            await store.put(b"k", b"%d" % i)
        assert told(await take(stream, 2)) == [(5, [(PUT, b"k", b"5")]), (6, [(PUT, b"k", b"6")])]


async def test_a_watch_that_starts_in_the_future_gets_no_earlier_progress(store: Store) -> None:
    async with store.watch(b"k", after=4) as stream:
        stream.request_progress()
        assert await stays_silent(stream, store)
        await store.put(b"other")
        assert await stays_silent(stream, store)
        for _ in range(2):
            await store.put(b"other")
        await store.put(b"k", b"5")
        batches = await read_to(stream, 5)
        assert all(batch.revision >= 4 for batch in batches)
        assert told(batches)[-1] == (5, [(PUT, b"k", b"5")])


# -- compaction -------------------------------------------------------------------------------


async def test_a_watch_from_the_compaction_revision_itself_misses_nothing(store: Store) -> None:
    for i in range(2, 8):
        await store.put(b"k", b"%d" % i)
    await store.delete(b"k")
    await store.compact(6)
    async with store.watch(b"k", after=5) as stream:
        assert [batch.revision for batch in await take(stream, 3)] == [6, 7, 8]


async def test_a_deletion_at_the_compaction_revision_is_still_told(
    engine: Engine, store: Store
) -> None:
    engine.needs(Capability.COMPACTED_DELETES)
    await store.put(b"k", b"v")
    await store.txn(Txn(then=(Put(b"a"), Put(b"b"))))
    await store.delete(b"k")
    await store.compact(4)
    assert await contents(store, at=4) == {b"a": b"", b"b": b""}
    async with store.watch(EVERYTHING, after=3) as stream:
        assert told([await anext(stream)]) == [(4, [(DELETE, b"k", b"")])]


@pytest.mark.parametrize("after", [0, 1, 4])
async def test_a_watch_from_a_compacted_revision_is_told_the_oldest_kept(
    store: Store, after: int
) -> None:
    for i in range(2, 8):
        await store.put(b"k", b"%d" % i)
    await store.compact(6)
    error = await failure_of(store.watch(b"k", after=after))
    assert isinstance(error, Compacted)
    assert error.oldest == 6
    # Which is a revision to go on from.
    async with store.watch(b"k", after=error.oldest) as stream:
        assert (await anext(stream)).revision == 7


async def test_a_watch_of_other_keys_is_told_of_compaction_all_the_same(store: Store) -> None:
    for i in range(2, 8):
        await store.put(b"k", b"%d" % i)
    await store.compact(6)
    error = await failure_of(store.watch(b"nobody", after=1))
    assert isinstance(error, Compacted)


async def test_prev_kv_that_was_compacted_is_left_out(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    await store.put(b"k", b"3")
    await store.compact(3)
    async with store.watch(b"k", after=2, prev_kv=True) as stream:
        first, second = await take(stream, 2)
    assert first.events[0].prev_kv is None
    assert second.events[0].prev_kv is not None
    assert second.events[0].prev_kv.value == b"2"


async def test_compaction_behind_a_watch_that_keeps_up_does_not_disturb_it(store: Store) -> None:
    async with store.watch(b"k") as stream:
        for i in range(2, 12):
            await store.put(b"k", b"%d" % i)
            await store.compact(i)
            assert told([await anext(stream)]) == [(i, [(PUT, b"k", b"%d" % i)])]


async def test_compaction_does_not_disturb_a_watch_that_had_nothing_to_hear(store: Store) -> None:
    async with store.watch(b"quiet") as stream:
        for i in range(2, 12):
            await store.put(b"busy", b"%d" % i)
        await store.compact(11)
        await store.put(b"quiet", b"at last")
        assert told([await anext(stream)]) == [(12, [(PUT, b"quiet", b"at last")])]
