"""Rows of the journal that hold several versions, and which of those nobody needs any more.

A group commit writes one row for all its revisions.  Compaction frees versions one by one, so a row is
written anew when half of it is gone, and removed when all of it is: what is ever written for it adds
up to no more than twice what was, and what is kept for nothing is never more than what is needed.

Invariant
    * A deletion goes last.  A version that is not needed but still in a row is harmless only as long as
      a newer one of its key is on disk: without it, it would be back after a restart.  Of versions
      that can be read the newest stays anyway; but a deletion is freed like any other version, so it
      is held back until no older version of its key lingers in any other row.  (What is in its own
      goes with it, in one transaction.)

Rows that were there when the file was opened and hold the single version that names them, which go at
once, are not listed and cost no memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from quoracy.engines.embedded.disk.frame_rows import FrameRow
from quoracy.engines.embedded.memory.versions import VersionName, names_of
from quoracy.store.model import KeyValue

if TYPE_CHECKING:
    from sortedcontainers import SortedDict

__all__ = ["SharedRow", "SharedRows", "VersionName"]


class SharedRow:
    """One row: the revisions it spans, how many versions it holds, and those nobody needs.

    held: the row itself, as long as it is in the commit log and not in the table.
    """

    __slots__ = ("count", "first", "gone", "held", "last", "queued")

    def __init__(self, first: int, last: int, count: int, held: FrameRow | None = None) -> None:
        self.first = first
        self.last = last
        self.count = count
        self.held = held
        self.gone: set[VersionName] = set()
        self.queued = False  # to be written anew


class SharedRows:
    """All shared rows by the revisions they span, which never overlap.

    Names must come oldest first for each key, as compaction frees them.
    """

    __slots__ = ("_held_back", "_lingering", "_sorted", "half_empty", "released")

    def __init__(self) -> None:
        self._sorted: SortedDict[int, SharedRow] | None = None
        self._lingering: dict[bytes, int] = {}  # versions of a key that are gone but still in a row
        self._held_back: dict[bytes, list[VersionName]] = {}  # deletions that wait for those
        self.half_empty: deque[SharedRow] = deque()  # to be written anew
        self.released: deque[VersionName] = deque()  # deletions that need not wait any more

    @property
    def _rows(self) -> SortedDict[int, SharedRow]:
        if self._sorted is None:
            # Not before there are rows: a server that nobody has written to does without, 0.4 MiB less.
            from sortedcontainers import SortedDict

            self._sorted = SortedDict()
        return self._sorted

    @property
    def is_settled(self) -> bool:
        return not self.half_empty and not self.released

    def note(self, first: int, versions: tuple[KeyValue, ...]) -> None:
        """A row was written."""
        self.note_row(first, versions[-1].mod_revision, len(versions))

    def note_row(self, first: int, last: int, count: int) -> None:
        """A row was written, with so many versions of these revisions."""
        self._rows[first] = SharedRow(first, last, count)

    def note_held(self, held: FrameRow) -> SharedRow:
        """A row is there, and may be written later."""
        row = self._rows[held.first] = SharedRow(held.first, held.last, held.count, held)
        return row

    def note_loaded(self, first: int, versions: tuple[KeyValue, ...]) -> None:
        """A row was there when the file was opened."""
        # One version that is left over of several is not where its own revision says.
        if len(versions) > 1 or versions[0].mod_revision != first:
            self.note(first, versions)

    def whole_until(self, revision: int) -> int:
        """The last revision, not after this one, at which no row goes on."""
        row = self._find(revision)
        return revision if row is None or row.last == revision else row.first - 1

    def between(self, first: int, last: int, count_max: int) -> list[SharedRow]:
        """The first so many rows from a revision to another."""
        return [self._rows[at] for at in islice(self._rows.irange(first, last), count_max)]

    def hold_back(self, versions: list[KeyValue]) -> list[KeyValue]:
        """Of deletions that nobody needs, those that must stay until an older version is gone."""
        lingering = self._lingering
        kept = [kv for kv in versions if kv.key in lingering] if lingering else []
        for name in names_of(kept):
            self._held_back.setdefault(name[1], []).append(name)
        return kept

    def let_go(self, names: Iterable[VersionName]) -> list[tuple[int, int]]:
        """Versions nobody needs any more; returns the rows that hold nothing else and can go.

        Rows that follow each other are one range of revisions, the last included: mostly all of them
        do.  A row that goes whole is never looked into.
        """
        ordered = sorted(names)
        revisions = [name[0] for name in ordered]
        remove: list[tuple[int, int]] = []
        at, count = 0, len(ordered)
        while at < count:
            first = last = revisions[at]
            row = self._find(first)
            if row is None:
                name = ordered[at]
                at += 1
                if name[2] and name[1] in self._lingering:
                    self._held_back.setdefault(name[1], []).append(name)
                    continue
            else:
                end = bisect_right(revisions, row.last, at)
                part = ordered[at:end]
                at = end
                if not self._let_go_of_row(row, part):
                    continue
                first, last = row.first, row.last
            if remove and remove[-1][1] + 1 == first:
                first = remove.pop()[0]
            remove.append((first, last))
        return remove

    def _let_go_of_row(self, row: SharedRow, names: list[VersionName]) -> bool:
        """Versions in one row; whether all of it can go."""
        assert row.held is None  # what was never swept is not let go of by name
        deletions = [name for name in names if name[2] and name[1] in self._lingering]
        if deletions:
            here: dict[bytes, int] = {}
            for name in row.gone:
                here[name[1]] = here.get(name[1], 0) + 1
            back = {name for name in deletions if self._lingering[name[1]] > here.get(name[1], 0)}
            for name in back:
                self._held_back.setdefault(name[1], []).append(name)
            names = [name for name in names if name not in back]
        if len(row.gone) + len(names) == row.count:
            self.forget(row)
            return True
        lingering = self._lingering
        for name in names:
            key = name[1]
            lingering[key] = lingering.get(key, 0) + 1
        row.gone.update(names)
        if 2 * len(row.gone) >= row.count and not row.queued:
            row.queued = True
            self.half_empty.append(row)
        return False

    def forget(self, row: SharedRow) -> None:
        """The row is not as it was: what was gone of it is on disk no more."""
        del self._rows[row.first]
        row.queued = False
        lingering = self._lingering
        for _, key, _ in row.gone:
            left = lingering[key] - 1
            if left:
                lingering[key] = left
            else:
                del lingering[key]
                self.released.extend(self._held_back.pop(key, ()))
        # (Of rows that wait to be written anew and are not there any more, many may be let go of in one
        # go: with all their names, that was 0.6 ms.)
        row.gone = set()

    def take_half_empty(self, count: int) -> list[SharedRow]:
        """Some of the rows to be written anew.  (Of those queued, some may be gone since.)"""
        taken: list[SharedRow] = []
        while self.half_empty and len(taken) < count:
            row = self.half_empty.popleft()
            if row.queued:
                taken.append(row)
        return taken

    def _find(self, revision: int) -> SharedRow | None:
        at = self._rows.bisect_right(revision)
        if not at:
            return None
        row: SharedRow = self._rows.peekitem(at - 1)[1]
        return row if revision <= row.last else None
