"""The shell of the etcd face: one port for gRPC, the JSON gateway and plain HTTP.

The first bytes of a connection (or TLS's ALPN) say which it is: HTTP/2 goes to `session.Session`, where
gRPC differs from other requests in its content type; HTTP/1.1 goes to `faces.common.http1`.

The caller binds the socket, so that a port in use is its to report, and owns the signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl as tls
from collections.abc import AsyncIterator, Mapping
from typing import cast

from quoracy.faces.common.asgi import AsgiApp
from quoracy.faces.common.http1 import Http1Connections
from quoracy.faces.common.reply_socket import Descriptors
from quoracy.faces.etcd.methods import Method
from quoracy.faces.etcd.services.all import etcd_methods
from quoracy.faces.etcd.services.maintenance import Snapshot
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.calls import CallCounts, Deadlines, Status
from quoracy.faces.etcd.serving.http_endpoints import make_http_app
from quoracy.faces.etcd.serving.leadership import Leadership
from quoracy.faces.etcd.serving.session import Session
from quoracy.store.api import Store
from quoracy.store.rules import Limits
from quoracy.wire.grpc import StatusCode
from quoracy.wire.http2 import Http2Limits
from quoracy.wire.http2.codes import PREFACE

__all__ = ["Face", "serve_etcd"]

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 10_000
# etcd, too, lets a message be this much larger than a request may be, so that a request that is only
# a little too large is refused by the store and not by the transport.
MESSAGE_OVERHEAD_BYTES = 512 * 1024

# A new connection that says nothing for so long is in the way.
FIRST_BYTES_S = 10.0
# After this much silence a peer gets a ping, and has this long to answer.
QUIET_S = 60.0
ANSWER_S = 20.0
CHECK_EVERY_S = 5.0
# How long calls may go on when the server stops.
DRAIN_S = 0.5
# And how long the statuses of those that did not finish may take to leave.
STATUS_S = 0.1

_STOPPED: Status = (StatusCode.UNAVAILABLE, "etcdserver: server stopped")


class Face:
    """What all connections of one listener share; `guarded_methods` for calls that want a leader."""

    def __init__(
        self,
        store: Store,
        methods: Mapping[str, Method],
        guarded_methods: Mapping[str, Method],
        http_app: AsgiApp,
        counts: CallCounts,
        *,
        message_bytes_max: int,
        http2_limits: Http2Limits,
        connections_max: int,
    ) -> None:
        self.store = store
        self.methods, self.guarded_methods = methods, guarded_methods
        self.http_app, self.counts = http_app, counts
        self.message_bytes_max, self.http2_limits = message_bytes_max, http2_limits
        self.connections_max = connections_max
        self.loop = asyncio.get_running_loop()
        self.http1 = Http1Connections(http_app, self.loop)
        self.deadlines = Deadlines(self.loop)
        self.descriptors = Descriptors()
        self.sessions: set[Session] = set()
        self.fresh: set[_Fresh] = set()
        self.draining = False
        self.refused_count = 0
        self._left = asyncio.Event()

    def left(self, session: Session) -> None:
        """A connection is over."""
        self.sessions.discard(session)
        self._left.set()

    async def check_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            now = self.loop.time()
            if self.refused_count:
                logger.warning(
                    "refused %d connections in %g s: %d are open, and no more allowed",
                    self.refused_count,
                    CHECK_EVERY_S,
                    self.connections_max,
                )
                self.refused_count = 0
            for session in list(self.sessions):
                session.check(now=now, quiet_s=QUIET_S, answer_s=ANSWER_S)

    async def drain(self) -> None:
        """Let running calls finish for a moment, end streams, hang up on everyone."""
        self.draining = True
        for fresh in list(self.fresh):
            fresh.abort()
        for session in list(self.sessions):
            session.drain(_STOPPED)
        if not await self._all_left(DRAIN_S):
            for session in list(self.sessions):
                session.stop(_STOPPED)
            if not await self._all_left(STATUS_S):
                for session in list(self.sessions):
                    session.abort()

    async def _all_left(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while self.sessions:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True


class _Fresh(asyncio.Protocol):
    """A connection that has not said yet what it speaks."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._heard = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        face = self._face
        if len(face.sessions) + len(face.fresh) + len(face.http1.open) >= face.connections_max:
            face.refused_count += 1
            self._transport.abort()
            return
        face.fresh.add(self)
        self._timer = face.loop.call_later(FIRST_BYTES_S, self.abort)
        secure = transport.get_extra_info("ssl_object")
        if secure is not None and secure.selected_alpn_protocol() == "h2":
            self._become(_protocol(Session(face)))

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if self._heard.startswith(PREFACE):
            self._become(_protocol(Session(self._face)))
        elif not PREFACE.startswith(self._heard):
            self._become(self._face.http1.make_protocol())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the name is asyncio's)
        self._forget()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        self._face.fresh.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _become(self, protocol: asyncio.Protocol) -> None:
        assert self._transport is not None
        self._forget()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._heard:
            protocol.data_received(self._heard)


def _protocol(session: Session) -> asyncio.Protocol:
    """It has all methods of one."""
    return cast(asyncio.Protocol, session)


@contextlib.asynccontextmanager
async def serve_etcd(
    store: Store,
    listener: socket.socket,
    *,
    host: str,
    identity: Identity,
    ssl: tls.SSLContext | None = None,
    snapshot: Snapshot | None = None,
    limits: Limits | None = None,
    connections_max: int = CONNECTIONS_MAX,
    http2_limits: Http2Limits | None = None,
) -> AsyncIterator[Face]:
    """Answer on a bound socket for as long as the body runs; `host` is the one that was configured.

    `limits` are the store's.  `snapshot` writes a backup of it to a path, for Maintenance.Snapshot;
    without it that call is not implemented.
    Left, it lets calls finish for at most `DRAIN_S` seconds and closes the socket.
    """
    counts = CallCounts()
    limits = limits or Limits()
    message_bytes_max = limits.request_bytes_max + MESSAGE_OVERHEAD_BYTES
    methods = etcd_methods(store, identity, limits=limits, snapshot=snapshot)
    with contextlib.closing(Leadership(store)) as leadership:
        guarded = {path: leadership.guarded(method) for path, method in methods.items()}
        http_app = make_http_app(
            methods,
            store,
            host=host,
            counts=counts,
            message_bytes_max=message_bytes_max,
            guarded_methods=guarded,
        )
        face = Face(
            store,
            methods,
            guarded,
            http_app,
            counts,
            message_bytes_max=message_bytes_max,
            http2_limits=http2_limits or Http2Limits(),
            connections_max=connections_max,
        )
        async with _listening(face, listener, ssl):
            yield face


@contextlib.asynccontextmanager
async def _listening(
    face: Face, listener: socket.socket, ssl: tls.SSLContext | None
) -> AsyncIterator[None]:
    server = await face.loop.create_server(
        lambda: _Fresh(face),
        sock=listener,
        ssl=ssl,
        ssl_handshake_timeout=None if ssl is None else FIRST_BYTES_S,
        backlog=1024,
    )
    checks = face.loop.create_task(face.check_forever())
    try:
        yield
    finally:
        checks.cancel()
        server.close()
        await asyncio.gather(face.drain(), face.http1.drain(DRAIN_S))
        face.deadlines.close()
        await asyncio.wait([checks])
