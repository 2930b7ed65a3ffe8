"""A slow consumer misses nothing and holds up nobody: past its buffer it is fed from history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quoracy.errors import Compacted
from quoracy.store.api import Store
from quoracy.store.model import EventKind, KeyRange, Put, Txn
from quoracy.store.rules import Limits
from tests.support.asking import EVERYTHING, newest, read_to, read_to_the_end, take, told
from tests.support.engines import Capability, Engine

PUT = EventKind.PUT

_FEW_EVENTS = Limits(watch_buffer_events_max=4)


@pytest.fixture(
    params=[
        _FEW_EVENTS,
        Limits(watch_buffer_bytes_max=64),
        Limits(watch_buffer_events_max=1, watch_buffer_bytes_max=1),
    ],
    ids=["few events", "few bytes", "next to nothing"],
)
async def store(engine: Engine, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store that buffers little for a watcher that does not read."""
    limits: Limits = request.param
    if limits != _FEW_EVENTS:
        engine.needs(Capability.QUICK_REPLAY)
    async with engine.open(limits=limits) as store:
        yield store


async def test_a_consumer_that_reads_late_hears_everything(store: Store) -> None:
    async with store.watch(EVERYTHING) as stream:
        for i in range(100):
            await store.put(b"k%d" % i, b"%d" % i)
        batches = await read_to(stream, 101)
    assert told(batches) == [(i + 2, [(PUT, b"k%d" % i, b"%d" % i)]) for i in range(100)]


async def test_a_consumer_that_catches_up_and_lags_again_hears_everything(store: Store) -> None:
    async with store.watch(KeyRange.prefix(b"k")) as stream:
        heard: list[int] = []
        written: list[int] = []
        for burst in (1, 30, 2, 3, 50, 1, 1, 9):
            for i in range(burst):
                written.append((await store.put(b"k%d" % i)).revision)
                await store.put(b"other")
            for _ in range(burst // 2):
                heard.append((await anext(stream)).revision)
        while len(heard) < len(written):
            heard.append((await anext(stream)).revision)
        assert heard == written


async def test_a_consumer_that_reads_while_others_write_hears_everything(store: Store) -> None:
    async with store.watch(EVERYTHING) as stream:

        async def write() -> None:
            for i in range(40):
                await store.put(b"k", b"%d" % i)

        async def read() -> list[int]:
            heard: list[int] = []
            while len(heard) < 160:
                heard.append((await anext(stream)).revision)
                for _ in range(len(heard) % 5):
                    await asyncio.sleep(0)
            return heard

        reading = asyncio.create_task(read())
        await asyncio.gather(*(write() for _ in range(4)))
        assert await reading == list(range(2, 162))


async def test_a_revision_larger_than_the_buffer_comes_whole(store: Store) -> None:
    async with store.watch(EVERYTHING) as stream:
        for round in range(3):
            await store.txn(Txn(then=tuple(Put(b"%d/%d" % (round, i), b"x" * 20) for i in range(50))))
        batches = await take(stream, 3)
    assert [(batch.revision, len(batch.events)) for batch in batches] == [(2, 50), (3, 50), (4, 50)]


async def test_prev_kv_from_history_is_that_of_its_time(store: Store) -> None:
    async with store.watch(b"k", prev_kv=True) as stream:
        for i in range(40):
            await store.put(b"k", b"%d" % i)
        batches = await read_to(stream, 41)
    previous = [batch.events[0].prev_kv for batch in batches]
    assert [kv and kv.value for kv in previous] == [None, *(b"%d" % i for i in range(39))]


async def test_filters_hold_for_what_comes_from_history(store: Store) -> None:
    async with store.watch(EVERYTHING, puts=False) as stream:
        for i in range(30):
            await store.put(b"k%d" % i)
        for i in range(30):
            await store.delete(b"k%d" % i)
        batches = await read_to(stream, 61)
    assert [batch.revision for batch in batches] == list(range(32, 62))


async def test_a_consumer_that_never_reads_holds_up_neither_writers_nor_watchers(
    store: Store,
) -> None:
    async with store.watch(EVERYTHING), store.watch(EVERYTHING) as reader:
        for i in range(100):
            await store.put(b"k", b"%d" % i)
            assert (await anext(reader)).revision == i + 2


async def test_a_consumer_that_lags_behind_compaction_is_told_so(engine: Engine, store: Store) -> None:
    engine.needs(Capability.FORGETS_AT_ONCE)
    async with store.watch(EVERYTHING) as stream:
        for i in range(100):
            await store.put(b"k", b"%d" % i)
        await store.compact(90)
        batches, error = await read_to_the_end(stream)
        # What was buffered may still have come; then the error, before anything is skipped.
        heard = [batch.revision for batch in batches]
        assert heard == list(range(2, len(heard) + 2))
        assert len(heard) < 88
        assert isinstance(error, Compacted)
        assert error.oldest == 90
        with pytest.raises(Compacted):
            await anext(stream)
    async with store.watch(EVERYTHING, after=error.oldest) as stream:
        assert [batch.revision for batch in await read_to(stream, 101)] == list(range(91, 102))


async def test_a_consumer_that_lags_but_not_behind_compaction_goes_on(store: Store) -> None:
    async with store.watch(EVERYTHING) as stream:
        for i in range(50):
            await store.put(b"k", b"%d" % i)
        heard = [batch.revision for batch in await take(stream, 30)]
        await store.compact(31)
        heard += [batch.revision for batch in await read_to(stream, 51)]
    assert heard == list(range(2, 52))


async def test_a_watch_that_lags_on_nothing_of_its_own_survives_compaction(store: Store) -> None:
    async with store.watch(b"quiet") as stream:
        for i in range(50):
            await store.put(b"busy", b"%d" % i)
        await store.compact(await newest(store))
        await store.put(b"quiet")
        assert (await anext(stream)).revision == 52
