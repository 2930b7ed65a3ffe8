"""Which revision was the newest at a moment in the past?

A sample says: at this moment, this revision was the newest.  One is taken when the revision changed, at
most once a second.  The answer for a moment is the newest sample at or before it, so it is never a
revision that was made later than asked for; it may lack the last changes before that moment:

    * those of the last `SAMPLE_S`, and of however long the caller takes to call `note`;
    * once there were more than `SAMPLES_MAX` samples, those of a 128th of the moment's age as well: of
      five minutes ago it is known to 2 seconds, of an hour ago to 16, of a day ago to 8 minutes.

Samples are thinned in buckets of time whose widths are powers of two and grow with their age: of each
bucket the last sample stays.  Buckets of one width are halves of the next, so thinning again and again
loses no more than thinning once.

Invariants
    * No IO and no clock.  A moment is seconds on a scale of the caller's that never goes back; a call
      that does go back is ignored.
    * Memory is bounded by `SAMPLES_MAX`, however long the store lives.
    * The first sample stays for ever: it is how far back anything is known.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate

import msgspec

from quoracy.clock import Clock
from quoracy.errors import Compacted, InvalidRequest, Unsupported
from quoracy.store.model import Revision

__all__ = [
    "SAMPLES_MAX",
    "SAMPLE_S",
    "SAVE_S",
    "SavedTimeline",
    "Timekeeper",
    "Timeline",
    "decode_timeline",
]

SAMPLE_S = 1.0
SAMPLES_MAX = 4096
SAVE_S = 10.0

_WIDTHS_PER_AGE = 128
# What thinning has to come down to, so that it is rare: buckets for 17 years.  Of more than that, the
# oldest go.
_THINNED_MAX = SAMPLES_MAX * 3 // 4


class Timeline:
    """Samples of (moment, revision), in order of both."""

    __slots__ = ("_moments_ms", "_revisions")

    def __init__(self) -> None:
        # Whole milliseconds, rounded up: nothing may seem older than it is, nor change when written.
        self._moments_ms = array("q")
        self._revisions = array("q")

    def __len__(self) -> int:
        return len(self._moments_ms)

    @property
    def began(self) -> float | None:
        """The first moment of which anything is known."""
        return self._moments_ms[0] / 1000 if self._moments_ms else None

    @property
    def newest(self) -> int:
        """The newest revision that was noted; 0 if none was."""
        return self._revisions[-1] if self._revisions else 0

    def note(self, moment: float, revision: int, *, at_once: bool = False) -> bool:
        """This revision is the newest now.  `at_once`: even if the last sample is not a second old."""
        moment_ms = math.ceil(moment * 1000)
        if self._moments_ms:
            since_ms = moment_ms - self._moments_ms[-1]
            if revision <= self._revisions[-1] or since_ms < (0 if at_once else SAMPLE_S * 1000):
                return False
        self._moments_ms.append(moment_ms)
        self._revisions.append(revision)
        if len(self._moments_ms) > SAMPLES_MAX:
            self._thin()
        return True

    def at(self, moment: float) -> int | None:
        """The newest revision known to have been made by then; None for before anything is known."""
        index = bisect_right(self._moments_ms, moment * 1000)
        return self._revisions[index - 1] if index else None

    def forget(self, compact_revision: int) -> None:
        """Of revisions that cannot be read any more, it is enough to know that they are too old."""
        last = bisect_left(self._revisions, compact_revision)
        if last > 1:
            self._remove(1, last)

    def _thin(self) -> None:
        moments_ms, revisions = self._moments_ms, self._revisions
        newest_ms = moments_ms[-1]
        kept = [0]
        bucket: tuple[int, int] | None = None
        for index in range(1, len(moments_ms)):
            width_ms = _width_s((newest_ms - moments_ms[index]) // 1000) * 1000
            before, bucket = bucket, (width_ms, moments_ms[index] // width_ms)
            if bucket == before:
                kept[-1] = index
            else:
                kept.append(index)
        self._moments_ms = array("q", (moments_ms[index] for index in kept))
        self._revisions = array("q", (revisions[index] for index in kept))
        if len(kept) > _THINNED_MAX:
            self._remove(1, 1 + len(kept) - _THINNED_MAX)

    def _remove(self, start: int, stop: int) -> None:
        del self._moments_ms[start:stop]
        del self._revisions[start:stop]

    def encode(self, *, moment: float, wall: float) -> bytes:
        """Everything, as it is at a moment at which the clock on the wall shows `wall`."""
        steps_ms, steps = _steps(self._moments_ms.tolist()), _steps(self._revisions.tolist())
        return msgspec.msgpack.encode(_Encoded(moment, wall, steps_ms, steps))


class SavedTimeline(msgspec.Struct, frozen=True):
    """What `Timeline.encode` wrote, and when."""

    timeline: Timeline
    moment: float
    wall: float


class _Encoded(msgspec.Struct, array_like=True, frozen=True):
    # Each number as the difference to the one before: most take one byte or three.
    moment: float
    wall: float
    moment_steps_ms: list[int]
    revision_steps: list[int]


def decode_timeline(blob: bytes) -> SavedTimeline:
    """Read what `Timeline.encode` wrote.  Raises ValueError for anything else."""
    found = msgspec.msgpack.decode(blob, type=_Encoded)
    count = len(found.moment_steps_ms)
    if (
        count != len(found.revision_steps)
        or count > SAMPLES_MAX
        or not math.isfinite(found.moment - found.wall)
    ):
        raise ValueError("the samples are not what they should be")
    if min(found.moment_steps_ms[1:] + found.revision_steps[1:], default=0) < 0:
        raise ValueError("the samples are not in order")
    timeline = Timeline()
    try:
        timeline._moments_ms.extend(accumulate(found.moment_steps_ms))
        timeline._revisions.extend(accumulate(found.revision_steps))
    except OverflowError as error:
        raise ValueError("the samples are out of range") from error
    return SavedTimeline(timeline, found.moment, found.wall)


def _width_s(age_s: int) -> int:
    """The largest power of two that is no more than a 128th of the age, and a second at least."""
    return 1 << max((age_s // _WIDTHS_PER_AGE).bit_length() - 1, 0)


def _steps(numbers: list[int]) -> list[int]:
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]


class Timekeeper:
    """A store's sense of time: notes when revisions are made, and remembers it over restarts.

    While the store is open, ages are measured with the monotonic clock: setting the wall clock changes
    nothing, and time the machine sleeps may not count.  How long the store was closed is what the wall
    clock says, and nothing at all if that was set back.  Each of these errs in one direction: what is
    found may be older than asked for, never newer.  The exception is a wall clock that was set forward
    while the store was closed (or since the last time before a crash that this was written): by as much
    everything before seems older.

    What is remembered is written at most every `SAVE_S`, with the next commit, and when the store is
    closed.  After a crash, revisions made since it was written last count as made when the store was
    opened again.
    """

    def __init__(self, clock: Clock, *, revision: int, saved: SavedTimeline | None = None) -> None:
        self._clock = clock
        now, wall = clock.now(), clock.wall()
        moment, self._timeline = wall, Timeline()
        if saved is not None:
            self._timeline = saved.timeline
            moment = saved.moment + max(0.0, wall - saved.wall)
        # Moments are the monotonic clock's readings, shifted so that they go on where they were.
        self._shift_s = moment - now
        self._saved_at = now
        self._opened_at_revision = revision
        self._unsaved = self._timeline.note(moment, revision)

    def tick(self, revision: int, *, compact_revision: int) -> bytes | None:
        """Note the newest durable revision.  Returns what is to be written, when that is due."""
        now = self._clock.now()
        self._timeline.forget(compact_revision)
        self._unsaved |= self._timeline.note(now + self._shift_s, revision)
        if not self._unsaved or now - self._saved_at < SAVE_S:
            return None
        return self._encode(now)

    def close(self, revision: int) -> bytes | None:
        """The last revision there was.  Returns what is to be written, if anything is."""
        now = self._clock.now()
        self._timeline.note(now + self._shift_s, revision, at_once=True)
        # Who only looked at a store leaves no trace in it, and needs no room on its disk.  Otherwise it
        # is written even if every sample was: from now on the clock on the wall has to tell the time.
        return None if revision == self._opened_at_revision else self._encode(now)

    def _encode(self, now: float) -> bytes:
        self._saved_at, self._unsaved = now, False
        return self._timeline.encode(moment=now + self._shift_s, wall=self._clock.wall())

    def revision_at(self, age_s: float, *, newest: Revision, compact_revision: int) -> Revision:
        """See `Store.revision_at`."""
        if not age_s >= 0:
            raise InvalidRequest(f"age_s is {age_s}. Give how many seconds ago, 0 or more.")
        if age_s == 0:
            return newest
        now = self._clock.now() + self._shift_s
        found = self._timeline.at(now - age_s)
        if found is None:
            known_s = now - (self._timeline.began or now)
            raise Unsupported(
                f"which revision was the newest {age_s:,.0f} s ago is not known: this store has noted "
                f"times for {known_s:,.0f} s. Ask for less, or give a revision."
            )
        if found < compact_revision:
            raise Compacted(wanted=found, oldest=compact_revision)
        return Revision(found)
