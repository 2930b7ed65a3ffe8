"""One client's HTTP/2 connection: bytes to calls, calls to bytes.

The shell around the sans-IO `wire.http2.Connection`.  It decides nothing about HTTP/2; it finds the
method of a request, hands it what arrives and sends what is queued, one write for a batch.

Invariants
    * A client that does not read is not read from either, once the transport's buffer is full: what it
      can make the server keep is bounded by that buffer, the streams it may open and their windows.
    * A protocol error ends this connection, with GOAWAY, and no other.
    * When the connection is lost, every call on it is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from quoracy.faces.common.reply_socket import ReplySocket
from quoracy.faces.etcd.methods import Unary
from quoracy.faces.etcd.serving.calls import (
    UNSENT_BYTES_MAX,
    Call,
    CallHost,
    HttpCall,
    RefusedCall,
    Status,
)
from quoracy.faces.etcd.serving.grpc_calls import StreamCall, UnaryCall
from quoracy.faces.etcd.serving.leadership import WANTS_LEADER
from quoracy.wire.grpc import GrpcError, StatusCode, read_request_head
from quoracy.wire.http2 import (
    Connection,
    ConnectionEnded,
    DataReceived,
    ErrorCode,
    Event,
    HeaderBlock,
    HeadersReceived,
    StreamDrained,
    StreamReset,
    TrailersReceived,
)

if TYPE_CHECKING:
    from quoracy.faces.etcd.serving.server import Face

__all__ = ["Session"]

logger = logging.getLogger(__name__)

# Opens the call a request asks for; found once per distinct header block.
_Opener = Callable[["Session", int], Call]

_WRITE_BUFFER_MAX = 1 << 20

# A peer whose window is shut for this long, with this much waiting, is not slow but gone.  Less than
# that is left alone: a program may well stop reading its watches for a while.
STALLED_S = 120.0
_STALLED_BYTES_MIN = 1 << 20
LINGER_S = 1.0


class Session(CallHost):
    """One connection; `face` has what all of them share.

    An `asyncio.Protocol` in all but name: see `CallHost` for why it is none by inheritance.
    """

    def __init__(self, face: Face) -> None:
        super().__init__(
            Connection(client_side=False, limits=face.http2_limits),
            face.deadlines,
            ReplySocket(face.descriptors),
            face.message_bytes_max,
        )
        self._face = face
        self._stalled_at: float | None = None
        self._pending_seen = 0
        self.heard_at = self.loop.time()
        self._calls: dict[int, Call] = {}
        self._transport: asyncio.Transport | None = None
        self._flush_due = False
        self._closing = False
        self._broken = False
        self._lingering = False
        self._goes_on = False  # while calls that waited for room do

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_MAX)
        self.replies.open(self._transport)
        self._face.sessions.add(self)
        self.http2.start()
        if self._face.draining:
            self.http2.goaway()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the name is asyncio's)
        self._transport = None
        self._face.left(self)
        self.replies.close()
        for call in list(self._calls.values()):
            call.cancel(None)
        self._calls.clear()

    def data_received(self, data: bytes) -> None:
        self._face.store.catch_up()
        if self._broken:
            return
        self.heard_at = now = self.loop.time()
        # Answers made meanwhile go out with the flush at the end.
        self._flush_due = True
        for event in self.http2.receive(data, now=now):
            self._handle(event)
        self._flush()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.writing_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._flush()
        for call in list(self._calls.values()):
            call.may_send()

    # -- the calls' side

    def flush_soon(self) -> None:
        if self._flush_due:
            return
        if not self._calls:
            # Nothing is under way that could still join this write.
            self._flush()
        else:
            self._flush_due = True
            self.loop.call_soon(self._flush)

    def flush_now(self) -> None:
        self._flush()

    def _go_on(self) -> None:
        """Let calls that wait for room go on, in order, until there is none again."""
        if self._goes_on:
            return
        self._goes_on = True
        waiting = self.waiting_for_room
        while waiting and self.unsent_bytes <= UNSENT_BYTES_MAX:
            call = next(iter(waiting))
            del waiting[call]
            call.go_on()
        self._goes_on = False

    def ended(self, stream_id: int, path: str, code: StatusCode) -> None:
        self._calls.pop(stream_id, None)
        if self.waiting_for_room:
            self._go_on()
        if path:
            self._face.counts.handled(path, code)
        if self._closing:
            self.flush_soon()

    def _flush(self) -> None:
        self._flush_due = False
        transport = self._transport
        if transport is None or self.writing_paused:
            return
        data = self.http2.data_to_send()
        if data:
            self.replies.settle()
            transport.write(data)
        elif not (self.unsent_bytes or self.http2.pending_total or self._closing):
            return  # as after most requests: their answers come later
        self.unsent_bytes = self.http2.pending_total + transport.get_write_buffer_size()
        if self.waiting_for_room:
            self._go_on()
        if self._closing and not self._calls and not self.http2.pending_total:
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        self.replies.settle()
        if not self._broken or not transport.can_write_eof():
            transport.close()
        elif not self._lingering:
            # Closed with bytes of the peer unread, TCP would reset the connection and the GOAWAY
            # might never arrive: what still comes is read, and thrown away, for a moment.
            self._lingering = True
            transport.write_eof()
            self.loop.call_later(LINGER_S, self.abort)

    # -- events

    def _handle(self, event: Event) -> None:
        kind = type(event)
        if kind is HeadersReceived:
            assert isinstance(event, HeadersReceived)
            self._open(event)
        elif kind is DataReceived:
            assert isinstance(event, DataReceived)
            call = self._calls.get(event.stream_id)
            if call is None:
                self.http2.consumed(event.stream_id, event.flow_bytes)
            else:
                call.received(event.data, event.flow_bytes, event.end_stream)
        elif kind is TrailersReceived:
            assert isinstance(event, TrailersReceived)
            call = self._calls.get(event.stream_id)
            if call is not None:
                call.received_end()
        elif kind is StreamReset:
            assert isinstance(event, StreamReset)
            call = self._calls.pop(event.stream_id, None)
            if call is not None:
                call.cancel(None)
        elif kind is StreamDrained:
            assert isinstance(event, StreamDrained)
            call = self._calls.get(event.stream_id)
            if call is not None:
                call.may_send()
        elif kind is ConnectionEnded:
            assert isinstance(event, ConnectionEnded)
            logger.info("closing a connection: %s (%s)", event.reason, ErrorCode(event.code).name)
            self._abandon()

    def _open(self, event: HeadersReceived) -> None:
        headers = event.headers
        opener = headers.note
        if opener is None:
            opener = headers.note = self._find(headers)
        call: Call = opener(self, event.stream_id)  # type: ignore[operator]
        self._calls[event.stream_id] = call
        if event.end_stream:
            call.received_end()

    def _find(self, headers: HeaderBlock) -> _Opener:
        """How to open the call these headers ask for."""
        head = read_request_head(headers)
        face = self._face
        if head is None:
            return lambda session, stream_id: HttpCall(session, stream_id, headers, face.http_app)
        path = head.path
        fault = head.fault
        name, value = WANTS_LEADER
        wants_leader = headers.get(name) == value
        method = (face.guarded_methods if wants_leader else face.methods).get(path)
        started = face.counts.started
        if fault is None and method is None:
            fault = _unknown_method(path, face.methods)
        if fault is not None:
            refusal = fault
            return lambda session, stream_id: RefusedCall(session, stream_id, path, refusal)

        assert method is not None
        if isinstance(method, Unary):
            unary = method

            def open_unary(session: Session, stream_id: int) -> Call:
                started(path)
                return UnaryCall(session, stream_id, head, unary)

            return open_unary
        streaming = method

        def open_stream(session: Session, stream_id: int) -> Call:
            started(path)
            return StreamCall(session, stream_id, head, streaming)

        return open_stream

    # -- endings

    def _abandon(self) -> None:
        """The peer broke the protocol: cancel what it had running and hang up after the GOAWAY."""
        self._closing = self._broken = True
        for call in list(self._calls.values()):
            call.cancel(None)
        self._calls.clear()

    def drain(self, status: Status) -> None:
        """Take no new calls, let unary ones finish, end what waits with `status`, then hang up."""
        self._closing = True
        self.http2.goaway()
        for call in list(self._calls.values()):
            if call.is_open_ended:
                call.cancel(status)
        self._flush()

    def stop(self, status: Status) -> None:
        """End whatever is still running with `status`."""
        for call in list(self._calls.values()):
            call.cancel(status)
        self._flush()

    def abort(self) -> None:
        """Hang up now."""
        if self._transport is not None:
            self._transport.abort()

    def check(self, *, now: float, quiet_s: float, answer_s: float) -> None:
        """Called every now and then: ask a silent peer whether it lives, hang up if it does not say."""
        self._mind_stall(now)
        silence_s = now - self.heard_at
        if silence_s > quiet_s + answer_s:
            logger.info(
                "closing a connection: nothing heard for %.0f s, not even after a ping", silence_s
            )
            self.abort()
        elif silence_s > quiet_s:
            self.http2.ping(b"quoracy?")
            self._flush()

    def _mind_stall(self, now: float) -> None:
        """Hang up on a peer that has much waiting for it and takes none of it."""
        pending = self.http2.pending_total
        if pending < _STALLED_BYTES_MIN or pending != self._pending_seen:
            self._pending_seen, self._stalled_at = pending, now
        elif self._stalled_at is not None and now - self._stalled_at > STALLED_S:
            logger.info("closing a connection: %d bytes wait for it, and it takes none", pending)
            self.abort()


def _unknown_method(path: str, methods: Iterable[str]) -> GrpcError:
    """In the words of the gRPC library that etcd uses: clients tell by them what a server lacks."""
    service, slash, method = path.removeprefix("/").rpartition("/")
    if not slash:
        text = f'malformed method name: "{path}"'
    elif any(each.startswith(f"/{service}/") for each in methods):
        text = f"unknown method {method} for service {service}"
    else:
        text = f"unknown service {service}"
    return GrpcError(StatusCode.UNIMPLEMENTED, text)
