"""Windows, both ways (RFC 9113, section 5.2 and 6.9)."""

from __future__ import annotations

import pytest

from quoracy.wire.http2 import (
    Connection,
    DataReceived,
    ErrorCode,
    Http2Limits,
    SettingsReceived,
    StreamDrained,
    StreamReset,
    encode_headers,
)
from quoracy.wire.http2.codes import PREFACE, FrameType, Setting
from tests.unit.wire.http2.peer import (
    END_HEADERS,
    END_STREAM,
    REQUEST,
    RESPONSE,
    SETTINGS_ACK,
    TRAILERS,
    WHOLE,
    Frame,
    assert_broken,
    assert_ended,
    call,
    client,
    data,
    headers,
    initial_window,
    rst_stream,
    sent,
    server,
    settings,
    tell,
    window_update,
)

HEAD_BLOCK = encode_headers(RESPONSE)
TRAILER_BLOCK = encode_headers(TRAILERS)
MAX = 2**31 - 1


def streaming(connection: Connection, *stream_ids: int) -> Connection:
    """A server's connection with these streams open and their heads sent."""
    for stream_id in stream_ids:
        tell(connection, headers(stream_id, flags=WHOLE))
        connection.send_headers(stream_id, HEAD_BLOCK)
    connection.data_to_send()
    return connection


def sizes(found: list[Frame]) -> list[tuple[int, int]]:
    return [(each.stream_id, len(each.payload)) for each in found if each.kind == FrameType.DATA]


# ---- Sending


def test_data_beyond_the_stream_s_window_waits_for_it() -> None:
    connection = streaming(server(peer_settings=initial_window(10)), 1)
    assert connection.send_data(1, b"0123456789abcdef")
    assert sizes(sent(connection)) == [(1, 10)]
    assert connection.pending(1) == connection.pending_total == 6
    assert tell(connection, window_update(1, 2)) == []
    assert sizes(sent(connection)) == [(1, 2)]
    assert tell(connection, window_update(1, 100)) == [StreamDrained(1)]
    assert [each.payload for each in sent(connection)] == [b"cdef"]
    assert connection.pending(1) == connection.pending_total == 0


def test_data_beyond_the_connection_s_window_waits_for_it() -> None:
    connection = streaming(server(peer_settings=initial_window(100_000)), 1, 3)
    connection.send_data(1, bytes(65_530))
    connection.send_data(3, bytes(10))
    assert sum(size for _, size in sizes(sent(connection))) == 65_535
    assert (connection.pending(1), connection.pending(3)) == (0, 5)
    assert tell(connection, window_update(3, 100)) == []
    assert sent(connection) == []
    assert tell(connection, window_update(0, 100)) == [StreamDrained(3)]
    assert sizes(sent(connection)) == [(3, 5)]


def test_data_is_cut_into_frames_the_peer_takes() -> None:
    peer = initial_window(MAX) + window_update(0, 10_000_000)
    connection = streaming(server(peer_settings=peer), 1)
    connection.send_data(1, bytes(40_000), end_stream=True)
    assert [(each.flags, len(each.payload)) for each in sent(connection)] == [
        (0, 16_384),
        (0, 16_384),
        (END_STREAM, 7_232),
    ]


def test_larger_frames_are_used_when_the_peer_takes_them() -> None:
    peer = settings((Setting.MAX_FRAME_SIZE, 30_000)) + initial_window(MAX)
    connection = streaming(server(peer_settings=peer), 1)
    connection.send_data(1, bytes(40_000))
    assert sizes(sent(connection)) == [(1, 30_000), (1, 10_000)]


def test_streams_that_wait_take_turns() -> None:
    peer = initial_window(MAX)
    connection = streaming(server(peer_settings=peer), 1, 3, 5)
    connection.send_data(1, bytes(65_535))
    for stream_id in (1, 3, 5):
        connection.send_data(stream_id, bytes(40_000))
    connection.data_to_send()
    tell(connection, window_update(0, 16_384 * 4))
    assert sizes(sent(connection)) == [(1, 16_384), (3, 16_384), (5, 16_384), (1, 16_384)]


def test_trailers_wait_behind_the_data() -> None:
    connection = streaming(server(peer_settings=initial_window(3)), 1)
    connection.send_data(1, b"abcde")
    assert connection.send_headers(1, TRAILER_BLOCK, end_stream=True)
    assert not connection.send_data(1, b"after the end")
    assert sizes(sent(connection)) == [(1, 3)]
    assert connection.is_open(1)
    assert tell(connection, window_update(1, 3)) == [StreamDrained(1)]
    body, trailers = sent(connection)
    assert (body.payload, body.flags) == (b"de", 0)
    assert (trailers.kind, trailers.flags) == (FrameType.HEADERS, WHOLE)
    assert not connection.is_open(1)


