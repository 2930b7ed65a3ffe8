"""The control frames of a connection: SETTINGS, PING, GOAWAY, RST_STREAM, WINDOW_UPDATE, PRIORITY.

They carry no request, so each is charged to a budget (`limits.Budget`).  When a peer exceeds it, the
connection ends with ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from quoracy.wire.http2.codes import (
    FRAME_BYTES_DEFAULT,
    FRAME_BYTES_LIMIT,
    STREAM_ID_MAX,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ErrorCode,
    FrameType,
    Setting,
    error_code,
)
from quoracy.wire.http2.events import (
    GoAwayReceived,
    PingAcked,
    SettingsReceived,
    StreamReset,
)
from quoracy.wire.http2.hpack import ConnectionFailure, HeaderDecoder
from quoracy.wire.http2.limits import Budget, Http2Limits
from quoracy.wire.http2.outgoing import SEND_FRAME_BYTES_MAX, Outgoing, Stream

__all__ = ["ID_MASK", "Control"]

_SETTING: Final = Struct(">HI")
_ACK: Final = 0x1
ID_MASK: Final = 0x7FFF_FFFF
_HEADER_TABLE_DEFAULT: Final = 4_096
# A SETTINGS frame of ordinary length costs as much as any other frame; a frame of thousands costs more.
_SETTINGS_BYTES_PER_COST: Final = 64
# A change of INITIAL_WINDOW_SIZE affects every stream: it costs one frame per this many streams.
_STREAMS_PER_COST: Final = 16
# How many pings are kept; further ones are answered at once.
_PINGS_MAX: Final = 16


class Control(Outgoing):
    """Windows, settings and ids of a connection.  `Connection` adds requests and responses."""

    __slots__ = (
        "_client_side", "_credit", "_credit_min", "_decoder", "_goaway_last", "_next_stream_id", "_now",
        "_opened_max", "_overhead", "_peer_goaway_last", "_peer_stream_max", "_peer_streams_max",
        "_receive_initial", "_receive_window", "_resets", "_send_initial", "_settings_unacked",
        "_stream_credit_min", "_window_max", "keeps_pings", "pings",
    )  # fmt: skip

    def __init__(self, *, client_side: bool, limits: Http2Limits) -> None:
        super().__init__(limits)
        self._client_side = client_side
        self._decoder = HeaderDecoder(limits, client_side=client_side)
        self._now = 0.0
        self.keeps_pings = False
        self.pings: list[bytes] = []
        self._resets = Budget(burst=limits.resets_burst, per_s=limits.resets_per_s, per_work=1)
        self._overhead = Budget(burst=limits.overhead_burst, per_s=limits.overhead_per_s, per_work=4)
        # Receive windows.  Until our settings are acknowledged, the peer may rely on the protocol's
        # defaults where those are larger.
        self._settings_unacked = 0
        self._window_max = max(WINDOW_DEFAULT, limits.connection_window)
        self._receive_window = WINDOW_DEFAULT
        self._receive_initial = max(WINDOW_DEFAULT, limits.stream_window)
        self._credit = 0
        self._credit_min = self._window_max // 2
        self._stream_credit_min = max(1, limits.stream_window // 2)
        # The peer's settings.
        self._send_initial = WINDOW_DEFAULT
        self._peer_streams_max = STREAM_ID_MAX
        # Stream ids: the highest of the peer's; the next and the highest of ours.
        self._peer_stream_max = 0
        self._next_stream_id = 1
        self._opened_max = 0
        self._goaway_last: int | None = None
        self._peer_goaway_last: int | None = None

    # ---- Calls

    def consumed(self, stream_id: int, flow_bytes: int) -> None:
        """The application has taken `flow_bytes` of `DataReceived`, so the peer may send as much again.

        The peer is notified when half a window is used up, which takes few frames.
        """
        if self._is_over:
            return
        self._give_back(flow_bytes)
        stream = self._streams.get(stream_id)
        if stream is None or stream.receive_ended:
            return
        stream.credit += flow_bytes
        if stream.credit >= self._stream_credit_min:
            self._put_window_update(stream_id, stream.credit)
            stream.receive_window += stream.credit
            stream.credit = 0

    def ping(self, data: bytes = bytes(8)) -> None:
        """Send a ping; a `PingAcked` with the same 8 bytes answers it."""
        assert len(data) == 8
        if not self._is_over:
            self._put_frame(FrameType.PING, 0, 0, data)

    def answer_pings(self) -> None:
        """Answer the pings that were kept because of `keeps_pings`.

        "PING responses SHOULD be given higher priority than any other frame" (6.7), for peers that
        measure round trips.  An application that keeps pings must still answer soon, because some peers
        ping to find out whether the connection is alive.
        """
        if not self._is_over:
            for data in self.pings:
                self._put_control(FrameType.PING, _ACK, 0, data)
        self.pings.clear()

    def goaway(self, code: int = ErrorCode.NO_ERROR, debug: bytes = b"") -> None:
        """Accept no new streams; open ones continue.  New streams are ignored: the GOAWAY informs the
        peer that they were not processed, so it may send them elsewhere."""
        if self._is_over:
            return
        if self._goaway_last is None:
            self._goaway_last = self._peer_stream_max
        payload = self._goaway_last.to_bytes(4, "big") + code.to_bytes(4, "big") + debug
        self._put_frame(FrameType.GOAWAY, 0, 0, payload)

    @property
    def can_open_stream(self) -> bool:
        """Client: whether the peer accepts another stream now, and ids are left."""
        return (
            self._client_side
            and not self._is_over
            and self._goaway_last is None
            and self._peer_goaway_last is None
            and len(self._streams) < self._peer_streams_max
            and self._next_stream_id <= STREAM_ID_MAX
        )

    def next_stream_id(self) -> int:
        """Client: the id for a new stream, to be opened by `send_headers`, in the order of ids."""
        assert self.can_open_stream
        stream_id = self._next_stream_id
        self._next_stream_id += 2
        return stream_id

    # ---- Streams

    def _open(self, stream_id: int) -> Stream | None:
        if (
            not self._client_side
            or self._is_over
            or self._peer_goaway_last is not None
            or not self._opened_max < stream_id < self._next_stream_id
        ):
            return None
        self._opened_max = stream_id
        stream = self._streams[stream_id] = Stream(stream_id, self._send_initial, self._receive_initial)
        return stream

    def _is_idle(self, stream_id: int) -> bool:
        """Whether the stream was never used.  Even ids are for server push, which is not supported."""
        highest = self._opened_max if self._client_side else self._peer_stream_max
        return stream_id > highest or not stream_id & 1

    def _break_stream(self, stream_id: int, code: ErrorCode) -> None:
        """Reset a stream because the peer broke a rule.  Such resets are charged like the peer's own:
        otherwise a peer could start work without limit ("MadeYouReset")."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream)
            self._events.append(StreamReset(stream_id, code))
        self._remember_reset(stream_id)
        self._put_control(FrameType.RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))
        self._charge_reset()

    def _charge_reset(self) -> None:
        if not self._resets.charge(1, now=self._now, work=self._work):
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM, "streams are reset faster than they work"
            )

    def _charge_overhead(self, cost: int = 1) -> None:
        if not self._overhead.charge(cost, now=self._now, work=self._work):
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that do no work")

    def _give_back(self, flow_bytes: int) -> None:
        credit = self._credit + flow_bytes
        assert self._receive_window + credit <= self._window_max, "more consumed than received"
        if credit >= self._credit_min:
            self._put_window_update(0, credit)
            self._receive_window += credit
            credit = 0
        self._credit = credit

    # ---- Frames

    def _on_priority(self, data: bytes, start: int, stop: int, _flags: int, stream_id: int) -> None:
        """Priorities are deprecated and ignored; malformed frames are still errors."""
        self._charge_overhead()
        if not stream_id:
            raise _protocol_error("PRIORITY on stream 0")
        wrong: ErrorCode | None = None
        if stop - start != 5:
            wrong = ErrorCode.FRAME_SIZE_ERROR
        elif int.from_bytes(data[start : start + 4], "big") & ID_MASK == stream_id:
            wrong = ErrorCode.PROTOCOL_ERROR
        if wrong is None:
            return
        if self._is_idle(stream_id):
            # A stream that does not exist cannot be reset.
            raise ConnectionFailure(wrong, f"a broken PRIORITY on idle stream {stream_id}")
        if stream_id in self._streams:
            self._break_stream(stream_id, wrong)

    def _on_rst_stream(self, data: bytes, start: int, stop: int, _flags: int, stream_id: int) -> None:
        if stop - start != 4:
            raise _wrong_size("RST_STREAM", stop - start)
        if not stream_id:
            raise _protocol_error("RST_STREAM on stream 0")
        stream = self._streams.get(stream_id)
        if stream is None:
            if self._is_idle(stream_id):
                raise _protocol_error(f"RST_STREAM on idle stream {stream_id}")
            self._charge_overhead()
            return
        self._forget(stream)
        self._finished.append(stream_id)
        self._events.append(StreamReset(stream_id, error_code(int.from_bytes(data[start:stop], "big"))))
        # A stream that was answered has already paid for its reset.
        self._charge_reset()

    def _on_settings(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        if stream_id:
            raise _protocol_error(f"SETTINGS on stream {stream_id}")
        self._charge_overhead(1 + (stop - start) // _SETTINGS_BYTES_PER_COST)
        if flags & _ACK:
            if start != stop:
                raise _wrong_size("SETTINGS acknowledgement", stop - start)
            self._settings_acked()
            return
        if (stop - start) % 6:
            raise _wrong_size("SETTINGS", stop - start)
        for position in range(start, stop, 6):
            self._apply_setting(*_SETTING.unpack_from(data, position))
        self._put_control(FrameType.SETTINGS, _ACK, 0, b"")
        self._events.append(SettingsReceived())
        self._send_waiting(announce=True)

    def _apply_setting(self, setting: int, value: int) -> None:
        match setting:
            case Setting.HEADER_TABLE_SIZE:
                # Our encoder has no table, but a strict decoder expects to be notified of its size.
                if value < _HEADER_TABLE_DEFAULT and not self._resize_said:
                    self._resize_due = True
            case Setting.ENABLE_PUSH:
                if value > 1 or (value and self._client_side):
                    raise _protocol_error(f"SETTINGS_ENABLE_PUSH is {value}")
            case Setting.MAX_CONCURRENT_STREAMS:
                self._peer_streams_max = value
            case Setting.INITIAL_WINDOW_SIZE:
                self._apply_initial_window(value)
            case Setting.MAX_FRAME_SIZE:
                if not FRAME_BYTES_DEFAULT <= value <= FRAME_BYTES_LIMIT:
                    raise _protocol_error(f"SETTINGS_MAX_FRAME_SIZE is {value}")
                self._send_frame_max = min(value, SEND_FRAME_BYTES_MAX)
            case Setting.ENABLE_CONNECT_PROTOCOL | Setting.NO_RFC7540_PRIORITIES:
                if value > 1:
                    raise _protocol_error(f"setting {setting:#x} is {value}; it must be 0 or 1")
            case _:
                # MAX_HEADER_LIST_SIZE is advisory; unknown settings must be ignored.
                return

    def _apply_initial_window(self, value: int) -> None:
        """Change the windows of all streams by the difference; they may become negative (6.9.2)."""
        if value > WINDOW_MAX:
            raise ConnectionFailure(
                ErrorCode.FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE is {value}"
            )
        difference = value - self._send_initial
        self._send_initial = value
        if not difference:
            return
        self._charge_overhead(1 + len(self._streams) // _STREAMS_PER_COST)
        for stream in self._streams.values():
            self._open_send_window(stream, difference)
            if stream.send_window > WINDOW_MAX:
                raise ConnectionFailure(
                    ErrorCode.FLOW_CONTROL_ERROR,
                    f"the new initial window makes that of stream {stream.id} too large",
                )

    def _open_send_window(self, stream: Stream, increment: int) -> None:
        stream.send_window += increment
        if stream.pending:
            if stream.send_window > 0:
                self._waiting[stream.id] = stream
            else:
                self._waiting.pop(stream.id, None)

    def _settings_acked(self) -> None:
        """From now on, the peer observes our settings."""
        if not self._settings_unacked:
            return
        self._settings_unacked -= 1
        limits = self._limits
        self._decoder.allow_table_bytes(limits.header_table_bytes_max)
        difference = limits.stream_window - self._receive_initial
        self._receive_initial = limits.stream_window
        if difference:
            for stream in self._streams.values():
                stream.receive_window += difference

    def _on_push_promise(
        self, _data: bytes, _start: int, _stop: int, _flags: int, _stream_id: int
    ) -> None:
        raise _protocol_error("PUSH_PROMISE, which a client may not send and our settings forbid")

    def _on_ping(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        if stream_id:
            raise _protocol_error(f"PING on stream {stream_id}")
        if stop - start != 8:
            raise _wrong_size("PING", stop - start)
        self._charge_overhead()
        if flags & _ACK:
            self._events.append(PingAcked(data[start:stop]))
        elif self.keeps_pings and len(self.pings) < _PINGS_MAX:
            self.pings.append(data[start:stop])
        else:
            self._put_control(FrameType.PING, _ACK, 0, data[start:stop])

    def _on_goaway(self, data: bytes, start: int, stop: int, _flags: int, stream_id: int) -> None:
        if stream_id:
            raise _protocol_error(f"GOAWAY on stream {stream_id}")
        if stop - start < 8:
            raise _wrong_size("GOAWAY", stop - start)
        self._charge_overhead()
        last = int.from_bytes(data[start : start + 4], "big") & ID_MASK
        code = error_code(int.from_bytes(data[start + 4 : start + 8], "big"))
        if self._peer_goaway_last is not None and last > self._peer_goaway_last:
            raise _protocol_error(
                f"GOAWAY raises the last stream from {self._peer_goaway_last} to {last}"
            )
        self._peer_goaway_last = last
        self._events.append(GoAwayReceived(last, code, data[start + 8 : stop]))
        if self._client_side:
            for stream in [each for each in self._streams.values() if each.id > last]:
                self._forget(stream)
                self._remember_reset(stream.id)
                self._events.append(StreamReset(stream.id, ErrorCode.REFUSED_STREAM))

    def _on_window_update(
        self, data: bytes, start: int, stop: int, _flags: int, stream_id: int
    ) -> None:
        if stop - start != 4:
            raise _wrong_size("WINDOW_UPDATE", stop - start)
        self._charge_overhead()
        increment = int.from_bytes(data[start:stop], "big") & ID_MASK
        if not stream_id:
            if not increment:
                raise _protocol_error("WINDOW_UPDATE by 0")
            self._send_window += increment
            if self._send_window > WINDOW_MAX:
                raise ConnectionFailure(
                    ErrorCode.FLOW_CONTROL_ERROR, "the connection's window grew too large"
                )
        else:
            stream = self._streams.get(stream_id)
            if stream is None:
                if self._is_idle(stream_id):
                    raise _protocol_error(f"WINDOW_UPDATE on idle stream {stream_id}")
                return
            if not increment:
                self._break_stream(stream_id, ErrorCode.PROTOCOL_ERROR)
                return
            if stream.send_window + increment > WINDOW_MAX:
                self._break_stream(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
                return
            self._open_send_window(stream, increment)
        if self._waiting:
            self._send_waiting(announce=True)


def _protocol_error(reason: str) -> ConnectionFailure:
    return ConnectionFailure(ErrorCode.PROTOCOL_ERROR, reason)


def _wrong_size(what: str, size: int) -> ConnectionFailure:
    return ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, f"{what} of {size} bytes")
