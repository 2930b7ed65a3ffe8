"""What `detector.py` promises of every detector, for every detector."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest
from quoracy.membership.detectors import (
    Detector,
    FixedDetector,
    HeartbeatGossip,
    HeartbeatSettings,
    PhiDetector,
    PhiSettings,
)
from tests.support.profiles import examples


def counter_detector() -> Detector:
    gossip = HeartbeatGossip("me", rng=random.Random(1), settings=HeartbeatSettings(fail_s=3.7))
    return gossip.detector("peer")


def phi_detector(**chosen: float) -> Callable[[], Detector]:
    def make() -> Detector:
        return PhiDetector(
            PhiSettings(
                threshold=chosen.get("threshold", 8.0),
                window_max=10,
                acceptable_pause_s=chosen.get("pause", 0.0),
                deviation_min_s=chosen.get("deviation", 0.1),
                distribution="exponential" if chosen.get("exponential") else "normal",
            )
        )

    return make


MAKERS: dict[str, Callable[[], Detector]] = {
    "fixed": lambda: FixedDetector(timeout_s=2.3),
    "counters": counter_detector,
    "phi": phi_detector(),
    "phi with a pause": phi_detector(pause=3.0),
    "phi at 0.2": phi_detector(threshold=0.2),
    "phi at 10000": phi_detector(threshold=1e4),
    "phi with a large deviation": phi_detector(deviation=5.0),
    "phi with a tiny deviation": phi_detector(deviation=1e-6),
    "phi, exponential": phi_detector(exponential=1),
    "phi, exponential with a pause": phi_detector(exponential=1, pause=1.5, threshold=3.0),
}

every_detector = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
starts = st.sampled_from([0.0, 0.1, -1e3, 12_345.678, 1e9])
# Bursts, a steady beat, pauses long enough to be learnt from and not, and much longer than a life.
steps = st.one_of(
    st.sampled_from([0.0, 1e-9, 1.0, 1.0, 1.0, 2.5, 60.0]), st.floats(0, 5), st.floats(0, 1e5)
)
histories = st.lists(steps, min_size=0, max_size=25)
silences = st.one_of(st.floats(0, 10), st.floats(0, 1e4), st.floats(0, 9e11))
# There are ten detectors; together they see hundreds.
some = settings(max_examples=examples(15))


def beaten(make: Callable[[], Detector], start: float, history: list[float]) -> tuple[Detector, float]:
    detector, now = make(), start
    detector.heartbeat(now)
    for step in history:
        now += step
        detector.heartbeat(now)
    return detector, now


@every_detector
@some
@given(start=starts, history=histories, silent=st.lists(silences, min_size=2, max_size=10))
def test_the_level_never_falls_while_nothing_arrives(
    make: Callable[[], Detector], start: float, history: list[float], silent: list[float]
) -> None:
    detector, last = beaten(make, start, history)
    levels = [detector.level(last + each) for each in sorted(silent)]
    assert levels == sorted(levels)
    assert all(math.isfinite(level) and level >= 0 for level in levels)


@every_detector
@some
@given(start=starts, history=histories, silent=st.floats(0, 20), count=st.integers(1, 300))
def test_the_level_never_falls_from_one_float_to_the_next(
    make: Callable[[], Detector], start: float, history: list[float], silent: float, count: int
) -> None:
    detector, last = beaten(make, start, history)
    now = last + silent
    before = detector.level(now)
    for _ in range(count):
        now = math.nextafter(now, math.inf)
        level = detector.level(now)
        assert level >= before
        before = level


@every_detector
@some
@given(start=starts, history=histories, silent=silences)
def test_a_heartbeat_never_raises_the_level(
    make: Callable[[], Detector], start: float, history: list[float], silent: float
) -> None:
    detector, now = make(), start
    for step in [0.0, *history, silent]:
        now += step
        before = detector.level(now)
        detector.heartbeat(now)
        assert detector.level(now) == 0 <= before


@every_detector
@some
@given(start=starts, history=histories, silent=silences)
def test_the_verdict_is_the_level_at_the_threshold(
    make: Callable[[], Detector], start: float, history: list[float], silent: float
) -> None:
    detector, last = beaten(make, start, history)
    now = last + silent
    moment = detector.suspected_at()
    assert moment is not None
    assert detector.is_suspected(now) == (detector.level(now) >= detector.threshold) == (now >= moment)


@every_detector
@some
@given(start=starts, history=histories)
def test_a_timer_for_the_suspicion_fires_neither_early_nor_late(
    make: Callable[[], Detector], start: float, history: list[float]
) -> None:
    detector, last = beaten(make, start, history)
    moment = detector.suspected_at()
    assert moment is not None
    assert moment > last
    assert detector.is_suspected(moment)
    assert not detector.is_suspected(math.nextafter(moment, -math.inf))
    assert detector.suspected_at() == moment  # asking changes nothing


@every_detector
@some
@given(start=starts, history=histories)
def test_the_moment_of_suspicion_moves_with_each_heartbeat(
    make: Callable[[], Detector], start: float, history: list[float]
) -> None:
    asked, now = make(), start
    for step in [0.0, *history]:
        now += step
        asked.heartbeat(now)
        moment = asked.suspected_at()
        assert moment is not None
        assert moment > now
    assert moment == beaten(make, start, history)[0].suspected_at()


@every_detector
@some
@given(
    history=st.lists(st.integers(0, 8_192).map(lambda n: n / 1_024), max_size=20),
    silent=st.integers(0, 99),
)
def test_the_clock_may_begin_anywhere(
    make: Callable[[], Detector], history: list[float], silent: int
) -> None:
    # Steps of 1/1024 s are exact at a billion, too, so answers must be the same to the last bit.
    (near, last_near), (far, last_far) = beaten(make, 0.0, history), beaten(make, 2.0**30, history)
    assert near.level(last_near + silent / 8) == far.level(last_far + silent / 8)
    moments = near.suspected_at(), far.suspected_at()
    assert moments[0] is not None
    assert moments[1] is not None
    assert moments[1] - last_far == pytest.approx(moments[0] - last_near, abs=1e-6)


@every_detector
@some
@given(start=starts, history=histories, silent=silences)
def test_the_same_calls_give_the_same_answers(
    make: Callable[[], Detector], start: float, history: list[float], silent: float
) -> None:
    (one, last), (other, _) = beaten(make, start, history), beaten(make, start, history)
    for _ in range(2):
        one.level(last + silent / 2)  # one is asked more often, which must make no difference
        one.suspected_at()
    assert one.level(last + silent) == other.level(last + silent)
    assert one.suspected_at() == other.suspected_at()


@every_detector
@some
@given(history=histories, silent=silences)
def test_a_reset_detector_is_as_new(
    make: Callable[[], Detector], history: list[float], silent: float
) -> None:
    fresh = make()
    used, last = beaten(make, 5.0, history)
    used.reset()
    for detector in (fresh, used):
        assert detector.level(last + silent) == 0
        assert not detector.is_suspected(last + silent)
        assert detector.suspected_at() is None
    now = 0.0  # also a new clock, if need be
    for step in [0.0, *history]:
        now += step
        fresh.heartbeat(now)
        used.heartbeat(now)
    assert used.level(now + silent) == fresh.level(now + silent)


@every_detector
@pytest.mark.parametrize("now", [9.0, math.nan, math.inf, -math.inf, 1e15])
def test_a_heartbeat_out_of_time_is_refused_and_changes_nothing(
    make: Callable[[], Detector], now: float
) -> None:
    detector, last = beaten(make, 0.0, [9.5, 0.5])
    before = detector.level(last + 1.5), detector.suspected_at()
    with pytest.raises(InvalidRequest, match="monotonic"):
        detector.heartbeat(now)
    assert (detector.level(last + 1.5), detector.suspected_at()) == before


@every_detector
def test_a_silence_without_end_has_a_finite_level(make: Callable[[], Detector]) -> None:
    detector, _ = beaten(make, 0.0, [1.0] * 5)
    for now in (1e100, 1.7e308, math.inf):
        assert math.isfinite(detector.level(now))
        assert detector.is_suspected(now)


@every_detector
def test_a_moment_before_the_last_heartbeat_is_not_suspicious(make: Callable[[], Detector]) -> None:
    detector, last = beaten(make, 0.0, [1.0, 1.0, 1.0])
    assert detector.level(last - 100) == 0


@every_detector
def test_a_peer_that_went_silent_is_suspected_in_the_end(make: Callable[[], Detector]) -> None:
    detector, last = beaten(make, 0.0, [1.0] * 30)
    assert not detector.is_suspected(last + 0.1)
    assert detector.is_suspected(last + 1e6)


@pytest.mark.parametrize("last", [-3.0, -1.0, 0.1, 10.1, 1e9])
@pytest.mark.parametrize("timeout_s", [0.7, 2.3, 4.1, 5.0])
def test_the_end_of_a_timeout_is_exact_where_sums_are_rounded(last: float, timeout_s: float) -> None:
    detector = FixedDetector(timeout_s=timeout_s)
    detector.heartbeat(last)
    # With -3 and 4.1 the silence just before the end is rounded up to the timeout; with 10.1 and 0.7
    # the one at the end is rounded down.
    assert detector.level(last + timeout_s) >= 1
    assert detector.level(math.nextafter(last + timeout_s, -math.inf)) < 1


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 1e-9, math.inf, math.nan])
def test_a_timeout_is_a_time(timeout_s: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout_s"):
        FixedDetector(timeout_s=timeout_s)


@every_detector
def test_a_detector_knows_when_its_peer_was_last_heard_from(make: Callable[[], Detector]) -> None:
    detector = make()
    seen = [detector.heard_at]
    for now in (5.0, 7.0):
        detector.heartbeat(now)
        seen.append(detector.heard_at)
    detector.reset()
    assert [*seen, detector.heard_at] == [None, 5.0, 7.0, None]