@pytest.mark.parametrize("end_with_data", [True, False])
def test_end_waits_behind_the_data(end_with_data: bool) -> None:
    connection = streaming(server(peer_settings=initial_window(3)), 1)
    if end_with_data:
        connection.send_data(1, b"abcde", end_stream=True)
    else:
        connection.send_data(1, b"abcde")
        connection.send_data(1, b"", end_stream=True)
    connection.data_to_send()
    tell(connection, window_update(1, 3))
    assert sent(connection) == [Frame(FrameType.DATA, END_STREAM, 1, b"de")]
    assert connection.open_streams == 0


def test_end_without_data_needs_no_window() -> None:
    connection = streaming(server(peer_settings=initial_window(0)), 1, 3)
    assert connection.send_data(1, b"", end_stream=True)
    assert connection.send_headers(3, TRAILER_BLOCK, end_stream=True)
    assert [each.flags for each in sent(connection)] == [END_STREAM, WHOLE]
    assert connection.open_streams == 0


def test_empty_data_that_ends_nothing_is_not_sent() -> None:
    connection = streaming(server(), 1)
    assert connection.send_data(1, b"")
    assert connection.data_to_send() == b""


@pytest.mark.parametrize("window", [0, 5, 1_000])
def test_whole_response_arrives_whatever_the_window(window: int) -> None:
    connection = server(peer_settings=initial_window(window))
    tell(connection, headers(1, flags=WHOLE))
    assert connection.send_response(1, HEAD_BLOCK, b"0123456789", TRAILER_BLOCK)
    assert connection.pending(1) == max(0, 10 - window)
    tell(connection, window_update(1, 1_000)) if window < 10 else None
    found = sent(connection)
    assert b"".join(each.payload for each in found if each.kind == FrameType.DATA) == b"0123456789"
    assert (found[0].kind, found[0].flags) == (FrameType.HEADERS, END_HEADERS)
    assert (found[-1].kind, found[-1].flags) == (FrameType.HEADERS, WHOLE)
    assert connection.open_streams == 0


@pytest.mark.parametrize("window", [0, 5, 100, 1_000])
@pytest.mark.parametrize("header_bytes", [10, 40_000])
def test_whole_request_is_sent_as_its_parts_are(window: int, header_bytes: int) -> None:
    block = encode_headers((*REQUEST, (b"a", b"x" * header_bytes)))
    whole, parts = (client(peer_settings=initial_window(window)) for _ in range(2))
    for body in (b"0123456789", bytes(200)):
        stream_id = whole.next_stream_id()
        assert whole.send_request(stream_id, block, body)
        assert parts.next_stream_id() == stream_id
        parts.send_headers(stream_id, block)
        parts.send_data(stream_id, body, end_stream=True)
        assert whole.pending(stream_id) == parts.pending(stream_id)
        for connection in (whole, parts):
            tell(connection, window_update(stream_id, 1_000)) if connection.pending(stream_id) else None
        assert whole.data_to_send() == parts.data_to_send()
        assert not whole.send_data(stream_id, b"more")
    assert whole.pending_total == 0


def test_requests_share_the_connection_s_window() -> None:
    connection = client()
    block = encode_headers(REQUEST)
    waiting = []
    for _ in range(5):
        stream_id = connection.next_stream_id()
        assert connection.send_request(stream_id, block, bytes(15_000))
        waiting.append(connection.pending(stream_id))
    assert waiting == [0, 0, 0, 0, 75_000 - 65_535]


def test_no_request_is_sent_on_a_stream_that_is_not_new() -> None:
    connection = client()
    stream_id = connection.next_stream_id()
    assert connection.send_request(stream_id, encode_headers(REQUEST), b"x")
    connection.data_to_send()
    assert not connection.send_request(stream_id, encode_headers(REQUEST), b"x")
    assert connection.data_to_send() == b""


def test_reset_drops_what_waits() -> None:
    connection = streaming(server(peer_settings=initial_window(0)), 1, 3)
    connection.send_data(1, bytes(10))
    connection.send_data(3, bytes(20))
    connection.reset(1, ErrorCode.CANCEL)
    assert connection.pending_total == 20
    assert tell(connection, rst_stream(3)) == [StreamReset(3, ErrorCode.CANCEL)]
    assert connection.pending_total == 0
    connection.data_to_send()
    assert tell(connection, initial_window(100)) == [SettingsReceived()]
    assert sizes(sent(connection)) == []


def test_reset_stream_does_not_wait_for_the_connection_s_window_any_more() -> None:
    connection = streaming(server(peer_settings=initial_window(100_000)), 1, 3)
    connection.send_data(1, bytes(70_000))
    connection.send_data(3, b"x")
    tell(connection, rst_stream(1))
    connection.data_to_send()
    assert tell(connection, window_update(0, 10)) == [StreamDrained(3)]
    assert sizes(sent(connection)) == [(3, 1)]


