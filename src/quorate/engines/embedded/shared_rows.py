"""Rows of the journal that hold several versions, and how many of those are still needed.

A group commit writes one row for all its revisions.  Compaction frees versions one by one, so a row
is written anew when half of it is gone, and removed when all of it is: what is ever written for it
adds up to no more than twice what was, and what is kept for nothing is never more than what is needed.

Rows with the single version that names them, which go at once, are not listed and cost no memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from sortedcontainers import SortedDict

from quorate.store.model import KeyValue

__all__ = ["SharedRow", "SharedRows", "VersionName"]

# A version of a key: no transaction writes a key twice.
VersionName = tuple[int, bytes]


class SharedRow:
    """One row: the revisions it spans, the versions it holds, and those nobody needs any more."""

    __slots__ = ("count", "first", "gone", "last", "queued")

    def __init__(self, first: int, last: int, count: int) -> None:
        self.first = first
        self.last = last
        self.count = count
        self.gone: set[VersionName] = set()
        self.queued = False  # to be written anew

    @property
    def is_empty(self) -> bool:
        return len(self.gone) == self.count

    @property
    def is_half_empty(self) -> bool:
        return 2 * len(self.gone) >= self.count


class SharedRows:
    """All shared rows by the revisions they span, which never overlap."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: SortedDict[int, SharedRow] = SortedDict()

    def note(self, first: int, versions: tuple[KeyValue, ...]) -> None:
        """A row was written, or written anew with less in it."""
        last = versions[-1].mod_revision
        # One version that is left over of several is not where its own revision says.
        if len(versions) > 1 or last != first:
            self._rows[first] = SharedRow(first, last, len(versions))
        else:
            self._rows.pop(first, None)

    def remove(self, row: SharedRow) -> None:
        del self._rows[row.first]

    def let_go(self, names: Iterable[VersionName]) -> tuple[list[int], list[SharedRow]]:
        """Versions nobody needs any more: the single rows that can go, the shared rows they are in."""
        singles: list[int] = []
        touched: dict[int, SharedRow] = {}
        for name in names:
            row = self._find(name[0])
            if row is None:
                singles.append(name[0])
            else:
                row.gone.add(name)
                touched[row.first] = row
        return singles, list(touched.values())

    def _find(self, revision: int) -> SharedRow | None:
        at = self._rows.bisect_right(revision)
        if not at:
            return None
        row: SharedRow = self._rows.peekitem(at - 1)[1]
        return row if revision <= row.last else None
