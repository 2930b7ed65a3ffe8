"""From a URL to a connection: a session on a store, wherever that is, and every recipe on it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from quoracy.client.connection import Connection
from quoracy.clock import BootClock, Clock, SystemClock
from quoracy.errors import InvalidRequest
from quoracy.opening import open_store
from quoracy.store.api import Store

if TYPE_CHECKING:
    from quoracy.remote.urls import TlsOptions

__all__ = ["CLOSE_S", "connect"]

CLOSE_S = 5.0
_EMBEDDED = ("memory", "sqlite")


@asynccontextmanager
async def connect(
    where: str | Store,
    *,
    session_ttl: float = 10.0,
    identity: str | None = None,
    namespace: str | None = None,
    tls: TlsOptions | None = None,
    user: str | None = None,
    password: str | None = None,
    request_timeout: float | None = None,
    close_timeout: float = CLOSE_S,
    clock: Clock | None = None,
) -> AsyncIterator[Connection]:
    """A connection, with a session of its own: locks, elections and all the other recipes.

    where: a URL as for `open_store` (`memory:`, `sqlite:PATH`, `quoracy://HOST`, `etcd://H1,H2,H3`), or
        a store that is open already, for several connections on one store in this process.
    session_ttl: how many seconds after this process dies, or is cut off, what it holds is free again.
        The server may make it longer (etcd: at least 2).
    identity: who this is to others; by default host name and process id.
    namespace: put before every name, with a `/`.
    request_timeout: the most a single request to a server may take.
    close_timeout: the most that leaving the block takes.

    In coroutines (with `quoracy.sync`, the same without `async`):

        async with quoracy.connect("memory:") as q:
            async with q.lock("reports/nightly") as held:
                print(held.token)

    Leaving the block ends the session: everything held is free at once.  Raises what `open_store`
    raises, and `Unavailable` if the server cannot be reached.
    """
    if not session_ttl > 0:
        raise InvalidRequest(f"session_ttl is {session_ttl}. Give a positive number of seconds.")
    if namespace is not None and (not namespace or namespace.endswith("/")):
        raise InvalidRequest(
            f"{namespace!r} is no namespace. Give one that is not empty and ends without a /, or None."
        )
    async with AsyncExitStack() as stack:
        if isinstance(where, str):
            if clock is None:
                clock = SystemClock() if where.partition(":")[0] in _EMBEDDED else BootClock()
            store: Store = await stack.enter_async_context(
                open_store(
                    where, clock=clock, tls=tls, user=user, password=password, timeout_s=request_timeout
                )
            )
        else:
            store = where
        connection = Connection(
            store,
            clock or SystemClock(),
            identity=identity or f"{socket.gethostname()}:{os.getpid()}",
            namespace=namespace,
            session_ttl=session_ttl,
        )
        await connection.begin()
        try:
            yield connection
        finally:
            await _close(connection, close_timeout)


async def _close(connection: Connection, seconds: float) -> None:
    """Close it within its time, also if that is interrupted."""
    closing = asyncio.ensure_future(connection.close())
    try:
        await asyncio.wait([closing], timeout=seconds)
    finally:
        if not closing.done():
            closing.cancel()
            await asyncio.wait([closing], timeout=1.0)
    if not closing.cancelled():
        closing.result()
