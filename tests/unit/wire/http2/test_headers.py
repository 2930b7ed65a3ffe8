"""Which lists of headers are messages (RFC 9113, section 8), and what the application sees of them."""

from __future__ import annotations

import pytest

from quoracy.wire.http2 import (
    DataReceived,
    ErrorCode,
    HeadersReceived,
    Http2Limits,
    TrailersReceived,
    encode_headers,
)
from quoracy.wire.http2.codes import FrameType
from tests.unit.wire.http2.peer import (
    END_STREAM,
    REQUEST,
    RESPONSE,
    TRAILERS,
    WHOLE,
    Pairs,
    assert_broken,
    assert_ended,
    call,
    client,
    data,
    frame,
    headers,
    server,
    tell,
)

METHOD, SCHEME, PATH, AUTHORITY = REQUEST[:4]


def test_request_s_pseudo_headers_are_attributes() -> None:
    connection = server()
    (event,) = tell(connection, headers(1))
    assert isinstance(event, HeadersReceived)
    block = event.headers
    assert (block.method, block.scheme, block.path) == (b"POST", b"http", b"/etcdserverpb.KV/Put")
    assert (block.authority, block.status) == (b"localhost:2379", None)
    assert block.get(b"content-type") == b"application/grpc"
    assert block.get(b"nothing") is None
    assert block.pairs == REQUEST


def test_same_block_gives_the_same_object_with_its_note() -> None:
    connection = server()
    first, second = tell(connection, headers(1), headers(3))
    assert isinstance(first, HeadersReceived)
    assert isinstance(second, HeadersReceived)
    first.headers.note = "derived"
    assert second.headers is first.headers
    assert second.headers.note == "derived"


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param((SCHEME, PATH), id="no method"),
        pytest.param((METHOD, PATH), id="no scheme"),
        pytest.param((METHOD, SCHEME), id="no path"),
        pytest.param((METHOD, SCHEME, (b":path", b"")), id="empty path"),
        pytest.param((METHOD, SCHEME, (b":path", b"relative")), id="relative path"),
        pytest.param((METHOD, SCHEME, (b":path", b"*")), id="asterisk with POST"),
        pytest.param((METHOD, METHOD, SCHEME, PATH), id="two methods"),
        pytest.param((METHOD, SCHEME, PATH, PATH), id="two paths"),
        pytest.param((METHOD, SCHEME, PATH, (b":status", b"200")), id="status"),
        pytest.param((METHOD, SCHEME, PATH, (b":protocol", b"websocket")), id="protocol"),
        pytest.param((METHOD, SCHEME, PATH, (b":", b"")), id="nameless pseudo header"),
        pytest.param((METHOD, SCHEME, (b"a", b"b"), PATH), id="pseudo header late"),
        pytest.param(((b"a", b"b"),), id="no pseudo header"),
        pytest.param((), id="nothing"),
        pytest.param((*REQUEST, (b"Upper", b"")), id="upper case"),
        pytest.param((*REQUEST, (b"", b"x")), id="empty name"),
        pytest.param((*REQUEST, (b"a b", b"x")), id="space in name"),
        pytest.param((*REQUEST, (b"a:b", b"x")), id="colon in name"),
        pytest.param((*REQUEST, (b"\xe4", b"x")), id="name not ASCII"),
        pytest.param((*REQUEST, (b"a", b"x\r\nb: y")), id="line end in value"),
        pytest.param((*REQUEST, (b"a", b"x\x00")), id="NUL in value"),
        pytest.param((*REQUEST, (b"a", b" x")), id="space before value"),
        pytest.param((*REQUEST, (b"a", b"x\t")), id="tab after value"),
        pytest.param((*REQUEST, (b"connection", b"close")), id="connection"),
        pytest.param((*REQUEST, (b"keep-alive", b"1")), id="keep-alive"),
        pytest.param((*REQUEST, (b"proxy-connection", b"close")), id="proxy-connection"),
        pytest.param((*REQUEST, (b"transfer-encoding", b"chunked")), id="transfer-encoding"),
        pytest.param((*REQUEST, (b"transfer-encoding", b"")), id="transfer-encoding, static entry"),
        pytest.param((*REQUEST, (b"upgrade", b"h2c")), id="upgrade"),
        pytest.param((*REQUEST, (b"te", b"gzip")), id="te"),
        pytest.param((*REQUEST, (b"content-length", b"")), id="no length"),
        pytest.param((*REQUEST, (b"content-length", b"-1")), id="negative length"),
        pytest.param((*REQUEST, (b"content-length", b"1e3")), id="length not a number"),
        pytest.param((*REQUEST, (b"content-length", b"9" * 19)), id="length too long"),
        pytest.param(
            (*REQUEST, (b"content-length", b"3"), (b"content-length", b"4")), id="two lengths"
        ),
        pytest.param(((b":method", b"CONNECT"), SCHEME, PATH, AUTHORITY), id="CONNECT with path"),
        pytest.param(((b":method", b"CONNECT"),), id="CONNECT to nowhere"),
    ],
)
def test_malformed_request_costs_its_stream_and_nobody_sees_it(pairs: Pairs) -> None:
    connection = server()
    events = tell(connection, headers(1, pairs))
    assert events == []
    assert_broken(connection, events, 1, ErrorCode.PROTOCOL_ERROR, told=False)


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param(((b":method", b"OPTIONS"), SCHEME, (b":path", b"*")), id="asterisk"),
        pytest.param(((b":method", b"CONNECT"), AUTHORITY), id="CONNECT"),
        pytest.param((METHOD, SCHEME, PATH), id="no authority"),
        pytest.param((PATH, SCHEME, METHOD), id="any order"),
        pytest.param((*REQUEST, (b"a", b"")), id="empty value"),
        pytest.param((*REQUEST, (b"a", b"\xff\x80 z")), id="bytes in value"),
        pytest.param((*REQUEST, (b"te", b"Trailers")), id="te in any case"),
        pytest.param((*REQUEST, (b"a-bin", b"AAEC"), (b"a-bin", b"AA")), id="name twice"),
        pytest.param(
            (*REQUEST, (b"content-length", b"0"), (b"content-length", b"00")), id="same length twice"
        ),
    ],
)
def test_unusual_but_legal_request_is_taken(pairs: tuple[tuple[bytes, bytes], ...]) -> None:
    connection = server()
    (event,) = tell(connection, headers(1, pairs))
    assert isinstance(event, HeadersReceived)
    assert event.headers.pairs == pairs


