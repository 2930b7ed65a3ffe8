"""gRPC's own layer: framing, deadlines, statuses, compression."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.wire.grpc import (
    GrpcError,
    MessageReader,
    StatusCode,
    format_timeout,
    frame,
    parse_timeout_s,
    read_request_head,
    request_head,
    status_from_headers,
    status_trailers,
    trailers_only,
)
from quoracy.wire.http2 import Connection, HeaderBlock, HeadersReceived, TrailersReceived

LIMIT = 1_000


def decoded(block: bytes, *, trailers: bool = False) -> HeaderBlock:
    """A header block as the other side of a connection sees it."""
    client, server = Connection(client_side=True), Connection(client_side=False)
    client.start()
    server.start()
    stream = client.next_stream_id()
    client.send_headers(stream, request_head("/s/m", "here"), end_stream=True)
    server.receive(client.data_to_send(), now=0.0)
    if trailers:
        server.send_headers(stream, trailers_only(StatusCode.OK))
    server.send_headers(stream, block, end_stream=True)
    kind = TrailersReceived if trailers else HeadersReceived
    (event,) = (e for e in client.receive(server.data_to_send(), now=0.0) if isinstance(e, kind))
    return event.headers


def request(block: bytes) -> HeaderBlock:
    client, server = Connection(client_side=True), Connection(client_side=False)
    client.start()
    server.start()
    client.send_headers(client.next_stream_id(), block, end_stream=True)
    events = server.receive(client.data_to_send(), now=0.0)
    (event,) = (event for event in events if isinstance(event, HeadersReceived))
    return event.headers


@given(st.lists(st.binary(max_size=50)), st.data())
def test_messages_arrive_whole_however_they_are_cut(messages: list[bytes], data: st.DataObject) -> None:
    reader, received = MessageReader(LIMIT), []
    wire = b"".join(map(frame, messages))
    while wire:
        size = data.draw(st.integers(1, len(wire)))
        received += reader.feed(wire[:size])
        wire = wire[size:]
    reader.finish()
    assert received == messages


def test_a_length_over_the_limit_is_refused_before_its_bytes_are_there() -> None:
    with pytest.raises(GrpcError) as refused:
        MessageReader(LIMIT).feed(b"\0\xff\xff\xff\xff")
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.message == "grpc: received message larger than max (4294967295 vs. 1000)"


def test_a_stream_that_ends_inside_a_message_is_an_error() -> None:
    reader = MessageReader(LIMIT)
    assert reader.feed(frame(b"abc")[:-1]) == []
    with pytest.raises(GrpcError, match="inside a message"):
        reader.finish()


def test_gzip_is_understood() -> None:
    packed = gzip.compress(b"hello")
    assert MessageReader(LIMIT, b"gzip").feed(b"\1" + len(packed).to_bytes(4, "big") + packed) == [
        b"hello"
    ]


def test_a_deflate_bomb_is_refused_when_it_has_unpacked_too_much() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(bytes(1 << 19)) + packer.flush()
    assert len(packed) < LIMIT
    with pytest.raises(GrpcError) as refused:
        MessageReader(LIMIT, b"gzip").feed(b"\1" + len(packed).to_bytes(4, "big") + packed)
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("encoding", [None, b"identity", b"snappy"])
def test_compression_that_was_not_announced_is_refused(encoding: bytes | None) -> None:
    with pytest.raises(GrpcError) as refused:
        MessageReader(LIMIT, encoding).feed(b"\1\0\0\0\1x")
    assert refused.value.code is StatusCode.INTERNAL


@given(st.binary(max_size=100))
def test_no_gzip_but_a_grpc_error_comes_of_any_bytes(packed: bytes) -> None:
    try:
        MessageReader(LIMIT, b"gzip").feed(b"\1" + len(packed).to_bytes(4, "big") + packed)
    except GrpcError as error:
        assert error.code in (StatusCode.INTERNAL, StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"99999999n", 0.099999999)],
)
def test_timeouts_are_read_in_every_unit(text: bytes, seconds: float) -> None:
    assert parse_timeout_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [b"", b"1", b"S", b"123456789S", b"-1S", b"1.5S", b"1 S", "\N{DEVANAGARI DIGIT ONE}S".encode()],
)
def test_what_is_no_timeout_is_refused(text: bytes) -> None:
    with pytest.raises(GrpcError):
        parse_timeout_s(text)


@given(st.floats(0, 1e9))
def test_a_timeout_is_sent_no_longer_than_it_is(seconds: float) -> None:
    told = parse_timeout_s(format_timeout(seconds))
    assert told <= seconds * (1 + 1e-9)
    assert told >= min(seconds, 99_999_999) * 0.98 - 1e-5


@given(st.sampled_from(StatusCode), st.text(max_size=50))
def test_a_status_arrives_as_it_was_sent(code: StatusCode, message: str) -> None:
    expected = (code, message.encode("utf-8", "replace").decode())
    assert status_from_headers(decoded(status_trailers(code, message), trailers=True)) == expected
    assert status_from_headers(decoded(trailers_only(code, message))) == expected


def test_a_call_says_what_it_wants() -> None:
    head = read_request_head(
        request(request_head("/p.S/M", "host:1", timeout_s=1.5, metadata=((b"token", b"secret"),)))
    )
    assert head is not None
    assert (head.path, head.timeout_s, head.encoding, head.authorization, head.fault) == (
        "/p.S/M",
        1.5,
        None,
        b"secret",
        None,
    )


def test_an_unknown_compression_is_refused_politely() -> None:
    head = read_request_head(
        request(request_head("/p.S/M", "h", metadata=((b"grpc-encoding", b"br"),)))
    )
    assert head is not None
    assert head.fault is not None
    assert head.fault.code is StatusCode.UNIMPLEMENTED
