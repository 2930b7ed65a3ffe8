"""Writers who were just answered are waited for, for a number of turns, and not in vain for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.committing.commit_delay import CommitDelay


def turns_until_it_gives_up(delay: CommitDelay) -> int:
    turns = 1
    while delay.turn():
        turns += 1
        assert turns < 10_000
    assert delay.awaited == 0
    return turns


def test_all_who_were_answered_are_awaited_and_then_nobody() -> None:
    delay = CommitDelay()
    assert delay.answered(3)
    assert delay.awaited == 3
    assert delay.came()
    assert delay.turn()
    assert delay.came()
    assert not delay.came()
    assert delay.awaited == 0
    assert not delay.turn()


@pytest.mark.parametrize("count", [0, 1, 65, 10_000])
def test_neither_one_alone_is_waited_for_nor_many(count: int) -> None:
    delay = CommitDelay()
    assert not delay.answered(count)
    assert not delay.awaited


def test_it_gives_up_some_turns_after_the_last_who_came() -> None:
    delay = CommitDelay()
    assert delay.answered(16)
    first = turns_until_it_gives_up(delay)
    delay = CommitDelay()
    assert delay.answered(16)
    for _ in range(first - 1):
        assert delay.turn()
    assert delay.came()
    assert turns_until_it_gives_up(delay) == first


def test_those_who_come_one_by_one_do_not_hold_up_the_first_for_ever() -> None:
    delay = CommitDelay()
    assert delay.answered(64)
    turns = came = 0
    while delay.awaited:
        for _ in range(20):
            turns += 1
            if not delay.turn():
                break
        else:
            came += 1
            delay.came()
    assert came < 20
    assert turns < 24 + 4 * 64 + 1


def test_who_does_not_come_is_waited_for_less_and_less_often_until_somebody_does() -> None:
    delay = CommitDelay()
    waits = 0
    for _ in range(1000):
        if delay.answered(10):
            waits += 1
            turns_until_it_gives_up(delay)
    assert 10 < waits < 30
    while not delay.answered(10):
        pass
    for _ in range(10):
        delay.came()
    assert delay.answered(10)  # and again at once


def test_if_half_of_them_come_that_is_worth_it() -> None:
    delay = CommitDelay()
    for _ in range(100):
        assert delay.answered(10)
        for _ in range(5):
            delay.came()
        turns_until_it_gives_up(delay)


@given(st.lists(st.one_of(st.integers(0, 80), st.just("came"), st.just("turn")), max_size=300))
def test_what_it_costs_is_bounded(steps: list[int | str]) -> None:
    """However calls come: never fewer awaited than none, and it always gives up."""
    delay = CommitDelay()
    for step in steps:
        if isinstance(step, int):
            waits = delay.answered(step)
            assert not waits or delay.awaited == step
        elif step == "turn":
            assert delay.turn() == (delay.awaited > 0)
        elif delay.awaited:
            assert delay.came() == (delay.awaited > 0)
        assert delay.awaited >= 0
    assert turns_until_it_gives_up(delay) <= 24 + 4 * 64
