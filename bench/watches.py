"""Watches: how fast events fan out, and what a put pays for watchers that look elsewhere."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from bench.load import VALUE, closed_loop, key, puts
from bench.results import Section, Table, count, ratio
from bench.rounds import Contestant, Settings, alternate, run
from quoracy.engines.opening import open_embedded
from quoracy.store.api import Store, Watch
from quoracy.store.model import KeyRange

__all__ = ["measure"]

_NOTE = """\
In memory, per second of processor time. Fan-out: 16 tasks put one key until every watcher of it has
received every event; an event that reaches 1,000 watchers counts 1,000 times. Bystanders: 16 tasks put
new keys while watchers watch others; 1 means no difference from a store without watchers."""


def measure(settings: Settings) -> Section:
    crowd = 100 if settings.quick else 1_000
    bystanders = 1_000 if settings.quick else 10_000
    fan_out = run(_fan_out(settings, crowd))
    rates, costs = run(_bystanders(settings, bystanders))
    return Section(
        name="watches",
        title="Watches",
        note=_NOTE,
        tables=[
            Table(
                ["fan-out", "events/s delivered"],
                [
                    [f"{watchers:,} watcher{'s' if watchers > 1 else ''} of the key", count(rate)]
                    for watchers, rate in fan_out.items()
                ],
            ),
            Table(
                ["bystanders", "puts/s", "cost of a put"],
                [[what, count(rates[what]), ratio(costs[what])] for what in rates],
            ),
        ],
        data={"fan_out": {str(n): rate for n, rate in fan_out.items()}, "bystanders": costs},
    )


async def _fan_out(settings: Settings, crowd: int) -> dict[int, float]:
    async with AsyncExitStack() as stack:
        contestants: dict[str, Contestant] = {}
        for watchers in (1, crowd):
            store = await stack.enter_async_context(open_embedded("memory:"))
            contestants[str(watchers)] = _deliveries(store, watchers, events=200_000 // (watchers + 20))
        rounds = await alternate(settings, "watches, fan-out", contestants)
        return {watchers: rounds.rate(str(watchers)) for watchers in (1, crowd)}


def _deliveries(store: Store, watchers: int, *, events: int) -> Contestant:
    async def consume(stream: Watch) -> None:
        received = 0
        while received < events:
            received += len((await anext(stream)).events)

    async def contestant(seconds: float) -> float:  # noqa: ARG001
        numbers = iter(range(events))

        async def put() -> None:
            for _ in numbers:
                await store.put(key(0), VALUE)

        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(store.watch(key(0))) for _ in range(watchers)]
            started = time.process_time()
            await asyncio.gather(*map(consume, streams), *(put() for _ in range(16)))
            return watchers * events / (time.process_time() - started)

    return contestant


async def _bystanders(settings: Settings, watchers: int) -> tuple[dict[str, float], dict[str, float]]:
    nobody, exact, prefixes = "no watchers", f"{watchers:,} on other keys", f"{watchers:,} on prefixes"
    async with AsyncExitStack() as stack:
        contestants = {}
        for what in (nobody, exact, prefixes):
            store = await stack.enter_async_context(open_embedded("memory:"))
            for number in range(0 if what == nobody else watchers):
                name = b"watched/%08d/" % number
                keys = name if what == exact else KeyRange.prefix(name)
                await stack.enter_async_context(store.watch(keys))
            contestants[what] = closed_loop(puts(store), 16, clock=time.process_time)
        rounds = await alternate(settings, "watches, bystanders", contestants)
        return (
            {what: rounds.rate(what) for what in contestants},
            {what: rounds.ratio(nobody, what) for what in contestants},
        )
