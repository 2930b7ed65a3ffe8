"""The journal: what makes the state durable.  SQLite, all the SQL there is, and nothing else.

    versions  one row per kept version of a key, in the order of revisions (deletions have version 0)
    leases    one row per lease
    meta      format, kind, base_revision, compact_revision

A version is named by (revision, key): a transaction writes a key at most once.  The table is clustered
on that, so a commit appends at one end of the file, and compaction needs no index of its own.

Invariants
    * One connection, one owner: EXCLUSIVE locking keeps every other process out, so no foreign reader
      can ever pin the write-ahead log, and the log stays as small as the checkpoints make it.
    * `commit` returns only after fsync (synchronous=FULL).  The first error is the last: the journal
      refuses everything after it, and an fsync that failed is never tried again.
    * Checkpoints are explicit.  SQLite's automatic ones drop their errors and would repeat a failed
      fsync of the database file.
    * Every row carries a checksum, verified when it is read.
"""

from __future__ import annotations

import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from quorate.errors import DataUnreadable, FormatUnknown, StorageFailed
from quorate.store.model import KeyValue

__all__ = ["FORMAT", "SLICE_S", "Batch", "Journal", "JournalSize", "sync_directory"]

FORMAT = 1

# The most of the writer's time that one slice of compaction or of giving space back may take.
SLICE_S = 0.010

_PAGE_BYTES = 4096
# The write-ahead log is folded back after this much payload or this many commits, whichever comes
# first: some 4 to 16 MiB of log, 5 to 10 ms of work.  Much less costs throughput (measured: 1 MiB
# costs 15 % at 256 writers); much more makes the pause longer than a slice.
_CHECKPOINT_BYTES = 4 * 1024**2
_CHECKPOINT_COMMITS = 1000
# A log that one huge transaction blew up is cut back to this.
_WAL_BYTES_MAX = 32 * 1024**2
# Rows in one INSERT.  One statement for many rows gives up the interpreter lock once instead of once
# per row: with a busy event loop, executemany waits for the lock after every row.
_INSERT_ROWS = 128
_INSERT_COLUMNS = 8

_SCHEMA = f"""
CREATE TABLE versions (
    revision INTEGER NOT NULL,
    key BLOB NOT NULL,
    position INTEGER NOT NULL,
    value BLOB NOT NULL,
    create_revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (revision, key)
) WITHOUT ROWID;
CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_s REAL NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY);
INSERT INTO meta VALUES
    ('format', {FORMAT}), ('kind', 'store'), ('base_revision', 1), ('compact_revision', 0);
"""


class Batch:
    """What one group commit makes durable, all or nothing."""

    __slots__ = ("changes", "compact_revision", "leases", "meta")

    def __init__(self) -> None:
        self.changes: list[tuple[KeyValue, ...]] = []
        self.leases: list[tuple[int, float | None]] = []  # granted with a time to live, or ended
        self.compact_revision: int | None = None
        self.meta: dict[str, object] = {}

    @property
    def only_changes(self) -> bool:
        return not (self.leases or self.meta) and self.compact_revision is None

    def __bool__(self) -> bool:
        return bool(self.changes) or not self.only_changes


class JournalSize(msgspec.Struct, frozen=True, gc=False):
    """Bytes on disk: the database file, the part of it that holds nothing, the write-ahead log."""

    file_bytes: int
    free_bytes: int
    wal_bytes: int


