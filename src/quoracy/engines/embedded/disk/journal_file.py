"""The journal's file: its tables, settings and checksums, and the errors that describe its faults."""

from __future__ import annotations

import errno
import sqlite3
import zlib
from pathlib import Path
from typing import Final

import msgspec

from quoracy.errors import DataError, DataInUse, DataUnreadable

__all__ = [
    "APPLICATION_ID",
    "FORMAT",
    "PAGE_BYTES",
    "REMEDY",
    "Cleaned",
    "JournalSize",
    "configure",
    "create",
    "damaged",
    "fields_checksum",
    "row_checksum",
    "set_meta",
    "unreadable",
]

# Formats 1 to 4 were never released; a store that has one of them is refused.
FORMAT: Final = 5

APPLICATION_ID: Final = 0x51554F52  # "QUOR", in the header of the file: `file` and `doctor` can tell
PAGE_BYTES: Final = 4096
# A write-ahead log that one huge transaction made larger is truncated to this.
_WAL_BYTES_MAX = 32 * 1024**2

_SCHEMA = """
CREATE TABLE log (revision INTEGER PRIMARY KEY, versions BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_s REAL NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY, checksum INTEGER NOT NULL);
"""

REMEDY = "Run `quoracy doctor {path}`, or restore a backup with `quoracy restore`."

_DISK_ERRORS = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)
_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)

_encode = msgspec.msgpack.Encoder().encode


class Cleaned(msgspec.Struct, frozen=True, gc=False):
    """The result of a slice of cleaning: versions done, whether there is more to do, and its time."""

    done: int
    more: bool
    took_s: float


class JournalSize(msgspec.Struct, frozen=True, gc=False):
    """Bytes on disk: the database file, the part of it that holds nothing, the logs beside it."""

    file_bytes: int
    free_bytes: int
    log_bytes: int


def configure(db: sqlite3.Connection, *, fresh: bool) -> None:
    """Set the options of a connection, and in a `fresh` file those that are stored in it."""
    if fresh:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must come before anything is written
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"write-ahead logging is not possible here ({mode})")
    # With NORMAL, SQLite syncs its log before a checkpoint and the file after it.  `Journal.commit`
    # syncs the log after a commit.  Cleaning does not: it is done again if it is lost.
    db.execute("PRAGMA synchronous = NORMAL")
    # Some builds (Debian's) overwrite deleted data with zeros, all of which would go through the log.
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")


def create(db: sqlite3.Connection, kind: str) -> None:
    """Make the tables of an empty store, or of a backup."""
    db.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";\n"):
        db.execute(statement)
    meta = {"format": FORMAT, "kind": kind, "base_revision": 1, "compact_revision": 0}
    for name, value in meta.items():
        set_meta(db, name, value)
    db.execute("COMMIT")


def set_meta(db: sqlite3.Connection, name: str, value: object) -> None:
    row = (name, value, fields_checksum(name, value))
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", row)


def fields_checksum(*fields: object) -> int:
    return zlib.crc32(_encode(fields))


def row_checksum(revision: int, blob: bytes) -> int:
    return zlib.crc32(blob, revision & 0xFFFFFFFF)


def damaged(path: Path, what: str) -> DataUnreadable:
    return DataUnreadable(
        f"{path} is damaged: {what} does not match its checksum. {REMEDY.format(path=path)}"
    )


def unreadable(path: Path, error: BaseException) -> DataError:
    """The `DataError` for an error of SQLite, of a decoder or of the system."""
    if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DataInUse(str(path), pid=None)
    is_disk = isinstance(error, OSError) and error.errno in _DISK_ERRNOS
    if is_disk or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_ERRORS:
        return DataUnreadable(
            f"{path} cannot be opened ({error}): the disk is full, read-only or failing. "
            "Make room or repair the disk, then try again; the data may well be sound."
        )
    return DataUnreadable(f"{path} cannot be read as a store ({error}). {REMEDY.format(path=path)}")
