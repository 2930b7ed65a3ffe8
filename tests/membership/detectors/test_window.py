"""The window of intervals: its mean and deviation are those of what is in it, always."""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.membership.detectors.phi import INTERVAL_MAX_S, IntervalWindow

intervals = st.floats(0, 1e6)


def exact_mean(values: list[float]) -> float:
    return float(statistics.fmean(Fraction(round(value * 1e9), 10**9) for value in values))


def exact_deviation(values: list[float]) -> float:
    return math.sqrt(statistics.pvariance([Fraction(round(value * 1e9), 10**9) for value in values]))


@pytest.mark.parametrize("offset_s", [0.0, 1.0, 1_000.0, 900_000.0])
def test_a_hundred_thousand_intervals_leave_no_rounding_error(offset_s: float) -> None:
    rng = random.Random(f"window {offset_s}")
    window = IntervalWindow(100)
    model: deque[float] = deque(maxlen=100)
    for _ in range(100_000):
        # Large ones between small ones are what running sums of floats do not survive.
        interval_s = offset_s + rng.gauss(0, 0.001) ** 2 + (1e5 if rng.random() < 0.0005 else 0.0)
        window.add(interval_s)
        model.append(interval_s)
    assert window.mean_s == pytest.approx(exact_mean(list(model)), rel=1e-15)
    assert window.deviation_s == pytest.approx(exact_deviation(list(model)), rel=1e-12)


@given(st.lists(intervals, min_size=1, max_size=30), st.integers(1, 8))
def test_mean_and_deviation_are_those_of_the_last_intervals(values: list[float], size_max: int) -> None:
    window = IntervalWindow(size_max)
    for value in values:
        window.add(value)
    kept = values[-size_max:]
    assert len(window) == len(kept)
    assert window.mean_s == pytest.approx(exact_mean(kept), rel=1e-14, abs=1e-12)
    assert window.deviation_s == pytest.approx(exact_deviation(kept), rel=1e-12, abs=1e-12)


@given(intervals, st.integers(1, 20))
def test_equal_intervals_deviate_by_nothing(interval_s: float, count: int) -> None:
    window = IntervalWindow(8)
    for _ in range(count):
        window.add(interval_s)
    assert window.deviation_s == 0


def test_a_cleared_window_is_as_new() -> None:
    used, fresh = IntervalWindow(3), IntervalWindow(3)
    for value in (5.0, 6.0, 7.0, 8.0):
        used.add(value)
    used.clear()
    for value in (1.0, 2.0, 4.0, 8.0, 16.0):
        used.add(value)
        fresh.add(value)
        assert (used.mean_s, used.deviation_s, len(used)) == (
            fresh.mean_s,
            fresh.deviation_s,
            len(fresh),
        )


def test_what_is_longer_than_the_longest_counts_as_that() -> None:
    window = IntervalWindow(2)
    window.add(1e300)
    assert window.mean_s == INTERVAL_MAX_S