class Journal:
    """One SQLite file.  Used by one thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.failed: StorageFailed | None = None
        self._db = connection
        self._logged_bytes = 0
        self._logged_commits = 0
        self._purge_rows = 64
        self._vacuum_pages = 16

    @classmethod
    def open(cls, path: Path, *, kind: str = "store") -> Journal:
        """Open the file, or make it.  Raises `DataUnreadable`, `FormatUnknown`."""
        fresh = not path.exists() or path.stat().st_size == 0
        try:
            db = _connect(path, fresh=fresh)
        except sqlite3.Error as error:
            raise _unreadable(path, error) from error
        try:
            if fresh:
                db.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA.split(";\n"):
                    db.execute(statement)
                db.execute("UPDATE meta SET value = ? WHERE name = 'kind'", (kind,))
                db.execute("COMMIT")
                sync_directory(path.parent)
            journal = cls(path, db)
            journal._check_format(kind)
        except sqlite3.Error as error:
            db.close()
            raise _unreadable(path, error) from error
        except BaseException:
            db.close()
            raise
        return journal

    def _check_format(self, kind: str) -> None:
        row = self._db.execute("SELECT name FROM sqlite_master WHERE name = 'meta'").fetchone()
        if row is None:
            raise DataUnreadable(
                f"{self.path} is an SQLite database, but not one of Quorate's. Give another path."
            )
        found = self.meta("format")
        if found != FORMAT:
            raise FormatUnknown(str(self.path), found=found, known=FORMAT)
        if self.meta("kind") != kind:
            wanted = "restore it with `quorate restore`" if kind == "store" else "give a backup"
            raise DataUnreadable(f"{self.path} is a {self.meta('kind')}, not a {kind}; {wanted}.")

    # -- reading, once, at the start ----------------------------------------------------------

    def meta(self, name: str) -> object:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def revision_meta(self, name: str) -> int:
        value = self.meta(name)
        if not isinstance(value, int):
            raise DataUnreadable(f"{self.path} has no {name}. {_REMEDY.format(path=self.path)}")
        return value

    def leases(self) -> list[tuple[int, float]]:
        return self._db.execute("SELECT id, ttl_s FROM leases ORDER BY id").fetchall()

    def versions_count(self) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM versions").fetchone()
        assert isinstance(count, int)
        return count

    def versions(self, *, by_key: bool = False) -> Iterator[KeyValue]:
        """All kept versions in the order they were written, each with its checksum verified."""
        # Stored by revision: SQLite sorts only the few rows that share one.
        order = "key" if by_key else "revision, position"
        try:
            rows = self._db.execute(
                "SELECT key, value, create_revision, revision, version, lease, checksum"
                f" FROM versions ORDER BY {order}"
            )
            for key, value, create_revision, revision, version, lease, checksum in rows:
                kv = KeyValue(key, value, create_revision, revision, version, lease)
                if _checksum(kv) != checksum:
                    raise DataUnreadable(
                        f"{self.path}: the row of key {key!r} at revision {revision} is damaged "
                        f"(its checksum does not match). {_REMEDY.format(path=self.path)}"
                    )
                yield kv
        except (sqlite3.Error, TypeError) as error:
            raise _unreadable(self.path, error) from error

    # -- writing ---------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        """Make the batch durable.  Raises `StorageFailed`, and then for ever."""
        kvs = [kv for changes in batch.changes for kv in changes]
        if batch.only_changes and len(kvs) <= _INSERT_ROWS:
            # One statement is a transaction of its own: it saves BEGIN and COMMIT, 15 us of the
            # 180 us that a single put takes.
            with _Guard(self):
                self._logged(self._insert(kvs))
            return
        with _Transaction(self):
            size = self._insert(kvs)
            for lease, ttl_s in batch.leases:
                if ttl_s is None:
                    self._db.execute("DELETE FROM leases WHERE id = ?", (lease,))
                else:
                    self._db.execute("INSERT INTO leases VALUES (?, ?)", (lease, ttl_s))
            if batch.compact_revision is not None:
                self._set_meta("compact_revision", batch.compact_revision)
            for name, value in batch.meta.items():
                self._set_meta(name, value)
        self._logged(size)

    def _logged(self, size: int) -> None:
        self._logged_bytes += size
        self._logged_commits += 1

    def _insert(self, kvs: list[KeyValue]) -> int:
        """Insert the versions, many to a statement; return the bytes of keys and values."""
        size = 0
        row: list[object] = []
        position = -1
        revision = 0
        for count, kv in enumerate(kvs, 1):
            position = position + 1 if kv.mod_revision == revision else 0
            revision = kv.mod_revision
            row += (
                revision,
                kv.key,
                position,
                kv.value,
                kv.create_revision,
                kv.version,
                kv.lease,
                _checksum(kv),
            )
            size += len(kv.key) + len(kv.value)
            if count % _INSERT_ROWS == 0:
                self._db.execute(_insert_sql(_INSERT_ROWS), row)
                row = []
        if row:
            self._db.execute(_insert_sql(len(row) // _INSERT_COLUMNS), row)
        return size

    def _set_meta(self, name: str, value: object) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def checkpoint_if_due(self) -> None:
        """Fold the write-ahead log back into the file when it has grown enough."""
        due = self._logged_bytes >= _CHECKPOINT_BYTES or self._logged_commits >= _CHECKPOINT_COMMITS
        if due:
            self._checkpoint("PASSIVE")

    def _checkpoint(self, mode: str) -> None:
        with _Guard(self):
            (busy, *_) = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            if busy:
                raise sqlite3.OperationalError("checkpoint found the database busy")
        self._logged_bytes = self._logged_commits = 0

    # -- compaction and space, in slices ------------------------------------------------------

    def purge(self, names: list[tuple[int, bytes]], now: Callable[[], float] = time.monotonic) -> int:
        """Delete as many of these versions as fit into a slice; return how many were done."""
        started = now()
        done, took = 0, 0.0
        with _Transaction(self):
            while done < len(names):
                step = names[done : done + self._purge_rows]
                self._db.execute(_purge_sql(len(step)), [field for name in step for field in name])
                done += len(step)
                took = now() - started
                if took > SLICE_S / 2:
                    break
        # A step that fills the slice alone is too long; many that do not are too many statements.
        if done <= self._purge_rows and took > SLICE_S / 2:
            self._purge_rows = max(8, self._purge_rows // 2)
        elif done > 4 * self._purge_rows:
            self._purge_rows = min(1024, self._purge_rows * 2)
        self._logged(done * _PAGE_BYTES)  # at worst, each row was on a page of its own
        return done

    def give_back(self, now: Callable[[], float] = time.monotonic) -> bool:
        """Return a slice of unused pages to the file system; whether there are more worth it."""
        if not self._space_to_give():
            return False
        started = now()
        with _Transaction(self):
            # The pragma works one page a step, so its rows must be fetched to the last.
            self._db.execute(f"PRAGMA incremental_vacuum({self._vacuum_pages})").fetchall()
        took = now() - started
        if took > SLICE_S / 2:
            self._vacuum_pages = max(1, self._vacuum_pages // 2)
        elif took < SLICE_S / 4:
            self._vacuum_pages = min(1024, self._vacuum_pages * 2)
        self._logged(2 * self._vacuum_pages * _PAGE_BYTES)
        return self._space_to_give()

    def _space_to_give(self) -> bool:
        # Some unused pages are worth keeping: the next writes need them, and moving pages to the
        # front of the file only to grow it again would be work for nothing.
        with _Guard(self):
            pages, free = self._pages()
        return free > 64 and free * 8 > pages

    def _pages(self) -> tuple[int, int]:
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return int(pages), int(free)

    def size(self) -> JournalSize:
        with _Guard(self):
            pages, free = self._pages()
        wal = Path(f"{self.path}-wal")
        return JournalSize(
            file_bytes=pages * _PAGE_BYTES,
            free_bytes=free * _PAGE_BYTES,
            wal_bytes=wal.stat().st_size if wal.exists() else 0,
        )

    def check_integrity(self) -> list[str]:
        """SQLite's own check of the file's structure: complaints, none if all is well."""
        with _Guard(self):
            rows = self._db.execute("PRAGMA integrity_check").fetchall()
        return [text for (text,) in rows if text != "ok"]

    def close(self) -> None:
        """Fold the log back and let go of the file; after a failure, only let go."""
        try:
            if self.failed is None:
                self._checkpoint("TRUNCATE")
        finally:
            self._db.close()


class _Guard:
    """Turns the first SQLite error into `StorageFailed`, and refuses everything after it."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None:
        if self._journal.failed is not None:
            raise self._journal.failed

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (sqlite3.Error, OSError)):
            journal = self._journal
            journal.failed = StorageFailed(str(journal.path), error)
            raise journal.failed from error


