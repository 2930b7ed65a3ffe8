"""Sweeps: the cleaning of revisions written since the store was opened, a whole range at a time.

Most of what a busy store writes is short-lived: a counter, a session's node, the version of a parent
that the next child makes old.  Once a range of revisions is compacted, only the newest version of each
key is left of it.  The revision log, which was just scanned to free memory, knows which these are.  So
rows of which nothing is left are deleted as a range, and the others are rewritten from memory.  Nothing
is read from disk, and no removed version is looked at.  To name each of these and take it out of its
row would cost several times as much (decision 0012).

Older versions, from before the store was opened or from a range that was swept before, are cleaned by
name (`log_rows`): they live long, and one by one they become old at unpredictable times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from quoracy.engines.embedded.memory.versions import in_order, newer_of, old_of, sorted_out
from quoracy.store.model import KeyValue

__all__ = ["Sweep", "Unswept"]


class Sweep:
    """A range of revisions to be swept: after `after`, which the worker advances, up to `until`.

    newest: for each key the newest version that was written in the range, or later.
    later: those of them that were written after the range; filled by `begin`.
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
        """Find the versions that stay, up to `until`, the new end.  `rest` is called now and then."""
        self.is_begun = True
        self.until = until
        self._left, self.buried, self.later = sorted_out(self.newest.values(), until, rest)

    def keep_too(self, versions: list[KeyValue], rest: Callable[[], None]) -> None:
        """Keep these versions as well; after this, what stays is final.  `rest` as in `begin`."""
        self._left, self._revisions = in_order(self._left + versions, rest)

    def left_until(self, revision: int) -> Sequence[KeyValue]:
        """The versions that stay up to this revision, without those returned before."""
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
    """Revisions that are compacted but not swept: for each key its newest version.

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
        """How many versions the next sweep will handle."""
        return self.freed_count + len(self._newest)

    def trimmed(self, freed: list[KeyValue], newest: dict[bytes, KeyValue]) -> list[KeyValue]:
        """Note versions that were freed, and the newest of those scanned; returns the freed ones that
        are to be cleaned by name."""
        self._newest.update(newer_of(newest, self.swept))
        old = old_of(freed, self.swept)
        self.freed_count += len(freed) - len(old)
        return old

    def sweep(self, until: int) -> Sweep:
        """A sweep of all of it up to a revision, once everything up to there is trimmed.

        A version that is the newest of its key up to that revision may be old at the compaction
        revision.  Such a version survives the sweep, and is cleaned by name when it is trimmed.
        """
        newest, self._newest = self._newest, {}
        return Sweep(self.swept, until, newest)

    def done(self, sweep: Sweep) -> None:
        """Note how far a sweep has come, finished or not."""
        is_whole = sweep.is_begun and sweep.after == sweep.until
        left = sweep.later if is_whole else sorted_out(sweep.newest.values(), sweep.after)[2]
        newest = {kv.key: kv for kv in left}
        newest.update(self._newest)  # what was trimmed meanwhile is newer
        self._newest = newest
        self.swept = max(self.swept, sweep.after)
        self.freed_count = 0
