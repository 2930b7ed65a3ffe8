"""Load on a store: closed-loop writers, and keys to fill it with."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable

from bench.rounds import Contestant
from quorate.store.api import Store

__all__ = ["KEY_BYTES", "VALUE", "fill", "key", "writers"]

KEY_BYTES = 24
VALUE = random.Random(0).randbytes(100)


def key(number: int) -> bytes:
    """Key number so-and-so: 24 bytes, in the order of their numbers."""
    return b"bench/%018d" % number


async def fill(store: Store, first: int, end: int) -> None:
    """Put the keys first..end-1, each in a revision of its own, 256 at a time."""
    numbers = iter(range(first, end))

    async def work() -> None:
        for number in numbers:
            await store.put(key(number), VALUE)

    await asyncio.gather(*(work() for _ in range(256)))


def writers(
    store: Store,
    concurrency: int,
    *,
    numbers: Callable[[], int] | None = None,
    seen: Callable[[float], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Contestant:
    """So many tasks that put, each its next one when the last was acknowledged.

    They put new keys unless `numbers` says which; `seen` is told how long each put took; the rate is by
    `clock`: processor time where nothing waits for a disk.
    """
    fresh = itertools.count(1_000_000_000)
    number = numbers or fresh.__next__

    async def contestant(seconds: float) -> float:
        now = time.perf_counter
        started = clock()
        until = now() + seconds

        async def work() -> int:
            done = 0
            while now() < until:
                await store.put(key(number()), VALUE)
                done += 1
            return done

        async def work_observed(observe: Callable[[float], None]) -> int:
            done = 0
            while (begun := now()) < until:
                await store.put(key(number()), VALUE)
                observe(now() - begun)
                done += 1
            return done

        tasks: list[Awaitable[int]] = [
            work() if seen is None else work_observed(seen) for _ in range(concurrency)
        ]
        done = sum(await asyncio.gather(*tasks))
        return done / (clock() - started)

    return contestant
