"""One HTTP/2 connection to one server, with any number of gRPC calls on it.

A thin shell around the sans-IO `wire.http2.Connection`.  A unary call is no task; everything that is
sent in one turn of the loop leaves in one write, but for a call that is alone, which leaves at once.
There are no coroutines here, so that this can be compiled: what can be awaited is a future.

Invariants
    * Every call ends: with what the server said, by its deadline, or when the connection does.
    * A connection that goes silent while calls are open is asked (PING), and ended if it stays silent:
      a network that swallows packets looks like a quiet server otherwise.
    * Calls beyond `SEND_BYTES_MAX`, or beyond the streams that the server allows, wait without having
      left.  How many there may be is for the callers to bound (`submission`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

from quoracy.errors import QuoracyError, StoreClosed
from quoracy.remote.calls import AwaitedCall, StreamCall, UnaryCall
from quoracy.remote.errors import CallLost, DeadlinePassed
from quoracy.wire.grpc import frame, request_head
from quoracy.wire.http2 import (
    Connection,
    ConnectionEnded,
    DataReceived,
    ErrorCode,
    Event,
    GoAwayReceived,
    HeadersReceived,
    Http2Limits,
    PingAcked,
    SettingsReceived,
    StreamReset,
    TrailersReceived,
    WholeAnswer,
)

if TYPE_CHECKING:
    from quoracy.remote.dial import ChannelOptions
    from quoracy.remote.urls import Address

__all__ = ["Channel"]

SEND_BYTES_MAX = 4 * 1024 * 1024
CLOSE_S_MAX = 1.0

# How often deadlines are checked: a call ends at most this long after its deadline.
_TICK_S = 0.05
# With streams only there is nothing but silence to look for.
_SLOW_TICK_S = 1.0
_TICKS_IN_SILENCE_MIN = 3
# How long an answer to the server's PING waits.  To estimate the bandwidth, grpc-go sends one with the
# first data that comes after the last was answered.  Answered at once, that is one for each call of a
# client with one call at a time, and a wake-up and a write more for both sides.
_PING_ANSWER_S = 0.05


class Channel:
    """A connection.  Made by `dial.connect`; lives on the loop it was made on.

    An `asyncio.Protocol` in all but name: compiled, it cannot inherit from one.
    """

    def __init__(self, address: Address, options: ChannelOptions, *, secure: bool) -> None:
        self.address = address
        self.served = False  # whether any call was answered
        self.server_version: str | None = None  # noted by the caller that asked for it
        self._options = options
        self._scheme = "https" if secure else "http"
        self._loop = asyncio.get_running_loop()
        self._http = Connection(client_side=True, limits=Http2Limits())
        self._http.keeps_pings = True
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._lost: str | None = None
        self._going_away = False
        self._unary: dict[int, UnaryCall] = {}
        self._streams: dict[int, StreamCall] = {}
        self._waits: dict[int, UnaryCall] = {}  # which have no deadline
        self._waiting: deque[UnaryCall] = deque()
        self._heads: dict[tuple[str, float | None, str | None], bytes] = {}
        # The one used last, and what for.
        self._head_path = ""
        self._head_timeout_s: float | None = None
        self._head_token: str | None = None
        self._head_last = b""
        self._paused = False
        self._flushing = False
        self._answering = False
        self._unflushed: list[UnaryCall] = []  # sent by us, and not yet handed to the transport
        self._timer: asyncio.TimerHandle | None = None
        self._tick_at = 0.0  # when it is due
        self._heard_at = self._loop.time()
        self._pinged_at: float | None = None
        self._ticks_in_silence = 0

    # -- for callers --------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether new calls can be made on it."""
        return self._lost is None and not self._going_away

    @property
    def gone(self) -> bool:
        return self._lost is not None

    @property
    def waits_count(self) -> int:
        """How many calls there are that may be answered at any time."""
        return len(self._waits)

    def retire(self) -> None:
        """Take no new calls; hang up when the last one is over."""
        self._going_away = True
        self._fail_waiting(CallLost("the connection is no longer used", left=False))
        self._hang_up_when_idle()

    def unary(
        self, path: str, payload: bytes, *, timeout_s: float, deadline: float, token: str | None = None
    ) -> asyncio.Future[bytes]:
        """Call once.  Ends with the answer, with `GrpcError` for the server's status, or `CallLost`.

        `deadline`, by the loop's clock, is when the call ends here.  `timeout_s` is what the server
        gets, and may be a little more: calls with the same one share their encoded head.
        """
        call = AwaitedCall(self, payload)
        self._begin(call, path, timeout_s, token, deadline)
        return call.future

    def begin(self, call: UnaryCall, path: str, *, timeout_s: float, token: str | None) -> None:
        """Begin a call, which ends after this has returned."""
        self._begin(call, path, timeout_s, token, self._loop.time() + timeout_s)

    def _begin(
        self, call: UnaryCall, path: str, timeout_s: float, token: str | None, deadline: float
    ) -> None:
        now = self._loop.time()
        call.head = self._head(path, timeout_s, token)
        call.began, call.deadline = now, deadline
        if self.usable and not self._waiting and self._has_room():
            self._send(call)
            self._tick_soon(now)
        else:
            self._loop.call_soon(self._start, call)

    def stream(self, path: str, *, token: str | None = None) -> StreamCall:
        """Open a call that goes on until one side ends it.  Raises `CallLost`."""
        if not self.usable or not self._http.can_open_stream:
            raise CallLost(
                self._lost or "the server takes no more calls on this connection", left=False
            )
        stream_id = self._http.next_stream_id()
        size_max = self._options.answer_bytes_max
        call = self._streams[stream_id] = StreamCall(self, stream_id, size_max)
        self._http.send_headers(stream_id, self._head(path, None, token))
        self._flush_soon()
        self._tick_soon(self._loop.time())
        return call

    def begin_wait(self, call: UnaryCall, path: str, *, token: str | None) -> bool:
        """Begin a call without a deadline, answered when something happens; `give_up` ends it.

        False: it cannot be sent on this connection, and nothing was done.
        """
        if not self.usable or not self._http.can_open_stream:
            return False
        call.began = self._loop.time()
        call.head = self._head(path, None, token)
        stream_id = call.stream_id = self._http.next_stream_id()
        self._waits[stream_id] = call
        self._http.send_request(stream_id, call.head, frame(call.payload))
        self._flush_soon()
        self._tick_soon(call.began)
        return True

    def close(self) -> asyncio.Future[None]:
        """End every call and hang up; done when the transport is gone, soon in any case."""
        # First: what would leave with the goodbye has left, and its caller must not learn that it was
        # not applied.
        self._flush()
        self._end(StoreClosed(), "the store was closed")
        if self._transport is None:
            self._note_closed()
        elif not self._closed.done():
            self._http.goaway()
            self._flush()
            self._transport.close()
            self._loop.call_later(CLOSE_S_MAX, self._hang_up)
        return asyncio.shield(self._closed)

    def abort(self, cause: str) -> None:
        """Hang up at once."""
        self._end(None, cause)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._transport is not None and not self._closed.done():
            self._transport.abort()

    def _note_closed(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    @property
    def ready(self) -> asyncio.Future[None]:
        """Done when the server has greeted us."""
        return self._ready

    # -- for stream calls ---------------------------------------------------------------------

    def send_message(self, stream_id: int, payload: bytes) -> None:
        self._http.send_data(stream_id, frame(payload))
        self._flush_soon()

    def half_close(self, stream_id: int) -> None:
        self._http.send_data(stream_id, b"", end_stream=True)
        self._flush_soon()

    def consumed(self, stream_id: int, flow_bytes: int) -> None:
        self._http.consumed(stream_id, flow_bytes)
        # Half a window has to be used up before there is anything to say about it.
        if self._http.has_data_to_send:
            self._flush_soon()

    def abandon(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)
        self._http.reset(stream_id, ErrorCode.CANCEL)
        self._flush_soon()

    # -- sending ------------------------------------------------------------------------------

    def _head(self, path: str, timeout_s: float | None, token: str | None) -> bytes:
        # Mostly the same as the last time: then nothing is put into a tuple and looked up.
        if path is self._head_path and timeout_s == self._head_timeout_s and token is self._head_token:
            return self._head_last
        key = (path, timeout_s, token)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) > 64:  # tokens change now and then; the paths are few
                self._heads.clear()
            head = self._heads[key] = request_head(
                path,
                str(self.address),
                scheme=self._scheme,
                timeout_s=timeout_s,
                metadata=self._metadata(token),
            )
        self._head_path, self._head_timeout_s, self._head_token = path, timeout_s, token
        self._head_last = head
        return head

    def _metadata(self, token: str | None) -> tuple[tuple[bytes, bytes], ...]:
        metadata = ((b"token", token.encode()),) if token else ()
        return (*metadata, (b"hasleader", b"true")) if self._options.require_leader else metadata

    def _start(self, call: UnaryCall) -> None:
        if call.is_over:
            return
        if not self.usable:
            call.fail(CallLost(self._lost or "the server is going away", left=False))
        elif self._waiting or not self._has_room():
            self._waiting.append(call)
        else:
            self._send(call)
        self._tick_soon(self._loop.time())

    def _has_room(self) -> bool:
        return (
            self._http.can_open_stream
            and not self._paused
            and self._http.pending_total < SEND_BYTES_MAX
        )

    def _send(self, call: UnaryCall) -> None:
        stream_id = call.stream_id = self._http.next_stream_id()
        self._unary[stream_id] = call
        self._unflushed.append(call)
        self._http.send_request(stream_id, call.head, frame(call.payload))
        if len(self._unary) == 1 and not self._flushing:
            self._flush()  # no other call shares the write: a turn of the loop is time lost
        else:
            self._flush_soon()

    def _admit(self) -> None:
        """Send what waited, as far as there is room."""
        while self._waiting and self._has_room():
            call = self._waiting.popleft()
            if not call.is_over:
                self._send(call)

    def give_up(self, call: UnaryCall) -> None:
        if (self._unary.pop(call.stream_id, None) or self._waits.pop(call.stream_id, None)) is not None:
            self._http.reset(call.stream_id, ErrorCode.CANCEL)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is not None and not self._transport.is_closing():
            data = self._http.data_to_send()
            if data:
                try:
                    self._transport.write(data)
                except RuntimeError as error:
                    # uvloop, of a connection that just broke: it is closed, and not yet "closing".
                    # Not at once: a call ends after `begin` has returned.
                    self._loop.call_soon(self._end, None, f"the connection broke ({error})")
                else:
                    self._unflushed.clear()

    # -- called by the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() != "h2":
            self.abort("it offers no HTTP/2 over TLS")
            return
        self._http.start()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._heard_at = now = self._loop.time()
        answer = self._http.receive_answer(data, now=now)
        if answer is not None:
            self._on_answer(answer)
        else:
            for event in self._http.receive(data, now=now):
                self._on_event(event)
        if self._waiting:
            self._admit()
        if self._http.has_data_to_send:
            self._flush_soon()
        if self._http.pings and not self._answering:
            self._answering = True
            self._loop.call_later(_PING_ANSWER_S, self._answer_pings)

    def _answer_pings(self) -> None:
        self._answering = False
        self._http.answer_pings()
        self._flush_soon()

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._admit()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None, f"the connection broke ({exc})" if exc is not None else "the server hung up")
        self._note_closed()

    # -- what the server sends ----------------------------------------------------------------

    def _on_answer(self, answer: WholeAnswer) -> None:
        self.served = True
        stream_id = answer.stream_id
        call = self._unary.pop(stream_id, None) or self._waits.pop(stream_id, None)
        if call is not None:
            call.on_answer(answer, self._options.answer_bytes_max)
        else:
            stream = self._streams.pop(stream_id, None)
            if stream is not None:  # or it was given up
                stream.on_answer(answer)
        if self._going_away:
            self._hang_up_when_idle()

    def _on_event(self, event: Event) -> None:
        # Nearly all are one of the three that an answer consists of.
        kind = type(event)
        if kind is DataReceived:
            assert isinstance(event, DataReceived)
            self._on_data(event)
        elif kind is HeadersReceived:
            assert isinstance(event, HeadersReceived)
            self._on_head(event)
        elif kind is TrailersReceived:
            assert isinstance(event, TrailersReceived)
            call = self._call(event.stream_id)
            if call is not None:
                call.on_status(event.headers)
                self._forget(event.stream_id)
        else:
            self._on_rare_event(event)

    def _on_rare_event(self, event: Event) -> None:
        match event:
            case StreamReset(stream_id, code):
                call = self._call(stream_id)
                if call is not None:
                    call.on_reset(code)
                    self._forget(stream_id)
            case PingAcked():
                self._pinged_at = None
            case GoAwayReceived():
                self._on_goaway()
            case SettingsReceived():
                if not self._ready.done():
                    self._ready.set_result(None)
            case ConnectionEnded(_, reason):
                self._flush()
                self.abort(f"it does not speak HTTP/2 as it should: {reason}")

    def _call(self, stream_id: int) -> UnaryCall | StreamCall | None:
        return self._unary.get(stream_id) or self._streams.get(stream_id) or self._waits.get(stream_id)

    def _on_head(self, event: HeadersReceived) -> None:
        self.served = True
        stream_id, headers, ends = event.stream_id, event.headers, event.end_stream
        call = self._call(stream_id)
        if call is None:
            return
        call.on_head(headers, ends=ends)
        if ends or headers.status != b"200":
            self._forget(stream_id)

    def _on_data(self, event: DataReceived) -> None:
        stream_id, flow_bytes = event.stream_id, event.flow_bytes
        call = self._call(stream_id)
        if isinstance(call, StreamCall):
            goes_on = call.on_data(event.data, flow_bytes)
        else:
            self._http.consumed(stream_id, flow_bytes)
            if call is None:
                return  # it was given up
            goes_on = call.on_data(event.data, self._options.answer_bytes_max)
        if event.end_stream:
            call.fail(CallLost("the server ended the call without a status", left=True))
        if event.end_stream or not goes_on:
            self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        if self._unary.pop(stream_id, None) is None and self._streams.pop(stream_id, None) is None:
            self._waits.pop(stream_id, None)
        # The server may be done before it has heard all we have to say.
        if self._http.is_open(stream_id):
            self._http.reset(stream_id, ErrorCode.CANCEL)
        if self._going_away:
            self._hang_up_when_idle()

    def _hang_up_when_idle(self) -> None:
        idle = not (self._unary or self._streams or self._waits)
        if self._going_away and idle and self._transport is not None:
            self._transport.close()

    def _on_goaway(self) -> None:
        # Calls the server did not look at are reported as refused, one by one; the others go on.
        self._going_away = True
        self._fail_waiting(CallLost("the server is going away", left=False))
        if not self._ready.done():
            self._ready.set_exception(CallLost("the server is going away", left=False))
        self._hang_up_when_idle()

    # -- the end ------------------------------------------------------------------------------

    def _fail_waiting(self, error: QuoracyError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.fail(error)

    def _end(self, error: QuoracyError | None, cause: str) -> None:
        """Fail every call; only the first cause counts."""
        if self._lost is not None:
            return
        self._lost = cause
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiting(error or CallLost(cause, left=False))
        for unflushed in self._unflushed:
            unflushed.fail(error or CallLost(cause, left=False))
        sent = [*self._unary.values()]
        streams: list[StreamCall | UnaryCall] = [*self._streams.values(), *self._waits.values()]
        self._unary.clear()
        self._streams.clear()
        self._waits.clear()
        for call in sent:
            call.fail(CallLost(cause, left=True))  # whatever ended it: it may be carried out
        for stream in streams:
            stream.fail(error or CallLost(cause, left=True))
        if not self._ready.done():
            self._ready.set_exception(error or CallLost(cause, left=False))
            self._ready.exception()  # there may be no waiter any more

    # -- time ---------------------------------------------------------------------------------

    def _tick_soon(self, now: float) -> None:
        at = now + (_TICK_S if self._unary or self._waiting else self._slow_tick_s())
        if self._timer is not None:
            if self._tick_at <= at:
                return
            self._timer.cancel()
        self._tick_at = at
        self._timer = self._loop.call_at(at, self._tick)

    def _slow_tick_s(self) -> float:
        return min(_SLOW_TICK_S, self._options.silence_s / 4, self._options.answer_s / 4)

    def _tick(self) -> None:
        self._timer = None
        if self._lost is not None:
            return
        now = self._loop.time()
        for call in [call for call in self._unary.values() if call.deadline <= now]:
            call.fail(DeadlinePassed(now - call.began))
            self.give_up(call)
            if self._heard_at <= call.began:
                self._ask_if_there(now)
        if self._waiting:
            for call in self._waiting:
                if call.deadline <= now:
                    call.fail(DeadlinePassed(now - call.began, left=False))
            self._waiting = deque(call for call in self._waiting if not call.is_over)
        self._mind_silence(now)
        if not self.gone and (
            self._unary or self._waiting or self._streams or self._waits or self._pinged_at is not None
        ):
            self._tick_soon(now)

    def _mind_silence(self, now: float) -> None:
        if self._pinged_at is not None:
            self._ticks_in_silence += 1
            if self._heard_at >= self._pinged_at:
                self._pinged_at = None
            # If it was this process that stood still, the answer is there and will be read first.
            elif (
                now - self._pinged_at > self._options.answer_s
                and self._ticks_in_silence >= _TICKS_IN_SILENCE_MIN
            ):
                self.abort(f"{self.address} has been silent for {now - self._heard_at:.1f} s")
        elif now - self._heard_at > self._options.silence_s:
            self._ask_if_there(now)

    def _ask_if_there(self, now: float) -> None:
        if self._pinged_at is None:
            self._pinged_at = now
            self._ticks_in_silence = 0
            self._http.ping(b"quoracy?")
            self._flush_soon()
