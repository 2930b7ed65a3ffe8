"""HTTP/2 against everything a peer can send, and against the `h2` package as an honest peer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from quoracy.wire.http2 import (
    Connection,
    ConnectionEnded,
    DataReceived,
    ErrorCode,
    Event,
    HeadersReceived,
    Http2Limits,
    StreamReset,
    TrailersReceived,
    encode_headers,
)
from quoracy.wire.http2.codes import PREFACE, FrameType, Setting
from tests.unit.wire.http2.peer import (
    END_STREAM,
    REQUEST,
    RESPONSE,
    SETTINGS_ACK,
    TRAILERS,
    WHOLE,
    data,
    frame,
    frames,
    goaway,
    headers,
    ping,
    priority,
    rst_stream,
    settings,
    window_update,
)

LIMITS = Http2Limits(
    streams_max=5,
    stream_window=1_000,
    connection_window=70_000,
    header_list_bytes_max=2_000,
    header_count_max=20,
    header_block_bytes_max=2_000,
    continuations_max=3,
    cached_blocks_max=4,
    cached_bytes_max=2_000,
    recently_reset_max=3,
    control_bytes_max=500,
    resets_burst=20,
    overhead_burst=50,
)

_stream_ids = st.one_of(st.integers(0, 12), st.sampled_from([1, 3, 5]), st.integers(0, 2**32 - 1))
_flags = st.one_of(st.sampled_from([0, 1, 4, 5, 8, 0xC, 0x20, 0x24, 0x25, 0x2D]), st.integers(0, 255))
_numbers = st.one_of(st.sampled_from([0, 1, 2, 16_384, 2**31 - 1, 2**31]), st.integers(0, 2**32 - 1))
_lists = st.sampled_from([REQUEST, RESPONSE, TRAILERS])
_settings = st.lists(st.tuples(st.integers(0, 10), _numbers), max_size=4)
_blocks = st.one_of(
    st.sampled_from([encode_headers(REQUEST), encode_headers(RESPONSE), encode_headers(TRAILERS)]),
    st.binary(max_size=40),
    # Insertions, resizes and uses of the table, so that blocks depend on each other.
    st.lists(
        st.sampled_from(
            [
                b"\x82",
                b"\x86",
                b"\x84",
                b"\xbe",
                b"\xbf",
                b"\x40\x01a\x01b",
                b"\x7e\x01c",
                b"\x20",
                b"\x3f\x45",
            ]
        ),
        max_size=8,
    ).map(b"".join),
)
_random_frames = st.builds(frame, st.integers(0, 12), _flags, _stream_ids, st.binary(max_size=40))
_likely_frames = st.one_of(
    st.builds(frame, st.just(FrameType.HEADERS), _flags, _stream_ids, _blocks),
    st.builds(frame, st.just(FrameType.CONTINUATION), _flags, _stream_ids, _blocks),
    st.builds(
        headers, _stream_ids, st.sampled_from([REQUEST, RESPONSE, TRAILERS]), st.sampled_from([4, 5])
    ),
    st.builds(data, _stream_ids, st.binary(max_size=40), _flags),
    st.builds(data, _stream_ids, st.just(bytes(600)), st.sampled_from([0, END_STREAM])),
    st.builds(window_update, _stream_ids, _numbers),
    st.builds(rst_stream, _stream_ids, _numbers),
    st.builds(
        lambda pairs: settings(*pairs), st.lists(st.tuples(st.integers(0, 10), _numbers), max_size=4)
    ),
    st.just(SETTINGS_ACK),
    st.builds(ping, st.binary(min_size=8, max_size=8), st.sampled_from([0, 1])),
    st.builds(goaway, _numbers.map(lambda number: number & 0x7FFF_FFFF)),
    st.builds(priority, _stream_ids, _stream_ids.map(lambda number: number & 0x7FFF_FFFF)),
)
_conversations = st.lists(st.one_of(_random_frames, _likely_frames, _likely_frames), max_size=30).map(
    lambda parts: settings() + b"".join(parts)
)
_HONEST = b"".join(
    (
        settings((Setting.INITIAL_WINDOW_SIZE, 100)),
        SETTINGS_ACK,
        headers(1),
        data(1, b"x" * 300, END_STREAM),
        window_update(0, 1_000),
        frame(FrameType.HEADERS, 0, 3, encode_headers(REQUEST)[:9]),
        frame(FrameType.CONTINUATION, 4, 3, encode_headers(REQUEST)[9:]),
        frame(FrameType.HEADERS, WHOLE, 5, encode_headers(REQUEST) + b"\x40\x01a\x01b"),
        ping(),
        data(3, b"\x03abc\0\0\0", 8),
        headers(3, TRAILERS, WHOLE),
        rst_stream(5),
        headers(7, flags=WHOLE),
        goaway(0),
    )
)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """An honest conversation with a few bytes changed, dropped, doubled or put in."""
    raw = bytearray(_HONEST)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw) - 1))
        match draw(st.sampled_from(["change", "drop", "double", "insert"])):
            case "change":
                raw[at] = draw(st.integers(0, 255))
            case "drop":
                del raw[at : at + draw(st.integers(1, 20))]
                raw = raw or bytearray(_HONEST)
            case "double":
                raw[at:at] = raw[at : at + draw(st.integers(1, 60))]
            case _:
                raw[at:at] = draw(st.binary(max_size=20))
    return bytes(raw)


_anything = st.one_of(st.binary(max_size=200), _conversations, _conversations, _mutated())
_cuts = st.lists(st.integers(0, 1_500), max_size=8)


def pieces(raw: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    for start, stop in pairwise(edges):
        yield raw[start:stop]


def connected(client_side: bool) -> Connection:
    connection = Connection(client_side=client_side, limits=LIMITS)
    connection.start()
    if client_side:
        for _ in range(3):
            connection.send_headers(connection.next_stream_id(), encode_headers(REQUEST))
    else:
        connection.receive(PREFACE, now=0.0)
    return connection


def assert_bounded(connection: Connection) -> None:
    assert connection.open_streams <= LIMITS.streams_max
    assert len(connection._partial) < 9 + LIMITS.frame_bytes_max
    assert connection._control_bytes <= LIMITS.control_bytes_max + 17
    assert len(connection._recently_reset) <= LIMITS.recently_reset_max
    decoder = connection._decoder
    assert len(decoder.cache) <= LIMITS.cached_blocks_max
    assert decoder._cached_bytes <= LIMITS.cached_bytes_max
    assert decoder._entries_bytes <= decoder._table_bytes_max <= 4_096
    assert connection.pending_total == sum(each.pending for each in connection._streams.values())
    assert all(each.pending and each.send_window > 0 for each in connection._waiting.values())
    assert 0 <= connection._receive_window <= LIMITS.connection_window


@given(raw=_anything, cuts=_cuts, client_side=st.booleans())
@example(raw=_HONEST, cuts=[30, 40, 200], client_side=False)
def test_whatever_comes_is_taken_the_same_however_it_is_cut(
    raw: bytes, cuts: list[int], client_side: bool
) -> None:
    whole, cut = connected(client_side), connected(client_side)
    events = whole.receive(raw, now=1.0)
    assert_bounded(whole)
    cut_events: list[Event] = []
    for piece in pieces(raw, cuts):
        cut_events += cut.receive(piece, now=1.0)
        assert_bounded(cut)
    assert repr(cut_events) == repr(events)
    assert cut.data_to_send() == whole.data_to_send()


@given(raw=st.binary(max_size=100))
def test_whatever_comes_first_is_answered_with_whole_frames(raw: bytes) -> None:
    connection = Connection(client_side=False, limits=LIMITS)
    connection.start()
    events = connection.receive(raw, now=0.0)
    frames(connection.data_to_send())
    assert len(events) <= 1 or raw.startswith(PREFACE)


@given(parts=st.lists(st.one_of(_random_frames, _likely_frames, _likely_frames), max_size=40))
def test_application_that_answers_everything_survives_any_peer(parts: list[bytes]) -> None:
    """Events come in a possible order, and nothing the application does about them raises."""
    connection = connected(client_side=False)
    head, trailers = encode_headers(RESPONSE), encode_headers(TRAILERS)
    known: dict[int, str] = {}
    for part in (settings(), *parts):
        for event in connection.receive(part, now=0.0):
            match event:
                case HeadersReceived(stream_id, _, end_stream):
                    assert stream_id not in known
                    known[stream_id] = "ended" if end_stream else "open"
                    connection.send_headers(stream_id, head)
                    connection.send_data(stream_id, bytes(70))
                case DataReceived(stream_id, body, flow_bytes, end_stream):
                    assert known[stream_id] == "open"
                    connection.send_data(stream_id, body)
                    connection.consumed(stream_id, flow_bytes)
                    if end_stream:
                        known[stream_id] = "ended"
                        connection.send_headers(stream_id, trailers, end_stream=True)
                case TrailersReceived(stream_id, _):
                    assert known[stream_id] == "open"
                    known[stream_id] = "ended"
                    connection.send_data(stream_id, b"", end_stream=True)
                case StreamReset(stream_id, _):
                    assert known[stream_id] in ("open", "ended")
                    known[stream_id] = "gone"
                    assert not connection.send_data(stream_id, b"late")
                case ConnectionEnded(code, reason):
                    assert code != ErrorCode.NO_ERROR
                    assert reason
                    assert connection.open_streams == 0
                case _:
                    pass
        assert_bounded(connection)
        frames(connection.data_to_send())
