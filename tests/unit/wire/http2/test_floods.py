"""Work that leads nowhere ends the connection; the habits of honest peers never do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from quoracy.wire.http2 import (
    Connection,
    ConnectionEnded,
    ErrorCode,
    Event,
    Http2Limits,
    encode_headers,
)
from quoracy.wire.http2.codes import FrameType, Setting
from tests.unit.wire.http2.peer import (
    ACK,
    BLOCK,
    END_STREAM,
    PADDED,
    REQUEST,
    RESPONSE,
    SETTINGS_ACK,
    TRAILERS,
    WHOLE,
    assert_ended,
    call,
    client,
    data,
    frame,
    goaway,
    headers,
    ping,
    priority,
    rst_stream,
    server,
    settings,
    tell,
    window_update,
)

HEAD_BLOCK = encode_headers(RESPONSE)
TRAILER_BLOCK = encode_headers(TRAILERS)
# Small budgets, so that a test ends soon; the defaults differ in numbers only.
LIMITS = Http2Limits(overhead_burst=500, resets_burst=200, streams_max=100)


def flood(connection: Connection, parts: Iterator[bytes], *, frames_max: int) -> list[Event]:
    """Sends until the connection ends, reading all it answers."""
    for number, part in enumerate(parts):
        assert number < frames_max, "the flood was not stopped"
        events = tell(connection, part, now=number / 10_000)
        if events and isinstance(events[-1], ConnectionEnded):
            return events
        connection.data_to_send()
    raise AssertionError("the flood dried up")


def ids() -> Iterator[int]:
    return count(1, 2)


def reset_by_peer() -> Iterator[bytes]:
    for stream_id in ids():
        yield headers(stream_id) + rst_stream(stream_id)


def reset_provoked_by_window() -> Iterator[bytes]:
    for stream_id in ids():
        yield headers(stream_id, flags=WHOLE) + window_update(stream_id, 0)


def reset_provoked_by_late_data() -> Iterator[bytes]:
    for stream_id in ids():
        yield headers(stream_id, flags=WHOLE) + data(stream_id, b"x")


def reset_provoked_by_priority() -> Iterator[bytes]:
    for stream_id in ids():
        yield headers(stream_id) + priority(stream_id, stream_id)


def malformed_requests() -> Iterator[bytes]:
    for stream_id in ids():
        yield headers(stream_id, TRAILERS)


def refused_streams() -> Iterator[bytes]:
    for stream_id in ids():
        yield headers(stream_id)


@pytest.mark.parametrize(
    "parts",
    [
        reset_by_peer,
        reset_provoked_by_window,
        reset_provoked_by_late_data,
        reset_provoked_by_priority,
        malformed_requests,
        refused_streams,
    ],
)
def test_streams_reset_faster_than_they_work_end_the_connection(parts: object) -> None:
    assert callable(parts)
    connection = server(LIMITS)
    events = flood(connection, parts(), frames_max=400)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def on_stream_1(part: bytes) -> Iterator[bytes]:
    yield headers(1)
    while True:
        yield part


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(ping(), id="ping"),
        pytest.param(ping(flags=ACK), id="ping acknowledgement"),
        pytest.param(settings(), id="settings"),
        pytest.param(settings((Setting.INITIAL_WINDOW_SIZE, 5)), id="same settings"),
        pytest.param(SETTINGS_ACK, id="settings acknowledgement"),
        pytest.param(data(1), id="empty data"),
        pytest.param(data(1, b"\x07" + bytes(7), PADDED), id="padding only"),
        pytest.param(priority(1, 3), id="priority"),
        pytest.param(priority(999, 3), id="priority of an idle stream"),
        pytest.param(window_update(1, 1), id="window by 1"),
        pytest.param(window_update(0, 1), id="connection's window by 1"),
        pytest.param(frame(0x10, 0, 0, b"\x00\x00\x00\x01u=1"), id="priority update"),
        pytest.param(frame(0xEE), id="unknown"),
        pytest.param(goaway(0), id="goaway"),
    ],
)
def test_frames_that_do_no_work_end_the_connection(part: bytes) -> None:
    connection = server(LIMITS)
    events = flood(connection, on_stream_1(part), frames_max=1_000)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


@pytest.mark.parametrize("part", [rst_stream(1), data(1), headers(1, TRAILERS, WHOLE)])
def test_frames_on_a_stream_we_reset_end_the_connection_when_they_do_not_stop(part: bytes) -> None:
    connection = server(LIMITS)
    tell(connection, headers(1))
    connection.reset(1, ErrorCode.CANCEL)
    events = flood(connection, iter([part] * 1_000), frames_max=1_000)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def test_informational_heads_without_end_end_the_connection() -> None:
    connection = client(LIMITS)
    hint = headers(call(connection), ((b":status", b"103"),))
    events = flood(connection, iter([hint] * 1_000), frames_max=1_000)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def test_streams_after_our_goaway_end_the_connection_when_they_do_not_stop() -> None:
    connection = server(LIMITS)
    connection.goaway()
    events = flood(connection, refused_streams(), frames_max=1_000)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def test_settings_that_touch_many_streams_cost_more() -> None:
    connection = server(LIMITS)
    tell(connection, *(headers(stream_id) for stream_id in range(1, 200, 2)))
    windows = (settings((Setting.INITIAL_WINDOW_SIZE, size)) for size in count(1))
    events = flood(connection, windows, frames_max=100)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def test_frame_of_thousands_of_settings_costs_more() -> None:
    connection = server(LIMITS)
    many = settings(*([(0x7777, 1)] * 2_000))
    events = flood(connection, iter([many] * 10), frames_max=10)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


@pytest.mark.parametrize("part", [ping(), settings()])
def test_answers_that_nobody_reads_are_bounded(part: bytes) -> None:
    limits = Http2Limits(control_bytes_max=1_000)
    connection = server(limits)
    events = tell(connection, *([part] * 200))
    assert isinstance(events[-1], ConnectionEnded)
    assert events[-1].code == ErrorCode.ENHANCE_YOUR_CALM
    assert len(connection.data_to_send()) < 1_200


def test_resets_we_were_made_to_send_are_bounded_too() -> None:
    connection = server(Http2Limits(control_bytes_max=1_000))
    events = tell(connection, *(headers(stream_id, TRAILERS) for stream_id in range(1, 400, 2)))
    assert isinstance(events[-1], ConnectionEnded)
    assert len(connection.data_to_send()) < 1_200


def test_resets_of_the_application_are_not_held_against_the_peer() -> None:
    connection = server(Http2Limits(control_bytes_max=1_000))
    for stream_id in range(1, 1_001, 2):
        tell(connection, headers(stream_id))
        connection.reset(stream_id, ErrorCode.CANCEL)
    assert tell(connection, ping()) == []


# ---- Header blocks


@pytest.mark.parametrize("fragment", [b"", b"\x00\x01a\x01b"])
def test_header_block_that_never_ends_ends_the_connection(fragment: bytes) -> None:
    connection = server()

    def pieces() -> Iterator[bytes]:
        yield headers(1, flags=0)
        while True:
            yield frame(FrameType.CONTINUATION, 0, 1, fragment)

    assert_ended(connection, flood(connection, pieces(), frames_max=50), ErrorCode.ENHANCE_YOUR_CALM)


def test_header_block_s_bytes_are_bounded_while_it_comes() -> None:
    connection = server()
    parts = [headers(1, flags=0)] + [frame(FrameType.CONTINUATION, 0, 1, bytes(16_384))] * 10
    events = flood(connection, iter(parts), frames_max=6)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def test_small_block_that_decodes_to_a_huge_list_ends_the_connection() -> None:
    connection = server()
    bomb = encode_headers(REQUEST) + b"\x40\x01a" + b"\x7f\xa1\x1e" + b"x" * 4_000  # one table entry
    bomb += b"\xbe" * 10_000  # named ten thousand times: 40 MB
    events = tell(connection, frame(FrameType.HEADERS, WHOLE, 1, bomb))
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def test_empty_header_blocks_end_the_connection() -> None:
    connection = server(LIMITS)
    blocks = (frame(FrameType.HEADERS, BLOCK, stream_id) for stream_id in ids())
    assert_ended(connection, flood(connection, blocks, frames_max=400), ErrorCode.ENHANCE_YOUR_CALM)


def test_hpack_table_resized_all_the_time_ends_the_connection() -> None:
    connection = server(LIMITS)
    tell(connection, headers(1))
    connection.reset(1, ErrorCode.CANCEL)

    def resizes() -> Iterator[bytes]:
        block = b"\x20\x3f\xe1\x1f" + encode_headers(REQUEST)  # to 0 and back to 4096
        for stream_id in count(3, 2):
            yield frame(FrameType.HEADERS, WHOLE, stream_id, block)

    def answered() -> list[Event]:
        for part in resizes():
            events = tell(connection, part)
            if isinstance(events[-1], ConnectionEnded):
                return events
            connection.reset(connection._peer_stream_max, ErrorCode.CANCEL)
            connection.data_to_send()
        raise AssertionError

    assert_ended(connection, answered(), ErrorCode.ENHANCE_YOUR_CALM)


def test_block_of_resizes_ends_the_connection() -> None:
    connection = server()
    storm = frame(FrameType.HEADERS, WHOLE, 1, b"\x20" * 10_000)
    assert_ended(connection, tell(connection, storm), ErrorCode.COMPRESSION_ERROR)


def test_window_that_never_opens_holds_only_what_the_application_sent() -> None:
    connection = server(peer_settings=settings((Setting.INITIAL_WINDOW_SIZE, 0)))
    tell(connection, headers(1, flags=WHOLE))
    connection.send_headers(1, HEAD_BLOCK)
    connection.send_data(1, bytes(1_000))
    assert connection.pending(1) == connection.pending_total == 1_000
    connection.reset(1, ErrorCode.CANCEL)
    assert connection.pending_total == 0


# ---- Honest peers, with the default budgets


def serve(connection: Connection, stream_id: int) -> list[Event]:
    events = tell(connection, headers(stream_id), data(stream_id, b"x" * 300, END_STREAM))
    connection.consumed(stream_id, 300)
    connection.send_response(stream_id, HEAD_BLOCK, b"y" * 60, TRAILER_BLOCK)
    return events


def assert_calm(connection: Connection, events: list[Event]) -> None:
    assert not any(isinstance(each, ConnectionEnded) for each in events), events
    connection.data_to_send()


def test_pings_and_window_updates_with_every_answer_are_fine() -> None:
    """grpc-go pings to learn the bandwidth; C-core opens windows by a few bytes per message."""
    connection = server()
    for stream_id in range(1, 60_000, 2):
        assert_calm(connection, serve(connection, stream_id))
        honest = (ping(), window_update(0, 60), window_update(stream_id, 5))
        assert_calm(connection, tell(connection, *honest))


def test_pings_with_every_message_of_a_stream_are_fine() -> None:
    connection = server()
    tell(connection, headers(1))
    connection.send_headers(1, HEAD_BLOCK)
    for _ in range(30_000):
        connection.send_data(1, b"y" * 60)
        honest = (ping(), window_update(0, 60), window_update(1, 60))
        assert_calm(connection, tell(connection, *honest))


def test_keepalive_pings_for_days_are_fine() -> None:
    connection = server()
    for second in range(0, 3 * 86_400, 10):
        assert_calm(connection, tell(connection, ping(), now=float(second)))


def test_cancelling_every_call_at_once_is_fine() -> None:
    connection = server()
    limit = Http2Limits().streams_max
    opened = [headers(stream_id) for stream_id in range(1, 2 * limit, 2)]
    assert_calm(connection, tell(connection, *opened))
    assert connection.open_streams == limit
    cancelled = [rst_stream(stream_id) for stream_id in range(1, 2 * limit, 2)]
    assert_calm(connection, tell(connection, *cancelled))
    assert connection.open_streams == 0


def test_watches_opened_and_cancelled_without_end_are_fine() -> None:
    connection = server()
    for stream_id in range(1, 40_000, 2):
        assert_calm(connection, tell(connection, headers(stream_id)))
        connection.send_headers(stream_id, HEAD_BLOCK)
        assert_calm(connection, tell(connection, rst_stream(stream_id)))


def test_cancelling_every_other_call_is_fine() -> None:
    connection = server()
    for stream_id in range(1, 40_000, 4):
        assert_calm(connection, serve(connection, stream_id))
        cancelled = headers(stream_id + 2), rst_stream(stream_id + 2), window_update(0, 60)
        assert_calm(connection, tell(connection, *cancelled))


def test_large_bodies_on_streams_we_reset_are_fine() -> None:
    connection = server()
    for stream_id in range(1, 400, 2):
        assert_calm(connection, tell(connection, headers(stream_id)))
        connection.reset(stream_id, ErrorCode.CANCEL)
        late = [data(stream_id, bytes(16_384))] * 64
        assert_calm(connection, tell(connection, *late))


def test_server_that_resets_every_call_does_not_end_the_client() -> None:
    connection = client()
    for _ in range(10_000):
        stream_id = call(connection)
        assert_calm(connection, tell(connection, rst_stream(stream_id, ErrorCode.REFUSED_STREAM)))


def test_pings_with_every_frame_of_a_large_message_are_fine() -> None:
    connection = server(LIMITS, peer_settings=settings((Setting.INITIAL_WINDOW_SIZE, 2**30)))
    tell(connection, headers(1, flags=WHOLE))
    connection.send_response(1, HEAD_BLOCK, bytes(20_000_000), TRAILER_BLOCK)
    while connection.pending_total:
        assert_calm(connection, tell(connection, ping(), window_update(0, 16_384)))


def test_work_done_is_not_saved_up_for_a_flood() -> None:
    connection = server(LIMITS)
    for stream_id in range(1, 2_000, 2):
        assert_calm(connection, serve(connection, stream_id))
    events = flood(connection, iter([ping()] * 1_000), frames_max=600)
    assert_ended(connection, events, ErrorCode.ENHANCE_YOUR_CALM)


def test_flood_is_forgiven_with_time() -> None:
    connection = server(LIMITS)
    for second in range(20):
        burst = [ping()] * 100
        assert_calm(connection, tell(connection, *burst, now=float(second)))


def test_time_that_goes_backwards_refills_nothing_and_breaks_nothing() -> None:
    connection = server(LIMITS)
    assert_calm(connection, tell(connection, ping(), now=100.0))
    assert_calm(connection, tell(connection, ping(), now=5.0))
    assert_calm(connection, tell(connection, ping(), now=6.0))
