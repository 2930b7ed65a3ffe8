"""Watches that are polled: those of a store in this process, and any other with a pump."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from quoracy.engines.embedded.watching.watch import EmbeddedWatch
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, StoreClosed
from quoracy.faces.etcd.services.pumped import Pumped
from quoracy.store.api import Store
from quoracy.store.legacy import Polled
from quoracy.store.model import WatchBatch

# The watch itself, or any watch at all: what holds for one holds for the other.
Poll = Callable[[EmbeddedWatch], Polled]


@pytest.fixture(params=[lambda watch: watch, Pumped], ids=["itself", "pumped"])
def poll(request: pytest.FixtureRequest) -> Poll:
    made: Poll = request.param
    return made


async def taken(polled: Polled, ready: asyncio.Event) -> WatchBatch:
    while (batch := polled.poll()) is None:
        ready.clear()
        await ready.wait()
    return batch


async def leave(polled: Polled, watch: EmbeddedWatch) -> None:
    if isinstance(polled, Pumped):
        await polled.stop()
    await watch.__aexit__(None, None, None)


async def test_every_batch_is_there_once_and_in_order(poll: Poll) -> None:
    async with open_embedded("memory:") as store:
        for number in range(2500):  # more than one look at history takes in
            await store.put(b"b", b"%d" % number)
        for number in range(1200):  # more than a watch buffers
            await store.put(b"a", b"%d" % number)
        watch = await store.watch(b"a", after=1).__aenter__()
        polled, ready = poll(watch), asyncio.Event()
        polled.on_ready(ready.set)
        values = [(await taken(polled, ready)).events[0].kv.value for _ in range(1200)]
        assert values == [b"%d" % number for number in range(1200)]
        for number in range(3):
            assert polled.poll() is None
            ready.clear()
            put = await store.put(b"a", b"%d" % number)
            await ready.wait()
            assert (await taken(polled, ready)).revision == put.revision
        watch.request_progress()
        assert (await taken(polled, ready)).events == ()
        await leave(polled, watch)
        assert (await store.status()).watchers_count == 0


async def test_what_ends_the_watch_is_raised(poll: Poll) -> None:
    async with open_embedded("memory:") as store:
        await _fill_and_compact(store)
        watch = await store.watch(b"a", after=1).__aenter__()
        polled, ready = poll(watch), asyncio.Event()
        polled.on_ready(ready.set)
        with pytest.raises(Compacted):
            await taken(polled, ready)
        await leave(polled, watch)
        other = await store.watch(b"a").__aenter__()
        polled, ready = poll(other), asyncio.Event()
        polled.on_ready(ready.set)
        assert polled.poll() is None
        closing = asyncio.ensure_future(store.close())
        with pytest.raises(StoreClosed):
            await taken(polled, ready)
        await leave(polled, other)
        await closing


async def _fill_and_compact(store: Store) -> None:
    for _ in range(3):
        await store.put(b"a")
    await store.compact(3)
