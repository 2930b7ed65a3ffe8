"""Durable puts a second, next to the raw loops, at 1, 16 and 256 concurrent writers."""

from __future__ import annotations

from contextlib import AsyncExitStack, closing

from bench.load import closed_loop, puts
from bench.raw import RawFile, RawSqlite
from bench.results import Section, Table, Target, count, ratio
from bench.rounds import LOOPS, Contestant, LoopName, Rounds, Settings, alternate, run
from quoracy.engines.opening import open_embedded

__all__ = ["WRITERS", "measure"]

WRITERS = (1, 16, 256)

_FILE = "append + fdatasync"
_SINGLE = "append + fdatasync, one row"
_SQLITE = "SQLite"
_QUORACY = "Quoracy"

_NOTE = """\
Every writer puts a new 24-byte key with a 100-byte value and waits until it is on disk. The raw loops
write the same number of rows at a time: a file of 150-byte rows with one fdatasync per batch, and an
SQLite table with one transaction per batch and the journal's settings (WAL, synchronous=FULL). Quoracy
and SQLite are warm: their write-ahead log has been filled once, so it is overwritten."""


def measure(settings: Settings) -> Section:
    results = {
        (loop, concurrency): run(_compare(settings, loop, concurrency), loop)
        for loop in LOOPS
        for concurrency in WRITERS
    }
    return Section(
        name="puts",
        title="Durable puts",
        note=_NOTE,
        tables=[_table(results)],
        targets=_targets(results),
        data={
            "writers": WRITERS,
            "rates": {
                loop: {
                    name: [results[loop, concurrency].rate(name) for concurrency in WRITERS]
                    for name in (_FILE, _SQLITE, _QUORACY, _SINGLE)
                }
                for loop in LOOPS
            },
            "ratios": {
                loop: {
                    f"{_QUORACY} / {peer}": [
                        results[loop, concurrency].ratio(_QUORACY, peer) for concurrency in WRITERS
                    ]
                    for peer in (_FILE, _SQLITE, _SINGLE)
                }
                for loop in LOOPS
            },
        },
    )


async def _compare(settings: Settings, loop: LoopName, concurrency: int) -> Rounds:
    what = f"puts, {concurrency} writers, {loop}"
    directory = settings.directory / f"puts-{loop}-{concurrency}"
    directory.mkdir()
    async with AsyncExitStack() as stack:
        file = stack.enter_context(closing(RawFile(directory / "raw", rows=concurrency)))
        single = stack.enter_context(closing(RawFile(directory / "single", rows=1)))
        sqlite = stack.enter_context(closing(RawSqlite(directory / "raw.db", rows=concurrency)))
        store = await stack.enter_async_context(open_embedded(f"sqlite:{directory / 'quoracy.db'}"))
        quoracy = closed_loop(puts(store), concurrency)
        settings.report(f"{what}: warming up")
        for contestant in (quoracy, sqlite):
            await contestant(0.1 if settings.quick else 0.75)
        peers: dict[str, Contestant] = {
            _FILE: file,
            _SQLITE: sqlite,
            _QUORACY: quoracy,
            _SINGLE: single,
        }
        return await alternate(settings, what, peers)


def _named(concurrency: int) -> str:
    return "1 writer" if concurrency == 1 else f"{concurrency} writers"


def _table(results: dict[tuple[LoopName, int], Rounds]) -> Table:
    rows = []
    for (loop, concurrency), rounds in results.items():
        row = [f"{_named(concurrency)}, {loop}"]
        row += [count(rounds.rate(name)) for name in (_FILE, _SQLITE, _QUORACY)]
        row += [ratio(rounds.ratio(_QUORACY, peer)) for peer in (_FILE, _SQLITE, _SINGLE)]
        rows.append(row)
    return Table(
        [
            "puts/s",
            "append + fdatasync",
            "SQLite",
            "Quoracy",
            "of fdatasync",
            "of SQLite",
            "of 1-row fdatasync",
        ],
        rows,
    )


def _targets(results: dict[tuple[LoopName, int], Rounds]) -> list[Target]:
    targets = [
        Target(
            f"puts, {_named(concurrency)}, as a part of the raw fdatasync loop",
            results["uvloop", concurrency].ratio(_QUORACY, _FILE),
            limit=0.8,
            at_least=True,
            unit="",
        )
        for concurrency in (1, 16)
    ]
    targets.append(
        Target(
            "puts, 256 writers, in multiples of the fdatasync rate of one writer",
            results["uvloop", 256].ratio(_QUORACY, _SINGLE),
            limit=10,
            at_least=True,
            unit="",
        )
    )
    return targets
