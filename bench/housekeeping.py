"""What writers notice of compaction: how long puts take with and without it going on."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from bench.load import closed_loop, fill, puts
from bench.results import Section, Table, duration
from bench.rounds import Settings, run
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded

__all__ = ["measure"]

_WRITERS = 16
_QUIET, _BUSY = "nothing else going on", "compaction going on"

_NOTE = """\
16 writers put new keys into a durable store whose history holds nine old versions of each key. Then
all history is compacted while they continue: memory is freed, rows are deleted in slices, space is
returned."""


def measure(settings: Settings) -> Section:
    times, frees = run(_measure(settings, settings.directory / "housekeeping.db"))
    rows = []
    data: dict[str, object] = {"versions_per_s": frees}
    for what, took in times.items():
        took.sort()
        p50, p99, most = took[len(took) // 2], took[len(took) * 99 // 100], took[-1]
        rows.append([what, f"{len(took):,}", duration(p50), duration(p99), duration(most)])
        data[what] = {"p50_s": p50, "p99_s": p99, "max_s": most}
    return Section(
        name="housekeeping",
        title="Housekeeping",
        note=f"{_NOTE} It freed {frees:,.0f} versions a second.",
        tables=[Table(["how long a put takes", "puts", "p50", "p99", "longest"], rows)],
        data=data,
    )


async def _measure(settings: Settings, path: Path) -> tuple[dict[str, list[float]], float]:
    keys = 300 if settings.quick else 5_000
    times: dict[str, list[float]] = {_QUIET: [], _BUSY: []}
    fresh = itertools.count(10**9)
    freed, free_s = 0, 0.0
    # Compaction only when this benchmark says so.
    async with open_embedded(f"sqlite:{path}", retention=Retention(None, None)) as store:
        for number in range(2 if settings.quick else 5):
            settings.report(f"housekeeping: round {number + 1}, writing history")
            for _ in range(10):
                await fill(store, 0, keys)
            settings.report(f"housekeeping: round {number + 1}, measuring")
            work = puts(store, numbers=fresh.__next__)
            quiet = closed_loop(work, _WRITERS, seen=times[_QUIET].append)
            await quiet(4 * settings.slice_s)
            busy = closed_loop(work, _WRITERS, seen=times[_BUSY].append)
            started, waste = time.perf_counter(), store.statistics().history_bytes
            await store.compact((await store.status()).revision)
            while _cleaning(store):
                await busy(0.02)
            free_s += time.perf_counter() - started
            freed += waste // (waste // (keys * 9) or 1)
            await busy(settings.slice_s)  # space is given back after the rows are gone
            await asyncio.sleep(0.2)
    return times, freed / free_s


def _cleaning(store: EmbeddedStore) -> bool:
    statistics = store.statistics()
    return bool(statistics.garbage_count or statistics.history_bytes)
