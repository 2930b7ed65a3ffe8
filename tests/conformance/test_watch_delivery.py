"""What a watch delivers: every event once, in order, all events of a revision together."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.errors import InvalidRequest
from quoracy.store.api import Store, WatchOptions
from quoracy.store.model import Delete, Event, EventKind, KeyRange, Keys, KeyValue, Put, Range, Txn
from tests.support.asking import EVERYTHING, newest, read_to, stays_silent, take, told

PUT, DELETE = EventKind.PUT, EventKind.DELETE


async def test_a_watch_from_now_tells_what_comes_and_not_what_was(store: Store) -> None:
    await store.put(b"k", b"old")
    async with store.watch(b"k") as stream:
        await store.put(b"k", b"new")
        assert told([await anext(stream)]) == [(3, [(PUT, b"k", b"new")])]


async def test_a_watch_from_now_starts_when_it_is_entered(store: Store) -> None:
    stream = store.watch(b"k")
    await store.put(b"k", b"before")
    async with stream:
        await store.put(b"k", b"after")
        assert told([await anext(stream)]) == [(3, [(PUT, b"k", b"after")])]


async def test_a_put_event_carries_the_key_as_it_became(store: Store) -> None:
    lease = (await store.grant(60)).id
    async with store.watch(b"k") as stream:
        await store.put(b"k", b"1")
        await store.put(b"k", b"2", lease=lease)
        first, second = await take(stream, 2)
    assert first.events == (Event(KeyValue(b"k", b"1", 2, 2, 1)),)
    assert second.events == (Event(KeyValue(b"k", b"2", 2, 3, 2, lease)),)
    assert (first.events[0].is_create, second.events[0].is_create) == (True, False)


async def test_a_delete_event_carries_key_and_revision_only(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"v", lease=lease)
    async with store.watch(b"k") as stream:
        await store.delete(b"k")
        batch = await anext(stream)
    assert batch.events == (
        Event(KeyValue(b"k", b"", create_revision=0, mod_revision=3, version=0, lease=0)),
    )
    assert batch.events[0].kind is DELETE


@pytest.mark.parametrize(
    ("keys", "matching"),
    [
        (b"b", {b"b"}),
        (KeyRange.exactly(b"b"), {b"b"}),
        (KeyRange(b"b", b"c"), {b"b", b"b/1", b"b/2"}),
        (KeyRange.prefix(b"b/"), {b"b/1", b"b/2"}),
        (KeyRange.prefix(b"\xff"), {b"\xff", b"\xff\xff"}),
        (KeyRange.from_key(b"c"), {b"c", b"\xff", b"\xff\xff"}),
        (EVERYTHING, {b"a", b"b", b"b/1", b"b/2", b"c", b"\xff", b"\xff\xff"}),
    ],
)
async def test_a_watch_tells_of_the_keys_it_asked_for_and_no_others(
    store: Store, keys: Keys, matching: set[bytes]
) -> None:
    every = [b"a", b"b", b"b/1", b"b/2", b"c", b"\xff", b"\xff\xff"]
    async with store.watch(keys) as live:
        for key in every:
            await store.put(key)
        last = (await store.txn(Txn(then=tuple(Put(key, b"2") for key in every)))).revision
        expected = [[key] for key in every if key in matching]
        expected += [[key for key in every if key in matching]]
        async with store.watch(keys, after=1) as replayed:
            for stream in (live, replayed):
                batches = await read_to(stream, last)
                assert [[event.kv.key for event in batch.events] for batch in batches] == expected


@pytest.mark.parametrize("keys", [KeyRange(b"b", b"a"), KeyRange(b"k", b"k")])
async def test_a_watch_of_an_empty_range_stays_silent(store: Store, keys: KeyRange) -> None:
    async with store.watch(keys, after=1) as stream:
        await store.put(b"k")
        await store.put(b"b")
        assert await stays_silent(stream, store)


async def test_all_events_of_a_revision_come_in_one_batch_in_write_order(store: Store) -> None:
    await store.put(b"m", b"old")
    await store.put(b"c/2", b"old")
    await store.put(b"c/1", b"old")
    async with store.watch(EVERYTHING) as live:
        await store.txn(
            Txn(
                then=(
                    Put(b"z", b"1"),
                    Range(EVERYTHING),
                    Put(b"a", b"2"),
                    Delete(KeyRange.prefix(b"c/")),
                    Txn(then=(Put(b"m", b"3"),)),
                    Put(b"b", b"4"),
                )
            )
        )
        expected = [
            (
                5,
                [
                    (PUT, b"z", b"1"),
                    (PUT, b"a", b"2"),
                    (DELETE, b"c/1", b""),
                    (DELETE, b"c/2", b""),
                    (PUT, b"m", b"3"),
                    (PUT, b"b", b"4"),
                ],
            )
        ]
        assert told([await anext(live)]) == expected
    async with store.watch(EVERYTHING, after=4) as replayed:
        assert told([await anext(replayed)]) == expected


async def test_revisions_come_in_order_each_once_under_concurrent_writers(store: Store) -> None:
    async with store.watch(EVERYTHING) as stream:

        async def write(name: int) -> None:
            for i in range(25):
                await store.put(b"%d/%d" % (name, i))

        await asyncio.gather(*(write(name) for name in range(8)))
        batches = await read_to(stream, 201)
    assert [batch.revision for batch in batches] == list(range(2, 202))
    keys = [event.kv.key for batch in batches for event in batch.events]
    assert len(set(keys)) == len(keys) == 200


async def test_what_changes_nothing_is_not_told(store: Store) -> None:
    async with store.watch(EVERYTHING) as stream:
        await store.delete(b"missing")
        await store.txn(Txn(then=(Range(EVERYTHING),)))
        await store.grant(60)
        await store.put(b"k")
        assert (await anext(stream)).revision == 2


# -- filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"puts": False},
            [(3, [(DELETE, b"k", b"")]), (5, [(DELETE, b"k", b"")])],
        ),
        (
            {"deletes": False},
            [(2, [(PUT, b"k", b"1")]), (4, [(PUT, b"k", b"2")]), (5, [(PUT, b"l", b"3")])],
        ),
    ],
)
async def test_a_filter_leaves_out_its_kind_and_nothing_else(
    store: Store,
    options: WatchOptions,
    expected: list[tuple[int, list[tuple[EventKind, bytes, bytes]]]],
) -> None:
    async with store.watch(EVERYTHING, **options) as live:
        await store.put(b"k", b"1")
        await store.delete(b"k")
        await store.put(b"k", b"2")
        await store.txn(Txn(then=(Put(b"l", b"3"), Delete(b"k"))))
        assert told(await read_to(live, 5)) == expected
    past: WatchOptions = {**options, "after": 1}
    async with store.watch(EVERYTHING, **past) as replayed:
        assert told(await read_to(replayed, 5)) == expected


async def test_a_watch_that_leaves_out_everything_stays_silent(store: Store) -> None:
    async with store.watch(EVERYTHING, puts=False, deletes=False) as stream:
        await store.put(b"k")
        await store.delete(b"k")
        assert await stays_silent(stream, store)


# -- prev_kv ----------------------------------------------------------------------------------


async def test_prev_kv_is_the_version_that_each_event_replaced(store: Store) -> None:
    lease = (await store.grant(60)).id
    async with store.watch(EVERYTHING, prev_kv=True) as live:
        await store.put(b"k", b"1", lease=lease)
        await store.put(b"k", b"2")
        await store.delete(b"k")
        await store.put(b"k", b"3")
        await store.txn(Txn(then=(Put(b"k", b"4"), Put(b"l", b"5"))))
        expected = [
            [None],
            [KeyValue(b"k", b"1", 2, 2, 1, lease)],
            [KeyValue(b"k", b"2", 2, 3, 2)],
            [None],
            [KeyValue(b"k", b"3", 5, 5, 1), None],
        ]
        batches = await take(live, 5)
        assert [[event.prev_kv for event in batch.events] for batch in batches] == expected
    async with store.watch(EVERYTHING, prev_kv=True, after=1) as replayed:
        assert await take(replayed, 5) == batches


async def test_prev_kv_is_left_out_unless_asked_for(store: Store) -> None:
    async with store.watch(b"k") as live:
        await store.put(b"k", b"1")
        await store.put(b"k", b"2")
        batches = await take(live, 2)
    assert [batch.events[0].prev_kv for batch in batches] == [None, None]


async def test_prev_kv_is_read_at_its_own_revision_however_late_it_is_told(store: Store) -> None:
    async with store.watch(b"k", prev_kv=True) as stream:
        for i in range(10):
            await store.put(b"k", b"%d" % i)
        batches = await take(stream, 10)
    values = [batch.events[0].prev_kv and batch.events[0].prev_kv.value for batch in batches]
    assert values == [None, *(b"%d" % i for i in range(9))]


# -- many watchers ----------------------------------------------------------------------------


async def test_many_watchers_hear_the_same(store: Store) -> None:
    streams = [store.watch(KeyRange.prefix(b"k"), prev_kv=i % 2 == 0) for i in range(100)]
    for stream in streams:
        await stream.__aenter__()
    assert (await store.status()).watchers_count == 100
    for i in range(5):
        await store.txn(Txn(then=(Put(b"k%d" % i, b"v"), Put(b"other%d" % i))))
    for stream in streams:
        assert told(await take(stream, 5)) == [(2 + i, [(PUT, b"k%d" % i, b"v")]) for i in range(5)]
        await stream.__aexit__(None, None, None)
    assert (await store.status()).watchers_count == 0


async def test_watchers_of_overlapping_ranges_each_hear_their_own(store: Store) -> None:
    ranges = {
        b"a": KeyRange.exactly(b"a"),
        b"a-b": KeyRange(b"a", b"b"),
        b"a-c": KeyRange(b"a", b"c"),
        b"ab*": KeyRange.prefix(b"ab"),
        b"b-": KeyRange.from_key(b"b"),
        b"*": EVERYTHING,
    }
    streams = {name: store.watch(keys) for name, keys in ranges.items()}
    for stream in streams.values():
        await stream.__aenter__()
    keys = [b"a", b"aa", b"ab", b"abc", b"b", b"bz", b"c", b"zz"]
    # Watchers that leave must not take others of the same keys with them.
    async with store.watch(ranges[b"a-b"]), store.watch(EVERYTHING):
        pass
    for key in keys:
        await store.put(key)
    end = await newest(store)
    for name, stream in streams.items():
        stream.request_progress()
        batches = await read_to(stream, end)
        heard = [event.kv.key for batch in batches for event in batch.events]
        assert heard == [key for key in keys if ranges[name].contains(key)]
        await stream.__aexit__(None, None, None)


# -- refused ----------------------------------------------------------------------------------


async def test_a_watch_of_an_empty_key_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        async with store.watch(b""):
            pass


async def test_the_stream_says_what_it_watches(store: Store) -> None:
    assert store.watch(b"k").keys == KeyRange.exactly(b"k")
    assert store.watch(KeyRange.prefix(b"k")).keys == KeyRange.prefix(b"k")
