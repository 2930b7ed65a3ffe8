"""What is there by the hundred thousand, once compiled, is nothing to the garbage collector."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quoracy.compiled import is_compiled
from quoracy.engines.embedded.disk.shared_rows import SharedRow
from quoracy.engines.embedded.memory.leases import _Lease
from quoracy.faces.zookeeper.tree.znodes import Node, PlainChange, SessionRecord
from quoracy.faces.zookeeper.writing.outcome import Outcome
from quoracy.store.following import KeyWrite
from quoracy.store.model import LeaseId
from quoracy.wire.zookeeper.requests import Create, Delete, SetData

ROOT = Path(__file__).parents[2]

MAKERS: dict[str, Callable[[], object]] = {
    "Node": lambda: Node(b"/a"),
    "SessionRecord": lambda: SessionRecord(7),
    "PlainChange": lambda: PlainChange(Node(b"/a"), None),
    "SharedRow": lambda: SharedRow(1, 2, 3),
    "_Lease": lambda: _Lease(LeaseId(7), 1.0, 1.0),
    "KeyWrite": lambda: KeyWrite(b"k", None),
    "Outcome": lambda: Outcome(0, 1, b""),
    "Create": lambda: Create(1, b"/a", None, (), 0),
    "Delete": lambda: Delete(b"/a", 0),
    "SetData": lambda: SetData(b"/a", b"", 0),
}

# What is freed inside so many others, one in the other, is put aside by Python and freed later.
_DEEP = """
import sys
from tests.unit.test_native import MAKERS

for depth in range(1, 120):
    boxed = MAKERS[sys.argv[1]]()
    for _ in range(depth):
        boxed = [boxed]
    del boxed
"""


@pytest.mark.skipif(not is_compiled(), reason="from source, every object is the collector's")
@pytest.mark.parametrize("name", MAKERS)
def test_the_garbage_collector_does_not_look_at_it(name: str) -> None:
    assert not gc.is_tracked(MAKERS[name]())


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_else_is_written_to_when_it_is_freed_deep_inside_others(name: str) -> None:
    # In a process of its own, which ends if anything was written outside of what was allocated.
    done = subprocess.run(
        [sys.executable, "-c", _DEEP, name],
        cwd=ROOT,
        env=os.environ | {"PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not is_compiled(), reason="from source, every object is the collector's")
def test_nor_at_the_table_of_all_znodes() -> None:
    nodes = {b"/a": Node(b"/a")}
    gc.collect(0)
    assert not gc.is_tracked(nodes)
