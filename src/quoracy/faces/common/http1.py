"""An HTTP/1.1 server for ASGI applications, on the `h11` package.

uvicorn would do the same, but takes longer to import, needs more memory, and sets no limit on how
slowly a request's head may arrive (docs/decisions/0005).

Invariants
    * One request at a time: the next one is read when the response to this one is complete.
    * A connection is closed if a head takes longer than `HEAD_S`, or if it is idle for `IDLE_S`; a head
      larger than `HEAD_BYTES_MAX` is answered 431.
    * A request that breaks HTTP's rules (two lengths, a length and chunks, a bad name), according to
      `h11`, is answered 400 and its connection closed.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import cast

import h11

from quoracy.faces.common.asgi import AsgiApp, Exchange, Headers, make_scope

__all__ = ["Http1Connection", "Http1Connections"]

HEAD_S = 10.0
IDLE_S = 75.0
LINGER_S = 1.0
HEAD_BYTES_MAX = 64 * 1024
_WRITE_BUFFER_MAX = 256 * 1024
_REASONS = {int(status): status.phrase.encode("ascii") for status in HTTPStatus}


class Http1Connections:
    """All connections of one listener; those beyond `connections_max` are closed at once."""

    def __init__(
        self, app: AsgiApp, loop: asyncio.AbstractEventLoop, *, connections_max: int = 10_000
    ) -> None:
        self.app, self.loop = app, loop
        self.connections_max = connections_max
        self.open: set[Http1Connection] = set()
        self.draining = False
        self._left = asyncio.Event()

    def make_protocol(self) -> Http1Connection:
        return Http1Connection(self)

    def left(self, connection: Http1Connection) -> None:
        self.open.discard(connection)
        self._left.set()

    async def drain(self, seconds: float) -> None:
        """Let requests finish for up to `seconds`, then close all connections."""
        self.draining = True
        for connection in list(self.open):
            connection.close_when_idle()
        try:
            async with asyncio.timeout(seconds):
                while self.open:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            for connection in list(self.open):
                connection.abort()


class Http1Connection(asyncio.Protocol):
    """One connection: the `Wire` of its current exchange."""

    def __init__(self, connections: Http1Connections) -> None:
        self._connections = connections
        self._loop = connections.loop
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._scheme = "http"
        self._exchange: Exchange | None = None
        self._is_head = False
        self._head_begun = False
        self._paused = False
        self._lingering = False
        self._timer: asyncio.TimerHandle | None = None

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_MAX)
        if transport.get_extra_info("ssl_object") is not None:
            self._scheme = "https"
        if len(self._connections.open) >= self._connections.connections_max:
            self._transport.abort()
            return
        self._connections.open.add(self)
        self._wait_for_head(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the name is asyncio's)
        self._transport = None
        self._stop_timer()
        self._connections.left(self)
        if self._exchange is not None:
            self._exchange.cancel()

    def data_received(self, data: bytes) -> None:
        if self._lingering or self._http.their_state is h11.MUST_CLOSE:
            return  # it was answered, or announced that this was its last request
        if self._exchange is None and not self._head_begun:
            # From its first byte on, a head has to come to an end; more bytes do not buy more time.
            self._head_begun = True
            self._wait_for_head(HEAD_S)
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        # A client that closed its side is gone, as for nginx: a watch must not go on for nobody.
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._exchange is not None:
            self._exchange.may_send()

    # -- endings

    def close_when_idle(self) -> None:
        if self._exchange is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- what arrives

    def _advance(self) -> None:
        """Process everything that is complete."""
        while self._transport is not None and not self._transport.is_closing():
            if self._http.their_state is h11.MUST_CLOSE:
                return
            try:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    _check(event)
            except h11.RemoteProtocolError as error:
                self._refuse(error)
                return
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                return
            if event is h11.PAUSED:
                # The next request has arrived early: it waits, and so does everything after it.
                self._transport.pause_reading()
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._take(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self._exchange is not None:
                self._exchange.received_end()

    def _begin(self, request: h11.Request) -> None:
        self._stop_timer()
        self._head_begun = False
        self._is_head = request.method == b"HEAD"
        scope = make_scope(
            request.http_version.decode("ascii"),
            request.method,
            self._scheme,
            request.target,
            list(request.headers),
        )
        self._exchange = Exchange(self, self._connections.app, scope, self._loop)

    def _take(self, data: bytes) -> None:
        if self._exchange is not None and self._transport is not None:
            # At most one read of the body waits for the application.
            self._transport.pause_reading()
            self._exchange.received(data, len(data))

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self._exchange is not None:
            self._exchange.cancel()
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = f"{error}\n".encode()
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(text)),
                (b"connection", b"close"),
            ]
            self._respond(error.error_status_hint, headers)
            self._write(h11.Data(data=text))
            self._write(h11.EndOfMessage())
        self._linger()

    # -- the exchange's side

    @property
    def blocked(self) -> bool:
        return self._paused

    def start_response(self, status: int, headers: Headers) -> None:
        pairs = list(headers)
        if self._connections.draining:
            pairs.append((b"connection", b"close"))
        self._respond(status, pairs)

    def send_body(self, data: bytes, *, more: bool) -> None:
        if data and not self._is_head:
            self._write(h11.Data(data=data))
        if not more:
            self._write(h11.EndOfMessage())

    def taken(self, size: int) -> None:  # noqa: ARG002 (HTTP/1.1 counts nothing)
        self._read_on()

    def finished(self, *, started: bool, answered: bool) -> None:
        self._exchange = None
        if self._transport is None or self._lingering:
            return
        if not answered:
            if not started and self._http.our_state is h11.SEND_RESPONSE:
                self._respond(500, [(b"content-length", b"0")])
                self._write(h11.EndOfMessage())
            self._transport.close()
        elif self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._wait_for_head(IDLE_S)
            self._read_on()
            # The next request may have arrived with this one.  It is processed in a turn of its own, so
            # that a client that pipelines cannot extend this turn without limit.
            self._loop.call_soon(self._advance)
        else:
            self._linger()

    # -- helpers

    def _linger(self) -> None:
        """Close, after giving the client time to read the response.

        If a connection is closed while bytes of the client are unread, such as the rest of a body
        that is too long, TCP resets it and the response may be lost.  So for `LINGER_S` what
        arrives is discarded.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._lingering = True
        if transport.can_write_eof():
            transport.write_eof()
        self._read_on()
        self._stop_timer()
        self._timer = self._loop.call_later(LINGER_S, transport.close)

    def _respond(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        reason = _REASONS.get(status, b"")
        self._write(h11.Response(status_code=status, headers=headers, reason=reason))

    def _read_on(self) -> None:
        # uvloop's transports refuse this once they are closing.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._transport is not None:
            self._transport.write(data)

    def _wait_for_head(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _check(request: h11.Request) -> None:
    """Refuse requests that `h11` accepts and we do not."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise h11.RemoteProtocolError("this is HTTP/1.1 only", error_status_hint=505)
    if sum(len(name) + len(value) for name, value in request.headers) > HEAD_BYTES_MAX:
        # h11 checks the size of incomplete heads only, and this one arrived at once.
        raise h11.RemoteProtocolError("the headers are too large", error_status_hint=431)
    names = {name for name, _ in request.headers}
    if b"content-length" in names and b"transfer-encoding" in names:
        # A proxy may disagree with us on where such a request ends (RFC 9112, section 6.1).
        raise h11.RemoteProtocolError("a Content-Length and a Transfer-Encoding")
