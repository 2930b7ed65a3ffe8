"""Starting up: how long the imports take, and what an idle process holds."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from bench.results import Section, Table, duration, size
from bench.rounds import Settings
from bench.scale import child

__all__ = ["measure"]

_NOTE = "Processes of their own; the first line is Python alone."


def measure(settings: Settings) -> Section:
    bare_s, import_s = [], []
    for number in range(3 if settings.quick else 9):
        settings.report(f"startup: round {number + 1}")
        bare_s.append(_process_s("pass"))
        import_s.append(_process_s("import quoracy.engines.opening"))
    memory = child("open", "memory:")
    rows = [
        ["python -c pass", duration(statistics.median(bare_s)), size(memory["bare_bytes"])],
        [
            "python -c 'import quoracy.engines.opening'",
            duration(statistics.median(import_s)),
            size(memory["imported_bytes"]),
        ],
        ["an idle store, memory:", "", size(memory["open_bytes"])],
    ]
    return Section(
        name="startup",
        title="Starting",
        note=_NOTE,
        tables=[Table(["process", "time", "memory"], rows)],
        data={
            "bare_s": statistics.median(bare_s),
            "import_s": statistics.median(import_s),
            "memory": memory,
        },
    )


def _process_s(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started
