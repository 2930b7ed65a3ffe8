"""`Timeline` against one that keeps everything: never a newer revision, and not much older ones."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quoracy.engines.embedded.memory.timeline import SAMPLE_S, SAMPLES_MAX, Timeline, decode_timeline

# Changes come in bursts: so many, each so long after the one before.
Burst = tuple[int, float]
BURSTS = st.lists(
    st.tuples(
        st.integers(1, 3 * SAMPLES_MAX),
        st.one_of(st.sampled_from([0.1, 1.0, 2.0, 60.0]), st.floats(0.0, 5_000.0)),
    ),
    min_size=1,
    max_size=5,
)
START = 1_700_000_000.0


class Everything:
    """Each tick's moment and revision; revisions start at 1 and grow with each tick."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def at(self, moment: float) -> int:
        return bisect_right(self.moments, moment)


def lived(bursts: list[Burst], *, at_once: bool) -> tuple[Timeline, Everything]:
    timeline, everything, moment = Timeline(), Everything(), START
    for count, gap_s in bursts:
        for _ in range(count):
            everything.moments.append(moment)
            timeline.note(moment, len(everything.moments), at_once=at_once)
            moment += gap_s
    return timeline, everything


def moments_of(everything: Everything, ages: list[float]) -> list[float]:
    """Moments to ask for: as many of the life's length as each of the fractions says."""
    newest, oldest = everything.moments[-1], everything.moments[0]
    return [newest - (newest - oldest) * age for age in ages]


FRACTIONS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(BURSTS, FRACTIONS)
@example([(3 * SAMPLES_MAX, 1.0)] * 5, [i / 50 for i in range(50)])
@example([(1, 86_400.0), (3 * SAMPLES_MAX, 1.0)] * 2, [i / 50 for i in range(50)])
def test_what_is_found_was_made_by_then_and_lacks_a_128th_of_the_age_at_most(
    bursts: list[Burst], ages: list[float]
) -> None:
    timeline, everything = lived(bursts, at_once=True)
    assert len(timeline) <= SAMPLES_MAX
    newest = everything.moments[-1]
    for moment in moments_of(everything, ages):
        found = timeline.at(moment)
        slack_s = (newest - moment) / 128 + SAMPLE_S + 0.002
        # The first sample's moment is rounded up to a whole millisecond.
        if moment >= everything.moments[0] + 0.001:
            assert found is not None
            assert everything.at(moment - slack_s) <= found <= everything.at(moment)


@settings(deadline=None, max_examples=30)
@given(BURSTS, FRACTIONS)
def test_a_sample_a_second_never_finds_what_was_made_later(
    bursts: list[Burst], ages: list[float]
) -> None:
    timeline, everything = lived(bursts, at_once=False)
    for moment in moments_of(everything, ages):
        found = timeline.at(moment)
        assert found is None or found <= everything.at(moment)
    assert timeline.at(START - 0.001) is None


@settings(deadline=None, max_examples=30)
@given(BURSTS, FRACTIONS, st.floats(0.0, 1.0))
def test_compaction_takes_only_what_cannot_be_read(
    bursts: list[Burst], ages: list[float], compacted: float
) -> None:
    timeline, everything = lived(bursts, at_once=False)
    compact_revision = int(compacted * len(everything.moments))
    moments = moments_of(everything, ages)
    before = [timeline.at(moment) for moment in moments]
    timeline.forget(compact_revision)
    for moment, found in zip(moments, before, strict=True):
        if found is None or found >= compact_revision:
            assert timeline.at(moment) == found
        else:
            forgotten = timeline.at(moment)
            assert forgotten is not None
            assert forgotten <= found


@settings(deadline=None, max_examples=30)
@given(BURSTS, FRACTIONS)
def test_what_is_written_is_read_again(bursts: list[Burst], ages: list[float]) -> None:
    timeline, everything = lived(bursts, at_once=True)
    blob = timeline.encode(moment=5.5, wall=7.25)
    saved = decode_timeline(blob)
    assert (saved.moment, saved.wall) == (5.5, 7.25)
    for moment in moments_of(everything, ages):
        assert saved.timeline.at(moment) == timeline.at(moment)
    assert saved.timeline.encode(moment=5.5, wall=7.25) == blob
