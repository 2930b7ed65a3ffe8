"""Load on a store: closed-loop writers, and keys to fill it with."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable

from bench.rounds import Contestant
from quoracy.store.api import Store

__all__ = ["KEY_BYTES", "VALUE", "closed_loop", "fill", "key", "puts"]

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


def puts(store: Store, *, numbers: Callable[[], int] | None = None) -> Callable[[], Awaitable[object]]:
    """What a writer does again and again: put the next key, a new one unless `numbers` says which."""
    number = numbers or itertools.count(1_000_000_000).__next__
    return lambda: store.put(key(number()), VALUE)


def closed_loop(
    work: Callable[[], Awaitable[object]],
    concurrency: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    seen: Callable[[float], None] | None = None,
) -> Contestant:
    """So many tasks, each of which works again when it has the answer to the last time.

    The rate is by `clock`: processor time where nothing waits for a disk.  `seen` is told how long
    each time took.
    """

    async def contestant(seconds: float) -> float:
        now = time.perf_counter
        started = clock()
        until = now() + seconds

        async def repeat() -> int:
            done = 0
            while now() < until:
                await work()
                done += 1
            return done

        async def repeat_observed(observe: Callable[[float], None]) -> int:
            done = 0
            while (begun := now()) < until:
                await work()
                observe(now() - begun)
                done += 1
            return done

        tasks = [repeat() if seen is None else repeat_observed(seen) for _ in range(concurrency)]
        done = sum(await asyncio.gather(*tasks))
        return done / (clock() - started)

    return contestant