class _Transaction(_Guard):
    """One SQLite transaction.  No rollback on error: the connection is not used again."""

    __slots__ = ()

    def __enter__(self) -> None:
        super().__enter__()
        with _Guard(self._journal):
            self._journal._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if error is None:
            with _Guard(self._journal):
                self._journal._db.execute("COMMIT")


def _connect(path: Path, *, fresh: bool) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=2 * _INSERT_ROWS
    )
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        if fresh:
            db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"write-ahead logging is not possible here ({mode})")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
    except BaseException:
        db.close()
        raise
    return db


def _checksum(kv: KeyValue) -> int:
    """CRC-32 over all of a version."""
    numbers = b"%d %d %d %d" % (kv.create_revision, kv.mod_revision, kv.version, kv.lease)
    return zlib.crc32(kv.value, zlib.crc32(kv.key, zlib.crc32(numbers)))


@cache
def _insert_sql(rows: int) -> str:
    values = "(" + ",".join("?" * _INSERT_COLUMNS) + ")"
    return "INSERT INTO versions VALUES" + ",".join([values] * rows)


@cache
def _purge_sql(rows: int) -> str:
    names = ",".join(["(?,?)"] * rows)
    return f"DELETE FROM versions WHERE (revision, key) IN (VALUES {names})"


def sync_directory(directory: Path) -> None:
    """Make a new file's name durable, not only its contents.  [etcd#22340]"""
    if os.name == "nt":
        return  # directories cannot be opened there; NTFS journals names itself
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_REMEDY = "Run `quorate doctor {path}`, or restore a backup with `quorate restore`."


def _unreadable(path: Path, error: Exception) -> DataUnreadable:
    return DataUnreadable(f"{path} cannot be read as a store ({error}). {_REMEDY.format(path=path)}")
