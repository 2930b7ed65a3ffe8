"""What goes on on one stream of a connection: any exchange, over gRPC (`grpc_calls`) or plain HTTP.

The session (`session.py`) feeds a call what arrives on its stream; the call sends by way of its host,
which is the session.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TypeAlias

from quoracy.faces.common.asgi import AsgiApp, Exchange, Headers, make_scope
from quoracy.faces.common.reply_socket import ReplySocket
from quoracy.wire.grpc import GrpcError, StatusCode, trailers_only
from quoracy.wire.http2 import Connection, ErrorCode, HeaderBlock, encode_headers

__all__ = [
    "UNSENT_BYTES_MAX",
    "Call",
    "CallCounts",
    "CallHost",
    "Deadlines",
    "HttpCall",
    "RefusedCall",
    "Status",
    "send_trailers_only",
]

Status: TypeAlias = tuple[StatusCode, str]

_DEADLINE: Status = (StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
# A call may end this long after its deadline.
_DEADLINES_APART_S = 0.01
# With this much unsent to a peer, no further request of it is begun, and no answer is encoded.
UNSENT_BYTES_MAX = 8 * 1024 * 1024


class CallHost:
    """What a call needs of the session it belongs to.

    (A class and not a protocol, as `Call` is: compiled, its attributes and methods are then found
    without looking them up by name.)
    """

    __slots__ = (
        "deadlines",
        "http2",
        "loop",
        "message_bytes_max",
        "partial_bytes",
        "replies",
        "unsent_bytes",
        "waiting_for_room",
        "writing_paused",
    )

    def __init__(
        self, http2: Connection, deadlines: Deadlines, replies: ReplySocket, message_bytes_max: int
    ) -> None:
        self.http2 = http2
        self.deadlines = deadlines
        self.replies = replies
        self.loop = deadlines.loop
        self.message_bytes_max = message_bytes_max
        self.writing_paused = False
        # How much of the answers the peer has not taken yet, and of its requests is not complete.
        self.unsent_bytes = 0
        self.partial_bytes = 0
        # Calls that go on, in order, when the peer has taken enough of what is unsent.
        self.waiting_for_room: dict[Call, None] = {}

    def flush_soon(self) -> None:
        """Send what was queued, at the end of this turn of the loop."""
        raise NotImplementedError

    def flush_now(self) -> None:
        """Send what was queued, at once."""
        raise NotImplementedError

    def ended(self, stream_id: int, path: str, code: StatusCode) -> None:
        """A call is over."""
        raise NotImplementedError


class Call:
    """Any exchange on one stream, gRPC or not.

    is_open_ended: whether it may go on for any time, so that a server that stops ends it at once.
    """

    __slots__ = ("host", "is_open_ended", "path", "stream_id")

    def __init__(self, host: CallHost, stream_id: int, path: str, is_open_ended: bool) -> None:
        self.host, self.stream_id, self.path = host, stream_id, path
        self.is_open_ended = is_open_ended

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:
        raise NotImplementedError

    def received_end(self) -> None:
        """The client has sent everything."""
        raise NotImplementedError

    def cancel(self, status: Status | None) -> None:
        """End it from outside; None if there is nobody to tell."""
        raise NotImplementedError

    def may_send(self) -> None:
        """The peer takes data again: send what was held back."""
        return

    def go_on(self) -> None:
        """There is room for what this call waits with (`CallHost.waiting_for_room`)."""
        return


class Deadlines:
    """When calls must be over: one timer for all of them, since nearly all end long before.

    It is set for the first deadline there is, and left to ring.
    """

    __slots__ = ("_calls", "_due", "_timer", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: dict[Call, float] = {}
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: Call, timeout_s: float) -> None:
        at = self.loop.time() + timeout_s
        self._calls[call] = at
        if at < self._due:
            self._set(at)

    def discard(self, call: Call) -> None:
        self._calls.pop(call, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = at
        self._timer = self.loop.call_at(at, self._ring)

    def _ring(self) -> None:
        now = self.loop.time()
        self._timer, self._due = None, math.inf
        for call in [call for call, at in self._calls.items() if at <= now]:
            self.discard(call)
            call.cancel(_DEADLINE)
        if self._calls:
            # Each ring looks at all of them, so there is a bound on how often it rings.
            self._set(max(min(self._calls.values()), now + _DEADLINES_APART_S))


class RefusedCall(Call):
    """A call that cannot be served: refused when its request is complete."""

    __slots__ = ("_fault",)

    def __init__(self, host: CallHost, stream_id: int, path: str, fault: GrpcError) -> None:
        super().__init__(host, stream_id, path, is_open_ended=True)
        self._fault = fault

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:  # noqa: ARG002
        self.host.http2.consumed(self.stream_id, flow_bytes)
        if end_stream:
            self.received_end()

    def received_end(self) -> None:
        send_trailers_only(self.host, self.stream_id, (self._fault.code, self._fault.message))
        self.host.ended(self.stream_id, self.path, self._fault.code)

    def cancel(self, status: Status | None) -> None:
        if status is not None:
            send_trailers_only(self.host, self.stream_id, status)
        code = StatusCode.CANCELLED if status is None else status[0]
        self.host.ended(self.stream_id, self.path, code)


_INTERNAL_ERROR = encode_headers(((b":status", b"500"),))
# Headers about an HTTP/1.1 connection, which HTTP/2 forbids (RFC 9113, section 8.2.2).
_CONNECTION_HEADERS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)


class HttpCall(Call):
    """One request: a stream of its session, and the wire of its exchange."""

    __slots__ = ("_exchange", "_gone")

    def __init__(self, host: CallHost, stream_id: int, headers: HeaderBlock, app: AsgiApp) -> None:
        super().__init__(host, stream_id, "", is_open_ended=True)
        self._gone = False
        fields = [(name, value) for name, value in headers.pairs if not name.startswith(b":")]
        if headers.authority is not None and headers.get(b"host") is None:
            fields.append((b"host", headers.authority))
        scope = make_scope(
            "2",
            headers.method or b"GET",
            (headers.scheme or b"http").decode("latin-1"),
            headers.path or b"/",
            fields,
        )
        self._exchange = Exchange(self, app, scope, host.loop)

    # -- from the session

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:
        self._exchange.received(data, flow_bytes)
        if end_stream:
            self._exchange.received_end()

    def received_end(self) -> None:
        self._exchange.received_end()

    def cancel(self, status: Status | None) -> None:
        self._gone = status is None
        self._exchange.cancel()

    def may_send(self) -> None:
        self._exchange.may_send()

    # -- from the exchange

    @property
    def blocked(self) -> bool:
        return self.host.writing_paused or self.host.http2.pending(self.stream_id) > 0

    def start_response(self, status: int, headers: Headers) -> None:
        pairs = [(b":status", b"%d" % status)]
        pairs += [
            (name.lower(), value) for name, value in headers if name.lower() not in _CONNECTION_HEADERS
        ]
        self.host.http2.send_headers(self.stream_id, encode_headers(tuple(pairs)))

    def send_body(self, data: bytes, *, more: bool) -> None:
        self.host.http2.send_data(self.stream_id, data, end_stream=not more)
        self.host.flush_soon()

    def taken(self, size: int) -> None:
        self.host.http2.consumed(self.stream_id, size)
        self.host.flush_soon()

    def finished(self, *, started: bool, answered: bool) -> None:
        http2 = self.host.http2
        if not self._gone:
            if not answered and started:
                http2.reset(self.stream_id, ErrorCode.INTERNAL_ERROR)
            elif not answered:
                http2.send_headers(self.stream_id, _INTERNAL_ERROR, end_stream=True)
            if not self._exchange.received_all and not http2.pending(self.stream_id):
                # The client need not go on sending (RFC 9113, section 8.1).
                http2.reset(self.stream_id, ErrorCode.NO_ERROR)
            self.host.flush_soon()
        self.host.ended(self.stream_id, self.path, StatusCode.OK)


class CallCounts:
    """How many calls of each method began, and how they ended."""

    __slots__ = ("_ended", "_started")

    def __init__(self) -> None:
        self._started: dict[str, int] = {}
        self._ended: dict[str, list[int]] = {}

    def started(self, path: str) -> None:
        """A call of a method that exists began."""
        try:
            self._started[path] += 1
        except KeyError:
            self._started[path] = 1
            self._ended[path] = [0] * len(StatusCode)

    def handled(self, path: str, code: StatusCode) -> None:
        """A call ended; one that never `started`, because there is no such method, is not counted."""
        ended = self._ended.get(path)
        if ended is not None:
            ended[code] += 1

    def of(self, path: str) -> tuple[int, Mapping[StatusCode, int]]:
        """How many calls of one method began, and how many ended with each code there was."""
        ended = self._ended.get(path, ())
        return self._started.get(path, 0), {StatusCode(c): n for c, n in enumerate(ended) if n}


def send_trailers_only(host: CallHost, stream_id: int, status: Status) -> None:
    host.http2.send_headers(stream_id, trailers_only(*status), end_stream=True)
    host.flush_soon()
