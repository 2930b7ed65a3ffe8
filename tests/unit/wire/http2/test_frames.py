"""Frames as such: how a connection begins, sizes, padding, settings, pings, header blocks in pieces."""

from __future__ import annotations

import pytest

from quoracy.wire.http2 import (
    Connection,
    DataReceived,
    ErrorCode,
    Event,
    GoAwayReceived,
    HeadersReceived,
    Http2Limits,
    PingAcked,
    SettingsReceived,
    encode_headers,
)
from quoracy.wire.http2.codes import PREFACE, FrameType, Setting
from tests.unit.wire.http2.peer import (
    ACK,
    BLOCK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITY,
    REQUEST,
    SETTINGS_ACK,
    WHOLE,
    Frame,
    assert_broken,
    assert_ended,
    call,
    client,
    data,
    frame,
    frames,
    goaway,
    headers,
    ping,
    priority,
    rst_stream,
    sent,
    server,
    settings,
    tell,
    window_update,
)


def settings_in(found: Frame) -> dict[int, int]:
    return {
        int.from_bytes(found.payload[at : at + 2], "big"): int.from_bytes(
            found.payload[at + 2 : at + 6], "big"
        )
        for at in range(0, len(found.payload), 6)
    }


# ---- The beginning


def test_server_begins_with_its_settings_and_a_large_window() -> None:
    limits = Http2Limits()
    connection = Connection(client_side=False, limits=limits)
    connection.start()
    first, second = sent(connection)
    assert (first.kind, first.flags, first.stream_id) == (FrameType.SETTINGS, 0, 0)
    assert settings_in(first) == {
        Setting.HEADER_TABLE_SIZE: limits.header_table_bytes_max,
        Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
        Setting.MAX_FRAME_SIZE: limits.frame_bytes_max,
        Setting.MAX_HEADER_LIST_SIZE: limits.header_list_bytes_max,
        Setting.MAX_CONCURRENT_STREAMS: limits.streams_max,
    }
    assert second.kind == FrameType.WINDOW_UPDATE
    assert int.from_bytes(second.payload, "big") == limits.connection_window - 65_535


def test_client_begins_with_the_preface_and_forbids_push() -> None:
    connection = Connection(client_side=True)
    connection.start()
    raw = connection.data_to_send()
    assert raw.startswith(PREFACE)
    assert settings_in(frames(raw[len(PREFACE) :])[0])[Setting.ENABLE_PUSH] == 0


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02", b"PRI * HTTP/1.1\r\n", b"X"]
)
def test_anything_but_the_preface_ends_the_connection_at_once(first: bytes) -> None:
    connection = Connection(client_side=False)
    connection.start()
    assert_ended(connection, tell(connection, first), ErrorCode.PROTOCOL_ERROR)


def test_preface_may_come_byte_by_byte() -> None:
    connection = Connection(client_side=False)
    connection.start()
    events: list[Event] = []
    for byte in PREFACE + settings() + headers(1):
        events += connection.receive(bytes((byte,)), now=0.0)
    assert [type(each) for each in events] == [SettingsReceived, HeadersReceived]


@pytest.mark.parametrize("first", [ping(), headers(1), SETTINGS_ACK, frame(0x77)])
def test_first_frame_must_be_settings(first: bytes) -> None:
    connection = Connection(client_side=False)
    connection.start()
    assert_ended(connection, tell(connection, PREFACE, first), ErrorCode.PROTOCOL_ERROR)