def test_initial_window_changes_open_streams_too() -> None:
    connection = streaming(server(peer_settings=initial_window(10)), 1)
    connection.send_data(1, bytes(30))
    assert sizes(sent(connection)) == [(1, 10)]
    assert tell(connection, initial_window(15)) == [SettingsReceived()]
    assert sizes(sent(connection)) == [(1, 5)]


def test_window_may_become_negative_and_must_come_back() -> None:
    connection = streaming(server(peer_settings=initial_window(10)), 1)
    connection.send_data(1, bytes(12))
    tell(connection, initial_window(2))  # 8 below zero now
    connection.data_to_send()
    tell(connection, window_update(1, 8))
    assert sizes(sent(connection)) == []
    assert tell(connection, window_update(1, 5)) == [StreamDrained(1)]
    assert sizes(sent(connection)) == [(1, 2)]


def test_stream_that_waits_for_the_connection_stops_when_its_own_window_closes() -> None:
    connection = streaming(server(peer_settings=initial_window(70_000)), 1)
    connection.send_data(1, bytes(66_000))
    connection.data_to_send()
    tell(connection, initial_window(0))
    connection.data_to_send()
    assert tell(connection, window_update(0, 1_000)) == []
    assert sent(connection) == []
    assert tell(connection, initial_window(70_000))[-1] == StreamDrained(1)


def test_too_large_a_window_of_a_stream_costs_the_stream() -> None:
    connection = streaming(server(), 1)
    events = tell(connection, window_update(1, MAX))
    assert_broken(connection, events, 1, ErrorCode.FLOW_CONTROL_ERROR)


def test_window_of_a_stream_may_be_as_large_as_the_protocol_allows() -> None:
    connection = streaming(server(), 1)
    assert tell(connection, window_update(1, MAX - 65_535)) == []
    events = tell(connection, window_update(1, 1))
    assert_broken(connection, events, 1, ErrorCode.FLOW_CONTROL_ERROR)


def test_window_update_by_nothing_costs_the_stream() -> None:
    connection = streaming(server(), 1)
    assert_broken(connection, tell(connection, window_update(1, 0)), 1, ErrorCode.PROTOCOL_ERROR)


def test_too_large_a_window_of_the_connection_ends_it() -> None:
    connection = server()
    events = tell(connection, window_update(0, MAX - 65_535))
    assert events == []
    assert_ended(connection, tell(connection, window_update(0, 1)), ErrorCode.FLOW_CONTROL_ERROR)


def test_initial_window_that_makes_a_stream_s_too_large_ends_the_connection() -> None:
    connection = streaming(server(), 1)
    tell(connection, window_update(1, 1))
    events = tell(connection, initial_window(MAX))
    assert_ended(connection, events, ErrorCode.FLOW_CONTROL_ERROR)


# ---- Receiving


def test_window_is_given_back_when_half_of_it_is_consumed() -> None:
    limits = Http2Limits(stream_window=1_000, connection_window=100_000)
    connection = server(limits)
    tell(connection, headers(1), data(1, bytes(900)))
    connection.consumed(1, 499)
    assert sent(connection) == []
    connection.consumed(1, 401)
    assert sent(connection) == [Frame(FrameType.WINDOW_UPDATE, 0, 1, (900).to_bytes(4, "big"))]
    (event,) = tell(connection, data(1, bytes(1_000)))
    assert isinstance(event, DataReceived)


def test_connection_s_window_is_given_back_also_for_streams_that_are_gone() -> None:
    limits = Http2Limits(stream_window=60_000, connection_window=70_000)
    connection = server(limits)
    tell(connection, headers(1), *(data(1, bytes(10_000)) for _ in range(4)), rst_stream(1))
    connection.consumed(1, 40_000)
    assert sent(connection) == [Frame(FrameType.WINDOW_UPDATE, 0, 0, (40_000).to_bytes(4, "big"))]


def test_ended_stream_gets_no_window_back() -> None:
    connection = server(Http2Limits(stream_window=1_000))
    tell(connection, headers(1), data(1, bytes(900), END_STREAM))
    connection.consumed(1, 900)
    assert sent(connection) == []


def test_data_that_nobody_gets_is_given_back_by_itself() -> None:
    limits = Http2Limits(stream_window=60_000, connection_window=70_000)
    connection = server(limits)
    tell(connection, headers(1))
    connection.reset(1, ErrorCode.CANCEL)
    sent(connection)
    for _ in range(20):
        assert tell(connection, data(1, bytes(16_000))) == []
    given = [int.from_bytes(each.payload, "big") for each in sent(connection, FrameType.WINDOW_UPDATE)]
    assert sum(given) >= 20 * 16_000 - 35_000


