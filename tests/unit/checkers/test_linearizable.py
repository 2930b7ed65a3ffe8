"""Registers: every planted violation is caught, and what looks odd but is allowed passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checkers.history import Op
from tests.checkers.linearizable import check_registers

A, B, C, D = b"a", b"b", b"c", b"d"


def write(call: float, done: float | None, value: bytes | None, *, at: int | None = None) -> Op:
    return Op(0, call, done, "write", "k", value, revision=at)


def read(call: float, done: float | None, value: bytes | None, *, at: int | None = None) -> Op:
    return Op(1, call, done, "read", "k", value, revision=at)


def cas(
    call: float,
    done: float | None,
    expected: bytes | None,
    value: bytes | None,
    *,
    ok: bool = True,
    at: int | None = None,
) -> Op:
    return Op(2, call, done, "cas", "k", value, expected, ok, at)


VIOLATIONS: dict[str, list[Op]] = {
    "a stale read": [write(0, 1, A), write(2, 3, B), read(4, 5, A)],
    "a read that misses an acknowledged write": [write(0, 1, A), read(2, 3, None)],
    "two reads that see two writes in opposite order": [
        write(0, 9, A), write(0, 9, B), read(1, 2, A), read(3, 4, B), read(5, 6, A),
    ],
    "a read from the future": [read(0, 1, A), write(2, 3, A)],
    "a value never written": [write(0, 1, A), read(2, 3, B)],
    "a value only asked for by a compare that failed": [
        write(0, 1, A), cas(2, 3, C, B, ok=False), read(4, 5, B),
    ],
    "a lost update: two swaps of one value": [write(0, 1, A), cas(2, 5, A, B), cas(3, 6, A, C)],
    "a swap that took twice": [
        write(0, 1, A), cas(2, 3, A, B), write(4, 5, A), read(6, 7, A), read(8, 9, B),
    ],
    "a creation that took twice": [cas(0, 3, None, A), cas(1, 4, None, B)],
    "a lost acknowledged swap": [write(0, 1, A), cas(2, 3, A, B), read(4, 5, A)],
    "a compare that failed for no reason": [write(0, 1, A), cas(2, 3, A, B, ok=False), read(4, 5, A)],
    "a swap of what was overwritten before": [write(0, 1, A), write(2, 3, B), cas(4, 5, A, C)],
    "a deletion that came back": [write(0, 1, A), write(2, 3, None), read(4, 5, A)],
    "a write of unknown outcome that was seen before its call": [read(0, 1, A), write(2, None, A)],
    "a write of unknown outcome that took twice": [
        write(0, None, A), read(1, 2, A), write(3, 4, B), read(5, 6, A),
    ],
    "a swap of unknown outcome seen without its premise": [
        write(0, 1, A), cas(2, None, C, B), read(3, 4, B),
    ],
}  # fmt: skip

ALLOWED: dict[str, list[Op]] = {
    "nothing at all": [],
    "a read of nothing": [read(0, 1, None)],
    "an old value while the write goes on": [
        write(0, 1, A), write(2, 9, B), read(3, 4, A), read(5, 6, B),
    ],
    "an answer at the very instant of the next call": [write(0, 1, A), write(2, 4, B), read(4, 5, A)],
    "a write of unknown outcome that never came": [write(0, 1, A), write(2, None, B), read(3, 4, A)],
    "a write of unknown outcome that came": [write(0, 1, A), write(2, None, B), read(3, 4, B)],
    "a write of unknown outcome that came long after it was seen not to have": [
        write(0, 1, A), write(2, None, B), read(3, 4, A), write(5, 6, C), read(7, 8, C), read(9, 10, B),
    ],
    "two equal writes of unknown outcome that came at two times": [
        write(0, None, B), write(0, None, B), read(1, 2, B), write(3, 4, A), read(5, 6, B),
    ],
    "several equal writes of unknown outcome, of two values": [
        *(write(0, None, A) for _ in range(3)), *(write(0, None, B) for _ in range(2)),
        read(1, 2, A), read(3, 4, B), read(5, 6, A), read(7, 8, B), read(9, 10, A),
    ],
    "a swap of unknown outcome that must have come before a write of the same value": [
        cas(0, None, None, A), write(0, 30, A), write(0, None, D), read(1, 2, A), read(3, 4, D),
        read(5, 6, A), write(20, 40, D), read(50, 51, D),
    ],
    "a chain of swaps of unknown outcome": [
        write(0, None, A), cas(1, None, A, B), cas(2, None, B, C), read(3, 4, None), read(5, 6, C),
    ],
    "a swap of unknown outcome that freed the key": [
        write(0, 1, A), cas(2, None, A, None), read(3, 4, A), cas(5, 6, None, B),
    ],
    "a compare that failed because of a write of unknown outcome": [
        write(0, 1, A), write(2, None, B), cas(3, 4, A, C, ok=False), read(5, 6, B),
    ],
    "a read of unknown outcome": [write(0, 1, A), read(2, None, D)],
    "a swap that keeps the value": [write(0, 1, A), cas(2, 3, A, A), cas(4, 5, A, A), read(6, 7, A)],
    "reads between swaps that all overlap": [
        write(0, 1, A), cas(2, 9, A, B), cas(2, 9, B, A), read(3, 8, B), read(8, 9, A),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", VIOLATIONS)
def test_caught(what: str) -> None:
    verdict = check_registers(VIOLATIONS[what])
    assert not verdict.ok
    assert verdict.problem.startswith("k: not linearizable")
    assert verdict.checked == len(VIOLATIONS[what])


@pytest.mark.parametrize("what", ALLOWED)
def test_allowed(what: str) -> None:
    verdict = check_registers(ALLOWED[what])
    assert verdict.ok, verdict.problem
    assert verdict.checked == len(ALLOWED[what])


def test_what_a_register_holds_at_first_can_be_told() -> None:
    ops = [read(0, 1, A), cas(2, 3, A, B), read(4, 5, B)]
    assert check_registers(ops, initial=A)
    assert not check_registers(ops)


def test_keys_are_judged_apart_and_the_wrong_ones_named() -> None:
    good = [replace(op, key="good") for op in ALLOWED["a write of unknown outcome that came"]]
    bad = [replace(op, key="bad") for op in VIOLATIONS["a stale read"]]
    verdict = check_registers([*good, *bad])
    assert verdict.problem.startswith("bad: not linearizable")
    assert "good" not in verdict.problem
    assert verdict.checked == len(good) + len(bad)


def test_the_report_ends_at_the_first_answer_that_cannot_be_explained() -> None:
    ops = [
        write(0, 1, A),
        write(2, 3, B),
        write(3.5, 9, D),  # not answered when it happens
        read(4, 5, A),
        read(6, 7, B),
        write(8, 9, C),
    ]
    assert check_registers(ops).problem.splitlines() == [
        "k: not linearizable",
        "    0.000000 ..   1.000000  client 0    k: write b'a'",
        "    2.000000 ..   3.000000  client 0    k: write b'b'",
        "    3.500000 ..      ?      client 0    k: write b'd', no answer",
        "  and then there is no way to explain:",
        "    4.000000 ..   5.000000  client 1    k: read b'a'",
    ]


def test_a_long_report_keeps_what_names_the_value() -> None:
    ops = [write(0, 1, A)]
    ops += [write(10.0 * n, 10.0 * n + 1, b"%d" % n) for n in range(1, 200)]
    problem = check_registers([*ops, read(5000, 5001, A)]).problem
    assert "(176 operations left out)" in problem
    assert "write b'a'" in problem
    assert "write b'199'" in problem
    assert problem.endswith("read b'a'")


def test_an_answer_before_its_call_is_refused() -> None:
    with pytest.raises(ValueError, match="answered before it was called"):
        check_registers([write(2, 1, A)])


def test_what_cannot_be_judged_in_time_is_unknown_and_fails() -> None:
    # Without an order of the writes there are too many to try before the last read is found impossible.
    ops = [write(0, 100, b"%d" % n) for n in range(24)]
    ops += [read(1, 99, b"%d" % n) for n in range(24)]
    ops += [cas(1, 99, b"none", A, ok=False), read(200, 201, b"0"), read(202, 203, b"1")]
    verdict = check_registers(ops, limit_s=0.2)
    assert not verdict.ok
    assert verdict.problem.startswith("unknown: 1 of 1 keys could not be judged (k, 51 operations: ")
