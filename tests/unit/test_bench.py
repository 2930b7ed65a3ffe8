"""The benchmarks run, and put Quoracy next to the raw loops.  How fast anything is, no test asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_quick_puts_print_ratios_and_targets(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "--quick", "--only", "puts"),
            *("--dir", tmp_path / "data", "--json", tmp_path / "results.json"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    for word in ("256 writers, uvloop", "256 writers, asyncio", "of fdatasync", "at least 0.8"):
        assert word in done.stdout
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {"commit", "processor", "Python", "SQLite", "settings"} <= set(results["machine"])
    ratios = results["results"]["puts"]["ratios"]
    assert [len(values) for loop in ratios.values() for values in loop.values()] == [3] * 6
    assert all(value > 0 for loop in ratios.values() for values in loop.values() for value in values)
    assert len(results["targets"]) == 3
    assert list((tmp_path / "data").iterdir()) == []
