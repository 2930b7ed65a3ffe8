"""Opening a store of up to a million keys: how long it takes, and the memory each key takes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from bench.load import fill
from bench.results import Section, Table, Target, count, duration, size
from bench.rounds import Settings, run
from quoracy.engines.opening import open_embedded

__all__ = ["child", "measure"]

_NOTE = """\
Every key (24 bytes, value 100 bytes) was put in a revision of its own. The store is opened in a fresh
process; memory is what that process then holds, minus what it held after its imports."""


def measure(settings: Settings) -> Section:
    sizes = (2_000, 10_000) if settings.quick else (10_000, 100_000, 1_000_000)
    path = settings.directory / "scale.db"
    open_s, key_bytes, file_bytes = [], [], []
    filled = 0
    for keys in sizes:
        settings.report(f"scale: filling up to {keys:,} keys")
        run(_fill(f"sqlite:{path}", filled, keys))
        filled = keys
        settings.report(f"scale: opening {keys:,} keys")
        opens = [child("open", f"sqlite:{path}") for _ in range(3)]
        assert all(result["keys"] == keys for result in opens)
        open_s.append(statistics.median(result["open_s"] for result in opens))
        key_bytes.append(
            statistics.median(result["open_bytes"] - result["imported_bytes"] for result in opens)
            / keys
        )
        file_bytes.append(path.stat().st_size)
    rows = [
        [f"{keys:,} keys", duration(seconds), count(memory), size(disk), count(disk / keys)]
        for keys, seconds, memory, disk in zip(sizes, open_s, key_bytes, file_bytes, strict=True)
    ]
    return Section(
        name="scale",
        title="Opening and memory",
        note=_NOTE,
        tables=[Table(["sqlite:", "open", "memory B/key", "file", "file B/key"], rows)],
        targets=[
            Target(f"opening {sizes[-1]:,} keys", open_s[-1], limit=15, at_least=False, unit="s"),
            Target(
                f"memory for each of {sizes[-1]:,} keys",
                key_bytes[-1],
                limit=1024,
                at_least=False,
                unit="B",
            ),
        ],
        data={"keys": sizes, "open_s": open_s, "key_bytes": key_bytes, "file_bytes": file_bytes},
    )


async def _fill(url: str, first: int, end: int) -> None:
    async with open_embedded(url) as store:
        await fill(store, first, end)


def child(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.child", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result
