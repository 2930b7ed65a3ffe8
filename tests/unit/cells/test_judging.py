"""Answers judged by etcd's own history: each kind of lie is found, and the truth passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.cells.cell import Cell, Setup
from tests.cells.judging import Evidence, judge
from tests.cells.load import Refused
from tests.cells.load_sessions import Life
from tests.cells.load_watches import Watched
from tests.cells.network import Network
from tests.cells.truth import Truth
from tests.checkers.history import Op, append_records
from tests.checkers.watching import Batch, Change


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    """Of a key that was made at 2, changed at 4 and deleted at 6."""
    # A cell that is never started: only whether it has nodes is asked.
    cell = Cell.__new__(Cell)
    cell.setup, cell.network = Setup(), cast(Network, None)
    truth = Truth(cell)
    values = {2: b"1", 3: None, 4: b"2", 5: None, 6: None}
    for revision, value in values.items():
        key = "s/x" if revision in (3, 5) else "r/a"
        kind = "delete" if revision == 6 else "put"
        change = Change(kind, key, b"s/x" if key == "s/x" else value)
        truth.batches.append(Batch(revision, (change,)))
    return Evidence(
        directory=tmp_path,
        truth=truth,
        pinned=frozenset([1]),
        final={},
        digests={"h1-node": "x", "h2-node": "x"},
        faults=((50.0, 60.0),),
        outages=((50.0, 60.0),),
        woken=(80.0,),
        gone={},
        observed_until=100.0,
    )


def _write(evidence: Evidence, what: str, *records: object) -> None:
    with (evidence.directory / f"some.{what}.jsonl").open("ab") as file:
        append_records(file, records)


def _problem(evidence: Evidence, what: str) -> str:
    return judge(evidence)[what].problem


TRUE = [
    Op(1, 1.0, 2.0, "cas", "r/a", b"1", None, True, 2),
    Op(2, 2.1, 2.2, "read", "r/a", b"1", revision=3),
    Op(1, 3.0, 4.0, "write", "r/a", b"2", revision=4),
    Op(2, 4.1, 4.2, "cas", "r/a", b"9", b"1", False, 5),
    Op(1, 5.0, 6.0, "write", "r/a", None, revision=6),
    Op(1, 7.0, None, "write", "r/a", b"3"),
]


def test_the_truth_passes(evidence: Evidence) -> None:
    _write(evidence, "ops", *TRUE)
    _write(evidence, "refused", Refused("r/a", b"4"))
    assert all(verdict.ok for verdict in judge(evidence).values())


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Op(1, 1.0, 2.0, "read", "r/a", b"1", revision=4), "etcd had b'2'"),
        (Op(1, 1.0, 2.0, "read", "r/a", None, revision=5), "etcd had b'2'"),
        (Op(1, 1.0, 2.0, "write", "r/a", b"2", revision=5), "etcd's last change"),
        (Op(1, 1.0, 2.0, "write", "r/a", b"7", revision=4), "etcd's last change"),
        (Op(1, 1.0, 2.0, "cas", "r/a", b"2", b"0", True, 4), "etcd had b'1' before"),
        (Op(1, 1.0, 2.0, "cas", "r/a", b"9", b"2", False, 5), "just that value"),
    ],
)
def test_an_answer_that_etcd_contradicts_is_found(evidence: Evidence, op: Op, said: str) -> None:
    _write(evidence, "ops", op)
    assert said in _problem(evidence, "answers")


def test_a_write_that_was_refused_and_done_is_found(evidence: Evidence) -> None:
    _write(evidence, "refused", Refused("r/a", b"2"))
    assert "was refused b'2', and has had it" in _problem(evidence, "answers")


def test_a_write_of_unknown_outcome_that_was_done_twice_is_found(evidence: Evidence) -> None:
    evidence.truth.batches.append(Batch(7, (Change("put", "r/a", b"2"),)))
    _write(evidence, "ops", Op(1, 7.0, None, "write", "r/a", b"2"))
    assert "carried out 2 times" in _problem(evidence, "answers")


def test_a_read_that_goes_back_in_time_is_found_only_where_it_must_not(evidence: Evidence) -> None:
    for client in (1, 2):
        _write(evidence, "ops", Op(client, 1.0, 2.0, "read", "r/a", b"2", revision=5))
        _write(evidence, "stale", Op(client, 3.0, 4.0, "read", "r/a", b"1", revision=3))
    problem = _problem(evidence, "stale reads")
    assert "client=1" in problem
    assert "client=2" not in problem


def test_a_znode_that_goes_back_in_time_is_found_at_whichever_node(evidence: Evidence) -> None:
    for key, mzxid in (("/r/a", 5), ("/r/b", 3), ("/r/a", 5)):
        _write(evidence, "stale", Op(9, 1.0, 2.0, "read", key, b"2", revision=mzxid))
    assert not _problem(evidence, "stale reads")
    _write(evidence, "stale", Op(9, 3.0, 4.0, "read", "/r/a", b"1", revision=4))
    assert "it had seen revision 5" in _problem(evidence, "stale reads")


def test_replicas_that_differ_are_found(evidence: Evidence) -> None:
    assert "differ" in _problem(replace(evidence, digests={"h1-node": "x", "h1-etcd": "y"}), "replicas")


def test_a_traceback_in_the_log_of_a_node_is_found(evidence: Evidence) -> None:
    log = evidence.directory / "h1-node.log"
    log.write_text("2026-01-01T00:00:00.000Z info    serving\n")
    assert not _problem(evidence, "logs")
    log.write_text(log.read_text() + "Traceback (most recent call last):\n  ...\n")
    assert "h1-node.log: Traceback" in _problem(evidence, "logs")


def test_history_that_is_said_to_be_gone_and_is_kept_is_found(evidence: Evidence) -> None:
    evidence.truth.compacted = 3
    rightly = Watched("a", "", 0, compacted=True)
    wrongly = Watched("b", "", 3, compacted=True)
    _write(evidence, "watched", rightly, wrongly)
    problem = _problem(evidence, "watches")
    assert "watcher b" in problem
    assert "watcher a" not in problem


def test_a_session_may_outlive_a_time_in_which_nobody_could_write(evidence: Evidence) -> None:
    _write(evidence, "lives", Life("/eph/1", 7, 2.0, 10.0, 10.0))
    evidence.gone["/eph/1"] = 15.5
    assert "late" in _problem(evidence, "ephemerals")
    for call in (11.0, 12.0):
        _write(evidence, "ops", Op(1, call, call, "write", "/r/a", b"%f" % call))
    assert not _problem(evidence, "ephemerals")


@pytest.mark.parametrize(
    ("acked", "gone", "said"),
    [
        (10.0, 12.5, ""),
        (10.0, 11.9, "early"),
        (10.0, 14.1, "late"),
        (49.0, 50.5, ""),  # near a fault two thirds of the timeout are promised
        (49.0, 50.2, "early"),
        (49.0, 63.9, ""),  # and the clock starts again when it is over
        (49.0, 64.1, "late"),
        (10.0, None, "late"),
        (79.0, 79.4, "early"),
        (79.5, 80.1, ""),  # what an old leader of etcd revoked by mistake
        (80.5, 82.1, "early"),
        (98.0, None, ""),  # nobody looked any more when its time was up
    ],
)
def test_ephemerals_go_in_their_time(
    evidence: Evidence, acked: float, gone: float | None, said: str
) -> None:
    _write(evidence, "lives", Life("/eph/1", 7, 2.0, acked, acked))
    if gone is not None:
        evidence.gone["/eph/1"] = gone
    verdicts = judge(evidence)
    problem = verdicts["ephemerals"].problem if "ephemerals" in verdicts else ""
    assert said in problem
    assert bool(said) == bool(problem)
