"""The life of a stream: ids, states, resets, the end of a connection."""

from __future__ import annotations

import pytest

from quoracy.wire.http2 import (
    DataReceived,
    ErrorCode,
    GoAwayReceived,
    HeadersReceived,
    Http2Limits,
    StreamReset,
    TrailersReceived,
    encode_headers,
)
from quoracy.wire.http2.codes import FrameType, Setting
from tests.unit.wire.http2.peer import (
    END_STREAM,
    REQUEST,
    RESPONSE,
    TRAILERS,
    WHOLE,
    Frame,
    assert_broken,
    assert_ended,
    call,
    client,
    data,
    goaway,
    headers,
    ping,
    rst_stream,
    sent,
    server,
    settings,
    tell,
    window_update,
)

HEAD_BLOCK = encode_headers(RESPONSE)
TRAILER_BLOCK = encode_headers(TRAILERS)


def test_call_from_beginning_to_end() -> None:
    ours, theirs = client(), server()
    stream_id = ours.next_stream_id()
    ours.send_headers(stream_id, encode_headers(REQUEST))
    ours.send_data(stream_id, b"question", end_stream=True)
    head, body = theirs.receive(ours.data_to_send(), now=0.0)
    assert isinstance(head, HeadersReceived)
    assert (head.headers.pairs, head.end_stream) == (REQUEST, False)
    assert body == DataReceived(stream_id, b"question", 8, True)
    assert theirs.send_response(stream_id, HEAD_BLOCK, b"answer", TRAILER_BLOCK)
    assert theirs.open_streams == 0
    head, body, trailers = ours.receive(theirs.data_to_send(), now=0.0)
    assert isinstance(head, HeadersReceived)
    assert isinstance(trailers, TrailersReceived)
    assert body == DataReceived(stream_id, b"answer", 6, False)
    assert (head.headers.pairs, trailers.headers.pairs) == (RESPONSE, TRAILERS)
    assert ours.open_streams == 0


# ---- Ids


@pytest.mark.parametrize("wrong", [headers(2), headers(4, flags=WHOLE)])
def test_client_may_not_open_even_streams(wrong: bytes) -> None:
    connection = server()
    assert_ended(connection, tell(connection, wrong), ErrorCode.PROTOCOL_ERROR)


