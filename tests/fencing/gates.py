"""Every gate under one shape, so that one set of promises judges them all, in any process.

A gate that is a statement for somebody's transaction is made whole here as its user would: check, write
into a journal, commit.  The journal is what the judge reads.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from quoracy.fencing import (
    POSTGRES_TABLE,
    SQLITE_TABLE,
    Gate,
    MemoryGate,
    RedisGate,
    SqliteGate,
    SyncGate,
    SyncRedisGate,
    admit_in_postgres,
    admit_in_sqlite,
    write_guarded,
)

__all__ = ["SHARED", "InThreads", "journal", "open_gate", "prepare_postgres"]

# Those that processes share, and what each needs: a directory, or a server.
SHARED = {
    "sqlite": "directory",
    "sqlite transaction": "directory",
    "file": "directory",
    "redis": "redis",
    "sync redis": "redis",
    "redis script": "redis",
    "postgres transaction": "postgres",
}


class InThreads:
    """A synchronous gate as an asynchronous one."""

    def __init__(self, gate: SyncGate) -> None:
        self._gate = gate

    async def admit(self, resource: str, token: int) -> None:
        await asyncio.to_thread(self._gate.admit_sync, resource, token)


class SqliteTransaction:
    """A program that keeps its rows in SQLite and admits in the transaction that writes them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as connection, connection:
            connection.execute(SQLITE_TABLE)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS journal (n INTEGER PRIMARY KEY, resource, token)"
            )

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def admit_sync(self, resource: str, token: int) -> None:
        with closing(self._connect()) as connection, connection:
            admit_in_sqlite(connection, resource, token)
            connection.execute("INSERT INTO journal (resource, token) VALUES (?, ?)", (resource, token))


class PostgresTransaction:
    """A program that keeps its rows in PostgreSQL and admits in the transaction that writes them."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # a connection has one transaction at a time

    def admit_sync(self, resource: str, token: int) -> None:
        with self._lock, self._connection.transaction(), self._connection.cursor() as cursor:
            admit_in_postgres(cursor, resource, token)
            cursor.execute("INSERT INTO journal (resource, token) VALUES (%s, %s)", (resource, token))


class RedisScript:
    """A program that keeps its data in Redis and admits in the script that writes it."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._gate = RedisGate(client)

    async def admit(self, resource: str, token: int) -> None:
        script = "return redis.call('RPUSH', KEYS[1], ARGV[1])"
        await self._gate.run(resource, token, script, keys=[f"journal:{resource}"], args=[token])


class GuardedFiles:
    """A program that writes one file for each resource."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def admit_sync(self, resource: str, token: int) -> None:
        write_guarded(self._directory / resource.encode().hex()[:200], str(token).encode(), token=token)


@asynccontextmanager
async def open_gate(kind: str, where: str) -> AsyncIterator[Gate]:
    """The gate of that kind; `where` is a directory, the port of a Redis, or a PostgreSQL."""
    match kind:
        case "memory":
            yield MemoryGate()
        case "sqlite":
            yield SqliteGate(Path(where) / "gate.db", timeout_s=30)
        case "sqlite transaction":
            yield InThreads(SqliteTransaction(Path(where) / "data.db"))
        case "file":
            yield InThreads(GuardedFiles(Path(where)))
        case "postgres transaction":
            with psycopg.connect(where) as connection:
                yield InThreads(PostgresTransaction(connection))
        case "sync redis":
            with closing(redis.Redis(port=int(where), retry=Retry(NoBackoff(), 0))) as client:
                yield InThreads(SyncRedisGate(client))
        case "redis" | "redis script":
            async with redis.asyncio.Redis(port=int(where)) as asynchronous:
                yield RedisGate(asynchronous) if kind == "redis" else RedisScript(asynchronous)
        case _:
            raise AssertionError(kind)


def journal(kind: str, where: str, resource: str) -> list[int] | None:
    """The tokens of the writes that were made, in order; None of a gate whose writes go elsewhere."""
    match kind:
        case "sqlite transaction":
            with closing(sqlite3.connect(Path(where) / "data.db")) as connection:
                rows = connection.execute(
                    "SELECT token FROM journal WHERE resource = ? ORDER BY n", (resource,)
                )
                return [token for (token,) in rows]
        case "postgres transaction":
            with psycopg.connect(where) as database:
                query = "SELECT token FROM journal WHERE resource = %s ORDER BY n"
                return [token for (token,) in database.execute(query, (resource,))]
        case "redis script":
            with closing(redis.Redis(port=int(where))) as client:
                return [int(token) for token in client.lrange(f"journal:{resource}", 0, -1)]
        case _:
            return None


def prepare_postgres(where: str) -> None:
    """The tables, empty."""
    with psycopg.connect(where) as connection:
        connection.execute("DROP TABLE IF EXISTS quoracy_fencing, journal")
        connection.execute(POSTGRES_TABLE)
        connection.execute(
            "CREATE TABLE journal (n bigserial PRIMARY KEY, resource text, token bigint)"
        )
