"""Peers that abuse HTTP/2 and gRPC: each is stopped, nobody else notices, and memory stays bounded."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator

import pytest

from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import StatusCode
from quoracy.wire.http2.codes import ErrorCode, FrameType, Setting
from tests.interop.hostile import Bystander, Peer, frame, grpc_message, window_update
from tests.interop.programs import QuoracyServer, until

MEMORY_BYTES_MAX = 64_000_000
LOCK = "/v3lockpb.Lock/Lock"
RANGE = "/etcdserverpb.KV/Range"


@pytest.fixture(autouse=True)
def unharmed(server: QuoracyServer) -> Iterator[None]:
    """Around every test: another client's writes and watch go on, and the server does not grow."""
    with Bystander(server.port):
        before = server.rss_bytes
        yield
        assert server.rss_bytes - before < MEMORY_BYTES_MAX


def test_rapid_reset(server: QuoracyServer) -> None:
    with Peer(server.port) as peer:
        for stream in range(1, 40_001, 2):
            reset = frame(FrameType.RST_STREAM, stream=stream, payload=bytes(4))
            if not peer.send(peer.request(LOCK, stream=stream) + reset):
                break
        assert peer.ended_with() is ErrorCode.ENHANCE_YOUR_CALM


def test_continuation_flood(server: QuoracyServer) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(LOCK, more=True))
        peer.flood(frame(FrameType.CONTINUATION, stream=1, payload=b"\0\x01a\x01b"), 100_000)
        assert peer.ended_with() is ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "flood",
    [
        frame(FrameType.SETTINGS),
        frame(FrameType.SETTINGS, payload=b"\0\4\0\0\0\1" * 100),
        frame(FrameType.PING, payload=b"whatever"),
        frame(FrameType.PRIORITY, stream=1, payload=bytes(5)),
        window_update(0, 1),
        frame(FrameType.DATA, stream=1),
        frame(FrameType.DATA, flags=0x8, stream=1, payload=b"\xff" + bytes(255)),  # padding only
        frame(FrameType.PING, flags=0x1, payload=bytes(8)),
    ],
    ids=[
        "settings",
        "many settings",
        "ping",
        "priority",
        "window",
        "empty data",
        "padding",
        "ping acks",
    ],
)
def test_flood_of_frames_that_do_no_work(server: QuoracyServer, flood: bytes) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(LOCK))
        peer.flood(flood * 100, 1_000)
        assert peer.ended_with() is ErrorCode.ENHANCE_YOUR_CALM


def test_peer_that_floods_and_does_not_read(server: QuoracyServer) -> None:
    ping = frame(FrameType.PING, payload=b"whatever")
    with Peer(server.port, reads=False) as peer:
        peer.flood(ping * 1_000, 1_000)
        until(lambda: not peer.send(ping), "the server to hang up")


def test_hpack_bomb(server: QuoracyServer) -> None:
    """One large field put into the table, then named thousands of times by one byte each."""
    with Peer(server.port) as peer:
        field = _literal(b"x", b"y" * 4_000)
        head = peer.request(LOCK)[9:]
        block = head + field + b"\xbe" * 16_000
        first, rest = block[:16_000], block[16_000:]
        peer.send(frame(FrameType.HEADERS, stream=1, payload=first))
        peer.send(frame(FrameType.CONTINUATION, flags=0x4, stream=1, payload=rest))
        assert peer.ended_with() is ErrorCode.ENHANCE_YOUR_CALM


def _literal(name: bytes, value: bytes) -> bytes:
    """A field that goes into the table (RFC 7541, section 6.2.1); lengths as in 5.1."""
    length, rest = b"\x7f", len(value) - 127
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    return b"\x40" + bytes([len(name)]) + name + length + bytes([rest]) + value


def test_broken_hpack(server: QuoracyServer) -> None:
    with Peer(server.port) as peer:
        peer.send(
            frame(FrameType.HEADERS, flags=0x4, stream=1, payload=b"\xff\xff\xff\xff\xff\xff\xff")
        )
        assert peer.ended_with() is ErrorCode.COMPRESSION_ERROR


