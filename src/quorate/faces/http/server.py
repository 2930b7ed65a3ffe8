"""The shell of the HTTP face: uvicorn on a socket that is ours.

The caller binds the socket, so that a port in use is its to report, and owns the signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from quorate.faces.http.app import make_app
from quorate.store.api import Store

__all__ = ["serve_http"]

# At this many connections the next is answered 503 at once.
CONNECTIONS_MAX = 1_000
SHUTDOWN_MAX_S = 5


@contextlib.asynccontextmanager
async def serve_http(store: Store, listener: socket.socket, *, host: str) -> AsyncIterator[None]:
    """Answer on a bound socket for as long as the body runs; `host` is the one that was configured.

    Entered, it accepts connections.  Left, it lets requests finish for at most `SHUTDOWN_MAX_S`
    seconds and closes the socket.
    """
    server = _Server(
        uvicorn.Config(
            make_app(store, bound_host=host),
            http="h11",
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=SHUTDOWN_MAX_S,
        )
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        await server.ready.wait()
        try:
            yield
        finally:
            server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn that says when it is ready and leaves signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
