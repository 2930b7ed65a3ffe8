"""Random calls between our HTTP/2 and the `h2` package, in both roles: everything sent arrives.

Windows are tiny or change on the way, calls are reset by either side, and the bytes between the two
come in pieces of any size.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quoracy.wire.http2 import (
    Connection,
    ConnectionEnded,
    DataReceived,
    ErrorCode,
    HeadersReceived,
    Http2Limits,
    StreamReset,
    TrailersReceived,
    encode_headers,
)
from tests.unit.wire.http2.peer import REQUEST, RESPONSE, TRAILERS

Pair = tuple[bytes, bytes]
INITIAL_WINDOW = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
TABLE_SIZE = h2.settings.SettingCodes.HEADER_TABLE_SIZE


@dataclass
class Heard:
    """What one side heard on one stream."""

    head: list[Pair] = field(default_factory=list)
    body: bytes = b""
    trailers: list[Pair] = field(default_factory=list)
    is_ended: bool = False
    is_reset: bool = False


class Side(Protocol):
    heard: dict[int, Heard]

    def open(self, pairs: list[Pair]) -> int: ...
    def head(self, stream_id: int, pairs: list[Pair]) -> None: ...
    def body(self, stream_id: int, data: bytes) -> None: ...
    def end(self, stream_id: int, trailers: list[Pair]) -> None: ...
    def reset(self, stream_id: int) -> None: ...
    def take(self) -> bytes: ...
    def give(self, data: bytes) -> None: ...


class Ours:
    def __init__(self, *, client_side: bool, limits: Http2Limits) -> None:
        self.connection = Connection(client_side=client_side, limits=limits)
        self.connection.start()
        self.heard: dict[int, Heard] = defaultdict(Heard)

    def open(self, pairs: list[Pair]) -> int:
        stream_id = self.connection.next_stream_id()
        self.head(stream_id, pairs)
        return stream_id

    def head(self, stream_id: int, pairs: list[Pair]) -> None:
        self.connection.send_headers(stream_id, encode_headers(pairs))

    def body(self, stream_id: int, data: bytes) -> None:
        self.connection.send_data(stream_id, data)

    def end(self, stream_id: int, trailers: list[Pair]) -> None:
        if trailers:
            self.connection.send_headers(stream_id, encode_headers(trailers), end_stream=True)
        else:
            self.connection.send_data(stream_id, b"", end_stream=True)

    def reset(self, stream_id: int) -> None:
        self.connection.reset(stream_id, ErrorCode.CANCEL)

    def take(self) -> bytes:
        return self.connection.data_to_send()

    def give(self, data: bytes) -> None:
        for event in self.connection.receive(data, now=0.0):
            match event:
                case HeadersReceived(stream_id, block, end_stream):
                    self.heard[stream_id].head += block.pairs
                    self.heard[stream_id].is_ended = end_stream
                case DataReceived(stream_id, body, flow_bytes, end_stream):
                    self.heard[stream_id].body += body
                    self.heard[stream_id].is_ended = end_stream
                    self.connection.consumed(stream_id, flow_bytes)
                case TrailersReceived(stream_id, block):
                    self.heard[stream_id].trailers += block.pairs
                    self.heard[stream_id].is_ended = True
                case StreamReset(stream_id, _):
                    self.heard[stream_id].is_reset = True
                case ConnectionEnded():
                    raise AssertionError(event)
                case _:
                    pass


class Theirs:
    """The `h2` package, with the queue of held-back data that it leaves to its user."""

    def __init__(self, *, client_side: bool, window: int, table_size: int) -> None:
        config = h2.config.H2Configuration(client_side=client_side, header_encoding=None)
        self.connection = h2.connection.H2Connection(config)
        self.connection.local_settings = h2.settings.Settings(
            client=client_side, initial_values={INITIAL_WINDOW: window, TABLE_SIZE: table_size}
        )
        self.connection.initiate_connection()
        self.heard: dict[int, Heard] = defaultdict(Heard)
        self.held: dict[int, bytearray] = defaultdict(bytearray)
        self.ends: dict[int, list[Pair]] = {}

    def open(self, pairs: list[Pair]) -> int:
        stream_id = self.connection.get_next_available_stream_id()
        self.head(stream_id, pairs)
        return stream_id

    def head(self, stream_id: int, pairs: list[Pair]) -> None:
        if not self.heard[stream_id].is_reset:
            self.connection.send_headers(stream_id, pairs)

    def body(self, stream_id: int, data: bytes) -> None:
        self.held[stream_id] += data

    def end(self, stream_id: int, trailers: list[Pair]) -> None:
        self.ends[stream_id] = trailers

    def reset(self, stream_id: int) -> None:
        self.forget(stream_id)
        if not self.heard[stream_id].is_reset:
            self.connection.reset_stream(stream_id, ErrorCode.CANCEL)

    def forget(self, stream_id: int) -> None:
        self.held.pop(stream_id, None)
        self.ends.pop(stream_id, None)

    def take(self) -> bytes:
        for stream_id, held in list(self.held.items()):
            while held:
                window = self.connection.local_flow_control_window(stream_id)
                size = min(len(held), window, self.connection.max_outbound_frame_size)
                if size <= 0:
                    break
                self.connection.send_data(stream_id, bytes(held[:size]))
                del held[:size]
        for stream_id, trailers in list(self.ends.items()):
            if self.held.get(stream_id):
                continue
            self.forget(stream_id)
            if trailers:
                self.connection.send_headers(stream_id, trailers, end_stream=True)
            else:
                self.connection.end_stream(stream_id)
        return self.connection.data_to_send()

    def give(self, data: bytes) -> None:
        for event in self.connection.receive_data(data):
            match event:
                case h2.events.RequestReceived() | h2.events.ResponseReceived():
                    self.heard[event.stream_id].head += pairs_of(event.headers)
                case h2.events.DataReceived():
                    self.heard[event.stream_id].body += event.data
                    self.connection.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                case h2.events.TrailersReceived():
                    self.heard[event.stream_id].trailers += pairs_of(event.headers)
                case h2.events.StreamEnded():
                    self.heard[event.stream_id].is_ended = True
                case h2.events.StreamReset():
                    self.heard[event.stream_id].is_reset = True
                    self.forget(event.stream_id)
                case h2.events.ConnectionTerminated():
                    raise AssertionError(event)


def pairs_of(headers: object) -> list[Pair]:
    assert isinstance(headers, list)
    return [(bytes(name), bytes(value)) for name, value in headers]


@dataclass(frozen=True)
class Call:
    """`reset_by` is who gives up: the client after a piece, the server when it sees the head."""

    extra: list[Pair]
    request: list[bytes]
    response: list[bytes]
    trailers: list[Pair]
    reset_by: str


_pieces = st.lists(
    st.one_of(st.binary(max_size=40), st.integers(0, 3_000).map(lambda size: b"x" * size)), max_size=4
)
_extra = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b-bin", b"grpc-timeout", b"authorization"]),
        st.sampled_from([b"", b"1", b"2" * 50]),
    ),
    max_size=4,
)
_calls = st.builds(
    Call,
    extra=_extra,
    request=_pieces,
    response=_pieces,
    trailers=st.sampled_from([[], list(TRAILERS)]),
    reset_by=st.sampled_from(["nobody", "nobody", "nobody", "client", "server"]),
)
# No time passes here and windows open byte by byte, which the budgets would take for a flood.
PATIENT = Http2Limits(overhead_burst=1_000_000)
_windows = st.sampled_from([1, 7, 100, 1_000, 65_535, 200_000])


def converse(
    client: Side, server: Side, calls: list[Call], sizes: list[int], changes: list[int]
) -> None:
    """Runs all calls at once, until nobody has anything to say."""
    numbers: dict[int, Call] = {}
    cut = cycle(sizes)
    answered: set[int] = set()
    windows = list(changes)

    def pass_on(source: Side, target: Side) -> bool:
        raw = source.take()
        position = 0
        while position < len(raw):
            size = next(cut)
            target.give(raw[position : position + size])
            position += size
        return bool(raw)

    def serve() -> None:
        for stream_id, heard in list(server.heard.items()):
            if stream_id in answered or heard.is_reset or not heard.head:
                continue
            call = numbers[stream_id]
            if call.reset_by == "server":
                server.reset(stream_id)
            elif heard.is_ended:
                server.head(stream_id, list(RESPONSE))
                for piece in call.response:
                    server.body(stream_id, piece)
                server.end(stream_id, call.trailers)
            else:
                continue
            answered.add(stream_id)

    # `h2` wants its first settings kept from the start, not only once they are acknowledged.
    while pass_on(client, server) | pass_on(server, client):
        pass
    for call in calls:
        stream_id = client.open([*REQUEST, *call.extra])
        numbers[stream_id] = call
        for piece in call.request[:1]:
            client.body(stream_id, piece)
    for stream_id, call in numbers.items():
        if call.reset_by == "client":
            client.reset(stream_id)
            continue
        for piece in call.request[1:]:
            client.body(stream_id, piece)
        client.end(stream_id, [])
    busy = True
    while busy:
        busy = pass_on(client, server)
        serve()
        busy = pass_on(server, client) or busy
        if windows and isinstance(client, Theirs):
            client.connection.update_settings({INITIAL_WINDOW: windows.pop()})
            busy = True
        if windows and isinstance(server, Theirs):
            server.connection.update_settings({INITIAL_WINDOW: windows.pop()})
            busy = True
    judge(client, server, numbers)


def judge(client: Side, server: Side, numbers: dict[int, Call]) -> None:
    for stream_id, call in numbers.items():
        asked, answer = server.heard[stream_id], client.heard[stream_id]
        match call.reset_by:
            case "client":
                assert asked.is_reset
            case "server":
                assert answer.is_reset
            case _:
                assert asked.head == [*REQUEST, *call.extra]
                assert asked.body == b"".join(call.request)
                assert asked.is_ended
                assert answer.head == list(RESPONSE)
                assert answer.body == b"".join(call.response)
                assert answer.trailers == call.trailers
                assert answer.is_ended
                assert not asked.is_reset
                assert not answer.is_reset


@given(
    calls=st.lists(_calls, max_size=6),
    sizes=st.lists(st.sampled_from([1, 5, 9, 30, 1_000, 20_000]), min_size=1, max_size=5),
    our_window=_windows,
    their_window=_windows,
    table_size=st.sampled_from([0, 100, 4_096]),
    changes=st.lists(st.sampled_from([0, 1, 50, 70_000]), max_size=4),
    client_side=st.booleans(),
)
def test_everything_sent_arrives(
    calls: list[Call],
    sizes: list[int],
    our_window: int,
    their_window: int,
    table_size: int,
    changes: list[int],
    client_side: bool,
) -> None:
    ours = Ours(client_side=client_side, limits=replace(PATIENT, stream_window=our_window))
    theirs = Theirs(client_side=not client_side, window=their_window, table_size=table_size)
    client, server = (ours, theirs) if client_side else (theirs, ours)
    # The last change opens the window, or nothing could arrive any more.
    converse(client, server, calls, sizes, [70_000, *changes])
    assert ours.connection.open_streams == 0
    assert ours.connection.pending_total == 0


@given(
    calls=st.lists(_calls, max_size=6),
    sizes=st.lists(st.sampled_from([1, 5, 9, 30, 1_000, 20_000]), min_size=1, max_size=5),
    server_window=_windows,
    client_window=_windows,
)
def test_our_two_sides_understand_each_other(
    calls: list[Call], sizes: list[int], server_window: int, client_window: int
) -> None:
    client = Ours(client_side=True, limits=replace(PATIENT, stream_window=client_window))
    server = Ours(client_side=False, limits=replace(PATIENT, stream_window=server_window))
    converse(client, server, calls, sizes, [])
    assert client.connection.open_streams == server.connection.open_streams == 0
    assert client.connection.pending_total == server.connection.pending_total == 0
