"""The journal: a store's data on disk, in an SQLite database and a commit log before it.

    log     many versions to a row, as one msgpack array, with a checksum (`log_table`)
    leases  one row per lease
    meta    format, kind, base_revision, compact_revision; timeline, once there is one;
            while a store is open: which commit log it has, and how far that is in these tables

A commit of a running store goes to the commit log (`commit_log`), and from there into the tables, but
late.  Most of what a busy store writes is removed by compaction, and the rest is known then.  So rows
are held back as long as the log has room, and of a range of revisions that is swept only the versions
that are left are written (decision 0012).  When a store is opened, what a crash left in the log is
written to the tables.

Invariants
    * One connection, one owner: EXCLUSIVE locking keeps every other process out, so no foreign reader
      can ever pin the write-ahead log, and the log stays as small as the checkpoints make it.
    * A batch is durable when `commit` returns.  Rows that are held stay in the commit log until they
      are in the tables, or swept, and that is synced (`safe_sequence`).
    * How far the commit log is in the tables is written in the transaction that puts it there, or that
      sweeps it: after a crash nothing comes back that was swept, and nothing is missing.
    * Cleaning is not synced: if it is lost, it is done again.
    * After its first error the journal refuses everything, and an fsync that failed is never repeated.
    * Checkpoints are explicit.  SQLite's automatic ones drop their errors and would repeat a failed
      fsync of the database file.
    * Every row carries a checksum, verified when it is read.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from quoracy.directories import sync_directory
from quoracy.engines.embedded.committing.group import Batch, Versions
from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.embedded.disk.commit_log import (
    SEGMENTS_MIN,
    CommitLog,
    LogDamaged,
    create_log_file,
    frames_after,
    open_log_file,
)
from quoracy.engines.embedded.disk.file_sync import let_others, start_writing, sync_data
from quoracy.engines.embedded.disk.journal_file import (
    APPLICATION_ID,
    FORMAT,
    PAGE_BYTES,
    REMEDY,
    Cleaned,
    JournalSize,
    configure,
    create,
    damaged,
    fields_checksum,
    set_meta,
    unreadable,
)
from quoracy.engines.embedded.disk.log_rows import FrameRow, VersionName
from quoracy.engines.embedded.disk.log_table import STATEMENT_ROWS, LogTable, rows_of
from quoracy.engines.embedded.disk.sweep import Sweep
from quoracy.engines.embedded.memory.timeline import SavedTimeline, decode_timeline
from quoracy.errors import DataUnreadable, FormatUnknown, StorageFailed

__all__ = ["SLICE_S", "Cleaned", "Journal", "JournalSize"]

# The most time of the worker that one slice of cleaning or of giving space back may take, and the time
# it aims at: rows to be written to the tables wait for it, and the loop waits for the interpreter lock.
SLICE_S = 0.010
_SLICE_AIM_S = 0.002

# SQLite's log is checkpointed after this many bytes or transactions, whichever comes first.
_CHECKPOINT_BYTES = 2 * 1024**2
_CHECKPOINT_COMMITS = 1000
# Rows whose versions are larger, on average, are not held.
_HELD_VERSION_BYTES = 1024
# Once this many swept bytes never had to be inserted, the tables are synced: that may free a segment of
# the commit log.
_SPARED_BYTES = 2 * 1024**2
# Names that are dropped in one go, at most.
_CLEAN_NAMES_MAX = 512
# Rows that are half empty and wait to be rewritten, at most.
_HALF_EMPTY_MAX = 256

Kind = Literal["store", "backup"]


class Journal:
    """One SQLite file, used by one thread at a time; and the commit log of a store, used by another."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.failure: Exception | None = None
        self.log: CommitLog  # of a store
        self.safe_sequence = 0  # up to this frame, the commit log is in the tables, and durable there
        self._sequence = 0  # the same, durable or not
        self._held_until = 0  # up to this frame, it was handed over
        self._held_rest = Batch()  # what is to be written for these frames besides rows
        self._log_files: tuple[int, ...] = ()
        self._log_segment_bytes = 0
        self._wal = -1  # SQLite's log, to sync it; none in a backup that is only read
        self._db = connection
        self._logged_bytes = 0
        self._logged_commits = 0
        self._table = LogTable(path, connection)
        self._clean_names = 64
        self._vacuum_pages = 64

    @classmethod
    def open(cls, path: Path, *, kind: Kind = "store") -> Journal:
        """Open the file for writing, or create it.  Raises `DataError`."""
        try:
            if not path.exists():
                # Only the owner may read what is in it; SQLite gives its log the same permissions.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            fresh = path.stat().st_size == 0
        except OSError as error:
            raise DataUnreadable(
                f"{path} cannot be used: {error.strerror}. Give a path in a directory that exists and "
                "can be written to."
            ) from error
        return cls._opened(path, str(path), kind, fresh=fresh)

    @classmethod
    def open_backup(cls, path: Path) -> Journal:
        """Open a complete backup for reading, on any medium: nothing is written, not even a lock."""
        if not path.is_file():
            raise DataUnreadable(f"{path} is not a file. Give the path of a backup.")
        return cls._opened(path, f"{path.resolve().as_uri()}?immutable=1", "backup", fresh=None)

    @classmethod
    def _opened(cls, path: Path, name: str, kind: Kind, *, fresh: bool | None) -> Journal:
        """`fresh` is None where the file is only read."""
        try:
            db = sqlite3.connect(
                name,
                uri=fresh is None,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=2 * STATEMENT_ROWS,
                timeout=0,
            )
        except sqlite3.Error as error:
            raise unreadable(path, error) from error
        journal = cls(path, db)
        try:
            if not fresh:
                journal._check_ours()
            if fresh is not None:
                configure(db, fresh=fresh)
            if fresh:
                create(db, kind)
                sync_directory(path.parent)
            journal._check_format(kind)
            journal._check_structure()
            if fresh is not None:
                # (SQLite has no locks on this file that closing a descriptor of it would drop.)
                journal._wal = os.open(f"{path}-wal", os.O_RDWR)
                if kind == "store":
                    journal._open_log()
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:  # damage, in SQLite's own words
            journal.abandon()
            raise unreadable(path, error) from error
        except StorageFailed as error:  # no room in the tables for what a crash left in the log, say
            journal.abandon()
            raise unreadable(path, error.cause) from error
        except BaseException:
            journal.abandon()
            raise
        return journal

    def _check_ours(self) -> None:
        # Checked before anything is set: another program's database must not be changed.
        if self._query("PRAGMA application_id") != [(APPLICATION_ID,)]:
            raise DataUnreadable(
                f"{self.path} is an SQLite database, but not one of Quoracy's. Give another path."
            )

    def _check_format(self, kind: Kind) -> None:
        found = self.meta("format")
        if found != FORMAT:
            raise FormatUnknown(str(self.path), found=found, known=FORMAT)
        if self.meta("kind") != kind:
            wanted = "restore it with `quoracy restore`" if kind == "store" else "give a backup"
            raise DataUnreadable(f"{self.path} is a {self.meta('kind')}, not a {kind}; {wanted}.")

    def _check_structure(self) -> None:
        # A row that is lost with a damaged page is not missed by any checksum of other rows.
        complaints = [text for (text,) in self._query("PRAGMA quick_check(1)") if text != "ok"]
        if complaints:
            raise DataUnreadable(
                f"{self.path} is damaged: {complaints[0]}. {REMEDY.format(path=self.path)}"
            )

    # -- the commit log ------------------------------------------------------------------------

    @property
    def _log_path(self) -> Path:
        return Path(f"{self.path}-log")

    def _open_log(self) -> None:
        """Begin a commit log, once what a crash has left in an earlier one is in the tables."""
        segment_bytes = log_length.SEGMENT_BYTES
        batch, sequence = Batch(), 0
        if self.meta("log_id") is None:
            create_log_file(self._log_path)
            batch.meta = {"log_segment_bytes": segment_bytes}
        else:
            segment_bytes = self.revision_meta("log_segment_bytes")
            batch, sequence = self._left_in_log(segment_bytes)
        id = int.from_bytes(os.urandom(8), "big") >> 1
        batch.meta["log_id"] = id
        self.commit(batch, sequence=sequence)
        self._sequence = self.safe_sequence = sequence
        self._log_files = open_log_file(self._log_path)
        self._log_segment_bytes = segment_bytes
        self.log = CommitLog(
            self._log_files,
            id=id,
            sequence=sequence,
            segment_bytes=segment_bytes,
            segments_count=max(SEGMENTS_MIN, self._log_path.stat().st_size // segment_bytes),
        )

    def lengthen_log(self, segments_count: int) -> bool:
        """Make room for `count` segments in the commit log.  False: the disk has too little."""
        with _Guard(self):
            return log_length.lengthen_beside(self._log_path, segments_count * self._log_segment_bytes)

    def _left_in_log(self, segment_bytes: int) -> tuple[Batch, int]:
        """The commits in the log that the tables do not have, and the number of the last."""
        id, sequence = self.revision_meta("log_id"), self.revision_meta("log_sequence")
        path = self._log_path
        if not path.exists():
            raise DataUnreadable(
                f"{path} is missing: the store was not closed, and what was written last is in there. "
                f"Put it back beside {self.path}, or restore a backup with `quoracy restore`."
            )
        try:
            batches = frames_after(
                path.read_bytes(), id=id, sequence=sequence, segment_bytes=segment_bytes
            )
        except LogDamaged as error:
            raise DataUnreadable(
                f"{path} is damaged: {error}. {REMEDY.format(path=self.path)}"
            ) from error
        whole = Batch()
        for batch in batches:
            whole.absorb(batch)
        return whole, sequence + len(batches)

    def _drop_log(self) -> None:
        """Note that there is no commit log any more: all of it is in the tables."""
        with _Transaction(self):
            self._db.execute(
                "DELETE FROM meta WHERE name IN ('log_id', 'log_segment_bytes', 'log_sequence')"
            )
        self._sync()

    # -- reading, once, at the start ----------------------------------------------------------

    def meta(self, name: str) -> object:
        for value, checksum in self._query("SELECT value, checksum FROM meta WHERE name = ?", name):
            if fields_checksum(name, value) != checksum:
                raise damaged(self.path, f"its {name}")
            return value
        return None

    def revision_meta(self, name: str) -> int:
        value = self.meta(name)
        if not isinstance(value, int):
            raise damaged(self.path, f"its {name}")
        return value

    def timeline(self, *, newest: int) -> SavedTimeline | None:
        """When revisions were made; None if no store has written that to the file yet."""
        blob = self.meta("timeline")
        if blob is None:
            return None
        try:
            saved = decode_timeline(blob if isinstance(blob, bytes) else b"")
        except ValueError as error:
            raise unreadable(self.path, error) from error
        if saved.timeline.newest > newest:
            raise damaged(self.path, "its timeline")
        return saved

    def leases(self) -> list[tuple[int, float]]:
        leases: list[tuple[int, float]] = []
        for id, ttl_s, checksum in self._query("SELECT id, ttl_s, checksum FROM leases ORDER BY id"):
            if fields_checksum(id, ttl_s) != checksum or not isinstance(id, int):
                raise damaged(self.path, f"lease {id}")
            leases.append((id, float(ttl_s)))
        return leases

    def rows_count(self) -> int:
        ((count,),) = self._query("SELECT count(*) FROM log")
        return int(count)

    def load(self) -> Iterator[Versions]:
        """`read`, for a store that is going to write; notes which versions each row holds."""
        for revision, versions in self._table.read():
            self._table.shared.note_loaded(revision, versions)
            yield versions

    def read(self) -> Iterator[Versions]:
        """All kept versions in the order they were written, row by row, each row verified."""
        for _, versions in self._table.read():
            yield versions

    def _query(self, sql: str, *fields: object) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, fields).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise unreadable(self.path, error) from error

    # -- writing ---------------------------------------------------------------------------

    def hold(self, batch: Batch, rows: Sequence[FrameRow], sequence: int) -> None:
        """Take over the commit log up to a frame: its changes as rows, and the rest as a batch.

        Nothing is written, since the log has it; unless the values are so large that the log would be
        full before compaction can remove them.  Then the rows are not worth the memory, and are
        inserted.
        """
        assert not batch.changes
        with _Guard(self):
            self._table.hold(rows)
            self._held_rest.absorb_rest(batch)
            self._held_until = sequence
        size = count = 0
        for row in rows:
            size += len(row.blob)
            count += row.count
        if size > _HELD_VERSION_BYTES * count:
            self._insert_held(None)

    def commit(
        self, batch: Batch, *, rows: Sequence[FrameRow] = (), sequence: int | None = None
    ) -> None:
        """Write everything that is held, and the batch, to the tables, in one transaction, and sync it.

        rows: rows before the changes of the batch, and after everything that is held.
        sequence: with this commit, the commit log up to this frame is in the tables.

        Raises `StorageFailed`, and then so does every other method.
        """
        with _Transaction(self):
            self._table.hold(rows)
            size = self._table.insert_held() + self._table.write(rows_of(batch.changes))
            rest, self._held_rest = self._held_rest, Batch()
            rest.absorb_rest(batch)
            self._write_rest(rest)
            if sequence is not None:
                self._held_until = sequence
                self._pass(sequence)
        self._sync()
        self._logged(size)

    def commit_beside(self, batch: Batch) -> None:
        """Write a batch of nothing but changes to the tables, and sync it; held rows stay held.

        After a crash, changes are in order by their revisions, even if earlier or later ones are
        recovered from the log.  Of leases and the rest the value written last counts; that would be the
        one in the log, which may be older.
        """
        assert batch.only_changes
        with _Transaction(self):
            size = self._table.write(rows_of(batch.changes))
        self._sync()
        self._logged(size)

    def settle(self, until: int) -> None:
        """Write the oldest of the held rows to the tables, up to a frame, and sync them."""
        self._insert_held(until)
        self._sync()

    def _insert_held(self, until: int | None) -> None:
        with _Transaction(self):
            size = self._table.insert_held(until)
            self._pass_to_held()
        self._logged(size)

    def _pass_to_held(self) -> None:
        """Note that all frames before the first that is held are in the tables, or swept."""
        held_from = self._table.held_from
        passed = held_from - 1 if held_from else self._held_until
        if passed > self._sequence:
            # Everything besides rows is written now, also that of later frames: these are read from the
            # log after a crash, in order, so the result is the same.
            rest, self._held_rest = self._held_rest, Batch()
            self._write_rest(rest)
            self._pass(passed)

    def _pass(self, sequence: int) -> None:
        set_meta(self._db, "log_sequence", sequence)
        self._sequence = sequence

    def _write_rest(self, batch: Batch) -> None:
        """Write everything of a batch besides its changes."""
        self._write_leases(batch)
        if batch.compact_revision is not None:
            set_meta(self._db, "compact_revision", batch.compact_revision)
        for name, value in batch.meta.items():
            set_meta(self._db, name, value)

    def _write_leases(self, batch: Batch) -> None:
        if not batch.leases:
            return
        left = dict(batch.leases)  # the last entry of each lease counts
        ended = [(lease,) for lease, ttl_s in left.items() if ttl_s is None]
        granted = [
            (lease, ttl_s, fields_checksum(lease, ttl_s))
            for lease, ttl_s in left.items()
            if ttl_s is not None
        ]
        self._db.executemany("DELETE FROM leases WHERE id = ?", ended)
        self._db.executemany("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", granted)

    def _sync(self) -> None:
        """Sync SQLite's log: makes commits durable, as SQLite itself does with synchronous=FULL."""
        with _Guard(self):
            sync_data(self._wal)
        self._synced()

    def _synced(self) -> None:
        self.safe_sequence = self._sequence
        self._table.spared_bytes = 0

    def append(self, rows: list[tuple[int, Versions]]) -> None:
        """Write rows as they are, without a commit log: for backups and restores."""
        with _Transaction(self):
            size = self._table.write(rows)
        self._logged(size)

    def fail(self, error: Exception) -> StorageFailed:
        """Record a failure, after which the journal refuses everything; returns the error to raise."""
        if self.failure is None:
            self.failure = error
        return StorageFailed(str(self.path), self.failure)

    def _logged(self, size: int) -> None:
        self._logged_bytes += size
        self._logged_commits += 1

    @property
    def checkpoint_due(self) -> bool:
        """Whether the write-ahead log has grown enough for a checkpoint."""
        if self.failure is not None:
            return False
        return self._logged_bytes >= _CHECKPOINT_BYTES or self._logged_commits >= _CHECKPOINT_COMMITS

    def checkpoint(self) -> None:
        """Copy the write-ahead log back into the file."""
        self._checkpoint("PASSIVE")

    @property
    def sync_due(self) -> bool:
        """Whether enough was swept that a sync of the tables may free a segment of the commit log."""
        return self.failure is None and self._table.spared_bytes >= _SPARED_BYTES

    def sync(self) -> None:
        """Make what was swept durable."""
        self._sync()

    def _checkpoint(self, mode: str) -> None:
        with _Guard(self):
            (busy, *_) = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            if busy:
                raise sqlite3.OperationalError("checkpoint found the database busy")
        self._synced()
        self._logged_bytes = self._logged_commits = 0

    # -- compaction and space, in slices ------------------------------------------------------

    def clean(
        self,
        names: list[VersionName],
        start: int = 0,
        now: Callable[[], float] = time.perf_counter,
        *,
        is_last: bool = True,
    ) -> Cleaned:
        """Remove versions that are not needed, from `start` on, as many as fit into a slice.

        is_last: no other names will follow.
        """
        shared = self._table.shared
        # Rows are rewritten when nothing else is left to do: in most of those that are half empty now,
        # the next names drop the other half.
        rewrites = is_last or len(shared.half_empty) > _HALF_EMPTY_MAX
        started = now()
        done = written = 0
        left = len(names) - start
        took_s = 0.0
        with _Transaction(self):
            while took_s < _SLICE_AIM_S and (done < left or (rewrites and not shared.is_settled)):
                if done < left:
                    step = names[start + done : start + done + self._clean_names]
                    written += self._table.let_go(step)
                    done += len(step)
                elif shared.half_empty:
                    written += self._table.rewrite_some()
                else:
                    count = min(self._clean_names, len(shared.released))
                    written += self._table.let_go([shared.released.popleft() for _ in range(count)])
                let_others()
                took_s = now() - started
        # If one step fills the slice, steps are too large; if many steps fit, they are too small.
        if done == self._clean_names and took_s > _SLICE_AIM_S:
            self._clean_names = max(8, self._clean_names // 2)
        elif done > 4 * self._clean_names:
            self._clean_names = min(_CLEAN_NAMES_MAX, self._clean_names * 2)
        start_writing(self._wal)
        self._logged(written)
        more = done < left or (rewrites and not shared.is_settled)
        return Cleaned(done, more, now() - started)

    def sweep(self, sweep: Sweep, now: Callable[[], float] = time.perf_counter) -> Cleaned:
        """Sweep as much as fits into a slice.  `sweep.after` says how far the sweep has come."""
        started = now()
        if not sweep.is_begun:
            sweep.begin(self._table.shared.whole_until(sweep.until), let_others)
            sweep.keep_too(self._table.shared.hold_back(sweep.buried), let_others)
        written = 0
        with _Transaction(self):
            while sweep.after < sweep.until and now() - started < _SLICE_AIM_S:
                written += self._table.sweep_some(sweep)
                let_others()
            self._pass_to_held()
        start_writing(self._wal)
        self._logged(written)
        return Cleaned(0, sweep.after < sweep.until, now() - started)

    def give_back(self, now: Callable[[], float] = time.perf_counter) -> bool:
        """Give some unused pages back to the file system; returns whether to go on."""
        before = self._free_to_give()
        if not before:
            return False
        started = now()
        with _Guard(self):
            # Each step of the statement gives one page back.  execute() makes only the first step,
            # executescript() makes them all.  The statement is its own transaction.
            self._db.executescript(f"PRAGMA incremental_vacuum({self._vacuum_pages})")
        took_s = now() - started
        if took_s > SLICE_S / 2:
            # At least a few pages, so that a slow sync is worth it.
            self._vacuum_pages = max(16, self._vacuum_pages // 2)
        elif took_s < SLICE_S / 4:
            self._vacuum_pages = min(1024, self._vacuum_pages * 2)
        self._logged(2 * self._vacuum_pages * PAGE_BYTES)
        return 0 < self._free_to_give() < before

    def _free_to_give(self) -> int:
        # Some unused pages are worth keeping: the next writes need them, and moving pages to the
        # front of the file only to grow it again would be work for nothing.
        with _Guard(self):
            pages, free = self._pages()
        return free if free > 64 and free * 8 > pages else 0

    def _pages(self) -> tuple[int, int]:
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return int(pages), int(free)

    def size(self) -> JournalSize:
        with _Guard(self):
            pages, free = self._pages()
        logs = (Path(f"{self.path}-wal"), self._log_path)
        return JournalSize(
            file_bytes=pages * PAGE_BYTES,
            free_bytes=free * PAGE_BYTES,
            log_bytes=sum(log.stat().st_size for log in logs if log.exists()),
        )

    def check_integrity(self) -> list[str]:
        """The faults that SQLite's own check of the file's structure finds."""
        with _Guard(self):
            rows = self._db.execute("PRAGMA integrity_check").fetchall()
        return [text for (text,) in rows if text != "ok"]

    def abandon(self) -> None:
        """Close the file as it is, without writing to it."""
        # SQLite checkpoints its log when it closes, unless that is turned off.  (Python before 3.12
        # cannot turn it off.  That is harmless even after a failed fsync: a checkpoint copies only what
        # an earlier fsync had confirmed.)
        if sys.version_info >= (3, 12):
            self._db.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        self._db.close()
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1
        for file in self._log_files:
            os.close(file)
        self._log_files = ()

    def close(self) -> None:
        """Close the file so that it is complete without its logs; after a failure, only close it.

        All of the commit log must be in the tables.
        """
        had_log = bool(self._log_files)
        try:
            if self.failure is None:
                if had_log:
                    self._drop_log()
                self._checkpoint("TRUNCATE")
        finally:
            self.abandon()
        if had_log and self.failure is None:
            self._log_path.unlink()


class _Guard:
    """Turns the first SQLite error into `StorageFailed`, and refuses everything after it."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None:
        journal = self._journal
        if journal.failure is not None:
            raise StorageFailed(str(journal.path), journal.failure)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # After any error: half a transaction must not be followed by another one.
        if isinstance(error, Exception) and not isinstance(error, StorageFailed):
            journal = self._journal
            journal.failure = error
            raise StorageFailed(str(journal.path), error) from error


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
