"""What is there by the hundred thousand, once compiled, is nothing to the garbage collector."""

from __future__ import annotations

import gc

import pytest

from quorate.compiled import is_compiled
from quorate.engines.embedded.shared_rows import SharedRow
from quorate.faces.zookeeper.outcome import Outcome
from quorate.faces.zookeeper.tree import Node, SessionRecord
from quorate.store.following import KeyWrite
from quorate.wire.zookeeper.plain_writes import Create, Delete, SetData


@pytest.mark.skipif(not is_compiled(), reason="from source, every object is the collector's")
@pytest.mark.parametrize(
    "made",
    [
        Node(b"/a"),
        SessionRecord(7),
        SharedRow(1, 2, 3),
        KeyWrite(b"k", None),
        Outcome(0, 1, b""),
        Create(1, b"/a", None, (), 0),
        Delete(b"/a", 0),
        SetData(b"/a", b"", 0),
    ],
    ids=lambda made: type(made).__name__,
)
def test_the_garbage_collector_does_not_look_at_it(made: object) -> None:
    assert not gc.is_tracked(made)


@pytest.mark.skipif(not is_compiled(), reason="from source, every object is the collector's")
def test_nor_at_the_table_of_all_znodes() -> None:
    nodes = {b"/a": Node(b"/a")}
    gc.collect(0)
    assert not gc.is_tracked(nodes)
