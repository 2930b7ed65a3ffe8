"""Rows of the table `log`: made of frames of the commit log; and which of their versions are dropped.

    row of frames   MARK, then for each frame the length of its changes, and these as in the frame
    any other row   versions, as msgpack

A worker thread writes the rows, and competes with a busy loop for the interpreter lock.  So the loop
itself makes rows of the frames, which takes a copy and a checksum now and then, and nothing is encoded
twice.

A row holds several versions, and compaction frees versions one by one.  `SharedRows` knows which are
dropped.  A row is rewritten when half of its versions are dropped, and deleted when all are.  So all
rewrites of a row together write no more than the row itself did, and dropped versions never take more
room than those that are needed.

Invariant
    * A deletion is dropped last.  A version that is dropped but still in a row is harmless only as long
      as a newer one of its key is on disk: without that one, it would be back after a restart.  The
      newest version of a key that exists stays anyway.  But a deletion is freed like any other version,
      so it is held back until no older version of its key is left in any other row.  (Those in its own
      row are removed with it, in one transaction.)

A row with a single version, of the revision that is the row's key, is deleted at once when that version
is dropped.  Such rows are not listed if they were there when the file was opened, and cost no memory.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from quoracy.engines.embedded.committing.group import Versions
from quoracy.engines.embedded.disk.journal_file import row_checksum
from quoracy.engines.embedded.memory.versions import VersionName, names_of
from quoracy.store.model import KeyValue

if TYPE_CHECKING:
    from sortedcontainers import SortedDict

__all__ = [
    "ROW_BYTES",
    "ROW_VERSIONS",
    "FrameRow",
    "FrameRows",
    "SharedRow",
    "SharedRows",
    "VersionName",
    "decode_row",
]

# A row ends with the revision that reaches one of these limits, so that rewriting a row takes a
# fraction of a slice.
ROW_VERSIONS: Final = 512
ROW_BYTES: Final = 64 * 1024

_MARK: Final = 0xC1  # which msgpack never uses
_LENGTH: Final = struct.Struct("<I")

_decode_versions = msgspec.msgpack.Decoder(tuple[KeyValue, ...]).decode
_decode_changes = msgspec.msgpack.Decoder(list[Versions]).decode


class FrameRow:
    """One row, ready to be inserted: the revisions it spans, and how many versions it holds.

    begin: the number of the first frame in it.
    """

    __slots__ = ("begin", "blob", "checksum", "count", "first", "last")

    def __init__(self, begin: int, first: int, last: int, count: int, blob: bytes) -> None:
        self.begin = begin
        self.first, self.last, self.count, self.blob = first, last, count, blob
        self.checksum = row_checksum(first, blob)


class FrameRows:
    """Makes rows of the changes in frames, which are added in order."""

    __slots__ = ("_begin", "_bytes", "_count", "_first", "_last", "_parts", "_rows")

    def __init__(self) -> None:
        self._rows: list[FrameRow] = []
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = [bytes((_MARK,))]
        self._bytes = self._count = self._begin = self._first = self._last = 0

    def add(self, number: int, changes: bytes, first: int, last: int, count: int) -> None:
        """Add `count` versions, of revisions `first` to `last`, as frame `number` has them encoded."""
        if not self._count:
            self._begin, self._first = number, first
        self._last = last
        self._count += count
        self._bytes += len(changes)
        self._parts.append(_LENGTH.pack(len(changes)))
        self._parts.append(changes)
        if self._bytes >= ROW_BYTES or self._count >= ROW_VERSIONS:
            self._end()

    def take(self) -> list[FrameRow]:
        """Everything added since the last call, as rows."""
        if self._count:
            self._end()
        rows, self._rows = self._rows, []
        return rows

    def _end(self) -> None:
        blob = b"".join(self._parts)
        self._rows.append(FrameRow(self._begin, self._first, self._last, self._count, blob))
        self._clear()


def decode_row(blob: bytes) -> Versions:
    """The versions in a row of either kind.  Raises `msgspec.DecodeError`."""
    if not blob or blob[0] != _MARK:
        return _decode_versions(blob)
    versions: list[KeyValue] = []
    at, end = 1, len(blob)
    while at < end:
        start = at + _LENGTH.size
        if start > end:
            raise msgspec.DecodeError("a row of frames ends in the middle of a length")
        (length,) = _LENGTH.unpack_from(blob, at)
        at = start + length
        for changes in _decode_changes(blob[start:at]):
            versions += changes
    if at > end:
        raise msgspec.DecodeError("a row of frames ends in the middle of a frame")
    return tuple(versions)


class SharedRow:
    """One row: the revisions it spans, how many versions it holds, and which of them are dropped.

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
        self._lingering: dict[bytes, int] = {}  # for a key, versions dropped but still in a row
        self._held_back: dict[bytes, list[VersionName]] = {}  # deletions that wait for those
        self.half_empty: deque[SharedRow] = deque()  # to be written anew
        self.released: deque[VersionName] = deque()  # deletions that need not wait any more

    @property
    def _rows(self) -> SortedDict[int, SharedRow]:
        if self._sorted is None:
            # Not before there are rows: a server without data saves the memory of the import.
            from sortedcontainers import SortedDict

            self._sorted = SortedDict()
        return self._sorted

    @property
    def is_settled(self) -> bool:
        return not self.half_empty and not self.released

    def note(self, first: int, versions: tuple[KeyValue, ...]) -> None:
        """Note that a row was written."""
        self.note_row(first, versions[-1].mod_revision, len(versions))

    def note_row(self, first: int, last: int, count: int) -> None:
        """Note that a row was written, with `count` versions of these revisions."""
        self._rows[first] = SharedRow(first, last, count)

    def note_held(self, held: FrameRow) -> SharedRow:
        """Note a row that is held, and may be written later."""
        row = self._rows[held.first] = SharedRow(held.first, held.last, held.count, held)
        return row

    def note_loaded(self, first: int, versions: tuple[KeyValue, ...]) -> None:
        """Note a row that was there when the file was opened."""
        # A version that is left over of several may be in a row with another revision as its key.
        if len(versions) > 1 or versions[0].mod_revision != first:
            self.note(first, versions)

    def whole_until(self, revision: int) -> int:
        """The last revision, not after this one, that is not inside a row or that ends one."""
        row = self._find(revision)
        return revision if row is None or row.last == revision else row.first - 1

    def between(self, first: int, last: int, count_max: int) -> list[SharedRow]:
        """The first rows from a revision to another, at most `count_max`."""
        return [self._rows[at] for at in islice(self._rows.irange(first, last), count_max)]

    def hold_back(self, versions: list[KeyValue]) -> list[KeyValue]:
        """Those of these unneeded deletions that must stay until older versions are removed."""
        lingering = self._lingering
        kept = [kv for kv in versions if kv.key in lingering] if lingering else []
        for name in names_of(kept):
            self._held_back.setdefault(name[1], []).append(name)
        return kept

    def let_go(self, names: Iterable[VersionName]) -> list[tuple[int, int]]:
        """Drop versions that are not needed; returns the rows that hold nothing else, to be deleted.

        Adjacent rows are returned as one range of revisions, the last included; most rows are adjacent.
        A row that is deleted as a whole is not decoded.
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
        """Drop versions in one row; returns whether the whole row can be deleted."""
        assert row.held is None  # versions that were never swept are not dropped by name
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
        """Forget a row that was rewritten or deleted: its dropped versions are no longer on disk."""
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
        # (Rows that wait to be rewritten but were deleted may be freed many at a time.  Freeing all
        # their names with them would take too long, so these are freed here.)
        row.gone = set()

    def take_half_empty(self, count: int) -> list[SharedRow]:
        """Some of the rows to be rewritten.  (Rows in the queue may have been deleted since.)"""
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
