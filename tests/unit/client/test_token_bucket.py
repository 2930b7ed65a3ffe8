"""The arithmetic of a shared token bucket, judged by counting grants."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.client.token_bucket import Bucket, Level, ObservedState

AHEAD_S = 10.0


def most_in_any_span(grants: list[tuple[float, float]], rate: float) -> float:
    """The largest excess of grants over `rate * t`, over every span that begins and ends with one."""
    worst, ordered = 0.0, sorted(grants)
    for first, (start, _) in enumerate(ordered):
        total = 0.0
        for end, n in ordered[first:]:
            total += n
            worst = max(worst, total - rate * (end - start))
    return worst


def test_full_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = Bucket(10, 5, ahead_s=AHEAD_S)
    seen: ObservedState | None = None
    waits = []
    for _ in range(8):
        grant = bucket.take(1, seen, now=100.0, wall=1e9)
        waits.append(round(grant.wait_s, 6))
        seen = ObservedState(grant.state, 100.0, 100.0)
    assert waits == [0, 0, 0, 0, 0, 0.1, 0.2, 0.3]
    assert seen is not None
    assert bucket.free(seen, now=100.0, wall=1e9) == -3
    assert bucket.free(seen, now=100.5, wall=1e9 + 0.5) == 2
    assert bucket.free(seen, now=200.0, wall=1e9 + 100) == 5  # never more than the burst
    assert bucket.free(None, now=0, wall=0) == 5


def test_wall_clock_counts_only_within_what_was_observeded() -> None:
    state = Level(1000.0, 5.0)
    fresh = ObservedState(state, known_from=50.0)
    assert fresh.elapsed(now=50.0, wall=1003.0) == 3.0
    assert fresh.elapsed(now=50.0, wall=0.0) == 0.0  # behind: no time has passed yet
    assert fresh.elapsed(now=57.0, wall=0.0) == 7.0  # but then it does, as it is observeded
    assert fresh.elapsed(now=50.0, wall=1e9) == 1e9 - 1000
    known = ObservedState(state, known_from=50.0, unknown_until=49.0)
    assert known.elapsed(now=52.0, wall=1e9) == 3.0  # a jump is not believed
    assert known.elapsed(now=52.0, wall=0.0) == 2.0


def test_nonsense_in_the_store_keeps_nobody_waiting_for_longer_than_a_reservation() -> None:
    bucket = Bucket(2, 4, ahead_s=AHEAD_S)
    seen = ObservedState(Level(1e12, 1e12), known_from=0.0)
    assert bucket.take(1, seen, now=0.0, wall=1e9).wait_s == AHEAD_S + 0.5
    assert bucket.take(1, seen, now=12.0, wall=1e9).wait_s == 0


@settings(max_examples=100, deadline=None)
@given(
    rate=st.sampled_from([0.5, 1.0, 4.0, 100.0]),
    burst=st.sampled_from([1.0, 3.0, 10.0]),
    offsets=st.lists(st.floats(-2, 2), min_size=1, max_size=4),
    agree=st.booleans(),
    steps=st.lists(
        st.tuples(
            st.integers(0, 3), st.floats(0, 2), st.floats(0, 0.2), st.sampled_from([1, 1, 1, 0.5])
        ),
        min_size=1,
        max_size=40,
    ),
)
def test_no_more_is_granted_than_rate_and_burst_allow(
    rate: float,
    burst: float,
    offsets: list[float],
    agree: bool,
    steps: list[tuple[int, float, float, float]],
) -> None:
    """Several takers, whose wall clocks are off by amounts of their own, and answers that take time."""
    bucket = Bucket(rate, burst, ahead_s=AHEAD_S)
    offsets = [0.0] * len(offsets) if agree else offsets
    known = [(-1, -math.inf) for _ in offsets]  # of each taker: which state, and when it was the newest
    sights: list[ObservedState | None] = [None] * len(offsets)
    stored: Level | None = None
    revision, now = 0, 1000.0
    grants: list[tuple[float, float]] = []
    for taker, pause_s, delay_s, n in steps:
        who = taker % len(offsets)
        now += pause_s
        asked = now
        now += delay_s  # the question is on its way, then the answer
        if known[who][0] != revision:
            sights[who] = None if stored is None else ObservedState(stored, now, known[who][1])
        known[who] = revision, asked
        grant = bucket.take(n, sights[who], now=now, wall=now + offsets[who])
        if stored is not None:
            assert grant.state.at >= stored.at
        if grant.wait_s > AHEAD_S:
            continue
        grants.append((now + grant.wait_s, n))
        stored, revision = grant.state, revision + 1
        known[who] = revision, now
        sights[who] = ObservedState(grant.state, now + delay_s, now)
        now += delay_s
    difference_s = max(offsets) - min(offsets)
    assert most_in_any_span(grants, rate) <= burst + rate * difference_s + 1e-6


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-1e6, 1e6)), min_size=1, max_size=40))
def test_one_taker_alone_is_held_to_it_whatever_its_wall_clock_does(
    steps: list[tuple[float, float]],
) -> None:
    bucket = Bucket(4, 3, ahead_s=AHEAD_S)
    seen: ObservedState | None = None
    now, grants = 0.0, []
    for pause_s, jump_s in steps:
        now += pause_s
        grant = bucket.take(1, seen, now=now, wall=1e9 + now + jump_s)
        if grant.wait_s <= AHEAD_S:
            seen = ObservedState(grant.state, now, now)
            grants.append((now + grant.wait_s, 1.0))
    assert most_in_any_span(grants, 4) <= 3 + 1e-6
