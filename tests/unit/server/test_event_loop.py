"""What the server makes of Python's garbage collector: it comes seldom, and cycles do not pile up."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, as the collector is everybody's.
_PROGRAM = """
import gc, weakref
from quoracy.server.event_loop import all_loaded, run

class Cycle:
    def __init__(self):
        self.itself = self

async def main():
    loaded = [[number] for number in range(100_000)]
    all_loaded()
    frozen = gc.get_freeze_count()
    assert frozen > 100_000
    alive = weakref.WeakSet()
    most = 0
    for _ in range(200_000):
        alive.add(Cycle())
        most = max(most, len(alive.data))
    kept = [[number] for number in range(50_000)]  # survives, and is not frozen
    gc.collect()
    assert gc.get_freeze_count() <= frozen
    print(most, len(alive), len(loaded), len(kept))

run(main())
"""


def test_cycles_that_nobody_holds_do_not_pile_up_behind_what_was_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    most, left, _, _ = map(int, done.stdout.split())
    assert most < 20_000
    assert left == 0
