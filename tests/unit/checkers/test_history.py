"""Histories on disk: what is written is read, and a history that is not whole is not read at all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.checkers.acknowledged import Add
from tests.checkers.history import Op, append_records, read_history, read_records, write_history
from tests.checkers.watching import Batch, Change
from tests.unit.checkers.simulated import Load, simulate


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    ops = simulate(Load(operations=200, lost=0.1, deletes=0.1, keys=3), random.Random(1))
    assert any(op.done is None for op in ops)
    write_history(tmp_path / "all", ops)
    assert read_history(tmp_path / "all") == ops


def test_histories_of_several_processes_come_in_the_order_of_calls(tmp_path: Path) -> None:
    ops = simulate(Load(operations=200, clients=6), random.Random(2))
    paths = [tmp_path / str(client) for client in range(6)]
    for client, path in enumerate(paths):
        write_history(path, [op for op in ops if op.client == client])
    assert read_history(*paths) == ops


def test_other_records_can_be_kept_the_same_way(tmp_path: Path) -> None:
    adds = [Add("set", b"\x00\xff", "unknown"), Add("set", b"", "acknowledged")]
    batches = [Batch(4, (Change("put", "a", b"1"), Change("delete", "b")))]
    with (tmp_path / "adds").open("ab") as file:
        append_records(file, adds)
    with (tmp_path / "batches").open("ab") as file:
        append_records(file, batches)
    assert list(read_records(tmp_path / "adds", Add)) == adds
    (batch,) = read_records(tmp_path / "batches", Batch)
    assert batch.revision == 4
    assert tuple(map(tuple, batch.changes)) == (("put", "a", b"1"), ("delete", "b", None))


def test_a_history_whose_writer_was_killed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "torn"
    write_history(path, simulate(Load(operations=5), random.Random(3)))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="line 5 is cut off"):
        read_history(path)


def test_a_line_that_is_no_operation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    write_history(path, [Op(1, 0.0, 1.0, "read", "k")])
    path.write_bytes(
        path.read_bytes() + b'{"client":1,"call":0,"done":1,"kind":"increment","key":"k"}\n'
    )
    with pytest.raises(ValueError, match=r"line 2 is not one Op.*increment"):
        read_history(path)