def test_client_tells_a_server_that_speaks_something_else() -> None:
    connection = Connection(client_side=True)
    connection.start()
    connection.data_to_send()
    events = tell(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert_ended(connection, events, ErrorCode.PROTOCOL_ERROR)


# ---- Settings


def test_settings_are_acknowledged_and_reported() -> None:
    connection = server()
    assert tell(connection, settings((Setting.MAX_CONCURRENT_STREAMS, 7))) == [SettingsReceived()]
    assert sent(connection) == [Frame(FrameType.SETTINGS, ACK, 0, b"")]


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        (Setting.ENABLE_PUSH, 2, ErrorCode.PROTOCOL_ERROR),
        (Setting.INITIAL_WINDOW_SIZE, 2**31, ErrorCode.FLOW_CONTROL_ERROR),
        (Setting.MAX_FRAME_SIZE, 16_383, ErrorCode.PROTOCOL_ERROR),
        (Setting.MAX_FRAME_SIZE, 2**24, ErrorCode.PROTOCOL_ERROR),
        (Setting.ENABLE_CONNECT_PROTOCOL, 2, ErrorCode.PROTOCOL_ERROR),
        (Setting.NO_RFC7540_PRIORITIES, 2, ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_illegal_setting_ends_the_connection(setting: Setting, value: int, code: ErrorCode) -> None:
    connection = server()
    assert_ended(connection, tell(connection, settings((setting, value))), code)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (Setting.HEADER_TABLE_SIZE, 0),
        (Setting.HEADER_TABLE_SIZE, 2**32 - 1),
        (Setting.ENABLE_PUSH, 0),
        (Setting.ENABLE_PUSH, 1),
        (Setting.MAX_CONCURRENT_STREAMS, 0),
        (Setting.INITIAL_WINDOW_SIZE, 0),
        (Setting.INITIAL_WINDOW_SIZE, 2**31 - 1),
        (Setting.MAX_FRAME_SIZE, 16_384),
        (Setting.MAX_FRAME_SIZE, 2**24 - 1),
        (Setting.MAX_HEADER_LIST_SIZE, 0),
        (0x7777, 2**32 - 1),
    ],
)
def test_legal_and_unknown_settings_are_taken(setting: int, value: int) -> None:
    connection = server()
    assert tell(connection, settings((setting, value))) == [SettingsReceived()]


def test_hpack_table_must_fit_once_our_setting_is_acknowledged() -> None:
    connection = Connection(client_side=False, limits=Http2Limits(header_table_bytes_max=0))
    connection.start()
    events = tell(connection, PREFACE, settings(), headers(1), SETTINGS_ACK)
    assert isinstance(events[-1], HeadersReceived)
    shrunk = frame(FrameType.HEADERS, WHOLE, 3, b"\x20" + encode_headers(REQUEST))
    assert isinstance(tell(connection, shrunk, headers(5))[-1], HeadersReceived)
    connection.data_to_send()
    grown = frame(FrameType.HEADERS, WHOLE, 7, b"\x21" + encode_headers(REQUEST))
    assert_ended(connection, tell(connection, grown), ErrorCode.COMPRESSION_ERROR)


def test_block_known_from_before_is_judged_by_the_setting_that_holds_now() -> None:
    connection = Connection(client_side=False, limits=Http2Limits(header_table_bytes_max=0))
    connection.start()
    events = tell(connection, PREFACE, settings(), headers(1), headers(3))
    assert isinstance(events[-1], HeadersReceived)
    connection.data_to_send()
    assert_ended(connection, tell(connection, SETTINGS_ACK, headers(5)), ErrorCode.COMPRESSION_ERROR)


def test_server_that_enables_push_is_refused() -> None:
    connection = client()
    events = tell(connection, settings((Setting.ENABLE_PUSH, 1)))
    assert_ended(connection, events, ErrorCode.PROTOCOL_ERROR)


# ---- Ping and goaway


def test_ping_is_answered_and_the_answer_to_ours_reported() -> None:
    connection = server()
    assert tell(connection, ping(b"abcdefgh")) == []
    assert sent(connection) == [Frame(FrameType.PING, ACK, 0, b"abcdefgh")]
    connection.ping(b"hgfedcba")
    assert sent(connection) == [Frame(FrameType.PING, 0, 0, b"hgfedcba")]
    assert tell(connection, ping(b"hgfedcba", ACK)) == [PingAcked(b"hgfedcba")]


def test_goaway_is_reported_with_its_text() -> None:
    connection = server()
    tell(connection, headers(1))
    assert tell(connection, goaway(0, 0xDEAD, b"bye")) == [GoAwayReceived(0, 0xDEAD, b"bye")]
    assert connection.is_open(1)


def test_goaway_may_not_raise_the_last_stream() -> None:
    connection = client()
    tell(connection, goaway(5))
    assert_ended(connection, tell(connection, goaway(7)), ErrorCode.PROTOCOL_ERROR)


# ---- Sizes, stream ids, what is ignored


