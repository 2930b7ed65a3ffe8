"""One HTTP/2 connection (RFC 9113), of a server or a client: bytes in, events out; calls in, bytes out.

Frames are read in place from the buffer; only an incomplete last frame is kept.  If the peer breaks a
rule of a stream, the stream is reset (RST_STREAM); if it breaks a rule of the connection, or floods it,
the connection ends (GOAWAY and a `ConnectionEnded`).  `receive` raises in neither case.

Invariants
    * What `receive` returns depends on the bytes, the calls and `now`, not on how the bytes were cut.
    * A stream that ended on both sides, or was reset, is forgotten: sending on it returns False.
    * Every header block is decoded, even those of unwanted streams, because later blocks build on it.
    * All memory is bounded by `Http2Limits`, except for what the application sends (see `pending`).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from quoracy.wire.http2.codes import (
    FRAME_BYTES_DEFAULT,
    FRAME_BYTES_LIMIT,
    FRAME_HEAD,
    PREFACE,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ErrorCode,
    FrameType,
    Setting,
)
from quoracy.wire.http2.control import ID_MASK, Control
from quoracy.wire.http2.events import (
    ConnectionEnded,
    DataReceived,
    Event,
    HeadersReceived,
    TrailersReceived,
)
from quoracy.wire.http2.header_block import HeaderBlock
from quoracy.wire.http2.hpack import ConnectionFailure
from quoracy.wire.http2.limits import Http2Limits
from quoracy.wire.http2.outgoing import Stream

__all__ = ["Connection", "WholeAnswer"]

_unpack_head: Final = FRAME_HEAD.unpack_from
_SETTING: Final = Struct(">HI")

_END_STREAM: Final = 0x1
_ACK: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_PRIORITY: Final = 0x20

_DEFAULT_LIMITS: Final = Http2Limits()
# With these, content-length may refer to a body that is not sent (RFC 9110, section 8.6).
_BODILESS: Final = frozenset({b"204", b"304"})


class _Continued:
    """A header block that continues in CONTINUATION frames."""

    __slots__ = ("encoded", "frames", "is_end", "is_self_dependent", "stream_id")

    def __init__(self, stream_id: int, encoded: bytes, is_end: bool, is_self_dependent: bool) -> None:
        self.stream_id = stream_id
        self.encoded = bytearray(encoded)
        self.is_end = is_end
        self.is_self_dependent = is_self_dependent
        self.frames = 0


class WholeAnswer:
    """A complete response to one request; its stream is closed on both sides."""

    __slots__ = ("data", "head", "stream_id", "trailers")

    def __init__(self, stream_id: int, head: HeaderBlock, data: bytes, trailers: HeaderBlock) -> None:
        self.stream_id, self.head, self.data, self.trailers = stream_id, head, data, trailers


class Connection(Control):
    """One connection; `receive` and `data_to_send` are its two ends."""

    __slots__ = (
        "_continued", "_frame_max", "_is_unusual", "_needed", "_partial", "_preface_due",
    )  # fmt: skip

    def __init__(self, *, client_side: bool, limits: Http2Limits = _DEFAULT_LIMITS) -> None:
        assert FRAME_BYTES_DEFAULT <= limits.frame_bytes_max <= FRAME_BYTES_LIMIT
        assert 0 < limits.stream_window <= WINDOW_MAX
        assert limits.connection_window <= WINDOW_MAX
        super().__init__(client_side=client_side, limits=limits)
        self._partial = bytearray()
        self._needed = 0
        self._frame_max = limits.frame_bytes_max
        self._preface_due = not client_side
        self._continued: _Continued | None = None
        # Before the first SETTINGS, or inside a header block: only one kind of frame is allowed.
        self._is_unusual = True

    def start(self) -> None:
        """Queue the first frames: the preface (client) and the settings (both sides)."""
        limits = self._limits
        settings = {
            Setting.HEADER_TABLE_SIZE: limits.header_table_bytes_max,
            Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
            Setting.MAX_FRAME_SIZE: limits.frame_bytes_max,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_list_bytes_max,
        }
        if self._client_side:
            self._out.append(PREFACE)
            settings[Setting.ENABLE_PUSH] = 0
        else:
            settings[Setting.MAX_CONCURRENT_STREAMS] = limits.streams_max
        payload = b"".join(_SETTING.pack(setting, value) for setting, value in settings.items())
        self._put_frame(FrameType.SETTINGS, 0, 0, payload)
        self._settings_unacked += 1
        if self._window_max > WINDOW_DEFAULT:
            self._put_window_update(0, self._window_max - WINDOW_DEFAULT)
            self._receive_window = self._window_max

    def receive(self, data: bytes, *, now: float) -> list[Event]:
        """The events in the peer's bytes.  `now` is a monotonic time in seconds, for the budgets."""
        if self._is_over:
            return []
        self._now = now
        partial = self._partial
        if partial:
            partial += data
            if len(partial) < self._needed:
                return []
            data = bytes(partial)
            partial.clear()
        try:
            taken = self._receive_frames(data)
            if taken < len(data):
                partial += data[taken:]
        except ConnectionFailure as failure:
            self._fail(failure)
        events = self._events
        self._events = []
        return events

    def receive_answer(self, data: bytes, *, now: float) -> WholeAnswer | None:
        """Client: the response in the peer's bytes, if they are exactly one, in its usual form.

        That is a head, one DATA frame and trailers, with header blocks that are in the cache: the
        usual response when a single call is in flight.  It takes a third of the instructions of
        three frames with an event each.  The data counts as consumed.  If the result is None,
        nothing has changed and the bytes must be passed to `receive`.
        """
        size = len(data)
        if size < 27 or self._is_over or self._is_unusual or self._partial:
            return None
        data_at = 9 + (data[0] << 16 | data[1] << 8 | data[2])
        if data[3] != 0x1 or data[4] != _END_HEADERS or data_at > size - 18:
            return None
        body_at = data_at + 9
        trailers_at = body_at + (data[data_at] << 16 | data[data_at + 1] << 8 | data[data_at + 2])
        if data[data_at + 3] or data[data_at + 4] or trailers_at > size - 9:
            return None
        trailers_size = data[trailers_at] << 16 | data[trailers_at + 1] << 8 | data[trailers_at + 2]
        if (
            data[trailers_at + 3] != 0x1
            or data[trailers_at + 4] != _END_HEADERS | _END_STREAM
            or trailers_at + 9 + trailers_size != size
        ):
            return None
        word = data[5:9]
        if data[data_at + 5 : body_at] != word or data[trailers_at + 5 : trailers_at + 9] != word:
            return None
        stream_id = data[5] << 24 | data[6] << 16 | data[7] << 8 | data[8]
        stream = self._streams.get(stream_id)
        if stream is None or stream.head_received or stream.receive_ended or not stream.end_sent:
            return None
        blocks = self._decoder.cache
        head, trailers = blocks.get(data[9:data_at]), blocks.get(data[trailers_at + 9 :])
        if head is None or trailers is None:
            return None
        status = head.status
        flow_bytes = trailers_at - body_at
        if (
            status is None
            or status < b"200"
            or head.is_malformed
            or head.is_oversize
            or head.content_length is not None
            or trailers.is_malformed
            or trailers.is_oversize
            or not trailers.is_trailers
            or not 0 < flow_bytes <= self._frame_max
            or flow_bytes > self._receive_window
            or flow_bytes > stream.receive_window
        ):
            return None
        self._now = now
        self._receive_window -= flow_bytes
        self._give_back(flow_bytes)
        self._end_received(stream)
        return WholeAnswer(stream_id, head, data[body_at:trailers_at], trailers)

    def _receive_frames(self, data: bytes) -> int:
        """Handle all complete frames; returns where the first incomplete one begins."""
        position = 0
        end = len(data)
        if self._preface_due:
            position = self._receive_preface(data)
            if not position:
                return 0
        while position + 9 <= end:
            word, flags, stream_id = _unpack_head(data, position)
            kind = word & 0xFF
            if self._is_unusual:
                self._check_unusual(kind, flags, stream_id & ID_MASK)
            length = word >> 8
            if length > self._frame_max:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length:,} bytes")
            start = position + 9
            stop = start + length
            if stop > end:
                self._needed = 9 + length
                return position
            position = stop
            stream_id &= ID_MASK
            if kind == 0x0:
                self._on_data(data, start, stop, flags, stream_id)
            elif kind == 0x1:
                self._on_headers(data, start, stop, flags, stream_id)
            elif kind in _HANDLERS:
                _HANDLERS[kind](self, data, start, stop, flags, stream_id)
            else:
                self._charge_overhead()  # an unknown extension, which must be ignored (4.1)
        self._needed = 9
        return position

    def _receive_preface(self, data: bytes) -> int:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "the peer does not begin with HTTP/2")
        if len(data) < len(PREFACE):
            self._needed = len(data) + 1
            return 0
        self._preface_due = False
        return len(PREFACE)

    def _check_unusual(self, kind: int, flags: int, stream_id: int) -> None:
        continued = self._continued
        if continued is not None:
            if kind != FrameType.CONTINUATION or stream_id != continued.stream_id:
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR,
                    f"another frame inside the header block of stream {continued.stream_id}",
                )
        elif kind != FrameType.SETTINGS or flags & _ACK:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "the peer does not begin with SETTINGS")
        else:
            self._is_unusual = False

    def _fail(self, failure: ConnectionFailure) -> None:
        self.goaway(failure.code, failure.reason.encode())
        self._events.append(ConnectionEnded(failure.code, failure.reason))
        self._is_over = True
        self._streams.clear()
        self._waiting.clear()
        self._partial.clear()
        self._continued = None
        self.pending_total = 0

    # ---- DATA

    def _on_data(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        flow_bytes = stop - start
        if flow_bytes > self._receive_window:
            raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window allows")
        self._receive_window -= flow_bytes
        if flags & _PADDED:
            start, stop = _without_padding(data, start, stop)
        stream = self._streams.get(stream_id)
        if stream is None or stream.receive_ended or not stream.head_received:
            self._on_unwanted_data(stream, flow_bytes, stream_id)
            return
        if flow_bytes > stream.receive_window:
            self._give_back(flow_bytes)
            self._break_stream(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
            return
        stream.receive_window -= flow_bytes
        is_end = bool(flags & _END_STREAM)
        if stream.length_left is not None:
            stream.length_left -= stop - start
            if stream.length_left < 0 or (is_end and stream.length_left):
                self._give_back(flow_bytes)
                self._break_stream(stream_id, ErrorCode.PROTOCOL_ERROR)
                return
        if is_end:
            self._end_received(stream)
        elif start == stop:
            self._charge_overhead()
        self._events.append(DataReceived(stream_id, data[start:stop], flow_bytes, is_end))

    def _on_unwanted_data(self, stream: Stream | None, flow_bytes: int, stream_id: int) -> None:
        self._give_back(flow_bytes)
        if stream is not None:
            ended = stream.receive_ended
            code = ErrorCode.STREAM_CLOSED if ended else ErrorCode.PROTOCOL_ERROR
            self._break_stream(stream_id, code)
        elif self._is_idle(stream_id):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, f"DATA on idle stream {stream_id}")
        elif stream_id in self._recently_reset or self._was_sent_too_late(stream_id):
            # A cancelled transfer may have a whole window in flight, so only empty frames are charged.
            if not flow_bytes:
                self._charge_overhead()
        elif stream_id in self._finished:
            raise ConnectionFailure(ErrorCode.STREAM_CLOSED, f"DATA on closed stream {stream_id}")
        else:
            self._break_stream(stream_id, ErrorCode.STREAM_CLOSED)

    def _was_sent_too_late(self, stream_id: int) -> bool:
        """After our GOAWAY, new streams are not processed and their frames are ignored."""
        return self._goaway_last is not None and stream_id > self._goaway_last and not self._client_side

    def _end_received(self, stream: Stream) -> None:
        stream.receive_ended = True
        if stream.end_sent:
            del self._streams[stream.id]
            self._finished.append(stream.id)

    # ---- HEADERS and CONTINUATION

    def _on_headers(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        is_self_dependent = False
        if flags & (_PADDED | _PRIORITY):
            if flags & _PADDED:
                start, stop = _without_padding(data, start, stop)
            if flags & _PRIORITY:
                if stop - start < 5:
                    raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without its priority")
                depends_on = int.from_bytes(data[start : start + 4], "big") & ID_MASK
                is_self_dependent = depends_on == stream_id
                start += 5
        if flags & _END_HEADERS:
            self._on_block(stream_id, data[start:stop], bool(flags & _END_STREAM), is_self_dependent)
            return
        self._continued = _Continued(
            stream_id, data[start:stop], bool(flags & _END_STREAM), is_self_dependent
        )
        self._is_unusual = True

    def _on_continuation(self, data: bytes, start: int, stop: int, flags: int, _stream_id: int) -> None:
        continued = self._continued
        if continued is None:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        continued.encoded += data[start:stop]
        continued.frames += 1
        limits = self._limits
        if continued.frames > limits.continuations_max:
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM, f"over {limits.continuations_max} CONTINUATION frames"
            )
        if len(continued.encoded) > limits.header_block_bytes_max:
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"a header block of over {limits.header_block_bytes_max:,} bytes",
            )
        if flags & _END_HEADERS:
            self._continued, self._is_unusual = None, False
            self._on_block(
                continued.stream_id,
                bytes(continued.encoded),
                continued.is_end,
                continued.is_self_dependent,
            )

    def _on_block(self, stream_id: int, encoded: bytes, is_end: bool, is_self_dependent: bool) -> None:
        """A complete header block: a request, the head of a response, or trailers."""
        block = self._decoder.cache.get(encoded) or self._decode_new(encoded)
        stream = self._streams.get(stream_id)
        if stream is None:
            if self._client_side or self._is_spent(stream_id):
                self._on_unwanted_headers(stream_id)
            else:
                self._on_request(stream_id, block, is_end, is_self_dependent)
        elif stream.receive_ended:
            self._break_stream(stream_id, ErrorCode.STREAM_CLOSED)
        elif block.is_oversize:
            self._break_stream(stream_id, ErrorCode.ENHANCE_YOUR_CALM)
        elif block.is_malformed or is_self_dependent:
            self._break_stream(stream_id, ErrorCode.PROTOCOL_ERROR)
        elif stream.head_received:
            self._on_trailers(stream, block, is_end)
        else:
            self._on_response(stream, block, is_end)

    def _decode_new(self, encoded: bytes) -> HeaderBlock:
        decoder = self._decoder
        resizes = decoder.resizes
        block = decoder.decode_new(encoded)
        if decoder.resizes != resizes:
            self._charge_overhead(decoder.resizes - resizes)
        return block

    def _is_spent(self, stream_id: int) -> bool:
        return stream_id <= self._peer_stream_max or not stream_id & 1

    def _on_request(
        self, stream_id: int, block: HeaderBlock, is_end: bool, is_self_dependent: bool
    ) -> None:
        self._peer_stream_max = stream_id
        if self._goaway_last is not None:
            self._charge_overhead()
            return
        if block.is_oversize:
            self._break_stream(stream_id, ErrorCode.ENHANCE_YOUR_CALM)
            return
        length = block.content_length
        if block.is_malformed or block.is_trailers or is_self_dependent or (is_end and length):
            self._break_stream(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        if len(self._streams) >= self._limits.streams_max:
            self._break_stream(stream_id, ErrorCode.REFUSED_STREAM)
            return
        self._streams[stream_id] = Stream(
            stream_id, self._send_initial, self._receive_initial, True, is_end, length
        )
        self._events.append(HeadersReceived(stream_id, block, is_end))

    def _on_response(self, stream: Stream, block: HeaderBlock, is_end: bool) -> None:
        status = block.status
        if status is None or (is_end and status < b"200"):
            self._break_stream(stream.id, ErrorCode.PROTOCOL_ERROR)
            return
        if status < b"200":
            self._charge_overhead()
            return
        stream.head_received = True
        # A response without a body may answer HEAD; its content-length then refers to no body here.
        if not is_end and status not in _BODILESS:
            stream.length_left = block.content_length
        if is_end:
            self._end_received(stream)
        self._events.append(HeadersReceived(stream.id, block, is_end))

    def _on_trailers(self, stream: Stream, block: HeaderBlock, is_end: bool) -> None:
        if not is_end or not block.is_trailers or stream.length_left:
            self._break_stream(stream.id, ErrorCode.PROTOCOL_ERROR)
            return
        self._end_received(stream)
        self._events.append(TrailersReceived(stream.id, block))

    def _on_unwanted_headers(self, stream_id: int) -> None:
        if self._is_idle(stream_id):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream id {stream_id}")
        if stream_id in self._recently_reset or self._was_sent_too_late(stream_id):
            self._charge_overhead()
            return
        if stream_id in self._finished:
            raise ConnectionFailure(ErrorCode.STREAM_CLOSED, f"HEADERS on closed stream {stream_id}")
        raise ConnectionFailure(
            ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}, which was passed over"
        )


def _without_padding(data: bytes, start: int, stop: int) -> tuple[int, int]:
    if start == stop:
        raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without its padding length")
    padding = data[start]
    start += 1
    if padding > stop - start:
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, f"{padding} bytes of padding do not fit")
    return start, stop - padding


_HANDLERS: Final[dict[int, Callable[[Connection, bytes, int, int, int, int], None]]] = {
    FrameType.PRIORITY: Connection._on_priority,
    FrameType.RST_STREAM: Connection._on_rst_stream,
    FrameType.SETTINGS: Connection._on_settings,
    FrameType.PUSH_PROMISE: Connection._on_push_promise,
    FrameType.PING: Connection._on_ping,
    FrameType.GOAWAY: Connection._on_goaway,
    FrameType.WINDOW_UPDATE: Connection._on_window_update,
    FrameType.CONTINUATION: Connection._on_continuation,
}
