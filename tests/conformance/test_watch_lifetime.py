"""How a watch ends: by leaving it, or with an error; never silently, and never losing an event."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from quoracy.errors import StoreClosed, Unavailable
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, WatchBatch
from quoracy.store.rules import Limits
from tests.support.asking import EVERYTHING, read_to, read_to_the_end, turns
from tests.support.engines import Capability, Engine


async def test_closing_the_store_ends_a_waiting_watch_with_an_error(engine: Engine) -> None:
    async with engine.open() as store:
        stream = store.watch(b"k")
        await stream.__aenter__()
        waiting = asyncio.ensure_future(anext(stream))
        await turns()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await anext(stream)
    await stream.__aexit__(None, None, None)


async def test_closing_the_store_ends_a_watch_nobody_reads_with_an_error(engine: Engine) -> None:
    async with engine.open() as store:
        stream = store.watch(b"k")
        await stream.__aenter__()
        await store.put(b"k")
    # What was delivered before the end may still be read; the error comes after it.
    batches, error = await read_to_the_end(stream)
    assert [batch.revision for batch in batches] in ([], [2])
    assert isinstance(error, Unavailable)
    await stream.__aexit__(None, None, None)


async def test_a_closed_store_refuses_everything(engine: Engine) -> None:
    async with engine.open() as store:
        lease = (await store.grant(60)).id
        await store.put(b"k")
    for ask in (
        store.range(b"k"),
        store.put(b"k"),
        store.delete(b"k"),
        store.compact(2),
        store.grant(60),
        store.keep_alive(lease),
        store.revoke(lease),
        store.time_to_live(lease),
        store.leases(),
        store.hash(),
        store.status(),
    ):
        with pytest.raises(StoreClosed):
            await ask
    with pytest.raises(StoreClosed):
        async with store.watch(b"k"):
            pass


async def test_a_watch_that_was_left_is_counted_no_more(store: Store) -> None:
    async with store.watch(b"k"), store.watch(EVERYTHING):
        assert (await store.status()).watchers_count == 2
    assert (await store.status()).watchers_count == 0


async def test_a_watch_left_by_an_error_is_counted_no_more(store: Store) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with store.watch(b"k"):
            raise ZeroDivisionError
    assert (await store.status()).watchers_count == 0


async def test_leaving_a_watch_that_has_unread_events_is_fine(store: Store) -> None:
    async with store.watch(b"k"):
        for _ in range(10):
            await store.put(b"k")
    assert (await store.put(b"k")).revision == 12


async def test_a_watch_can_be_read_with_async_for(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    heard = []
    async with store.watch(b"k", after=1) as stream:
        async for batch in stream:
            heard.append(batch.revision)
            if batch.revision == 3:
                break
    assert heard == [2, 3]


async def _read_or_cancel(reading: asyncio.Future[WatchBatch]) -> list[int]:
    """Give up on a read; what it had got by then, if anything."""
    reading.cancel()
    await asyncio.wait([reading])
    return [] if reading.cancelled() else [reading.result().revision]


async def test_giving_up_on_waiting_loses_nothing(store: Store) -> None:
    async with store.watch(b"k") as stream:
        for revision in range(2, 6):
            waiting = asyncio.ensure_future(anext(stream))
            await turns(3)
            assert await _read_or_cancel(waiting) == []
            await store.put(b"k")
            assert (await anext(stream)).revision == revision


@pytest.mark.parametrize("limits", [Limits(), Limits(watch_buffer_events_max=2)])
async def test_giving_up_at_any_moment_loses_and_repeats_nothing(
    engine: Engine, limits: Limits
) -> None:
    """The read is cancelled after 0, 1, 2, ... turns of the loop while events are arriving."""
    if limits != Limits():
        engine.needs(Capability.QUICK_REPLAY)
    async with engine.open(limits=limits) as store, store.watch(KeyRange.prefix(b"k")) as stream:
        heard: list[int] = []
        for moment in range(60):
            reading = asyncio.ensure_future(anext(stream))
            writing = asyncio.gather(store.put(b"k1"), store.put(b"k2"))
            await turns(moment % 12)
            heard += await _read_or_cancel(reading)
            await writing
            # Right when the answer to the write arrives, its event may be on its way to the reader.
            reading = asyncio.ensure_future(anext(stream))
            await store.put(b"k3")
            heard += await _read_or_cancel(reading)
        if not heard or heard[-1] < 181:
            heard += [batch.revision for batch in await read_to(stream, 181)]
    assert heard == list(range(2, 182))


async def test_timing_out_on_a_quiet_watch_leaves_it_usable(store: Store) -> None:
    async with store.watch(b"k") as stream:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(stream)
        await store.put(b"k")
        assert (await anext(stream)).revision == 2
