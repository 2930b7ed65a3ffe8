"""Progress: a batch without events that says how far everything was delivered, never further."""

from __future__ import annotations

import asyncio

from quoracy.clock import ManualClock
from quoracy.store.api import Store
from quoracy.store.model import WatchBatch
from quoracy.store.rules import Limits
from tests.support.asking import read_to, stays_silent, take, turns
from tests.support.engines import Engine


def _is_progress(batch: WatchBatch) -> bool:
    return not batch.events


async def test_progress_on_request_names_the_newest_revision(store: Store) -> None:
    async with store.watch(b"k") as stream:
        for _ in range(5):
            await store.put(b"other")
        stream.request_progress()
        assert await anext(stream) == WatchBatch(revision=(await store.status()).revision)
        assert stream.revision == 6


async def test_progress_is_told_once_for_each_request(store: Store) -> None:
    async with store.watch(b"k") as stream:
        stream.request_progress()
        assert _is_progress(await anext(stream))
        assert await stays_silent(stream, store)
        stream.request_progress()
        assert _is_progress(await anext(stream))


async def test_no_progress_without_a_request(store: Store) -> None:
    async with store.watch(b"k") as stream:
        await store.put(b"other")
        assert await stays_silent(stream, store)


async def test_progress_reaches_a_consumer_that_is_already_waiting(store: Store) -> None:
    async with store.watch(b"k") as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await turns()
        assert not waiting.done()
        stream.request_progress()
        assert _is_progress(await waiting)


async def test_progress_comes_after_every_event_up_to_it(store: Store) -> None:
    async with store.watch(b"k") as stream:
        await store.put(b"k", b"1")
        stream.request_progress()
        await store.put(b"k", b"2")
        await store.put(b"other")
        heard: list[int] = []
        while True:
            batch = await anext(stream)
            if _is_progress(batch):
                break
            heard.append(batch.revision)
        assert heard == [revision for revision in (2, 3) if revision <= batch.revision]
        assert batch.revision >= 2


async def test_progress_of_a_replay_comes_after_the_history(engine: Engine) -> None:
    limits = Limits(watch_buffer_events_max=3)
    async with engine.open(limits=limits) as store:
        for i in range(50):
            await store.put(b"k", b"%d" % i)
        async with store.watch(b"k", after=1) as stream:
            stream.request_progress()
            batches = [await anext(stream)]
            while not _is_progress(batches[-1]):
                batches.append(await anext(stream))
            assert [batch.revision for batch in batches] == [*range(2, 52), 51]


async def test_progress_of_a_lagging_watch_is_never_ahead_of_what_it_owes(engine: Engine) -> None:
    """The consumer asks all the time and reads little; resuming at any progress misses nothing."""
    async with engine.open(limits=Limits(watch_buffer_events_max=2)) as store:
        async with store.watch(b"k") as stream:
            owed: list[int] = []
            heard: list[int] = []
            for i in range(60):
                if i % 3:
                    owed.append((await store.put(b"k", b"%d" % i)).revision)
                else:
                    await store.put(b"other")
                stream.request_progress()
                if i % 4 == 0:
                    batch = await anext(stream)
                    heard += [batch.revision] if batch.events else []
                    assert [revision for revision in owed if revision <= batch.revision] == heard
                    assert stream.revision == batch.revision
            while heard != owed:
                batch = await anext(stream)
                heard += [batch.revision] if batch.events else []
                assert [revision for revision in owed if revision <= batch.revision] == heard


async def test_progress_comes_by_itself_after_the_time_asked_for(
    timed_store: Store, clock: ManualClock
) -> None:
    async with timed_store.watch(b"k", progress_s=5) as stream:
        await timed_store.put(b"other")
        waiting = asyncio.ensure_future(anext(stream))
        await clock.advance(4.9)
        assert not waiting.done()
        await clock.advance(0.5)
        assert await waiting == WatchBatch((await timed_store.status()).revision)
        waiting = asyncio.ensure_future(anext(stream))
        await clock.advance(4.5)
        assert not waiting.done()
        await clock.advance(1)
        assert _is_progress(await waiting)


async def test_an_event_puts_off_progress(timed_store: Store, clock: ManualClock) -> None:
    async with timed_store.watch(b"k", progress_s=5) as stream:
        await clock.advance(4)
        await timed_store.put(b"k")
        assert (await anext(stream)).events
        waiting = asyncio.ensure_future(anext(stream))
        await clock.advance(4.5)
        assert not waiting.done()
        await clock.advance(1)
        assert _is_progress(await waiting)


async def test_a_watch_that_asked_for_none_gets_none_however_long_it_waits(
    timed_store: Store, clock: ManualClock
) -> None:
    async with timed_store.watch(b"k") as stream, timed_store.watch(b"k", progress_s=5) as other:
        waiting = asyncio.ensure_future(anext(stream))
        await clock.advance(60)
        assert _is_progress(await anext(other))
        assert not waiting.done()
        await timed_store.put(b"k")
        assert (await waiting).events


async def test_timed_progress_does_not_overtake_events_that_wait_to_be_read(
    timed_store: Store, clock: ManualClock
) -> None:
    async with timed_store.watch(b"k", progress_s=5) as stream:
        for _ in range(3):
            await timed_store.put(b"k")
        await clock.advance(60)
        assert [bool(batch.events) for batch in await take(stream, 3)] == [True] * 3


async def test_resuming_after_progress_misses_nothing(store: Store) -> None:
    async with store.watch(b"k") as stream:
        await store.put(b"other")
        stream.request_progress()
        progress = await anext(stream)
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    async with store.watch(b"k", after=progress.revision) as stream:
        assert [batch.revision for batch in await read_to(stream, 4)] == [3, 4]
