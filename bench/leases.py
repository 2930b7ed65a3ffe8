"""Leases: keep-alives a second with 100,000 of them, and what a tick costs when nothing is due."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator

from bench.load import closed_loop, fill
from bench.results import Section, Table, count, duration
from bench.rounds import Contestant, Settings, alternate, run
from quoracy.engines.embedded.maintenance import LEASES_PER_TURN
from quoracy.engines.embedded.memory.leases import STALL_S, LeaseTable
from quoracy.engines.opening import open_embedded
from quoracy.store.api import Store
from quoracy.store.model import LeaseId

__all__ = ["measure"]

_TTL_S = 30.0

_NOTE = """\
In memory; keep-alives do not go to disk in either engine. A tick finds the leases that are due, ten
times a second. The last line is the worst case: leases that were granted all at once and kept alive
since, at the time of their first deadline."""


def measure(settings: Settings) -> Section:
    crowd = 10_000 if settings.quick else 100_000
    rates = run(_keep_alives(settings, (crowd // 100, crowd)))
    ticks = {leases: _idle_tick_s(leases) for leases in (crowd // 100, crowd)}
    worst_s = max(_ticks_after_burst_s(crowd))
    rows = [
        [f"keep-alives/s, {leases:,} leases", count(rates[leases])] for leases in (crowd // 100, crowd)
    ]
    rows += [[f"tick, {leases:,} leases, none due", duration(ticks[leases])] for leases in ticks]
    rows.append([f"longest turn of the loop after {crowd:,} grants at once", duration(worst_s)])
    return Section(
        name="leases",
        title="Leases",
        note=_NOTE,
        tables=[Table(["leases", "result"], rows)],
        data={
            "keep_alives": {str(leases): rate for leases, rate in rates.items()},
            "tick_s": {str(leases): tick_s for leases, tick_s in ticks.items()},
            "worst_tick_s": worst_s,
        },
    )


async def _keep_alives(settings: Settings, sizes: tuple[int, ...]) -> dict[int, float]:
    rates = {}
    for leases in sizes:
        settings.report(f"leases: granting {leases:,}")
        async with open_embedded("memory:") as store:
            await fill(store, 0, 1000)
            ids = [
                grant.id
                for _ in range(leases // 100)
                for grant in await asyncio.gather(*(store.grant(_TTL_S * 100) for _ in range(100)))
            ]
            random.Random(0).shuffle(ids)
            turn = itertools.cycle(ids)
            rounds = await alternate(settings, f"leases, {leases:,}", {"": _keep(store, turn)})
            rates[leases] = rounds.rate("")
    return rates


def _keep(store: Store, turn: Iterator[LeaseId]) -> Contestant:
    return closed_loop(lambda: store.keep_alive(next(turn)), 1, clock=time.process_time)


def _idle_tick_s(leases: int) -> float:
    table = _granted(leases)
    ticks = 10_000
    started = time.perf_counter()
    for _ in range(ticks):
        table.due(now=0.0)
    return (time.perf_counter() - started) / ticks


def _ticks_after_burst_s(leases: int) -> list[float]:
    table = _granted(leases)
    took = []
    now = 0.0
    while now < _TTL_S * 1.2:
        now += STALL_S
        if now % 10 == 0:
            for id in range(1, leases + 1):
                table.keep_alive(id, now=now)
        more = True
        while more:  # as the engine does it: others get their turn in between
            started = time.perf_counter()
            assert table.due(now=now, at_most=LEASES_PER_TURN) == []
            took.append(time.perf_counter() - started)
            more = table.is_any_due
    return took


def _granted(leases: int) -> LeaseTable:
    table = LeaseTable(now=0.0)
    for id in range(1, leases + 1):
        table.grant(LeaseId(id), _TTL_S, now=0.0)
    return table
