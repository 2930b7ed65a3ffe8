"""Phi accrual: what it learns, what it does not, and that its numbers mean what they say."""

from __future__ import annotations

import math
import random
import statistics
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest
from quoracy.membership.detectors import PhiDetector, PhiSettings
from quoracy.membership.detectors.phi import phi_of_normal
from tests.support.profiles import examples

PLAIN = PhiSettings(acceptable_pause_s=0.0)


def beaten(
    settings: PhiSettings, intervals: list[float], start: float = 0.0
) -> tuple[PhiDetector, float]:
    detector, now = PhiDetector(settings), start
    detector.heartbeat(now)
    for interval in intervals:
        now += interval
        detector.heartbeat(now)
    return detector, now


def test_phi_is_nothing_until_the_first_heartbeat_and_at_it() -> None:
    detector = PhiDetector(PLAIN)
    assert detector.phi(1e6) == 0
    assert detector.reaches_at(8.0) is None
    detector.heartbeat(1e6)
    assert detector.phi(1e6) == 0


def test_the_first_silence_is_judged_by_the_estimate_and_a_quarter_of_it() -> None:
    detector, last = beaten(PhiSettings(first_interval_s=2.0, acceptable_pause_s=0.0), [])
    assert (detector.mean_s, detector.deviation_s) == (2.0, 0.5)
    # At the mean plus one deviation: the normal tail, of a curve that is cut off four deviations below.
    assert detector.phi(last + 2.5) == pytest.approx(
        phi_of_normal(1.0) - phi_of_normal(-4.0), rel=1e-12
    )


def test_phi_is_that_of_the_normal_curve_through_the_window() -> None:
    intervals = [1.0, 1.4, 0.7, 1.1, 0.9, 1.3, 0.6, 1.0]
    detector, last = beaten(msgspec.structs.replace(PLAIN, window_max=8), intervals)
    mean, deviation = statistics.fmean(intervals), statistics.pstdev(intervals)
    curve = statistics.NormalDist(mean, deviation)
    for silent in (0.2, 0.9, 1.0, 1.5, 2.0, 2.4):
        later = (1 - curve.cdf(silent)) / (1 - curve.cdf(0))
        assert detector.phi(last + silent) == pytest.approx(-math.log10(later), rel=1e-6)


def test_the_estimate_leaves_the_window_like_any_interval() -> None:
    settings = PhiSettings(first_interval_s=1.0, window_max=10, acceptable_pause_s=0.0)
    detector, _ = beaten(settings, [3.0] * 9)
    assert detector.mean_s < 3.0
    detector, _ = beaten(settings, [3.0] * 10)
    assert detector.mean_s == 3.0


def test_no_rhythm_is_steadier_than_the_least_deviation() -> None:
    detector, last = beaten(PLAIN, [1.0] * 300)
    assert detector.deviation_s == 0.1
    assert detector.phi(last + 1.3) == pytest.approx(phi_of_normal(3.0), rel=1e-9)


def test_the_acceptable_pause_is_added_to_the_mean() -> None:
    patient, last = beaten(PhiSettings(acceptable_pause_s=3.0), [1.0] * 300)
    strict, _ = beaten(PLAIN, [1.0] * 300)
    for late in (0.1, 0.5, 1.0):
        assert patient.phi(last + 4 + late) == pytest.approx(strict.phi(last + 1 + late), rel=1e-9)


def test_an_interval_longer_than_the_pause_is_not_learnt() -> None:
    settings = PhiSettings(first_interval_s=1.0, acceptable_pause_s=10.0)
    steady, _ = beaten(settings, [1.0] * 50)
    interrupted, _ = beaten(settings, [1.0] * 50 + [10.5])
    assert (interrupted.mean_s, interrupted.deviation_s) == (steady.mean_s, steady.deviation_s)
    stretched, _ = beaten(settings, [1.0] * 50 + [9.5])
    assert stretched.mean_s > steady.mean_s


def test_without_a_pause_what_is_longer_than_four_intervals_is_not_learnt() -> None:
    steady, _ = beaten(PLAIN, [1.0] * 50)
    interrupted, _ = beaten(PLAIN, [1.0] * 50 + [4.1])
    assert interrupted.mean_s == steady.mean_s
    stretched, _ = beaten(PLAIN, [1.0] * 50 + [3.9])
    assert stretched.mean_s > steady.mean_s


def test_an_hour_of_partition_does_not_blind_the_detector() -> None:
    detector, last = beaten(PhiSettings(), [1.0] * 300 + [3_600.0])
    assert detector.is_suspected(last + 5.0)


def test_a_slower_rhythm_is_learnt_in_the_end() -> None:
    detector, last = beaten(PhiSettings(), [1.0] * 300 + [60.0] * 7)
    assert detector.is_suspected(last + 59.0)
    detector.heartbeat(last + 60.0)
    assert (detector.mean_s, detector.deviation_s) == (60.0, 15.0)
    assert not detector.is_suspected(last + 60.0 + 59.0)


def test_interruptions_with_heartbeats_between_never_become_the_rhythm() -> None:
    detector, last = beaten(PhiSettings(), [1.0] * 300 + [60.0, 1.0] * 50)
    assert detector.mean_s == pytest.approx(1.0)
    assert detector.is_suspected(last + 5.0)


