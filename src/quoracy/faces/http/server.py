"""The shell of the HTTP face.

The caller binds the socket, so that a port in use is its to report, and owns the signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from quoracy.faces.common.http1 import Http1Connections
from quoracy.faces.http.app import make_app
from quoracy.store.api import Store

__all__ = ["serve_http"]

# At this many connections the next one is hung up on.
CONNECTIONS_MAX = 1_000
DRAIN_S = 0.5


@contextlib.asynccontextmanager
async def serve_http(store: Store, listener: socket.socket, *, host: str) -> AsyncIterator[None]:
    """Answer on a bound socket for as long as the body runs; `host` is the one that was configured.

    Entered, it accepts connections.  Left, it lets requests finish for at most `DRAIN_S` seconds and
    closes the socket.
    """
    loop = asyncio.get_running_loop()
    connections = Http1Connections(
        make_app(store, bound_host=host), loop, connections_max=CONNECTIONS_MAX
    )
    server = await loop.create_server(connections.make_protocol, sock=listener, backlog=1024)
    try:
        yield
    finally:
        server.close()
        await connections.drain(DRAIN_S)
