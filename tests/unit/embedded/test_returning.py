"""Writers who were just answered are waited for, for a number of turns, and not in vain for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.committing.commit_delay import Returning


def turns_until_it_gives_up(returning: Returning) -> int:
    turns = 1
    while returning.turn():
        turns += 1
        assert turns < 10_000
    assert returning.awaited == 0
    return turns


def test_all_who_were_answered_are_awaited_and_then_nobody() -> None:
    returning = Returning()
    assert returning.answered(3)
    assert returning.awaited == 3
    assert returning.came()
    assert returning.turn()
    assert returning.came()
    assert not returning.came()
    assert returning.awaited == 0
    assert not returning.turn()


@pytest.mark.parametrize("count", [0, 1, 65, 10_000])
def test_neither_one_alone_is_waited_for_nor_many(count: int) -> None:
    returning = Returning()
    assert not returning.answered(count)
    assert not returning.awaited


def test_it_gives_up_some_turns_after_the_last_who_came() -> None:
    returning = Returning()
    assert returning.answered(16)
    first = turns_until_it_gives_up(returning)
    returning = Returning()
    assert returning.answered(16)
    for _ in range(first - 1):
        assert returning.turn()
    assert returning.came()
    assert turns_until_it_gives_up(returning) == first


def test_those_who_come_one_by_one_do_not_hold_up_the_first_for_ever() -> None:
    returning = Returning()
    assert returning.answered(64)
    turns = came = 0
    while returning.awaited:
        for _ in range(20):
            turns += 1
            if not returning.turn():
                break
        else:
            came += 1
            returning.came()
    assert came < 20
    assert turns < 24 + 4 * 64 + 1


def test_who_does_not_come_is_waited_for_less_and_less_often_until_somebody_does() -> None:
    returning = Returning()
    waits = 0
    for _ in range(1000):
        if returning.answered(10):
            waits += 1
            turns_until_it_gives_up(returning)
    assert 10 < waits < 30
    while not returning.answered(10):
        pass
    for _ in range(10):
        returning.came()
    assert returning.answered(10)  # and again at once


def test_if_half_of_them_come_that_is_worth_it() -> None:
    returning = Returning()
    for _ in range(100):
        assert returning.answered(10)
        for _ in range(5):
            returning.came()
        turns_until_it_gives_up(returning)


@given(st.lists(st.one_of(st.integers(0, 80), st.just("came"), st.just("turn")), max_size=300))
def test_what_it_costs_is_bounded(steps: list[int | str]) -> None:
    """However calls come: never fewer awaited than none, and it always gives up."""
    returning = Returning()
    for step in steps:
        if isinstance(step, int):
            waits = returning.answered(step)
            assert not waits or returning.awaited == step
        elif step == "turn":
            assert returning.turn() == (returning.awaited > 0)
        elif returning.awaited:
            assert returning.came() == (returning.awaited > 0)
        assert returning.awaited >= 0
    assert turns_until_it_gives_up(returning) <= 24 + 4 * 64
