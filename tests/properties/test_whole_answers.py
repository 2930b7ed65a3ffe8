"""A whole answer that is taken at once means what its frames mean one after the other."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from quoracy.wire.http2 import (
    Connection,
    DataReceived,
    HeadersReceived,
    Http2Limits,
    TrailersReceived,
)
from tests.unit.wire.http2.peer import (
    RESPONSE,
    TRAILERS,
    WHOLE,
    call,
    client,
    data,
    headers,
    ping,
    rst_stream,
)

# Small windows, so that giving back what was taken shows.
_LIMITS = Http2Limits(stream_window=100, connection_window=70_000)
_LONG = ((b":status", b"200"), (b"content-length", b"3"))


def _plain(stream_id: int, body: bytes) -> bytes:
    return (
        headers(stream_id, RESPONSE) + data(stream_id, body) + headers(stream_id, TRAILERS, flags=WHOLE)
    )


_OPEN = 3, 5, 7
_stream_ids = st.sampled_from([3, 3, 3, *_OPEN, 1, 9, 2**31 + 3])
_parts = st.one_of(
    st.builds(_plain, _stream_ids, st.binary(max_size=120)),
    st.builds(headers, _stream_ids, st.sampled_from([RESPONSE, TRAILERS, _LONG])),
    st.builds(data, _stream_ids, st.binary(max_size=8)),
    st.builds(rst_stream, _stream_ids),
    st.just(ping()),
)
_cuts = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2)


@given(st.lists(_parts, max_size=5), _cuts, st.integers(0, 2))
@example([_plain(3, b"abc"), _plain(5, b"abc")], [], 0)
@example([_plain(3, b"abc")], [(4, 4)], 0)
@example([_plain(3, b"x" * 101)], [], 0)
def test_an_answer_in_one_piece_is_what_its_frames_are(
    parts: list[bytes], changes: list[tuple[int, int]], late: int
) -> None:
    quick, full = _client(), _client()
    for each in parts:
        received = bytearray(each)
        for at, byte in changes:
            if at < len(received):
                received[at] = byte
        whole = bytes(received[: len(received) - late])
        assert _quickly(quick, whole) == _fully(full, whole)
        assert quick.data_to_send() == full.data_to_send()
        assert [quick.is_open(id) for id in _OPEN] == [full.is_open(id) for id in _OPEN]
    assert quick.can_open_stream == full.can_open_stream


def test_the_usual_answer_is_taken_at_once() -> None:
    connection = _client()
    assert connection.receive_answer(_plain(3, b"abc"), now=0.0) is not None
    assert not connection.is_open(3)


def test_a_part_of_an_answer_is_not_taken_for_a_whole_one() -> None:
    connection = _client()
    answer = _plain(3, b"abc")
    for end in range(len(answer)):
        assert connection.receive_answer(answer[:end], now=0.0) is None
    assert connection.is_open(3)


def _client() -> Connection:
    """With three requests under way, and an answer behind it: its header blocks are known."""
    connection = client(_LIMITS)
    first = call(connection)
    _fully(connection, _plain(first, b"."))
    assert [call(connection) for _ in range(3)] == list(_OPEN)
    return connection


def _quickly(connection: Connection, received: bytes) -> list[object]:
    answer = connection.receive_answer(received, now=1.0)
    if answer is None:
        return _fully(connection, received)
    stream_id, body = answer.stream_id, answer.data
    return [
        (stream_id, answer.head.pairs, False),
        DataReceived(stream_id, body, len(body), False),
        (stream_id, answer.trailers.pairs),
    ]


def _fully(connection: Connection, received: bytes) -> list[object]:
    told: list[object] = []
    for event in connection.receive(received, now=1.0):
        if isinstance(event, DataReceived):
            connection.consumed(event.stream_id, event.flow_bytes)
            told.append(event)
        elif isinstance(event, HeadersReceived):
            told.append((event.stream_id, event.headers.pairs, event.end_stream))
        elif isinstance(event, TrailersReceived):
            told.append((event.stream_id, event.headers.pairs))
        else:
            told.append(event)
    return told
