"""How long a suspect has, and how a member doubts itself."""

from __future__ import annotations

import math

import pytest

from quoracy.membership.settings import SwimSettings
from quoracy.membership.swim.lifeguard import LocalHealth, Suspicion


def published(confirmations: int, *, k: int, min_s: float, max_s: float) -> float:
    """Lifeguard, section IV B: max(min, max - (max - min) log(C + 1) / log(K + 1))."""
    return max(min_s, max_s - (max_s - min_s) * math.log(confirmations + 1) / math.log(k + 1))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_time_shrinks_as_published(k: int) -> None:
    doubt = Suspicion("first", confirmations_max=k, min_s=5.0, max_s=30.0, now=100.0)
    assert doubt.deadline == 130.0
    for number in range(1, k + 1):
        assert doubt.confirm(f"other {number}")
        assert doubt.deadline == pytest.approx(100 + published(number, k=k, min_s=5.0, max_s=30.0))
    assert doubt.deadline == pytest.approx(105.0)


def test_nobody_confirms_twice_and_the_first_accuser_never() -> None:
    doubt = Suspicion("b", confirmations_max=3, min_s=1.0, max_s=6.0, now=0.0)
    assert not doubt.confirm("b")
    assert doubt.confirm("c")
    before = doubt.deadline
    assert not doubt.confirm("c")
    assert (doubt.confirmations, doubt.deadline) == (1, before)


def test_confirmations_beyond_those_that_count_are_no_news() -> None:
    doubt = Suspicion("b", confirmations_max=1, min_s=1.0, max_s=6.0, now=0.0)
    assert doubt.confirm("c")
    assert not doubt.confirm("d")
    assert doubt.deadline == 1.0


def test_with_nobody_to_confirm_it_the_time_is_short() -> None:
    assert Suspicion("b", confirmations_max=0, min_s=1.0, max_s=6.0, now=10.0).deadline == 11.0


def test_time_in_which_we_were_stopped_does_not_count() -> None:
    doubt = Suspicion("b", confirmations_max=1, min_s=1.0, max_s=6.0, now=0.0)
    doubt.postpone(4.0, at_least=9.0)
    assert doubt.deadline == 10.0
    doubt.confirm("c")
    assert doubt.deadline == 5.0
    doubt.postpone(1.0, at_least=9.0)  # what waits to be read is read first
    assert doubt.deadline == 9.0


@pytest.mark.parametrize(("members", "seconds"), [(1, 4.0), (10, 4.0), (100, 8.0), (1000, 12.0)])
def test_the_shortest_time_grows_with_the_logarithm(members: int, seconds: float) -> None:
    assert SwimSettings().suspicion_min_s(members) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("members", "times"), [(1, 4), (9, 4), (10, 8), (99, 8), (100, 12), (8191, 16)]
)
def test_news_is_sent_so_often(members: int, times: int) -> None:
    assert SwimSettings().transmits_max(members) == times


def test_health_stays_between_well_and_its_worst() -> None:
    health = LocalHealth(7)
    health.note(-1)
    assert (health.score, health.scale(2.0)) == (0, 2.0)
    health.note(+3)
    assert (health.score, health.scale(2.0)) == (3, 8.0)
    health.note(+30)
    assert health.score == 7
    health.note(-1)
    assert health.score == 6


def test_health_that_may_not_get_worse_is_always_well() -> None:
    health = LocalHealth(0)
    health.note(+3)
    assert health.scale(1.0) == 1.0
