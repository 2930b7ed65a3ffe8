"""An HTTP/2 request that is not gRPC: the JSON gateway, `/health` and their like."""

from __future__ import annotations

from quoracy.faces.common.asgi import AsgiApp, Exchange, Headers, make_scope
from quoracy.faces.etcd.serving.calls import Call, CallHost, Status
from quoracy.wire.grpc import StatusCode
from quoracy.wire.http2 import ErrorCode, HeaderBlock, encode_headers

__all__ = ["HttpCall"]

_FAILED = encode_headers(((b":status", b"500"),))
# Headers about an HTTP/1.1 connection, which HTTP/2 forbids (RFC 9113, section 8.2.2).
_CONNECTION_HEADERS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)


class HttpCall(Call):
    """One request: a stream of its session, and the wire of its exchange."""

    __slots__ = ("_exchange", "_gone")

    def __init__(self, host: CallHost, stream_id: int, headers: HeaderBlock, app: AsgiApp) -> None:
        self.host, self.stream_id, self.path = host, stream_id, ""
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
                http2.send_headers(self.stream_id, _FAILED, end_stream=True)
            if not self._exchange.received_all and not http2.pending(self.stream_id):
                # The client need not go on sending (RFC 9113, section 8.1).
                http2.reset(self.stream_id, ErrorCode.NO_ERROR)
            self.host.flush_soon()
        self.host.ended(self.stream_id, self.path, StatusCode.OK)
