"""Fencing: gates that make a resource refuse the writes of a holder that has lost its lock.

from quoracy.fencing import SqliteGate

gate = SqliteGate("fencing.db")
await gate.admit("orders", held.token)      # returns, or raises quoracy.StaleToken
"""

from quoracy.fencing.files import guarded_file, write_guarded
from quoracy.fencing.gate import RESOURCE_BYTES_MAX, TOKEN_MAX, Gate, SyncGate, refuse_stale
from quoracy.fencing.http import HEADER, Fence, FencingMiddleware, fence_of, fencing_header, path_of
from quoracy.fencing.memory import MemoryGate
from quoracy.fencing.postgres import (
    POSTGRES_ADMIT,
    POSTGRES_ADMIT_NAMED,
    POSTGRES_ADMIT_NUMBERED,
    POSTGRES_TABLE,
    admit_in_postgres,
)
from quoracy.fencing.redis import REDIS_ADMIT, RedisGate, SyncRedisGate
from quoracy.fencing.sqlite import SQLITE_ADMIT, SQLITE_TABLE, SqliteGate, admit_in_sqlite

__all__ = [
    "HEADER",
    "POSTGRES_ADMIT",
    "POSTGRES_ADMIT_NAMED",
    "POSTGRES_ADMIT_NUMBERED",
    "POSTGRES_TABLE",
    "REDIS_ADMIT",
    "RESOURCE_BYTES_MAX",
    "SQLITE_ADMIT",
    "SQLITE_TABLE",
    "TOKEN_MAX",
    "Fence",
    "FencingMiddleware",
    "Gate",
    "MemoryGate",
    "RedisGate",
    "SqliteGate",
    "SyncGate",
    "SyncRedisGate",
    "admit_in_postgres",
    "admit_in_sqlite",
    "fence_of",
    "fencing_header",
    "guarded_file",
    "path_of",
    "refuse_stale",
    "write_guarded",
]
