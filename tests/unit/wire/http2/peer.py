"""The other side of a connection under test: it keeps no rule that it is not told to keep."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from quoracy.wire.http2 import (
    Connection,
    ConnectionEnded,
    ErrorCode,
    Event,
    Http2Limits,
    StreamReset,
    encode_headers,
)
from quoracy.wire.http2.codes import PREFACE, FrameType, Setting

HEAD = Struct(">IBI")
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20
BLOCK = END_HEADERS
WHOLE = END_HEADERS | END_STREAM

Pairs = Iterable[tuple[bytes, bytes]]

REQUEST: tuple[tuple[bytes, bytes], ...] = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/etcdserverpb.KV/Put"),
    (b":authority", b"localhost:2379"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)
RESPONSE = ((b":status", b"200"), (b"content-type", b"application/grpc"))
TRAILERS = ((b"grpc-status", b"0"), (b"grpc-message", b""))


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def headers(stream_id: int, pairs: Pairs = REQUEST, flags: int = BLOCK) -> bytes:
    return frame(FrameType.HEADERS, flags, stream_id, encode_headers(pairs))


def data(stream_id: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame(FrameType.DATA, flags, stream_id, payload)


def settings(*values: tuple[int, int]) -> bytes:
    payload = b"".join(number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in values)
    return frame(FrameType.SETTINGS, payload=payload)


def initial_window(size: int) -> bytes:
    return settings((Setting.INITIAL_WINDOW_SIZE, size))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def rst_stream(stream_id: int, code: int = ErrorCode.CANCEL) -> bytes:
    return frame(FrameType.RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def ping(payload: bytes = b"12345678", flags: int = 0) -> bytes:
    return frame(FrameType.PING, flags, 0, payload)


def goaway(last_stream_id: int, code: int = ErrorCode.NO_ERROR, debug: bytes = b"") -> bytes:
    payload = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big") + debug
    return frame(FrameType.GOAWAY, payload=payload)


def priority(stream_id: int, depends_on: int) -> bytes:
    return frame(FrameType.PRIORITY, 0, stream_id, depends_on.to_bytes(4, "big") + b"\x10")


SETTINGS_ACK = frame(FrameType.SETTINGS, ACK)


def frames(raw: bytes) -> list[Frame]:
    """What a connection sent, which must be whole frames."""
    found = []
    position = 0
    while position < len(raw):
        word, flags, stream_id = HEAD.unpack_from(raw, position)
        start = position + HEAD.size
        position = start + (word >> 8)
        assert position <= len(raw), "a frame is cut off"
        found.append(Frame(word & 0xFF, flags, stream_id, raw[start:position]))
    return found


def sent(connection: Connection, kind: int | None = None) -> list[Frame]:
    """The frames queued since the last look; only those of one kind if one is named."""
    return [each for each in frames(connection.data_to_send()) if kind is None or each.kind == kind]


def server(limits: Http2Limits | None = None, *, peer_settings: bytes = settings()) -> Connection:
    """A server's connection after the handshake."""
    connection = Connection(client_side=False, limits=limits or Http2Limits())
    connection.start()
    connection.receive(PREFACE + peer_settings + SETTINGS_ACK, now=0.0)
    connection.data_to_send()
    return connection


def client(limits: Http2Limits | None = None, *, peer_settings: bytes = settings()) -> Connection:
    connection = Connection(client_side=True, limits=limits or Http2Limits())
    connection.start()
    connection.receive(peer_settings + SETTINGS_ACK, now=0.0)
    connection.data_to_send()
    return connection


def call(connection: Connection, *, end_stream: bool = True) -> int:
    """Opens a stream of a client under test."""
    stream_id = connection.next_stream_id()
    assert connection.send_headers(stream_id, encode_headers(REQUEST), end_stream=end_stream)
    connection.data_to_send()
    return stream_id


def tell(connection: Connection, *parts: bytes, now: float = 0.0) -> list[Event]:
    return connection.receive(b"".join(parts), now=now)


def assert_ended(connection: Connection, events: list[Event], code: ErrorCode) -> None:
    """The connection ended for that reason, said so to the peer, and is deaf from now on."""
    assert isinstance(events[-1], ConnectionEnded), events
    assert events[-1].code == code, events[-1]
    last = sent(connection)[-1]
    assert last.kind == FrameType.GOAWAY
    assert int.from_bytes(last.payload[4:8], "big") == code
    assert connection.receive(ping(), now=0.0) == []
    assert connection.data_to_send() == b""
    assert connection.open_streams == 0
    assert connection.pending_total == 0


def assert_broken(
    connection: Connection, events: list[Event], stream_id: int, code: ErrorCode, *, told: bool = True
) -> None:
    """Only the stream was reset, for that reason; `told`: the application knew the stream."""
    resets = [each for each in sent(connection) if each.kind == FrameType.RST_STREAM]
    assert [(each.stream_id, int.from_bytes(each.payload, "big")) for each in resets] == [
        (stream_id, code)
    ]
    assert not any(isinstance(each, ConnectionEnded) for each in events)
    expected = [StreamReset(stream_id, code)] if told else []
    assert [each for each in events if isinstance(each, StreamReset)] == expected
    assert not connection.is_open(stream_id)
    # The connection lives on.
    assert tell(connection, ping()) == []
    assert sent(connection) == [Frame(FrameType.PING, ACK, 0, b"12345678")]