def test_stream_ids_only_grow() -> None:
    connection = server()
    tell(connection, headers(7))
    assert_ended(connection, tell(connection, headers(5)), ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("stream_id", [2, 3])
def test_server_may_not_open_streams(stream_id: int) -> None:
    connection = client()
    call(connection)
    events = tell(connection, headers(stream_id, RESPONSE))
    assert_ended(connection, events, ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("wrong", [data(5, b"x"), rst_stream(5), window_update(5, 1), data(2, b"x")])
def test_idle_stream_takes_only_headers(wrong: bytes) -> None:
    connection = server()
    tell(connection, headers(1))
    assert_ended(connection, tell(connection, wrong), ErrorCode.PROTOCOL_ERROR)


def test_client_s_ids_are_odd_and_run_out() -> None:
    connection = client()
    assert [call(connection) for _ in range(3)] == [1, 3, 5]
    connection._next_stream_id = 2**31 - 1
    assert connection.can_open_stream
    assert call(connection) == 2**31 - 1
    assert not connection.can_open_stream


def test_streams_begin_in_the_order_of_their_ids() -> None:
    connection = client()
    first, second = connection.next_stream_id(), connection.next_stream_id()
    block = encode_headers(REQUEST)
    assert connection.send_headers(second, block)
    assert not connection.send_headers(first, block)
    assert not connection.send_headers(99, block)
    assert [each.stream_id for each in sent(connection)] == [second]


# ---- Limits on streams


def test_stream_over_the_limit_is_refused_and_the_others_go_on() -> None:
    connection = server(Http2Limits(streams_max=2))
    events = tell(connection, headers(1), headers(3), headers(5))
    assert len(events) == 2
    assert_broken(connection, events, 5, ErrorCode.REFUSED_STREAM, told=False)
    # What was under way on it is ignored.
    assert tell(connection, data(5, b"x", END_STREAM)) == []
    assert connection.send_response(1, HEAD_BLOCK, b"", TRAILER_BLOCK)
    tell(connection, data(1, b"", END_STREAM))
    (event,) = tell(connection, headers(7))
    assert isinstance(event, HeadersReceived)


def test_client_keeps_to_the_server_s_limit() -> None:
    connection = client(peer_settings=settings((Setting.MAX_CONCURRENT_STREAMS, 2)))
    first = call(connection)
    call(connection)
    allowed = [connection.can_open_stream]
    tell(connection, headers(first, RESPONSE, WHOLE))
    allowed.append(connection.can_open_stream)
    tell(connection, settings((Setting.MAX_CONCURRENT_STREAMS, 1)))
    allowed.append(connection.can_open_stream)
    assert allowed == [False, True, False]


# ---- Resets


def test_peer_s_reset_is_reported_and_the_stream_forgotten() -> None:
    connection = server()
    tell(connection, headers(1))
    assert tell(connection, rst_stream(1)) == [StreamReset(1, ErrorCode.CANCEL)]
    assert not connection.is_open(1)
    assert not connection.send_headers(1, HEAD_BLOCK)
    assert not connection.send_data(1, b"late")
    assert not connection.send_response(1, HEAD_BLOCK, b"", TRAILER_BLOCK)
    assert not connection.reset(1, ErrorCode.CANCEL)
    assert connection.data_to_send() == b""


def test_unknown_error_codes_stay_numbers() -> None:
    connection = server()
    assert tell(connection, headers(1), rst_stream(1, 0xABCD))[1:] == [StreamReset(1, 0xABCD)]


def test_reset_of_ours_is_sent_and_late_frames_are_ignored() -> None:
    connection = server()
    tell(connection, headers(1))
    assert connection.reset(1, ErrorCode.CANCEL)
    assert sent(connection) == [Frame(FrameType.RST_STREAM, 0, 1, bytes((0, 0, 0, 8)))]
    late = (data(1, b"x"), window_update(1, 5), headers(1, TRAILERS, WHOLE), rst_stream(1))
    assert tell(connection, *late) == []
    assert connection.data_to_send() == b""
    (event,) = tell(connection, headers(3))
    assert isinstance(event, HeadersReceived)


def test_only_recent_resets_are_remembered() -> None:
    connection = server(Http2Limits(recently_reset_max=2))
    for stream_id in (1, 3, 5):
        tell(connection, headers(stream_id))
        connection.reset(stream_id, ErrorCode.CANCEL)
    sent(connection)
    assert tell(connection, data(3, b"x"), data(5, b"x")) == []
    assert_broken(connection, tell(connection, data(1, b"x")), 1, ErrorCode.STREAM_CLOSED, told=False)


# ---- After the end


@pytest.mark.parametrize("late", [data(1, b"x"), headers(1, TRAILERS, WHOLE)])
def test_nothing_comes_after_the_end_of_a_request(late: bytes) -> None:
    connection = server()
    tell(connection, headers(1, flags=WHOLE))
    assert_broken(connection, tell(connection, late), 1, ErrorCode.STREAM_CLOSED)


@pytest.mark.parametrize("late", [data(1, b"x"), headers(1, TRAILERS, WHOLE), headers(1)])
@pytest.mark.parametrize("by_reset", [False, True])
def test_closed_stream_takes_nothing_more(late: bytes, by_reset: bool) -> None:
    connection = server()
    tell(connection, headers(1, flags=WHOLE))
    if by_reset:
        tell(connection, rst_stream(1))
    else:
        connection.send_response(1, HEAD_BLOCK, b"", TRAILER_BLOCK)
        sent(connection)
    assert_ended(connection, tell(connection, late), ErrorCode.STREAM_CLOSED)


def test_closed_stream_tolerates_what_may_have_been_under_way() -> None:
    connection = server()
    tell(connection, headers(1, flags=WHOLE))
    connection.send_response(1, HEAD_BLOCK, b"x", TRAILER_BLOCK)
    assert tell(connection, window_update(1, 1), rst_stream(1)) == []


def test_response_may_end_before_the_request() -> None:
    connection = server()
    tell(connection, headers(1))
    assert connection.send_response(1, HEAD_BLOCK, b"", TRAILER_BLOCK)
    assert connection.is_open(1)
    assert not connection.send_data(1, b"more")
    assert tell(connection, data(1, b"x", END_STREAM)) == [DataReceived(1, b"x", 1, True)]
    assert not connection.is_open(1)


def test_data_before_the_head_of_a_response_costs_the_stream() -> None:
    connection = client()
    stream_id = call(connection)
    events = tell(connection, data(stream_id, b"x"))
    assert_broken(connection, events, stream_id, ErrorCode.PROTOCOL_ERROR)


# ---- Goaway


def test_after_our_goaway_running_streams_go_on_and_new_ones_are_ignored() -> None:
    connection = server()
    tell(connection, headers(1))
    connection.goaway(debug=b"restarting")
    assert sent(connection) == [
        Frame(FrameType.GOAWAY, 0, 0, bytes((0, 0, 0, 1, 0, 0, 0, 0)) + b"restarting")
    ]
    new = (headers(3), data(3, b"x"), window_update(3, 5), headers(3, TRAILERS, WHOLE), rst_stream(3))
    assert tell(connection, *new) == []
    assert connection.data_to_send() == b""
    assert tell(connection, data(1, b"x", END_STREAM)) == [DataReceived(1, b"x", 1, True)]
    assert connection.send_response(1, HEAD_BLOCK, b"", TRAILER_BLOCK)
    assert connection.open_streams == 0


def test_second_goaway_does_not_raise_the_last_stream() -> None:
    connection = server()
    tell(connection, headers(1))
    connection.goaway()
    tell(connection, headers(3))
    connection.goaway(ErrorCode.INTERNAL_ERROR)
    assert [each.payload[:4] for each in sent(connection)] == [bytes((0, 0, 0, 1))] * 2


def test_client_learns_which_calls_the_server_did_not_look_at() -> None:
    connection = client()
    looked_at, unseen = call(connection), call(connection)
    events = tell(connection, goaway(looked_at))
    assert events == [
        GoAwayReceived(looked_at, ErrorCode.NO_ERROR, b""),
        StreamReset(unseen, ErrorCode.REFUSED_STREAM),
    ]
    assert not connection.can_open_stream
    assert connection.is_open(looked_at)
    # What the server had sent on the other before is ignored.
    assert tell(connection, headers(unseen, RESPONSE), data(unseen, b"x")) == []
    (event,) = tell(connection, headers(looked_at, RESPONSE, WHOLE))
    assert isinstance(event, HeadersReceived)


def test_stream_whose_id_was_taken_before_a_goaway_is_not_begun() -> None:
    connection = client()
    stream_id = connection.next_stream_id()
    tell(connection, goaway(0))
    assert not connection.send_headers(stream_id, encode_headers(REQUEST))
    assert connection.data_to_send() == b""


def test_everything_is_ignored_after_the_end_of_the_connection() -> None:
    connection = server()
    tell(connection, headers(1))
    assert_ended(connection, tell(connection, headers(2)), ErrorCode.PROTOCOL_ERROR)
    assert not connection.send_headers(1, HEAD_BLOCK)
    assert not connection.send_data(1, b"x")
    assert not connection.reset(1, ErrorCode.CANCEL)
    connection.ping(bytes(8))
    connection.goaway()
    connection.consumed(1, 0)
    assert connection.data_to_send() == b""


def test_reset_after_goaway_changes_nothing() -> None:
    connection = server()
    tell(connection, headers(1))
    connection.goaway()
    sent(connection)
    assert tell(connection, rst_stream(1)) == [StreamReset(1, ErrorCode.CANCEL)]
    assert tell(connection, rst_stream(1), ping()) == []