@pytest.mark.parametrize("length", [b"0", None])
def test_data_that_cost_its_stream_is_given_back_by_itself(length: bytes | None) -> None:
    """Beyond its content-length, or beyond the stream's window."""
    limits = Http2Limits(stream_window=1_000, connection_window=70_000)
    connection = server(limits)
    extra = ((b"content-length", length),) if length is not None else ()
    size = 1_000 if length is not None else 1_001
    for stream_id in range(1, 400, 2):
        tell(connection, headers(stream_id, (*REQUEST, *extra)), data(stream_id, bytes(size)))
    given = [int.from_bytes(each.payload, "big") for each in sent(connection, FrameType.WINDOW_UPDATE)]
    assert sum(given) >= 200 * size - 35_000


def test_data_beyond_the_stream_s_window_costs_the_stream() -> None:
    connection = server(Http2Limits(stream_window=1_000))
    tell(connection, headers(1), data(1, bytes(1_000)))
    events = tell(connection, data(1, b"x"))
    assert_broken(connection, events, 1, ErrorCode.FLOW_CONTROL_ERROR)


def test_data_beyond_the_connection_s_window_ends_it() -> None:
    limits = Http2Limits(stream_window=1_000_000, connection_window=65_535)
    connection = server(limits)
    tell(connection, headers(1), *(data(1, bytes(16_000)) for _ in range(4)))
    events = tell(connection, data(1, bytes(1_536)))
    assert_ended(connection, events, ErrorCode.FLOW_CONTROL_ERROR)


def test_small_window_applies_once_the_peer_acknowledged_it() -> None:
    connection = Connection(client_side=False, limits=Http2Limits(stream_window=100))
    connection.start()
    events = tell(connection, PREFACE, settings(), headers(1), headers(3), data(1, bytes(5_000)))
    assert isinstance(events[-1], DataReceived)  # 65,535 bytes until the peer knows better
    tell(connection, data(3, bytes(60)), SETTINGS_ACK)
    connection.data_to_send()
    # Stream 1 is 4,900 bytes over: it may send again when that was consumed.
    events = tell(connection, data(3, bytes(40)))
    assert isinstance(events[-1], DataReceived)
    connection.consumed(1, 5_000)
    assert sent(connection) == [Frame(FrameType.WINDOW_UPDATE, 0, 1, (5_000).to_bytes(4, "big"))]
    events = tell(connection, data(1, bytes(100)))
    assert isinstance(events[-1], DataReceived)
    assert_broken(connection, tell(connection, data(1, b"x")), 1, ErrorCode.FLOW_CONTROL_ERROR)


def test_client_s_windows_work_the_same_way() -> None:
    connection = client(Http2Limits(stream_window=1_000))
    stream_id = call(connection)
    tell(connection, headers(stream_id, RESPONSE), data(stream_id, bytes(1_000)))
    connection.consumed(stream_id, 1_000)
    assert [each.stream_id for each in sent(connection, FrameType.WINDOW_UPDATE)] == [stream_id]
    tell(connection, data(stream_id, bytes(1_000)))
    events = tell(connection, data(stream_id, b"x"))
    assert_broken(connection, events, stream_id, ErrorCode.FLOW_CONTROL_ERROR)


# ---- Headers to send


def test_large_header_block_is_cut_into_frames() -> None:
    connection = server()
    tell(connection, headers(1, flags=WHOLE))
    block = encode_headers((*RESPONSE, (b"a", b"x" * 40_000)))
    assert connection.send_response(1, block, b"y", TRAILER_BLOCK)
    found = sent(connection)
    assert [(each.kind, each.flags) for each in found] == [
        (FrameType.HEADERS, 0),
        (FrameType.CONTINUATION, 0),
        (FrameType.CONTINUATION, END_HEADERS),
        (FrameType.DATA, 0),
        (FrameType.HEADERS, WHOLE),
    ]
    assert b"".join(each.payload for each in found[:3]) == block
    assert max(len(each.payload) for each in found) == 16_384


def test_peer_with_a_small_hpack_table_hears_once_that_ours_is_empty() -> None:
    connection = server(peer_settings=settings((Setting.HEADER_TABLE_SIZE, 0)))
    for stream_id in (1, 3):
        tell(connection, headers(stream_id, flags=WHOLE))
        connection.send_response(stream_id, HEAD_BLOCK, b"", TRAILER_BLOCK)
    blocks = [each.payload for each in sent(connection, FrameType.HEADERS)]
    assert blocks == [b"\x20" + HEAD_BLOCK, TRAILER_BLOCK, HEAD_BLOCK, TRAILER_BLOCK]