def test_a_restart_clears_what_was_learnt() -> None:
    detector, last = beaten(PLAIN, [0.2] * 300)
    assert detector.is_suspected(last + 1.0)
    detector.reset()
    detector.heartbeat(last + 1.0)
    assert (detector.mean_s, detector.deviation_s) == (1.0, 0.25)
    assert not detector.is_suspected(last + 2.0)


def test_phi_stays_useful_far_beyond_where_a_float_probability_ends() -> None:
    detector, last = beaten(PLAIN, [1.0] * 300)
    for silent in (1.8, 3.0, 5.0, 10.0, 100.0, 3_600.0, 1e6):
        z = (silent - 1.0) / 0.1
        assert detector.phi(last + silent) == pytest.approx(z * z / 2 / math.log(10), rel=0.1)
    assert detector.phi(last + 60.0) > 10_000


def test_the_exponential_phi_is_the_silence_in_decades() -> None:
    detector, last = beaten(
        PhiSettings(distribution="exponential", acceptable_pause_s=0.0, window_max=10), [2.0] * 20
    )
    # P(silence > t) = exp(-t / mean), as Cassandra has it.
    assert detector.phi(last + 2.0 * math.log(10)) == pytest.approx(1.0, rel=1e-8)
    assert detector.phi(last + 16.0 * math.log(10)) == pytest.approx(8.0, rel=1e-8)


def test_the_exponential_phi_begins_after_the_pause() -> None:
    settings = PhiSettings(distribution="exponential", acceptable_pause_s=3.0)
    detector, last = beaten(settings, [1.0] * 300)
    assert detector.phi(last + 3.0) == 0
    assert detector.phi(last + 3.0 + math.log(10)) == pytest.approx(1.0, rel=1e-8)


def test_a_burst_does_not_make_the_next_silence_infinitely_improbable() -> None:
    for distribution in ("normal", "exponential"):
        settings = msgspec.structs.replace(PLAIN, distribution=distribution)
        detector, last = beaten(settings, [0.0] * 500)
        assert detector.phi(last + 0.1) < 1
        assert detector.phi(last + 10.0) > 8


some_settings = st.builds(
    PhiSettings,
    first_interval_s=st.sampled_from([0.05, 1.0, 30.0]),
    window_max=st.sampled_from([2, 5, 200]),
    deviation_min_s=st.sampled_from([1e-4, 0.1, 10.0]),
    acceptable_pause_s=st.sampled_from([0.0, 0.5, 20.0]),
    distribution=st.sampled_from(["normal", "exponential"]),
)
rhythms = st.lists(st.floats(0.0, 4.0), max_size=20)
levels = st.one_of(st.floats(1e-6, 1.0), st.floats(1.0, 20.0), st.floats(20.0, 1e6))


@settings(max_examples=examples(150))
@given(some_settings, rhythms, levels, st.sampled_from([0.0, 1e4, 1e9]))
def test_reaching_a_phi_is_the_inverse_of_phi(
    chosen: PhiSettings, intervals: list[float], wanted: float, start: float
) -> None:
    detector, last = beaten(chosen, intervals, start)
    moment = detector.reaches_at(wanted)
    assert moment is not None
    assert moment > last
    assert detector.phi(moment) >= wanted > detector.phi(math.nextafter(moment, -math.inf))


@settings(max_examples=examples(100))
@given(some_settings, rhythms, levels, levels)
def test_a_higher_phi_is_reached_later(
    chosen: PhiSettings, intervals: list[float], one: float, other: float
) -> None:
    detector, _ = beaten(chosen, intervals)
    low, high = detector.reaches_at(min(one, other)), detector.reaches_at(max(one, other))
    assert low is not None
    assert high is not None
    assert low <= high


@pytest.mark.parametrize("wanted", [0.0, -1.0, 1e7, math.nan])
def test_a_phi_out_of_range_is_refused(wanted: float) -> None:
    detector, _ = beaten(PLAIN, [1.0])
    with pytest.raises(InvalidRequest, match="phi must be between"):
        detector.reaches_at(wanted)


def test_memory_is_bounded_however_long_a_peer_lives() -> None:
    detector, now, rng = PhiDetector(PhiSettings(window_max=50)), 0.0, random.Random(7)

    def live(count: int) -> int:
        nonlocal now
        for _ in range(count):
            now += rng.choice([0.5, 1.0, 60.0])
            detector.heartbeat(now)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        young = live(1_000)
        assert live(8_000) - young < 1_000  # bytes; the window itself has 400
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("threshold", [1.0, 2.0, 3.0])
def test_suspicions_at_a_threshold_are_wrong_about_as_often_as_it_says(threshold: float) -> None:
    # On arrivals that follow the model: one wrong suspicion in 10**threshold intervals.
    rng = random.Random(f"wrong {threshold}")
    detector, now, wrong = PhiDetector(msgspec.structs.replace(PLAIN, window_max=1_000)), 0.0, 0
    count = 20_000
    detector.heartbeat(now)
    for _ in range(count):
        now += max(0.0, rng.gauss(1.0, 0.2))
        wrong += detector.phi(now) >= threshold
        detector.heartbeat(now)
    expected = count / 10**threshold
    assert abs(wrong - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 0.0),
        ("threshold", math.nan),
        ("first_interval_s", 0.0),
        ("first_interval_s", math.inf),
        ("window_max", 1),
        ("deviation_min_s", 0.0),
        ("acceptable_pause_s", -1.0),
        ("distribution", "uniform"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(name: str, value: float | str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        msgspec.structs.replace(PLAIN, **{name: value})
