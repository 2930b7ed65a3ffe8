"""Samples of time: when they are taken, what they answer, what they look like on disk."""

from __future__ import annotations

import msgspec
import pytest

from quoracy.engines.embedded.memory.timeline import SAMPLES_MAX, Timeline, decode_timeline


def test_nothing_is_known_of_before_the_first_sample() -> None:
    timeline = Timeline()
    assert (timeline.at(5.0), timeline.began, timeline.newest) == (None, None, 0)
    timeline.note(10.0, 3)
    assert timeline.at(9.999) is None
    assert timeline.at(10.0) == timeline.at(1e9) == 3
    assert (timeline.began, timeline.newest) == (10.0, 3)


def test_a_sample_is_taken_once_a_second_and_only_of_a_change() -> None:
    timeline = Timeline()
    taken = [timeline.note(tick / 10, 1 + tick // 5) for tick in range(31)]
    assert [tick for tick, was in enumerate(taken) if was] == [0, 10, 20, 30]
    assert not timeline.note(100.0, 7)
    assert [timeline.at(moment) for moment in (0.0, 0.9, 1.0, 2.5, 3.0)] == [1, 1, 3, 5, 7]


def test_the_last_change_can_be_noted_at_once() -> None:
    timeline = Timeline()
    timeline.note(1.0, 1)
    assert not timeline.note(1.5, 2)
    assert timeline.note(1.5, 2, at_once=True)
    assert (timeline.at(1.4), timeline.at(1.5)) == (1, 2)


def test_a_moment_that_goes_back_is_ignored() -> None:
    timeline = Timeline()
    timeline.note(100.0, 1)
    assert not timeline.note(50.0, 2)
    assert not timeline.note(50.0, 2, at_once=True)
    assert timeline.note(101.0, 2)
    assert (timeline.at(99.0), timeline.at(100.5), timeline.at(101.0)) == (None, 1, 2)


def test_of_compacted_revisions_only_the_beginning_is_kept() -> None:
    timeline = Timeline()
    for second in range(100):
        timeline.note(float(second), 10 + second)
    timeline.forget(60)
    assert len(timeline) == 1 + 50
    assert (timeline.at(3.0), timeline.at(49.0), timeline.at(50.0)) == (10, 10, 60)
    timeline.forget(60)
    timeline.forget(0)
    assert len(timeline) == 1 + 50


def test_ten_years_fit_and_a_day_ago_is_known_to_eight_minutes() -> None:
    timeline, made, day = Timeline(), 0, 86_400
    for year_s in range(0, 10 * 365 * day, 5 * day):
        made += 1
        timeline.note(float(year_s), made)
    recent = 10 * 365 * day
    for second in range(2 * day):
        made += 1
        timeline.note(float(recent + second), made)
    assert len(timeline) <= SAMPLES_MAX
    found = timeline.at(recent + day)
    assert found is not None
    newest = made - day + 1
    assert newest - 512 <= found <= newest
    assert timeline.at(0.0) == 1


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xc0",
        msgspec.msgpack.encode([1.0, 1.0, [1], []]),
        msgspec.msgpack.encode([1.0, 1.0, [5, -1], [1, 1]]),
        msgspec.msgpack.encode([1.0, 1.0, [5, 1], [1, -1]]),
        msgspec.msgpack.encode([float("nan"), 1.0, [5], [1]]),
        msgspec.msgpack.encode([1.0, 1.0, [2**62, 2**62], [1, 1]]),
        msgspec.msgpack.encode([1.0, 1.0, [1] * (SAMPLES_MAX + 1), [1] * (SAMPLES_MAX + 1)]),
    ],
    ids=["empty", "null", "one list short", "time back", "revision back", "nan", "huge", "too many"],
)
def test_what_is_not_a_timeline_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"sample|data|Expected"):
        decode_timeline(blob)
