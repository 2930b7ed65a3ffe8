"""Short questions that many tests ask a store, and the waiting that goes with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quoracy.clock import ManualClock
from quoracy.errors import QuoracyError
from quoracy.store.api import Store, Watch
from quoracy.store.model import (
    Event,
    EventKind,
    KeyRange,
    Keys,
    KeyValue,
    Revision,
    WatchBatch,
)

__all__ = [
    "EVERYTHING",
    "contents",
    "decided",
    "eventually",
    "failure_of",
    "get",
    "newest",
    "read_to",
    "read_to_the_end",
    "stays_silent",
    "take",
    "told",
    "turns",
    "until",
]

EVERYTHING = KeyRange.everything()
_MARK = b"\0mark"


async def newest(store: Store) -> Revision:
    """The revision the store is at."""
    return (await store.range(b"\0", count_only=True)).revision


async def get(store: Store, key: bytes, *, at: int | None = None) -> KeyValue | None:
    found = (await store.range(key, at=at)).kvs
    return found[0] if found else None


async def contents(
    store: Store, keys: Keys = EVERYTHING, *, at: int | None = None
) -> dict[bytes, bytes]:
    return {kv.key: kv.value for kv in (await store.range(keys, at=at)).kvs}


async def decided(store: Store) -> dict[bytes, bytes]:
    """The contents after everything the store has decided by now, an expiry for instance.

    Reads wait for nobody, so what is still on its way to disk may be missing from them; a write comes
    after all that, and a read after it shows all of it.
    """
    await store.put(_MARK)
    seen = await contents(store)
    del seen[_MARK]
    return seen


async def take(stream: Watch, count: int) -> list[WatchBatch]:
    """The next `count` batches."""
    return [await anext(stream) for _ in range(count)]


async def read_to(stream: Watch, revision: int) -> list[WatchBatch]:
    """Every batch up to `revision`, which must be one the watch has events of."""
    batches = [await anext(stream)]
    while batches[-1].revision < revision:
        batches.append(await anext(stream))
    return batches


def told(batches: Sequence[WatchBatch]) -> list[tuple[int, list[tuple[EventKind, bytes, bytes]]]]:
    """What batches say, short enough to compare by eye."""

    def say(event: Event) -> tuple[EventKind, bytes, bytes]:
        return event.kind, event.kv.key, event.kv.value

    return [(batch.revision, [say(event) for event in batch.events]) for batch in batches]


async def turns(count: int = 20) -> None:
    """Let everything that is ready to run do so; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


async def stays_silent(stream: Watch, store: Store) -> bool:
    """Whether the watch has nothing to say, even after a write elsewhere has gone all the way."""
    waiting = asyncio.ensure_future(anext(stream))
    await store.delete(b"\0nothing here")
    await turns()
    silent = not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    return silent


async def read_to_the_end(stream: Watch) -> tuple[list[WatchBatch], QuoracyError]:
    """Everything a watch tells, and the error it ends with."""
    batches: list[WatchBatch] = []
    try:
        while True:
            batches.append(await anext(stream))
    except QuoracyError as error:
        return batches, error


async def failure_of(stream: Watch) -> QuoracyError:
    """The error a watch ends with: an engine may tell when it is entered or when it is read."""
    try:
        async with stream:
            _, error = await read_to_the_end(stream)
    except QuoracyError as early:
        return early
    return error


async def eventually(
    condition: Callable[[], Awaitable[bool]], clock: ManualClock | None = None, step_s: float = 1.0
) -> None:
    """Wait for a background duty of the store, which no event announces, to be done."""
    async with asyncio.timeout(20):
        while not await condition():
            if clock is not None:
                await clock.advance(step_s)
            # Also on a test-owned clock: the duty may be waiting for a disk, which has its own time.
            await asyncio.sleep(0.005)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event announces, with a deadline."""

    async def holds() -> bool:
        return condition()

    await eventually(holds)
