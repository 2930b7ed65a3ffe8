"""Sweeping: how what was written since the store was opened is cleaned, a whole stretch at a time.

Most of what a busy store writes is short-lived: a counter, a session's node, the version of a parent
that the next child makes old.  When compaction has passed a stretch of revisions, all that is left of
it is the newest version of each key, and the revision log, which has just been gone through in order to
free memory, knows which those are.  So rows of which nothing is left are deleted as a range, and the
others are written anew from memory.  Nothing is read, and no version that is gone is looked at.  To
name each of them and take it out of its row would cost several times as much (decision 0012).

What is older, from before the store was opened or swept once, is cleaned by name (`log_rows`): it is
kept for long, and nothing tells when it goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from quoracy.engines.embedded.memory.versions import in_order, newer_of, old_of, sorted_out
from quoracy.store.model import KeyValue

__all__ = ["Sweep", "Unswept"]


class Sweep:
    """A stretch of revisions, after one and up to another, to be swept; the worker moves `after` on.

    newest: of each key the newest version that was written there, or later.
    later: those of them that were written after the stretch, once it is begun.
    """

    __slots__ = (
        "_at",
        "_left",
        "_revisions",
        "after",
        "buried",
        "is_begun",
        "later",
        "newest",
        "until",
    )

    def __init__(self, after: int, until: int, newest: dict[bytes, KeyValue]) -> None:
        self.after = after
        self.until = until
        self.newest = newest
        self.is_begun = False
        self.buried: list[KeyValue] = []  # deletions that cannot be seen any more
        self.later: list[KeyValue] = []
        self._left: list[KeyValue] = []  # in order
        self._revisions: list[int] = []
        self._at = 0

    def begin(self, until: int, rest: Callable[[], None]) -> None:
        """Find out what is left, and end no later than here.  `rest` is called now and then."""
        self.is_begun = True
        self.until = until
        self._left, self.buried, self.later = sorted_out(self.newest.values(), until, rest)

    def keep_too(self, versions: list[KeyValue], rest: Callable[[], None]) -> None:
        """Keep these as well; the last word on what is left.  `rest` as in `begin`."""
        self._left, self._revisions = in_order(self._left + versions, rest)

    def left_until(self, revision: int) -> Sequence[KeyValue]:
        """What is left up to this revision, and was not taken before."""
        start = self._at
        self._at = bisect_right(self._revisions, revision, start)
        return self._left[start : self._at]

    def let_go(self, count: int) -> bool:
        """Drop some of the versions of a finished sweep; returns whether there are more.

        This frees most of them, at addresses that are in no cache.  All in one go would take
        milliseconds, so they are dropped in pieces.
        """
        for versions in (self._left, self.buried, self.later):
            del versions[-count:]
        newest = self.newest
        for _ in range(min(count, len(newest))):
            newest.popitem()
        return bool(newest or self._left or self.buried or self.later)


class Unswept:
    """What compaction has passed and no sweep yet: of each key the newest version.

    swept: the revision up to which everything is cleaned by name.
    freed_count: how many versions have been freed since the last sweep.
    """

    __slots__ = ("_newest", "freed_count", "swept")

    def __init__(self, swept: int) -> None:
        self.swept = swept
        self.freed_count = 0
        self._newest: dict[bytes, KeyValue] = {}

    @property
    def count(self) -> int:
        """Versions that the next sweep has to do with."""
        return self.freed_count + len(self._newest)

    def trimmed(self, freed: list[KeyValue], newest: dict[bytes, KeyValue]) -> list[KeyValue]:
        """Versions were freed, others are the newest of what was gone through; returns those to be
        cleaned by name."""
        self._newest.update(newer_of(newest, self.swept))
        old = old_of(freed, self.swept)
        self.freed_count += len(freed) - len(old)
        return old

    def sweep(self, until: int) -> Sweep:
        """All of it up to a revision, when what was written until then is trimmed.

        What is the newest of its key by then may be old by the compaction revision.  Such a version is
        kept here, and cleaned by name when it is trimmed.
        """
        newest, self._newest = self._newest, {}
        return Sweep(self.swept, until, newest)

    def done(self, sweep: Sweep) -> None:
        """That was swept, as far as it is."""
        is_whole = sweep.is_begun and sweep.after == sweep.until
        left = sweep.later if is_whole else sorted_out(sweep.newest.values(), sweep.after)[2]
        newest = {kv.key: kv for kv in left}
        newest.update(self._newest)  # what was trimmed meanwhile is newer
        self._newest = newest
        self.swept = max(self.swept, sweep.after)
        self.freed_count = 0