@pytest.mark.parametrize(
    "pairs",
    [
        ((b":status", b"20"),),
        ((b":status", b"2000"),),
        ((b":status", b"abc"),),
        ((b":status", b"999"),),
        ((b":status", b"101"),),
        ((b":status", b"200"), (b":status", b"200")),
        ((b":status", b"200"), METHOD),
        (METHOD,),
        ((b"a", b"b"),),
        ((b"a", b"b"), (b":status", b"200")),
        ((b":status", b"200"), (b"connection", b"close")),
    ],
)
def test_malformed_response_costs_its_stream(pairs: Pairs) -> None:
    connection = client()
    stream_id = call(connection)
    events = tell(connection, headers(stream_id, pairs))
    assert_broken(connection, events, stream_id, ErrorCode.PROTOCOL_ERROR)


def test_value_of_a_response_may_end_with_a_space_as_grpc_go_sends_it() -> None:
    connection = client()
    stream_id = call(connection)
    pairs = ((b":status", b"200"), (b"grpc-status", b"5"), (b"grpc-message", b"no such key: "))
    (event,) = tell(connection, headers(stream_id, pairs, WHOLE))
    assert isinstance(event, HeadersReceived)
    assert event.headers.pairs == pairs


def test_informational_heads_are_skipped() -> None:
    connection = client()
    stream_id = call(connection)
    hints = headers(stream_id, ((b":status", b"103"), (b"link", b"x")))
    events = tell(connection, hints, hints, headers(stream_id, RESPONSE))
    assert [type(each) for each in events] == [HeadersReceived]
    assert isinstance(events[0], HeadersReceived)
    assert events[0].headers.status == b"200"


def test_informational_head_may_not_end_the_stream() -> None:
    connection = client()
    stream_id = call(connection)
    events = tell(connection, headers(stream_id, ((b":status", b"100"),), WHOLE))
    assert_broken(connection, events, stream_id, ErrorCode.PROTOCOL_ERROR)


# ---- Trailers


def test_trailers_end_the_stream() -> None:
    connection = server()
    events = tell(connection, headers(1), data(1, b"x"), headers(1, TRAILERS, WHOLE))
    assert isinstance(events[-1], TrailersReceived)
    assert events[-1].headers.pairs == TRAILERS
    # Our side is still open; once it ends, the stream is gone.
    assert connection.is_open(1)
    assert connection.send_headers(1, encode_headers(RESPONSE), end_stream=True)
    assert not connection.is_open(1)


