"""Revisions: they prove what is well, and betray what values alone would not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkers import linearizable
from tests.checkers.history import Op
from tests.checkers.linearizable import check_registers
from tests.checkers.revisions import check_store_revisions, is_proved
from tests.unit.checkers.simulated import Load, simulate
from tests.unit.checkers.test_linearizable import A, B, C, cas, read, write

BETRAYED: dict[str, list[Op]] = {
    "two writes with one revision": [write(0, 9, A, at=2), write(0, 9, B, at=2)],
    "a write before a revision that was seen": [
        write(0, 1, A, at=5), write(2, 3, B, at=4), read(4, 5, B, at=6),
    ],
    "a write with a revision that was seen before": [read(0, 1, None, at=2), write(2, 3, A, at=2)],
    "a read that goes back": [write(0, 9, A, at=3), read(1, 2, A, at=3), read(4, 5, A, at=2)],
    "a read behind an acknowledged write": [write(0, 1, A, at=3), read(2, 3, A, at=2)],
    "a read that does not show its revision": [
        write(0, 9, A, at=2), write(0, 9, B, at=3), read(1, 8, A, at=3),
    ],
    "a compare that failed on the value of its revision": [
        write(0, 9, A, at=2), write(0, 9, B, at=3), cas(1, 8, A, C, ok=False, at=2),
    ],
    "a deletion with the revision of another write": [write(0, 9, A, at=2), cas(1, 8, A, None, at=2)],
    "a read explained only by a write that was called later": [
        write(0, 99, A, at=2), write(0, 99, B, at=3), read(1, 2, A, at=4), write(50, None, A),
    ],
    "a write with the revision of an earlier one that nobody knows of": [
        write(0, None, A), read(1, 2, A, at=2), write(3, 4, A, at=2),
    ],
    "a swap whose premise was not there": [
        write(0, 9, A, at=2), cas(0, 9, A, C, at=4), write(0, 9, B, at=3),
    ],
}  # fmt: skip

WELL: dict[str, list[Op]] = {
    "several looks at one revision": [
        write(0, 1, A, at=2), read(2, 3, A, at=2), read(2, 3, A, at=2), cas(4, 5, B, C, ok=False, at=2),
    ],
    "revisions of other keys in between": [
        write(0, 1, A, at=2), read(2, 3, A, at=7), cas(4, 5, A, B, at=9), read(6, 7, B, at=20),
    ],
    "deletions that found nothing": [
        write(0, 1, None, at=4), write(2, 3, None, at=4), read(4, 5, None, at=4), write(6, 7, A, at=5),
    ],
    "a swap that deleted, then a deletion that found nothing": [
        write(0, 1, A, at=2), write(2, 9, None, at=3), cas(3, 8, A, None, at=3), read(4, 9, None, at=3),
    ],
    "a write of unknown outcome in between": [
        write(0, 1, A, at=2), write(2, None, B), read(3, 4, B, at=3), cas(5, 6, B, C, at=4),
    ],
    "some answers without revision": [
        write(0, 1, A, at=2), write(2, 3, B), read(4, 5, B, at=3), cas(6, 7, A, C, ok=False),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", BETRAYED)
def test_betrayed_by_revisions_alone(what: str) -> None:
    ops = BETRAYED[what]
    assert check_registers([replace(op, revision=None) for op in ops]), "the values alone are well"
    verdict = check_registers(ops)
    assert not verdict.ok
    assert verdict.problem.startswith("k: linearizable, but "), verdict.problem


@pytest.mark.parametrize("what", WELL)
def test_revisions_that_are_well(what: str) -> None:
    verdict = check_registers(WELL[what])
    assert verdict.ok, verdict.problem


def test_a_read_that_goes_back_is_shown_with_what_came_before() -> None:
    problem = check_registers(BETRAYED["a read behind an acknowledged write"]).problem
    assert problem.splitlines() == [
        "k: linearizable, but the revision went back in time:",
        "    0.000000 ..   1.000000  client 0    k: write b'a'  @3",
        "    2.000000 ..   3.000000  client 1    k: read b'a'  @2",
    ]


def test_real_time_is_part_of_the_proof() -> None:
    ops = [write(0, 1, A, at=3), write(2, 3, B, at=2), read(4, 5, A, at=3)]
    assert not is_proved(ops, None)
    assert check_registers(ops).problem.startswith("k: not linearizable")


def test_an_unknown_write_is_not_placed_before_its_call() -> None:
    ops = [read(0, 1, A, at=2), write(2, None, A)]
    assert not is_proved(ops, None)
    assert check_registers(ops).problem.startswith("k: not linearizable")


def test_the_proof_by_revisions_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizable, "is_explained", None)
    ops = simulate(Load(clients=20, operations=5_000, keys=10), random.Random(5))
    assert check_registers(ops)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1]))
def test_a_revision_that_went_back_is_always_caught(seed: int, lost: float) -> None:
    rng = random.Random(seed)
    ops = simulate(Load(operations=60, keys=2, lost=lost), rng)
    writes = [
        (op.key, op.done, op.revision)
        for op in ops
        if op.kind == "write" and op.revision is not None and op.done is not None
    ]
    for op in rng.sample(ops, len(ops)):
        before = [revision for key, done, revision in writes if key == op.key and done < op.call]
        if before and op.revision is not None:
            wrong = replace(op, revision=rng.choice(before) - 1)
            verdict = check_registers([wrong if each is op else each for each in ops])
            assert not verdict.ok
            return


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(0, 2**32))
def test_the_revisions_of_an_atomic_store_agree_across_keys(seed: int) -> None:
    ops = simulate(Load(operations=100, keys=5, lost=0.05, deletes=0.2), random.Random(seed))
    verdict = check_store_revisions(ops)
    assert verdict.ok, verdict.problem


def test_a_read_of_one_key_behind_a_write_of_another_is_caught() -> None:
    ops = [write(0, 1, A, at=3), replace(read(2, 3, None, at=2), key="other")]
    assert check_registers(ops), "each key alone is well"
    assert "went back in time" in check_store_revisions(ops).problem


def test_two_keys_written_at_one_revision_are_caught() -> None:
    ops = [write(0, 1, A, at=3), replace(write(0, 1, A, at=3), key="other")]
    assert "given to two writes" in check_store_revisions(ops).problem
