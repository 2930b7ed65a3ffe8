"""A store's sense of time: notes when revisions are made, remembers it over restarts, answers "ago".

While the store is open, ages are measured with the monotonic clock: setting the clock on the wall
changes nothing, and time the machine sleeps may not count.  How long the store was closed is what the
clock on the wall says, and nothing at all if that was set back.  Each of these errs in one direction:
what is found may be older than asked for, never newer.  The exception is a wall clock that was set
forward while the store was closed (or since the last time before a crash that this was written): by so
much everything before seems older.

What is remembered is written at most every `SAVE_S`, with whatever commit is next, and when the store
is closed.  After a crash, revisions made since it was written last count as made when the store was
opened again.
"""

from __future__ import annotations

from quoracy.clock import Clock
from quoracy.engines.embedded.memory.timeline import SavedTimeline, Timeline
from quoracy.errors import Compacted, InvalidRequest, Unsupported
from quoracy.store.model import Revision

__all__ = ["SAVE_S", "Timekeeper"]

SAVE_S = 10.0


class Timekeeper:
    """Tells the engine what to write, and anybody which revision it was so long ago."""

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
        """See `store.api.KnowsTimes`."""
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