@pytest.mark.parametrize(
    ("pairs", "flags"),
    [
        (TRAILERS, WHOLE & ~END_STREAM),
        ((*TRAILERS, PATH), WHOLE),
        (REQUEST, WHOLE),
        (((b"Upper", b""),), WHOLE),
    ],
)
def test_broken_trailers_cost_their_stream(pairs: Pairs, flags: int) -> None:
    connection = server()
    tell(connection, headers(1))
    events = tell(connection, headers(1, pairs, flags))
    assert_broken(connection, events, 1, ErrorCode.PROTOCOL_ERROR)


# ---- Content-Length


def with_length(length: bytes) -> Pairs:
    return (*REQUEST, (b"content-length", length))


def test_body_of_the_announced_length_is_taken() -> None:
    connection = server()
    events = tell(
        connection,
        headers(1, with_length(b"5")),
        data(1, b"he"),
        data(1, b"llo", END_STREAM),
        headers(3, with_length(b"5")),
        data(3, b"hello"),
        headers(3, TRAILERS, WHOLE),
        headers(5, with_length(b"0"), WHOLE),
    )
    assert len(events) == 7


@pytest.mark.parametrize(
    "rest",
    [
        data(1, b"hell", END_STREAM),
        data(1, b"hello!"),
        data(1, b"hello!", END_STREAM),
        data(1, b"", END_STREAM),
        headers(1, TRAILERS, WHOLE),
    ],
)
def test_body_of_another_length_costs_its_stream(rest: bytes) -> None:
    connection = server()
    tell(connection, headers(1, with_length(b"5")))
    assert_broken(connection, tell(connection, rest), 1, ErrorCode.PROTOCOL_ERROR)


def test_length_without_a_body_is_malformed() -> None:
    connection = server()
    events = tell(connection, headers(1, with_length(b"5"), WHOLE))
    assert_broken(connection, events, 1, ErrorCode.PROTOCOL_ERROR, told=False)


@pytest.mark.parametrize("status", [b"304", b"204", b"200"])
def test_response_without_a_body_may_speak_of_its_length(status: bytes) -> None:
    connection = client()
    stream_id = call(connection)
    pairs = ((b":status", status), (b"content-length", b"5"))
    (event,) = tell(connection, headers(stream_id, pairs, WHOLE))
    assert isinstance(event, HeadersReceived)


@pytest.mark.parametrize("status", [b"304", b"204"])
def test_bodiless_response_may_end_with_empty_data(status: bytes) -> None:
    connection = client()
    stream_id = call(connection)
    head = headers(stream_id, ((b":status", status), (b"content-length", b"5")))
    events = tell(connection, head, data(stream_id, b"", END_STREAM))
    assert isinstance(events[-1], DataReceived)


# ---- Limits


def test_header_list_over_the_limit_costs_its_stream_only() -> None:
    connection = server(Http2Limits(header_list_bytes_max=1_000))
    large = (*REQUEST, (b"a", b"x" * 1_000))
    events = tell(connection, headers(1, large))
    assert_broken(connection, events, 1, ErrorCode.ENHANCE_YOUR_CALM, told=False)


def test_too_many_headers_cost_their_stream_only() -> None:
    connection = server(Http2Limits(header_count_max=10))
    many = (*REQUEST, *((b"a", b"") for _ in range(5)))
    events = tell(connection, headers(1, many))
    assert_broken(connection, events, 1, ErrorCode.ENHANCE_YOUR_CALM, told=False)
    (event,) = tell(connection, headers(3, many[:10]))
    assert isinstance(event, HeadersReceived)


def test_oversize_block_still_counts_for_the_hpack_table() -> None:
    connection = server(Http2Limits(header_list_bytes_max=1_000))
    # Literal with indexing: a = b, after a field that makes the list too large.
    insert = encode_headers((*REQUEST, (b"big", b"x" * 1_000))) + b"\x40\x01a\x01b"
    tell(connection, frame(FrameType.HEADERS, WHOLE, 1, insert))
    use = encode_headers(REQUEST) + b"\xbe"
    (event,) = tell(connection, frame(FrameType.HEADERS, WHOLE, 3, use))
    assert isinstance(event, HeadersReceived)
    assert event.headers.get(b"a") == b"b"


def test_oversize_trailers_cost_their_stream() -> None:
    connection = server(Http2Limits(header_list_bytes_max=1_000))
    tell(connection, headers(1))
    events = tell(connection, headers(1, ((b"a", b"x" * 1_000),), WHOLE))
    assert_broken(connection, events, 1, ErrorCode.ENHANCE_YOUR_CALM)


def test_encoded_block_over_the_limit_ends_the_connection() -> None:
    connection = server(Http2Limits(header_block_bytes_max=1_000, frame_bytes_max=16_384))
    events = tell(connection, headers(1, (*REQUEST, (b"a", b"x" * 1_000))))
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)
