"""One gRPC call on the server: its messages in, its answer or its stream out, its end.

A call lives from its headers to its status.  The session (`session.py`) feeds it what arrives and is
told what to send; handlers (`methods.py`) never see it.

Invariants
    * A call ends exactly once: with its answer, with a status, or silently when its client is gone.
    * What waits here is bounded: requests by the stream's receive window, which opens again only when
      the handler has taken what was received; responses by what a handler sends at once, beyond what
      the peer lets out.
    * A deadline, a reset or the end of the server cancels the handler; which of them it was decides
      what, if anything, the client is told.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from quoracy.errors import ProtocolError, QuoracyError
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.methods import Streaming, Unary, WithMetadata
from quoracy.faces.etcd.serving.call_tasks import answer, next_request, send, serve
from quoracy.store.completion import Reply
from quoracy.wire.grpc import (
    OK_TRAILERS,
    RESPONSE_HEAD,
    GrpcError,
    MessageReader,
    RequestHead,
    StatusCode,
    frame,
    response_head,
    status_trailers,
    trailers_only,
)
from quoracy.wire.http2 import Connection, ErrorCode
from quoracy.wire.protobuf import Message

__all__ = [
    "UNSENT_BYTES_MAX",
    "Call",
    "CallHost",
    "Deadlines",
    "RefusedCall",
    "Status",
    "StreamCall",
    "UnaryCall",
]

logger = logging.getLogger(__name__)

Status = tuple[StatusCode, str]

_DEADLINE: Status = (StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
# A call may end so much after its deadline.
_DEADLINES_APART_S = 0.01
_PREFIX_BYTES = 5
# With so much waiting for a peer that takes nothing, its further answers are not even encoded.
UNSENT_BYTES_MAX = 8 * 1024 * 1024
# Requests that have begun to arrive: the client is not made to wait with the rest of one, since all of
# them might wait for each other, so the call that goes beyond this is refused.
PARTIAL_BYTES_MAX = 32 * 1024 * 1024


class CallHost:
    """What a call needs of the session it belongs to.

    (A class and not a protocol, as `Call` is: compiled, its attributes and methods are then found
    without looking them up by name.)
    """

    __slots__ = (
        "deadlines",
        "http2",
        "loop",
        "message_bytes_max",
        "partial_bytes",
        "unsent_bytes",
        "writing_paused",
    )

    def __init__(self, http2: Connection, deadlines: Deadlines, message_bytes_max: int) -> None:
        self.http2 = http2
        self.deadlines = deadlines
        self.loop = deadlines.loop
        self.message_bytes_max = message_bytes_max
        self.writing_paused = False
        # How much of the answers the peer has not taken yet, and of its requests is not complete.
        self.unsent_bytes = 0
        self.partial_bytes = 0

    def reply_ahead(self, data: bytes) -> Reply | None:
        """A reply of these bytes to this client, unless something is in the way of sending it so."""
        raise NotImplementedError

    def has_replied(self, reply: Reply) -> bool:
        """Whether a reply was sent; if not, it never is."""
        raise NotImplementedError

    def wait_for_room(self) -> asyncio.Future[None] | None:
        """What to wait for, in order, before more is made for a peer that takes little; or nothing."""
        raise NotImplementedError

    def flush_soon(self) -> None:
        """Send what was queued, at the end of this turn of the loop."""
        raise NotImplementedError

    def flush_now(self) -> None:
        """Send what was queued, at once."""
        raise NotImplementedError

    def ended(self, stream_id: int, path: str, code: StatusCode) -> None:
        raise NotImplementedError


class Call:
    """Any exchange on one stream, gRPC or not."""

    __slots__ = ("host", "path", "stream_id")

    host: CallHost
    stream_id: int
    path: str

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:
        raise NotImplementedError

    def received_end(self) -> None:
        """The client sends no more."""
        raise NotImplementedError

    def cancel(self, status: Status | None) -> None:
        """End it from outside; None if there is nobody to tell."""
        raise NotImplementedError

    def may_send(self) -> None:
        """What was held back has left: go on."""
        return


class Deadlines:
    """When calls must be over: one timer for all of them, since nearly all end long before.

    It is set for the first deadline there is and left to ring; a timer of its own for each call took
    4 % of the instructions of a small transaction.
    """

    __slots__ = ("_calls", "_due", "_timer", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: dict[Call, float] = {}
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: Call, timeout_s: float) -> None:
        at = self.loop.time() + timeout_s
        self._calls[call] = at
        if at < self._due:
            self._set(at)

    def discard(self, call: Call) -> None:
        self._calls.pop(call, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = at
        self._timer = self.loop.call_at(at, self._ring)

    def _ring(self) -> None:
        now = self.loop.time()
        self._timer, self._due = None, math.inf
        for call in [call for call, at in self._calls.items() if at <= now]:
            self.discard(call)
            call.cancel(_DEADLINE)
        if self._calls:
            # All of them are looked at: however many deadlines there are, so often and no more.
            self._set(max(min(self._calls.values()), now + _DEADLINES_APART_S))


class RefusedCall(Call):
    """A call that cannot be served: it is told why once it has said what it wanted."""

    __slots__ = ("_fault",)

    def __init__(self, host: CallHost, stream_id: int, path: str, fault: GrpcError) -> None:
        self.host, self._fault = host, fault
        self.stream_id, self.path = stream_id, path

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:  # noqa: ARG002
        self.host.http2.consumed(self.stream_id, flow_bytes)
        if end_stream:
            self.received_end()

    def received_end(self) -> None:
        _send_trailers_only(self.host, self.stream_id, (self._fault.code, self._fault.message))
        self.host.ended(self.stream_id, self.path, self._fault.code)

    def cancel(self, status: Status | None) -> None:
        if status is not None:
            _send_trailers_only(self.host, self.stream_id, status)
        code = StatusCode.CANCELLED if status is None else status[0]
        self.host.ended(self.stream_id, self.path, code)


class _Handled(Call):
    """What both kinds of call share: a task, a deadline, and one way to end."""

    __slots__ = ("_ending", "_gone", "_head", "_over", "_partial_bytes", "_task")

    def __init__(self, host: CallHost, stream_id: int, head: RequestHead) -> None:
        self.host, self._head = host, head
        self.stream_id, self.path = stream_id, head.path
        self._over = False
        self._partial_bytes = 0  # what of the host's is this call's
        self._task: asyncio.Task[None] | None = None
        self._ending: Status | None = None
        self._gone = False
        timeout_s = head.timeout_s
        if timeout_s is not None:
            host.deadlines.add(self, timeout_s)

    def cancel(self, status: Status | None) -> None:
        if status is None:
            self._gone = True
        elif self._ending is None:
            self._ending = status
        if self._task is None:
            self._end(status)
        else:
            self._task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self.host.loop.create_task(work)

    def _end(self, status: Status | None) -> None:
        """Say how it ended, unless the client is gone, and be forgotten."""
        if status is not None and not self._gone:
            self._send_status(status)
        self._forget(StatusCode.CANCELLED if status is None else status[0])

    def _forget(self, code: StatusCode) -> None:
        self._over = True
        self.host.partial_bytes -= self._partial_bytes
        self.host.deadlines.discard(self)
        self.host.ended(self.stream_id, self.path, code)

    def _send_status(self, status: Status) -> None:
        _send_trailers_only(self.host, self.stream_id, status)

    def fail(self, error: BaseException) -> None:
        """End with the status that an error from the handler means."""
        match error:
            case asyncio.CancelledError():
                self._end(self._ending)
            case GrpcError():
                self._end((error.code, error.message))
            case ProtocolError():
                self._end((StatusCode.INTERNAL, f"grpc: error unmarshalling request: {error}"))
            case QuoracyError():
                self._end(status_of(error))
            case _:
                logger.error("%s failed", self.path, exc_info=error)
                self._end((StatusCode.INTERNAL, "an unexpected error; the server's log has it"))


class UnaryCall(_Handled):
    """One request, one response."""

    __slots__ = ("_give_up", "_payload", "_reader", "_replied_bytes", "_reply", "method")

    def __init__(
        self, host: CallHost, stream_id: int, head: RequestHead, method: Unary[Any, Any]
    ) -> None:
        super().__init__(host, stream_id, head)
        self.method = method
        self._reader: MessageReader | None = None
        self._payload: bytes | None = None
        self._give_up: Callable[[], None] | None = None
        # The answer, if it was made before it may be sent, and how large its body is.
        self._reply: Reply | None = None
        self._replied_bytes = 0

    @property
    def waits(self) -> bool:
        """Whether it is answered when something happens, not when something is done."""
        return self._give_up is not None

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:
        host = self.host
        host.http2.consumed(self.stream_id, flow_bytes)
        # Nearly every request is one whole message in the one frame that ends the stream.
        if (
            end_stream
            and self._reader is None
            and data[:1] == b"\0"
            and int.from_bytes(data[1:_PREFIX_BYTES], "big") == len(data) - _PREFIX_BYTES
            and len(data) <= host.message_bytes_max
        ):
            self._answer(data[_PREFIX_BYTES:])
            return
        if self._reader is None:
            self._reader = MessageReader(host.message_bytes_max, self._head.encoding)
        self._partial_bytes += len(data)
        host.partial_bytes += len(data)
        try:
            if host.partial_bytes > PARTIAL_BYTES_MAX:
                raise GrpcError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"the unfinished requests of this connection are over {PARTIAL_BYTES_MAX:,} bytes",
                )
            for payload in self._reader.feed(data):
                if self._payload is not None:
                    raise GrpcError(StatusCode.INTERNAL, f"{self.path} takes one message, not more")
                self._payload = payload
        except GrpcError as error:
            self.fail(error)
            return
        if end_stream:
            self.received_end()

    def received_end(self) -> None:
        try:
            if self._reader is not None:
                self._reader.finish()
            if self._payload is None:
                raise GrpcError(StatusCode.INTERNAL, f"{self.path} takes a message; none was sent")
        except GrpcError as error:
            self.fail(error)
            return
        self._answer(self._payload)

    def _answer(self, payload: bytes) -> None:
        """In a task, unless the method can do without."""
        prompt, waiting = self.method.prompt, self.method.waiting
        if waiting is not None:
            try:
                self._give_up = waiting(self.method.request.decode(payload), self._done, self._ahead)
            except Exception as error:  # noqa: BLE001 (as below)
                self.fail(error)
            return
        if prompt is None or self.host.unsent_bytes > UNSENT_BYTES_MAX:
            self._start(answer(self, payload))
            return
        quick = self.method.quick
        try:
            taken = (quick is not None and quick(payload, self._done, self._ahead)) or prompt(
                self.method.request.decode(payload), self._done, self._ahead
            )
        except Exception as error:  # noqa: BLE001 (`fail` tells the client, and the log if need be)
            self.fail(error)
        else:
            if not taken:
                self._start(answer(self, payload))

    def _ahead(self, answer: bytes) -> Reply | None:
        """Make the reply that this answer will be; whatever ends the call settles it."""
        host, body = self.host, frame(answer)
        data = host.http2.response(self.stream_id, RESPONSE_HEAD, body, OK_TRAILERS)
        reply = None if data is None else host.reply_ahead(data)
        if reply is not None:
            host.http2.reserve(len(body))
            self._reply, self._replied_bytes = reply, len(body)
        return reply

    def _has_replied(self) -> bool:
        """Whether the reply that was made ahead is out; then this call is over."""
        reply, self._reply = self._reply, None
        if reply is None:
            return False
        http2 = self.host.http2
        http2.reserve(-self._replied_bytes)
        if not self.host.has_replied(reply):
            return False
        http2.response_sent(self.stream_id, self._replied_bytes)
        self._forget(StatusCode.OK)
        return True

    def cancel(self, status: Status | None) -> None:
        if not self._has_replied():
            super().cancel(status)

    def _done(self, answer: bytes | None, error: BaseException | None) -> None:
        if self._over:  # its deadline passed meanwhile, or its client left
            return
        if self._has_replied():
            return
        if answer is None:
            assert error is not None
            self.fail(error)
        else:
            self._send(RESPONSE_HEAD, answer)

    def _forget(self, code: StatusCode) -> None:
        if self._give_up is not None:
            self._give_up()
        super()._forget(code)

    def send_response(self, response: Message | WithMetadata[Any]) -> None:
        if isinstance(response, WithMetadata):
            self._send(response_head(response.metadata), response.response.encode())
        else:
            self._send(RESPONSE_HEAD, response.encode())

    def _send(self, head: bytes, answer: bytes) -> None:
        host = self.host
        if not self._gone:
            host.http2.send_response(self.stream_id, head, frame(answer), OK_TRAILERS)
            host.unsent_bytes += len(answer)
        self._forget(StatusCode.OK)
        if self._give_up is not None:
            # It is told of what others have just done, who are answered after it, in this same turn.
            host.flush_now()
        else:
            host.flush_soon()


class StreamCall(_Handled):
    """A stream of responses to one request or to many; an iterator of the requests."""

    __slots__ = (
        "_arrived",
        "_head_sent",
        "_owed_bytes",
        "_reader",
        "_requests",
        "_senders",
        "is_finished",
        "method",
    )

    def __init__(
        self, host: CallHost, stream_id: int, head: RequestHead, method: Streaming[Any, Any]
    ) -> None:
        super().__init__(host, stream_id, head)
        self.method = method
        self._reader = MessageReader(host.message_bytes_max, head.encoding)
        self._requests: deque[bytes] = deque()
        self._owed_bytes = 0
        self._arrived: asyncio.Future[None] | None = None
        self.is_finished = False
        self._head_sent = False
        self._senders: deque[asyncio.Future[None]] = deque()
        self._start(serve(self))

    # -- from the client

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:
        self._owed_bytes += flow_bytes
        try:
            self._requests.extend(self._reader.feed(data))
            if end_stream:
                self._reader.finish()
        except GrpcError as error:
            self.cancel((error.code, error.message))
            return
        if not self._requests:
            self._give_back()
        if end_stream:
            self.is_finished = True
        self._wake_reader()

    def received_end(self) -> None:
        self.is_finished = True
        self._wake_reader()

    def __aiter__(self) -> StreamCall:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        return next_request(self)

    def take(self) -> Message | None:
        """The next request, if one is here."""
        if not self._requests:
            return None
        payload = self._requests.popleft()
        if not self._requests:
            self._give_back()
        request: Message = self.method.request.decode(payload)
        return request

    def wait_arrival(self) -> asyncio.Future[None]:
        self._arrived = arrived = self.host.loop.create_future()
        return arrived

    def _wake_reader(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _give_back(self) -> None:
        """Everything received was taken: the client may send as much again."""
        self.host.http2.consumed(self.stream_id, self._owed_bytes)
        self._owed_bytes = 0
        self.host.flush_soon()

    # -- to the client

    def send(self, *responses: Message) -> Coroutine[Any, Any, None]:
        """Queue responses; waits its turn while the peer does not take what was sent."""
        return send(self, responses)

    def wait_turn(self) -> asyncio.Future[None]:
        turn = self.host.loop.create_future()
        self._senders.append(turn)
        return turn

    def put(self, responses: Sequence[Message]) -> None:
        """Queue responses now."""
        http2 = self.host.http2
        if not self._head_sent:
            self._head_sent = True
            http2.send_headers(self.stream_id, RESPONSE_HEAD)
        http2.send_data(self.stream_id, b"".join([frame(each.encode()) for each in responses]))
        self.host.flush_soon()
        if self._senders:
            self.may_send()

    def is_blocked(self) -> bool:
        return self.host.writing_paused or self.host.http2.pending(self.stream_id) > 0

    def may_send(self) -> None:
        # One at a time and in order: of a thousand watches behind one slow reader, the next one goes.
        if self.is_blocked():
            return
        while self._senders:
            turn = self._senders.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def succeeded(self) -> None:
        self._end((StatusCode.OK, ""))

    def _send_status(self, status: Status) -> None:
        if not self._head_sent and status[0] is not StatusCode.OK:
            _send_trailers_only(self.host, self.stream_id, status)
            return
        http2 = self.host.http2
        if not self._head_sent:
            http2.send_headers(self.stream_id, RESPONSE_HEAD)
        http2.send_headers(self.stream_id, status_trailers(*status), end_stream=True)
        if not self.is_finished and not http2.pending(self.stream_id):
            # Or the client would go on sending into a call that is over (RFC 9113, section 8.1).
            http2.reset(self.stream_id, ErrorCode.NO_ERROR)
        self.host.flush_soon()


def _send_trailers_only(host: CallHost, stream_id: int, status: Status) -> None:
    host.http2.send_headers(stream_id, trailers_only(*status), end_stream=True)
    host.flush_soon()