@pytest.mark.parametrize(
    "wrong",
    [
        frame(FrameType.SETTINGS, 0, 0, bytes(5)),
        frame(FrameType.SETTINGS, ACK, 0, bytes(6)),
        frame(FrameType.PING, 0, 0, bytes(7)),
        frame(FrameType.PING, 0, 0, bytes(9)),
        frame(FrameType.RST_STREAM, 0, 1, bytes(3)),
        frame(FrameType.WINDOW_UPDATE, 0, 0, bytes(5)),
        frame(FrameType.WINDOW_UPDATE, 0, 1, bytes(3)),
        frame(FrameType.GOAWAY, 0, 0, bytes(7)),
        frame(FrameType.PRIORITY, 0, 3, bytes(4)),
        frame(FrameType.HEADERS, PRIORITY | BLOCK, 3, bytes(4)),
        frame(FrameType.HEADERS, PADDED | BLOCK, 3),
        frame(FrameType.DATA, PADDED, 1),
        frame(FrameType.DATA, 0, 1, bytes(16_385)),
        frame(0x99, 0, 0, bytes(16_385)),
    ],
)
def test_frame_of_the_wrong_size_ends_the_connection(wrong: bytes) -> None:
    connection = server()
    tell(connection, headers(1))
    assert_ended(connection, tell(connection, wrong), ErrorCode.FRAME_SIZE_ERROR)


def test_oversized_frame_is_refused_before_its_payload_comes() -> None:
    connection = server()
    events = tell(connection, headers(1), data(1, bytes(20_000))[:9])
    assert_ended(connection, events, ErrorCode.FRAME_SIZE_ERROR)


@pytest.mark.parametrize(
    "wrong",
    [
        frame(FrameType.SETTINGS, 0, 1),
        frame(FrameType.PING, 0, 1, bytes(8)),
        frame(FrameType.GOAWAY, 0, 1, bytes(8)),
        data(0, b"x"),
        headers(0),
        rst_stream(0),
        priority(0, 5),
        frame(FrameType.CONTINUATION, BLOCK, 0),
        frame(FrameType.CONTINUATION, BLOCK, 1),
        frame(FrameType.PUSH_PROMISE, BLOCK, 1, bytes(4)),
        window_update(0, 0),
        frame(FrameType.DATA, PADDED, 1, b"\x02x"),
        frame(FrameType.HEADERS, PADDED | BLOCK, 3, b"\x02x"),
    ],
)
def test_frame_that_breaks_the_connection_s_rules_ends_it(wrong: bytes) -> None:
    connection = server()
    tell(connection, headers(1))
    assert_ended(connection, tell(connection, wrong), ErrorCode.PROTOCOL_ERROR)


def test_client_refuses_a_push() -> None:
    connection = client()
    call(connection)
    promise = frame(FrameType.PUSH_PROMISE, BLOCK, 1, bytes((0, 0, 0, 2)) + encode_headers(REQUEST))
    assert_ended(connection, tell(connection, promise), ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "ignored",
    [
        frame(0x10, 0, 0, b"\x00\x00\x00\x01u=1"),  # PRIORITY_UPDATE (RFC 9218)
        frame(0xA, 0, 0, b"\x00\x00"),  # ALTSVC
        frame(0xFF, 0xFF, 1, b"anything"),
        priority(1, 7),
        priority(9, 7),
        SETTINGS_ACK,
    ],
)
def test_unknown_frames_and_priorities_are_ignored(ignored: bytes) -> None:
    connection = server()
    tell(connection, headers(1))
    assert tell(connection, ignored) == []
    assert sent(connection) == []
    assert connection.is_open(1)


def test_stream_that_depends_on_itself_is_reset() -> None:
    connection = server()
    tell(connection, headers(1))
    assert_broken(connection, tell(connection, priority(1, 1)), 1, ErrorCode.PROTOCOL_ERROR)
    itself = (3).to_bytes(4, "big") + b"\x10" + encode_headers(REQUEST)
    events = tell(connection, frame(FrameType.HEADERS, PRIORITY | BLOCK, 3, itself))
    assert_broken(connection, events, 3, ErrorCode.PROTOCOL_ERROR, told=False)


