"""Sets: what was acknowledged is there, what was refused is not, and nothing else is."""

from __future__ import annotations

import pytest

from tests.checkers.acknowledged import Add, check_acknowledged

ADDS = [
    Add("s", b"1", "acknowledged"),
    Add("s", b"2", "acknowledged"),
    Add("s", b"3", "unknown"),
    Add("s", b"4", "refused"),
]


@pytest.mark.parametrize("final", [[b"1", b"2"], [b"2", b"1", b"3"]])
def test_an_unknown_element_may_be_there_or_not(final: list[bytes]) -> None:
    verdict = check_acknowledged(ADDS, {"s": final})
    assert verdict.ok, verdict.problem
    assert verdict.checked == 4


@pytest.mark.parametrize(
    ("final", "problem"),
    [
        ([b"1"], "s: acknowledged, but gone: b'2'"),
        ([], "s: acknowledged, but gone: b'1', b'2'"),
        ([b"1", b"2", b"4"], "s: refused, but there: b'4'"),
        ([b"1", b"2", b"5"], "s: there, but added by nobody: b'5'"),
        ([b"1", b"2", b"1"], "s: there more than once: b'1'"),
    ],
)
def test_caught(final: list[bytes], problem: str) -> None:
    verdict = check_acknowledged(ADDS, {"s": final})
    assert not verdict.ok
    assert verdict.problem == problem


def test_sets_are_judged_apart() -> None:
    adds = [Add("one", b"1", "acknowledged"), Add("two", b"1", "acknowledged")]
    assert check_acknowledged(adds, {"one": [b"1"], "two": [b"1"]})
    assert check_acknowledged(adds, {"one": [b"1"]}).problem == "two: acknowledged, but gone: b'1'"


def test_a_set_nobody_added_to_must_be_empty() -> None:
    assert check_acknowledged([], {"s": []})
    assert "added by nobody" in check_acknowledged([], {"s": [b"1"]}).problem


def test_many_lost_elements_are_counted() -> None:
    adds = [Add("s", b"%03d" % number, "acknowledged") for number in range(100)]
    problem = check_acknowledged(adds, {}).problem
    assert problem.endswith("b'009' and 90 more")


def test_elements_that_are_not_unique_prove_nothing() -> None:
    with pytest.raises(ValueError, match="must be unique"):
        check_acknowledged([*ADDS, ADDS[0]], {})