def test_headers_of_a_megabyte(server: QuoracyServer) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(LOCK, more=True))
        peer.flood(frame(FrameType.CONTINUATION, stream=1, payload=_literal(b"x", b"y" * 8_000)), 128)
        assert peer.ended_with() is ErrorCode.ENHANCE_YOUR_CALM


def test_window_of_the_connection_overflows(server: QuoracyServer) -> None:
    with Peer(server.port) as peer:
        peer.send(window_update(0, 2**31 - 1))
        assert peer.ended_with() is ErrorCode.FLOW_CONTROL_ERROR


def test_window_of_a_stream_overflows(server: QuoracyServer) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(LOCK) + window_update(1, 2**31 - 1))
        until(lambda: ErrorCode.FLOW_CONTROL_ERROR in peer.reset_codes(), "the stream to be reset")


def test_garbage_without_end_on_a_stream_call(server: QuoracyServer) -> None:
    """It ends as no message, or as more than the window, whichever is noticed first."""
    with Peer(server.port) as peer:
        peer.send(peer.request("/etcdserverpb.Watch/Watch"))
        peer.send(frame(FrameType.DATA, stream=1, payload=b"\0\0\x18\0\0"))
        peer.flood(frame(FrameType.DATA, stream=1, payload=bytes(16_384)), 1_000)
        until(
            lambda: (
                _status(peer, 1) == StatusCode.INTERNAL
                or ErrorCode.FLOW_CONTROL_ERROR in peer.reset_codes()
            ),
            "the end of the call",
        )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(FrameType.DATA, stream=1, payload=b"x"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.HEADERS, flags=0x4, stream=2, payload=b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.RST_STREAM, stream=1, payload=bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (
            frame(FrameType.PUSH_PROMISE, flags=0x4, stream=1, payload=bytes(4)),
            ErrorCode.PROTOCOL_ERROR,
        ),
        (frame(FrameType.CONTINUATION, flags=0x4, stream=1), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.PING, payload=b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.SETTINGS, payload=b"12345"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.WINDOW_UPDATE, payload=bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (b"\xff\xff\xff\0\0\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
    ],
    ids=[
        "data",
        "even id",
        "reset",
        "push",
        "continuation",
        "ping",
        "settings",
        "window",
        "huge frame",
    ],
)
def test_broken_frames(server: QuoracyServer, data: bytes, code: ErrorCode) -> None:
    with Peer(server.port) as peer:
        peer.send(data)
        assert peer.ended_with() is code


def test_garbage_after_the_preface(server: QuoracyServer) -> None:
    with Peer(server.port) as peer:
        peer.send(bytes(range(256)) * 1_000)
        assert peer.ended_with() in (ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR)


# -- gRPC


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\0\xff\xff\xff\xff", StatusCode.RESOURCE_EXHAUSTED),
        (b"\x01\0\0\0\x01x", StatusCode.INTERNAL),
        (b"\x02\0\0\0\x01x", StatusCode.INTERNAL),
        (grpc_message(b"\xff" * 1_000), StatusCode.INTERNAL),
        (grpc_message(b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), StatusCode.INTERNAL),
        (b"\0\0\0", StatusCode.INTERNAL),
    ],
    ids=["4 GiB", "compressed, not said how", "bad flag", "no protobuf", "long varint", "cut off"],
)
def test_broken_messages_end_their_call_only(
    server: QuoracyServer, message: bytes, code: StatusCode
) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(RANGE))
        peer.send(frame(FrameType.DATA, flags=0x1, stream=1, payload=message))
        until(lambda: _status(peer, 1) is not None, "an answer")
        assert _status(peer, 1) == code
        peer.send(peer.call(RANGE, rpc.RangeRequest(key=b"any").encode(), stream=3))
        until(lambda: _status(peer, 3) is not None, "the next call's answer")
        assert _status(peer, 3) == StatusCode.OK


def _status(peer: Peer, stream: int) -> int | None:
    """grpc-status; our server never indexes a field, so it can be read without a decoder."""
    for kind, on, payload in peer.frames():
        if kind == FrameType.HEADERS and on == stream:
            at = payload.find(b"grpc-status")
            if at >= 0:
                length = payload[at + 11]
                return int(payload[at + 12 : at + 12 + length])
    return None


