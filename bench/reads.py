"""Reads and transactions at 10 thousand, 100 thousand and a million keys, and how the cost grows.

In memory, as reads of either engine are: what grows with the number of keys is not hidden by a disk.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import process_time

from bench.load import VALUE, closed_loop, fill, key, puts
from bench.results import Section, Table, Target, count, ratio
from bench.rounds import Contestant, Rounds, Settings, alternate, run
from quoracy.engines.opening import open_embedded
from quoracy.store.api import Store
from quoracy.store.model import Compare, KeyRange, Put, Txn

__all__ = ["measure"]

_NOTE = """\
One task reads from a store in memory, at random places; rates are per second of processor time. Keys
have 24 bytes, values 100. A transaction compares a version and puts the key; transactions and puts come
from 16 tasks. The last column is the cost of an operation with the most keys, relative to that with the
fewest: 1 is no growth."""


def measure(settings: Settings) -> Section:
    sizes = (1_000, 10_000) if settings.quick else (10_000, 100_000, 1_000_000)
    results = run(_all_sizes(settings, sizes))
    smallest, largest = f"{sizes[0]:,}", f"{sizes[-1]:,}"
    rows = []
    for what, rounds in results.items():
        row = [what, *(count(rounds.rate(f"{keys:,}")) for keys in sizes)]
        rows.append([*row, ratio(rounds.ratio(smallest, largest))])
    return Section(
        name="reads",
        title="Reads, transactions, and growth with the number of keys",
        note=_NOTE,
        tables=[Table(["operations/s", *(f"{keys:,} keys" for keys in sizes), "cost grows"], rows)],
        targets=[
            Target(
                f"{what}: cost with {largest} keys over that with {smallest} (a logarithm's)",
                rounds.ratio(smallest, largest),
                limit=math.log(sizes[-1]) / math.log(sizes[0]),
                at_least=False,
                unit="",
            )
            for what, rounds in results.items()
        ],
        data={
            "keys": sizes,
            "rates": {
                what: [rounds.rate(f"{keys:,}") for keys in sizes] for what, rounds in results.items()
            },
            "growth": {what: rounds.ratio(smallest, largest) for what, rounds in results.items()},
        },
    )


async def _all_sizes(settings: Settings, sizes: tuple[int, ...]) -> dict[str, Rounds]:
    async with AsyncExitStack() as stack:
        stores = {}
        for keys in sizes:
            settings.report(f"reads: filling a store with {keys:,} keys")
            stores[keys] = await stack.enter_async_context(open_embedded("memory:"))
            await fill(stores[keys], 0, keys)
        kinds: dict[str, Callable[[Store, int], Contestant]] = {
            "range, one key": _one_key,
            "range, 100 keys": _hundred_keys,
            "range, first of all": _first,
            "range, count of all": _count,
            "txn, compare and put": _compare_and_put,
            "put, a key that exists": _put_existing,
            "put, a new key": _put_new,
        }
        return {
            what: await alternate(
                settings,
                what,
                {f"{keys:,}": contestant(store, keys) for keys, store in stores.items()},
                slice_s=settings.slice_s / 2,
            )
            for what, contestant in kinds.items()
        }


def _one_key(store: Store, keys: int) -> Contestant:
    rng = random.Random(1)
    return _alone(lambda: store.range(key(rng.randrange(keys))))


def _hundred_keys(store: Store, keys: int) -> Contestant:
    rng = random.Random(2)

    def work() -> Awaitable[object]:
        first = rng.randrange(keys - 100)
        return store.range(KeyRange(key(first), key(first + 100)))

    return _alone(work)


def _first(store: Store, keys: int) -> Contestant:  # noqa: ARG001
    return _alone(lambda: store.range(KeyRange.everything(), limit=1))


def _count(store: Store, keys: int) -> Contestant:  # noqa: ARG001
    return _alone(lambda: store.range(KeyRange.everything(), count_only=True))


def _compare_and_put(store: Store, keys: int) -> Contestant:
    rng = random.Random(3)

    def work() -> Awaitable[object]:
        name = key(rng.randrange(keys))
        return store.txn(Txn((Compare.version(name, ">", 0),), (Put(name, VALUE),)))

    return _together(work)


def _put_existing(store: Store, keys: int) -> Contestant:
    rng = random.Random(4)
    return _together(puts(store, numbers=lambda: rng.randrange(keys)))


def _put_new(store: Store, keys: int) -> Contestant:
    # Spread over all keys, not appended at the end: that is the harder case.
    rng = random.Random(5)
    return _together(puts(store, numbers=lambda: rng.randrange(10**9, keys * 10**9)))


def _alone(work: Callable[[], Awaitable[object]]) -> Contestant:
    return closed_loop(work, 1, clock=process_time)


def _together(work: Callable[[], Awaitable[object]]) -> Contestant:
    return closed_loop(work, 16, clock=process_time)
