"""Gates in SQLite: inside your own transaction, or in a file of their own.

`admit_in_sqlite` is the one to use where the guarded rows are in SQLite too: the check and the write
are then one transaction, which SQLite gives to one writer at a time, and no stale write can get
between. `SqliteGate` is a gate that the processes of one machine share, for what is written elsewhere.

Invariants
    * One statement raises the highest and returns it; it takes SQLite's write lock whether the token is
      new or not, so no other token is admitted from there to the commit.
    * `admit_in_sqlite` refuses a connection that would commit the check on its own.
    * `SqliteGate` has no connection between two calls: it is safe from many threads, across a fork, and
      needs no closing.  An admission is on the disk before it returns.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from quoracy.errors import DataUnreadable, InvalidRequest, QuoracyError, Unavailable
from quoracy.fencing.gate import refuse_stale, require_valid

__all__ = ["SQLITE_ADMIT", "SQLITE_TABLE", "SqliteGate", "admit_in_sqlite"]

SQLITE_TABLE = """\
CREATE TABLE IF NOT EXISTS quoracy_fencing (
    resource TEXT PRIMARY KEY,
    token INTEGER NOT NULL CHECK (token >= 0)
) WITHOUT ROWID
"""

# Needs SQLite 3.35, of 2021, for RETURNING.
SQLITE_ADMIT = """\
INSERT INTO quoracy_fencing (resource, token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET token = max(token, excluded.token)
RETURNING token
"""

_LOOK = "SELECT token FROM quoracy_fencing WHERE resource = :resource"


def admit_in_sqlite(connection: sqlite3.Connection, resource: str, token: int) -> None:
    """Admit the token in the connection's transaction; write, then commit.

        with connection:                                        # commits, or rolls back
            admit_in_sqlite(connection, "orders", held.token)
            connection.execute("UPDATE orders SET ...")

    Needs the table: `connection.execute(SQLITE_TABLE)`, once.  Raises `StaleToken`: roll back, which
    `with connection` does.  Raises `InvalidRequest` if the connection is in no transaction and opens
    none by itself: say BEGIN IMMEDIATE first.
    """
    require_valid(resource, token)
    if not connection.in_transaction and not _begins_by_itself(connection):
        raise InvalidRequest(
            "this connection commits every statement on its own, so a stale write could get between "
            'the check and yours. Execute "BEGIN IMMEDIATE" first, and commit after the write.'
        )
    refuse_stale(resource, token=token, highest=_raise_highest(connection, resource, token))


class SqliteGate:
    """Remembers the highest token of each resource in a SQLite file that processes share.

        gate = SqliteGate("/var/lib/app/fencing.db")
        await gate.admit("orders", held.token)      # or gate.admit_sync(...), from any thread

    path: the file, made when it is first needed; it may be your application's own database.  The file
        system must have real locks: local disks do, most network file systems do not.
    timeout_s: how long to wait while others write; then `Unavailable`.

    The file is the memory: deleting it, or putting an old copy in its place, makes the gate forget.
    """

    __slots__ = ("_path", "_timeout_s")

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 5.0) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:"):
            raise InvalidRequest(
                f"{name!r} is no file, so nothing would be remembered. Use MemoryGate."
            )
        self._path, self._timeout_s = Path(name).absolute(), timeout_s

    async def admit(self, resource: str, token: int) -> None:
        """As `Gate.admit`; the file is used in a thread.  Raises `DataUnreadable` too."""
        await asyncio.to_thread(self.admit_sync, resource, token)

    def admit_sync(self, resource: str, token: int) -> None:
        """As `Gate.admit`.  Raises `DataUnreadable` if the file cannot be used."""
        require_valid(resource, token)
        try:
            # In autocommit mode: each statement is a transaction.
            with closing(
                sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None)
            ) as connection:
                highest = _advance(connection, resource, token)
        except sqlite3.Error as error:
            raise self._explain(error) from error
        refuse_stale(resource, token=token, highest=highest)

    def _explain(self, error: sqlite3.Error) -> QuoracyError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Unavailable(
                f"the gate {self._path} was in use by others for {self._timeout_s:g} s, so nothing was "
                "admitted. Ask again; if it goes on, look for a transaction that is left open."
            )
        return DataUnreadable(
            f"the gate {self._path} cannot be used: {error}. Nothing was admitted. Give a path that "
            "can be written to, with room on its disk."
        )


def _advance(connection: sqlite3.Connection, resource: str, token: int) -> int:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(SQLITE_TABLE)
    # Most admissions are of a token that is the highest already.  It never decreases, so what is read
    # here holds, and the disk need not be written.
    for (highest,) in connection.execute(_LOOK, {"resource": resource}).fetchall():
        if highest >= token:
            return int(highest)
    return _raise_highest(connection, resource, token)


def _raise_highest(connection: sqlite3.Connection, resource: str, token: int) -> int:
    # All rows are fetched: a statement that is not finished would keep the transaction open.
    cursor = connection.cursor()
    cursor.row_factory = None  # whatever rows the owner of the connection likes
    ((highest,),) = cursor.execute(SQLITE_ADMIT, {"resource": resource, "token": token}).fetchall()
    return int(highest)


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    """Whether Python opens a transaction before an INSERT, as it does by default."""
    legacy = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, from Python 3.12 on; before, there is only that
    return (
        getattr(connection, "autocommit", legacy) == legacy and connection.isolation_level is not None
    )
