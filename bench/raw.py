"""The plainest programs that make rows durable: what any store is measured against.

`RawFile` appends and calls fdatasync.  `RawSqlite` inserts rows in one transaction, with the settings
that Quoracy's journal has.  Both in a plain loop: no event loop, no threads, nothing kept in memory.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

__all__ = ["ROW_BYTES", "RawFile", "RawSqlite"]

# What a put of a 24-byte key and a 100-byte value takes in a log, with its numbers and a checksum.
ROW_BYTES = 150

# macOS has no fdatasync; its fsync is the nearest.
_sync = getattr(os, "fdatasync", os.fsync)


class RawFile:
    """Append N rows, fdatasync, again."""

    def __init__(self, path: Path, *, rows: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._rows = rows
        self._block = os.urandom(ROW_BYTES) * rows

    def close(self) -> None:
        os.close(self._fd)

    async def __call__(self, seconds: float) -> float:
        now, fd, block = time.perf_counter, self._fd, self._block
        done, started = 0, now()
        until = started + seconds
        while now() < until:
            os.write(fd, block)
            _sync(fd)
            done += self._rows
        return done / (now() - started)


class RawSqlite:
    """BEGIN, INSERT N rows, COMMIT, again; the log is folded back every 1,000 commits or 4 MiB."""

    def __init__(self, path: Path, *, rows: int) -> None:
        self._rows = rows
        self._last = 0
        self._logged = 0
        self._value = os.urandom(ROW_BYTES - 8)
        db = self._db = sqlite3.connect(path, isolation_level=None)
        for pragma in (
            "locking_mode = EXCLUSIVE",
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            "synchronous = FULL",
            "wal_autocheckpoint = 0",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
        db.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, value BLOB NOT NULL, checksum INTEGER)")

    def close(self) -> None:
        self._db.close()

    async def __call__(self, seconds: float) -> float:
        now, db, rows, value = time.perf_counter, self._db, self._rows, self._value
        done, started = 0, now()
        until = started + seconds
        while now() < until:
            first = self._last + 1
            self._last += rows
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO log VALUES (?, ?, ?)",
                [(id, value, 0xFFFFFFFF) for id in range(first, first + rows)],
            )
            db.execute("COMMIT")
            self._fold_back()
            done += rows
        return done / (now() - started)

    def _fold_back(self) -> None:
        self._logged += max(self._rows * ROW_BYTES, 4 * 1024**2 // 1000)
        if self._logged >= 4 * 1024**2:
            self._logged = 0
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