def test_zip_bomb(server: QuoracyServer) -> None:
    bomb = gzip.compress(bytes(200_000_000), 9)
    with Peer(server.port) as peer:
        fields = peer.request(RANGE)[9:] + b"\0\x0dgrpc-encoding\x04gzip"
        peer.send(frame(FrameType.HEADERS, flags=0x4, stream=1, payload=fields))
        message = b"\1" + len(bomb).to_bytes(4, "big") + bomb
        for start in range(0, len(message), 16_384):
            peer.send(frame(FrameType.DATA, stream=1, payload=message[start : start + 16_384]))
        peer.send(frame(FrameType.DATA, flags=0x1, stream=1))
        until(lambda: _status(peer, 1) is not None, "an answer")
        assert _status(peer, 1) == StatusCode.RESOURCE_EXHAUSTED


def test_requests_that_never_end(server: QuoracyServer) -> None:
    """Many large messages, each but for its last byte: 200 megabytes if all of them were kept."""
    part = b"\0" + (1_900_000).to_bytes(4, "big") + bytes(1_000_000)
    streams = range(1, 401, 2)
    with Peer(server.port) as peer:
        for stream in streams:
            peer.send(peer.request(RANGE, stream=stream))
            for start in range(0, len(part), 16_384):
                data = part[start : start + 16_384]
                peer.send(frame(FrameType.DATA, stream=stream, payload=data))
        until(lambda: _status(peer, streams[-1]) is not None, "a refusal")
        assert _status(peer, streams[-1]) == StatusCode.RESOURCE_EXHAUSTED


def fill(server: QuoracyServer) -> None:
    """Ten megabytes to ask for."""
    with Peer(server.port) as peer:
        for number in range(10):
            request = rpc.PutRequest(key=b"bulk/%d" % number, value=bytes(1_000_000)).encode()
            peer.send(peer.request("/etcdserverpb.KV/Put", stream=2 * number + 1))
            data = grpc_message(request)
            for start in range(0, len(data), 16_384):
                last = 0x1 if start + 16_384 >= len(data) else 0
                part = data[start : start + 16_384]
                peer.send(frame(FrameType.DATA, flags=last, stream=2 * number + 1, payload=part))
            until(lambda stream=2 * number + 1: _status(peer, stream) == 0, "the put")  # type: ignore[misc]


@pytest.fixture(scope="module")
def bulk(server: QuoracyServer) -> None:
    fill(server)


BULK = rpc.RangeRequest(key=b"bulk/", range_end=b"bulk0").encode()


CALLS = range(1, 201, 2)


def test_responses_that_nobody_takes(server: QuoracyServer, bulk: None) -> None:
    """A window of nothing, for ever: a gigabyte of answers is asked for and must not be made."""
    with Peer(server.port, settings={Setting.INITIAL_WINDOW_SIZE: 0}) as peer:
        for stream in CALLS:
            peer.send(peer.call(RANGE, BULK, stream=stream))
        serve_others(server)
        # Whoever opens the window gets all of them.
        grown = struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, 2**31 - 1)
        peer.send(frame(FrameType.SETTINGS, payload=grown) + window_update(0, 2**30))
        until(lambda: _status(peer, CALLS[0]) == StatusCode.OK, "the first answer")


def test_responses_that_are_not_read(server: QuoracyServer, bulk: None) -> None:
    """All the window there is, and a socket nobody reads."""
    settings = {Setting.INITIAL_WINDOW_SIZE: 2**31 - 1}
    with Peer(server.port, settings=settings, reads=False) as peer:
        peer.send(window_update(0, 2**31 - 1 - 65_535))
        peer.send(b"".join(peer.call(RANGE, BULK, stream=stream) for stream in CALLS))
        serve_others(server)


def serve_others(server: QuoracyServer) -> None:
    """Calls on another connection: when they are answered, what came before them was looked at."""
    with Peer(server.port) as peer:
        for stream in range(1, 101, 2):
            peer.send(peer.call(RANGE, rpc.RangeRequest(key=b"any").encode(), stream=stream))
            until(lambda stream=stream: _status(peer, stream) is not None, "an answer")  # type: ignore[misc]