@pytest.mark.parametrize("wrong", [priority(5, 5), frame(FrameType.PRIORITY, 0, 5, bytes(6))])
def test_broken_priority_of_an_idle_stream_ends_the_connection(wrong: bytes) -> None:
    connection = server()
    events = tell(connection, wrong)
    code = ErrorCode.PROTOCOL_ERROR if wrong == priority(5, 5) else ErrorCode.FRAME_SIZE_ERROR
    assert_ended(connection, events, code)


def test_reserved_bit_of_a_stream_id_is_ignored() -> None:
    connection = server()
    events = tell(connection, headers(0x8000_0001))
    assert isinstance(events[0], HeadersReceived)
    assert events[0].stream_id == 1


# ---- Padding and pieces


def test_padding_is_taken_off_and_counts_for_flow_control() -> None:
    connection = server()
    padded = frame(FrameType.HEADERS, PADDED | BLOCK, 1, b"\x03" + encode_headers(REQUEST) + bytes(3))
    body = data(1, b"\x05hello" + bytes(5), PADDED | END_STREAM)
    events = tell(connection, padded, body)
    assert isinstance(events[0], HeadersReceived)
    assert events[0].headers.pairs == REQUEST
    assert events[1:] == [DataReceived(1, b"hello", 11, True)]


def test_padding_and_priority_come_before_the_block() -> None:
    connection = server()
    payload = b"\x02" + bytes(4) + b"\x10" + encode_headers(REQUEST) + bytes(2)
    events = tell(connection, frame(FrameType.HEADERS, PADDED | PRIORITY | WHOLE, 1, payload))
    assert isinstance(events[0], HeadersReceived)
    assert events[0].headers.pairs == REQUEST
    assert events[0].end_stream


def test_header_block_may_come_in_pieces() -> None:
    connection = server()
    block = encode_headers(REQUEST)
    events = tell(
        connection,
        frame(FrameType.HEADERS, END_STREAM, 1, block[:5]),
        frame(FrameType.CONTINUATION, 0, 1, block[5:9]),
        frame(FrameType.CONTINUATION, 0, 1),
        frame(FrameType.CONTINUATION, END_HEADERS, 1, block[9:]),
        headers(3),
    )
    first, second = events
    assert isinstance(first, HeadersReceived)
    assert isinstance(second, HeadersReceived)
    assert first.headers.pairs == second.headers.pairs == REQUEST
    assert (first.end_stream, second.end_stream) == (True, False)


@pytest.mark.parametrize(
    "between",
    [
        ping(),
        data(1, b"x"),
        headers(1),
        frame(FrameType.CONTINUATION, BLOCK, 3),
        frame(0x99),
        settings(),
    ],
)
def test_nothing_may_come_between_the_pieces_of_a_header_block(between: bytes) -> None:
    connection = server()
    events = tell(connection, headers(1, flags=0), between)
    assert_ended(connection, events, ErrorCode.PROTOCOL_ERROR)


def test_garbage_as_header_block_ends_the_connection() -> None:
    connection = server()
    events = tell(connection, frame(FrameType.HEADERS, BLOCK, 1, b"\xff\xff\xff\xff\xff"))
    assert_ended(connection, events, ErrorCode.COMPRESSION_ERROR)


def test_result_does_not_depend_on_how_bytes_are_cut() -> None:
    raw = headers(1) + data(1, b"x" * 300, END_STREAM) + ping() + headers(3, flags=WHOLE)
    whole = server()
    events = tell(whole, raw)
    by_byte = server()
    cut: list[Event] = []
    for byte in raw:
        cut += by_byte.receive(bytes((byte,)), now=0.0)
    assert repr(cut) == repr(events)
    assert by_byte.data_to_send() == whole.data_to_send()


def test_pings_that_are_kept_are_answered_when_the_application_says_so() -> None:
    connection = client()
    connection.keeps_pings = True
    assert tell(connection, ping(b"1-------"), ping(b"2-------")) == []
    assert not connection.has_data_to_send
    connection.answer_pings()
    acks = [Frame(FrameType.PING, ACK, 0, data) for data in (b"1-------", b"2-------")]
    assert (sent(connection), connection.pings) == (acks, [])


def test_more_pings_than_are_kept_are_answered_at_once() -> None:
    connection = client()
    connection.keeps_pings = True
    tell(connection, *[ping()] * 20)
    assert len(connection.pings) + len(sent(connection)) == 20
    assert len(connection.pings) < 20
