"""The HTTP face: an ASGI application over a Store, and its server.

The caller binds the socket, so that it can report a port in use, and handles signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from quoracy.errors import QuoracyError, Unavailable
from quoracy.faces.common.asgi import AsgiApp, Receive, Scope, Send, reply, reply_text
from quoracy.faces.common.guards import HostGuard
from quoracy.faces.common.http1 import Http1Connections
from quoracy.faces.http.health import Health, judge
from quoracy.store.api import Store

__all__ = ["make_app", "serve_http"]

# Further connections are closed at once.
CONNECTIONS_MAX = 1_000
DRAIN_S = 0.5
_WHERE_TO_LOOK = "GET /health says how this Quoracy is doing."


@contextlib.asynccontextmanager
async def serve_http(store: Store, listener: socket.socket, *, host: str) -> AsyncIterator[None]:
    """Serve on a bound socket while the body runs; `host` is the configured one.

    On exit, requests have at most `DRAIN_S` seconds to finish; then the socket is closed.
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


def make_app(store: Store, *, bound_host: str) -> AsgiApp:
    """The application; `bound_host` is the host that its server listens on."""

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        # Plain text without the requested path, so that no request can make a browser render markup.
        if scope["path"] != "/health":
            await reply_text(send, 404, f"Not Found. {_WHERE_TO_LOOK}\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await reply_text(send, 405, f"Method Not Allowed. {_WHERE_TO_LOOK}\n", allow="GET, HEAD")
        else:
            health = await _examine(store)
            status = 200 if health.ok else 503
            await reply(send, status, health.to_json(), content_type=b"application/json")

    return HostGuard(app, bound_host=bound_host)


async def _examine(store: Store) -> Health:
    cluster = None if store.cluster is None else store.cluster.health()
    try:
        return judge(await store.status(), cluster)
    except Unavailable as error:
        if cluster is not None and not cluster.is_serving:
            return judge(None, cluster)
        return Health(ok=False, reason=str(error), status=None, cluster=cluster)
    except QuoracyError as error:
        return Health(ok=False, reason=str(error), status=None)
