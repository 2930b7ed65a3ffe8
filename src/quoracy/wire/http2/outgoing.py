"""The sending half of a connection: a queue of frames, and data that waits for the peer's windows.

Invariants
    * Frames are sent in the order they were queued; the frames of a header block are never interleaved
      with others.
    * A stream sends its data, then its trailers: while data waits for the peer's window, everything
      later on that stream waits behind it.
    * A stream with waiting data is in `_waiting` exactly if its own window is open, so a window
      update of the connection costs nothing for streams that cannot use it.  Streams take turns, a
      frame each.
    * The data that waits here is not bounded: the application checks `pending` and stops producing, or
      resets the stream of a peer that never opens its window.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from quoracy.wire.http2.codes import (
    FRAME_BYTES_DEFAULT,
    FRAME_HEAD,
    WINDOW_DEFAULT,
    ErrorCode,
)
from quoracy.wire.http2.events import Event, StreamDrained
from quoracy.wire.http2.hpack import ConnectionFailure
from quoracy.wire.http2.limits import Http2Limits

__all__ = ["SEND_FRAME_BYTES_MAX", "Outgoing", "Stream"]

_pack_head: Final = FRAME_HEAD.pack

_DATA, _HEADERS, _RST_STREAM, _WINDOW_UPDATE, _CONTINUATION = 0x0, 0x1, 0x3, 0x8, 0x9
_END_STREAM, _END_HEADERS = 0x1, 0x4

# Larger frames would let one stream block the connection for long.
SEND_FRAME_BYTES_MAX: Final = 65_536
# Sent frames of at least this size count as useful work.  A peer that opens its window by a few
# bytes at a time gets smaller ones and earns nothing by them.
_WORK_BYTES: Final = 1_024
# As the first byte of a header block: our HPACK table has size 0 (RFC 7541, section 6.3).
_TABLE_RESIZED_TO_0: Final = b"\x20"
# Streams that ended properly, remembered to report the right error for late frames.
_FINISHED_MAX: Final = 128


class Stream:
    """One stream that is open in at least one direction."""

    __slots__ = (
        "credit", "end_sent", "head_received", "held", "id", "length_left", "pending", "receive_ended",
        "receive_window", "send_ended", "send_window", "trailers",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        send_window: int,
        receive_window: int,
        head_received: bool = False,
        receive_ended: bool = False,
        length_left: int | None = None,
    ) -> None:
        self.id = id
        self.send_window = send_window
        self.receive_window = receive_window
        # Consumed by the application, and not yet returned to the peer's window.
        self.credit = 0
        self.head_received = head_received
        self.receive_ended = receive_ended
        # The bytes still to come according to content-length.
        self.length_left = length_left
        # Whether the application has ended its side; `end_sent`: END_STREAM is in the queue of frames.
        self.send_ended = False
        self.end_sent = False
        self.pending = 0
        self.held: deque[bytes | memoryview] | None = None
        self.trailers: bytes | None = None


class Outgoing:
    """The queue of a connection.  `Connection` adds the receiving half."""

    __slots__ = (
        "_control_bytes", "_events", "_finished", "_is_over", "_limits", "_out", "_recently_reset",
        "_resize_due", "_resize_said", "_send_frame_max", "_send_window", "_streams", "_waiting",
        "_work", "pending_total",
    )  # fmt: skip

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._out: list[bytes | memoryview] = []
        # The size of those that reply to frames of the peer.
        self._control_bytes = 0
        self._events: list[Event] = []
        self._streams: dict[int, Stream] = {}
        self._waiting: dict[int, Stream] = {}
        self._finished: deque[int] = deque(maxlen=_FINISHED_MAX)
        self._recently_reset: dict[int, None] = {}
        self._send_window = WINDOW_DEFAULT
        self._send_frame_max = FRAME_BYTES_DEFAULT
        # Whether the next header block must announce that our HPACK table is empty; once is enough.
        self._resize_due = False
        self._resize_said = False
        self._is_over = False
        # The useful work done for this peer, which refills the budgets.
        self._work = 0
        self.pending_total = 0

    @property
    def has_data_to_send(self) -> bool:
        return bool(self._out)

    def data_to_send(self) -> bytes:
        """Removes and returns everything that is queued.

        A caller whose transport is full does not call this, so that frames wait here, where replies to
        the peer's frames are bounded.
        """
        out = self._out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        self._control_bytes = 0
        return data

    def send_headers(self, stream_id: int, block: bytes, end_stream: bool = False) -> bool:
        """A head, or trailers if `end_stream` and something was sent before."""
        stream = self._streams.get(stream_id) or self._open(stream_id)
        if stream is None or stream.send_ended:
            return False
        self._work += 1
        if stream.pending:
            assert end_stream, "headers after data are trailers, and those end the stream"
            stream.trailers = block
            stream.send_ended = True
            return True
        self._put_headers(stream_id, block, end_stream=end_stream)
        if end_stream:
            self._end_sent(stream)
        return True

    def send_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> bool:
        """Data of any size: what flow control holds back is sent when the peer opens its window."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.send_ended:
            return False
        self._work += 1
        size = len(data)
        if (
            not stream.pending
            and size <= self._send_frame_max
            and size <= self._send_window
            and size <= stream.send_window
        ) or not (size or stream.pending):
            if size or end_stream:
                self._put_data(stream, data, size, end_stream=end_stream)
            return True
        stream.send_ended = end_stream
        if size:
            self._hold(stream, data, size)
        return True

    def send_request(self, stream_id: int, head: bytes, body: bytes) -> bool:
        """A complete request on a new stream: in one piece if frames and windows allow it."""
        stream = self._open(stream_id)
        if stream is None:
            return False
        size = len(body)
        frame_max = self._send_frame_max
        if (
            size > self._send_window
            or size > stream.send_window
            or size > frame_max
            or len(head) > frame_max
            or self._resize_due
        ):
            self.send_headers(stream_id, head)
            return self.send_data(stream_id, body, end_stream=True)
        self._work += 2  # as for the two parts
        self._send_window -= size  # the stream's own window no longer matters
        self._out += (
            _pack_head(len(head) << 8 | _HEADERS, _END_HEADERS, stream_id),
            head,
            _pack_head(size << 8, _END_STREAM, stream_id),
            body,
        )
        self._end_sent(stream)
        return True

    def send_response(self, stream_id: int, head: bytes, body: bytes, trailers: bytes) -> bool:
        """A complete response: in one piece if frames and windows allow it, otherwise in parts."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.send_ended:
            return False
        piece = self._one_piece(stream, head, body, trailers)
        if piece is None:
            self.send_headers(stream_id, head)
            self.send_data(stream_id, body)
            return self.send_headers(stream_id, trailers, end_stream=True)
        self._out += piece
        self.response_sent(stream_id, len(body))
        return True

    def response(self, stream_id: int, head: bytes, body: bytes, trailers: bytes) -> bytes | None:
        """The bytes that `send_response` would send now; None if they would not be one piece.

        Nothing is sent and no state changes.  A caller that sends these bytes itself calls
        `response_sent`; until it knows whether they were sent, it holds the window for them by
        `reserve`.
        """
        stream = self._streams.get(stream_id)
        if stream is None or stream.send_ended:
            return None
        piece = self._one_piece(stream, head, body, trailers)
        return None if piece is None else b"".join(piece)

    def _one_piece(
        self, stream: Stream, head: bytes, body: bytes, trailers: bytes
    ) -> list[bytes] | None:
        size, frame_max = len(body), self._send_frame_max
        if (
            size > self._send_window
            or size > stream.send_window
            or size > frame_max
            or len(head) > frame_max
            or len(trailers) > frame_max
            or stream.pending
            or self._resize_due
        ):
            return None
        return [
            _pack_head(len(head) << 8 | _HEADERS, _END_HEADERS, stream.id),
            head,
            _pack_head(size << 8, 0, stream.id),
            body,
            _pack_head(len(trailers) << 8 | _HEADERS, _END_HEADERS | _END_STREAM, stream.id),
            trailers,
        ]

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes of the connection's window; a negative size returns them."""
        self._send_window -= size

    def response_sent(self, stream_id: int, size: int) -> None:
        """A `response` with a body of this size was sent."""
        self._work += 1
        self._send_window -= size  # the stream's own window no longer matters
        stream = self._streams.get(stream_id)
        if stream is not None:  # else it was reset in the meantime
            self._end_sent(stream)

    def reset(self, stream_id: int, code: int = ErrorCode.CANCEL) -> bool:
        """Reset the stream; its waiting data is dropped."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return False
        self._forget(stream)
        self._remember_reset(stream_id)
        self._put_frame(_RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))
        return True

    def pending(self, stream_id: int) -> int:
        """The bytes of this stream that wait for the peer's window."""
        stream = self._streams.get(stream_id)
        return stream.pending if stream is not None else 0

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def is_open(self, stream_id: int) -> bool:
        return stream_id in self._streams

    # ---- Frames

    def _put_headers(self, stream_id: int, block: bytes, *, end_stream: bool) -> None:
        if self._resize_due:
            block = _TABLE_RESIZED_TO_0 + block
            self._resize_due, self._resize_said = False, True
        frame_max = self._send_frame_max
        flags = _END_STREAM if end_stream else 0
        if len(block) <= frame_max:
            self._out += (
                _pack_head(len(block) << 8 | _HEADERS, flags | _END_HEADERS, stream_id),
                block,
            )
            return
        kind = _HEADERS
        for start in range(0, len(block), frame_max):
            part = block[start : start + frame_max]
            if start + frame_max >= len(block):
                flags |= _END_HEADERS
            self._out += (_pack_head(len(part) << 8 | kind, flags, stream_id), part)
            kind, flags = _CONTINUATION, 0

    def _put_data(
        self, stream: Stream, data: bytes | memoryview, size: int, *, end_stream: bool
    ) -> None:
        self._send_window -= size
        stream.send_window -= size
        self._out += (_pack_head(size << 8, _END_STREAM if end_stream else 0, stream.id), data)
        if end_stream:
            self._end_sent(stream)

    def _put_window_update(self, stream_id: int, increment: int) -> None:
        self._put_frame(_WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))

    def _put_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self._out += (_pack_head(len(payload) << 8 | kind, flags, stream_id), payload)

    def _put_control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """A reply to a frame of the peer; its bytes count until they are taken."""
        self._put_frame(kind, flags, stream_id, payload)
        self._control_bytes += 9 + len(payload)
        if self._control_bytes > self._limits.control_bytes_max:
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"over {self._limits.control_bytes_max:,} bytes of answers wait to be read",
            )

    # ---- Data that waits

    def _hold(self, stream: Stream, data: bytes, size: int) -> None:
        if stream.held is None:
            stream.held = deque()
        stream.held.append(data)
        was_pending = stream.pending
        stream.pending += size
        self.pending_total += size
        if not was_pending:
            if stream.send_window > 0:
                self._waiting[stream.id] = stream
            self._send_waiting(announce=False)

    def _send_waiting(self, *, announce: bool) -> None:
        """Send what the windows allow.  Streams take turns, so that none starves."""
        waiting = self._waiting
        while waiting and self._send_window > 0:
            for stream in list(waiting.values()):
                if self._send_window <= 0:
                    break
                del waiting[stream.id]
                self._send_held_frame(stream)
                if stream.pending:
                    if stream.send_window > 0:
                        waiting[stream.id] = stream
                elif announce:
                    self._events.append(StreamDrained(stream.id))

    def _send_held_frame(self, stream: Stream) -> None:
        held = stream.held
        assert held
        part = held[0]
        size = min(len(part), self._send_frame_max, self._send_window, stream.send_window)
        if size == len(part):
            held.popleft()
        else:
            view = memoryview(part)
            part, held[0] = view[:size], view[size:]
        stream.pending -= size
        self.pending_total -= size
        if size >= _WORK_BYTES:
            self._work += 1
        is_last = stream.send_ended and not stream.pending
        self._put_data(stream, part, size, end_stream=is_last and stream.trailers is None)
        if is_last and stream.trailers is not None:
            self._put_headers(stream.id, stream.trailers, end_stream=True)
            self._end_sent(stream)

    # ---- The beginning and the end of a stream

    def _open(self, stream_id: int) -> Stream | None:  # noqa: ARG002 - a client's connection reads it
        """Open a stream with headers; a server opens none."""
        return None

    def _end_sent(self, stream: Stream) -> None:
        stream.send_ended = stream.end_sent = True
        if stream.receive_ended:
            del self._streams[stream.id]
            self._finished.append(stream.id)

    def _remember_reset(self, stream_id: int) -> None:
        """Late frames of the stream will be ignored (RFC 9113, section 5.1, "closed")."""
        recently = self._recently_reset
        if len(recently) >= self._limits.recently_reset_max:
            del recently[next(iter(recently))]
        recently[stream_id] = None

    def _forget(self, stream: Stream) -> None:
        """Drop the stream and its waiting data."""
        del self._streams[stream.id]
        if stream.pending:
            self._waiting.pop(stream.id, None)
            self.pending_total -= stream.pending
            stream.pending = 0
            stream.held = None
