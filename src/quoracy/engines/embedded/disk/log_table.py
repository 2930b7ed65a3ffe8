"""The table `log`: all versions, many to a row; and the removal of rows that are not needed.

A row has many versions, and its first revision is its key: that takes a fraction of the work of one row
for each version.  The table is clustered on revisions, so new rows go to one end of the file, and
compaction, which knows the revisions of the versions that it frees, needs no index.

Invariants
    * Every row carries a checksum, verified when it is read.
    * A revision is never split over rows.
    * Every write here is part of a transaction of the journal.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec

from quoracy.engines.embedded.committing.group import Versions
from quoracy.engines.embedded.disk.file_sync import let_others
from quoracy.engines.embedded.disk.journal_file import PAGE_BYTES, damaged, row_checksum, unreadable
from quoracy.engines.embedded.disk.log_rows import (
    ROW_BYTES,
    ROW_VERSIONS,
    FrameRow,
    SharedRow,
    SharedRows,
    VersionName,
    decode_row,
)
from quoracy.engines.embedded.disk.sweep import Sweep
from quoracy.engines.embedded.memory.versions import names_of
from quoracy.store.model import KeyValue

__all__ = ["STATEMENT_ROWS", "LogTable", "rows_of"]

# The most rows in one statement, which also ends when it has the bytes of one large row: compiled code
# keeps the interpreter lock until it calls something that releases it, and the loop waits until then.
STATEMENT_ROWS: Final = 128
# For the same reason only a few shared rows are rewritten, or swept, in one go.  Rows that are held
# cost less: there are more of them in one go, until this number of versions is left to be written.
_REWRITE_ROWS = 2
_SWEEP_ROWS = 4
_SWEEP_HELD_ROWS = 32
_SWEEP_LEFT = 1024

_encode = msgspec.msgpack.Encoder().encode

_mod_revision = attrgetter("mod_revision")


class LogTable:
    """The rows of one journal.

    shared: which versions the rows hold, and which of these were dropped.
    spared_bytes: bytes that were held and never had to be inserted, since this was last set to 0.
    """

    __slots__ = ("_db", "_held", "_path", "shared", "spared_bytes")

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._db = connection
        self._held: deque[SharedRow] = deque()  # in their order
        self.shared = SharedRows()
        self.spared_bytes = 0

    # -- reading -----------------------------------------------------------------------------

    def read(self) -> Iterator[tuple[int, Versions]]:
        """All rows in the order they were written, each verified."""
        try:
            rows = self._db.execute("SELECT revision, versions, checksum FROM log ORDER BY revision")
            for revision, blob, checksum in rows:
                yield revision, self._verified(revision, blob, checksum)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise unreadable(self._path, error) from error

    def _verified(self, revision: object, blob: object, checksum: object) -> Versions:
        if (
            not isinstance(revision, int)
            or not isinstance(blob, bytes)
            or row_checksum(revision, blob) != checksum
        ):
            raise damaged(self._path, f"row {revision}")
        try:
            return decode_row(blob)
        except msgspec.DecodeError as error:
            raise unreadable(self._path, error) from error

    # -- writing -----------------------------------------------------------------------------

    def write(self, rows: Iterable[tuple[int, Versions]]) -> int:
        """Insert rows, or replace them; return their bytes."""
        return self._put(self._noted(rows))

    def _noted(self, rows: Iterable[tuple[int, Versions]]) -> Iterator[tuple[int, bytes, int]]:
        for revision, versions in rows:
            blob = _encode(versions)
            self.shared.note(revision, versions)
            yield revision, blob, row_checksum(revision, blob)

    def _put(self, rows: Iterable[tuple[int, bytes, int]]) -> int:
        """Insert several small rows with each statement, up to a limit of bytes; returns the bytes.

        (SQLite copies its parameters while the interpreter lock is held: several large rows in one
        statement would keep the loop waiting for milliseconds.)
        """
        size = written = count = 0
        fields: list[object] = []
        for row in rows:
            fields += row
            size += len(row[1])
            count += 1
            if count == STATEMENT_ROWS or size - written >= ROW_BYTES:
                self._db.execute(_write_sql(count), fields)
                let_others()
                fields, count, written = [], 0, size
        if count:
            self._db.execute(_write_sql(count), fields)
        return size

    # -- rows held back: they are in the commit log, and need not be here ----------------------

    def hold(self, rows: Iterable[FrameRow]) -> None:
        """Hold rows that follow all others: they count as part of the table, to be inserted later."""
        for row in rows:
            self._held.append(self.shared.note_held(row))

    @property
    def held_from(self) -> int:
        """The number of the first frame of which a row is held; 0 if none is."""
        if not self._held:
            return 0
        row = self._held[0].held
        assert row is not None
        return row.begin

    def insert_held(self, until: int | None = None) -> int:
        """Insert the rows that begin with frames up to this number, or all; return their bytes."""
        rows: list[FrameRow] = []
        while self._held and (until is None or self.held_from <= until):
            rows.append(self._let_out(self._held[0]))
        return self._insert(rows)

    def _let_out(self, row: SharedRow) -> FrameRow:
        """Remove the oldest of the held rows."""
        assert self._held[0] is row
        self._held.popleft()
        held, row.held = row.held, None
        assert held is not None
        return held

    def _insert(self, rows: Iterable[FrameRow]) -> int:
        return self._put([(row.first, row.blob, row.checksum) for row in rows])

    # -- cleaning: each returns how many bytes it may have logged -------------------------------

    def let_go(self, names: list[VersionName]) -> int:
        """Drop versions that are not needed any more."""
        removed = 0
        alone: list[int] = []
        for first, last in self.shared.let_go(names):
            if first == last:
                alone.append(first)
            else:
                sql = "DELETE FROM log WHERE revision BETWEEN ? AND ?"
                removed += self._db.execute(sql, (first, last)).rowcount
        for start in range(0, len(alone), STATEMENT_ROWS):
            step = alone[start : start + STATEMENT_ROWS]
            self._db.execute(f"DELETE FROM log WHERE revision IN ({_marks(len(step))})", step)
        return (removed + len(alone)) * PAGE_BYTES  # at worst, each was on a page of its own

    def sweep_some(self, sweep: Sweep) -> int:
        """Sweep some rows; `sweep.after` says how far the sweep has come."""
        rows = self.shared.between(sweep.after + 1, sweep.until, _SWEEP_HELD_ROWS)
        if not rows:
            sweep.after = sweep.until
            return 0
        if rows[0].held is None:
            del rows[_SWEEP_ROWS:]
        written = 0
        gone: list[SharedRow] = []  # wholly or partly: neighbours, rewritten together
        left: list[KeyValue] = []
        for row in rows:
            part = sweep.left_until(row.last)
            if len(part) == row.count:
                written += self._replace(gone, left)
                gone, left = [], []
                if row.held is not None:
                    written += self._insert([self._let_out(row)])
            else:
                gone.append(row)
                left += part
            sweep.after = row.last
            if len(left) >= _SWEEP_LEFT:
                break
        return written + self._replace(gone, left)

    def _replace(self, rows: list[SharedRow], left: list[KeyValue]) -> int:
        """Replace adjacent rows by the versions that are left of them."""
        if not rows:
            return 0
        removed = 0
        in_table = [row for row in rows if row.held is None]
        if in_table:
            sql = "DELETE FROM log WHERE revision BETWEEN ? AND ?"
            removed = self._db.execute(sql, (in_table[0].first, in_table[-1].last)).rowcount
        for row in rows:
            if row.held is not None:
                self.spared_bytes += len(self._let_out(row).blob)
            self.shared.forget(row)
        return removed * PAGE_BYTES + self.write(rows_of(_by_revisions(left), over_gaps=True))

    def rewrite_some(self) -> int:
        """Rewrite some rows that are half empty."""
        rows = {row.first: row for row in self.shared.take_half_empty(_REWRITE_ROWS)}
        found = self._db.execute(
            f"SELECT revision, versions, checksum FROM log WHERE revision IN ({_marks(len(rows))})",
            list(rows),
        ).fetchall()
        kept: list[tuple[int, Versions]] = []
        for revision, blob, checksum in found:
            gone = rows[revision].gone
            versions = self._verified(revision, blob, checksum)
            kept.append((revision, _without(versions, gone)))
            self.shared.forget(rows[revision])
            let_others()
        return self.write(kept)


def rows_of(changes: list[Versions], *, over_gaps: bool = False) -> Iterator[tuple[int, Versions]]:
    """Rows for revisions in order.  A revision is never split over rows.

    over_gaps: whether a row may go on where revisions are missing.  (Those may be in a row of their
    own, and rows do not overlap.)
    """
    row: list[KeyValue] = []
    size = 0
    for versions in changes:
        if row and not over_gaps and versions[0].mod_revision != row[-1].mod_revision + 1:
            yield row[0].mod_revision, tuple(row)
            row, size = [], 0
        row += versions
        for kv in versions:
            size += len(kv.value)
        if size >= ROW_BYTES or len(row) >= ROW_VERSIONS:
            yield row[0].mod_revision, tuple(row)
            row, size = [], 0
    if row:
        yield row[0].mod_revision, tuple(row)


def _by_revisions(versions: list[KeyValue]) -> list[Versions]:
    """Versions in order, those of a revision together."""
    return [tuple(same) for _, same in groupby(versions, key=_mod_revision)]


@cache
def _write_sql(rows: int) -> str:
    return "INSERT OR REPLACE INTO log VALUES" + ",".join(["(?,?,?)"] * rows)


def _marks(count: int) -> str:
    return ",".join("?" * count)


def _without(versions: tuple[KeyValue, ...], gone: set[VersionName]) -> tuple[KeyValue, ...]:
    names = names_of(versions)
    return tuple([kv for kv, name in zip(versions, names, strict=True) if name not in gone])
