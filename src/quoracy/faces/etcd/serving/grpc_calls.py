"""One gRPC call on the server: its messages in, its answer or its stream out, its end.

A call lives from its headers to its status.  Methods (`methods.py`) see of a unary call a `Caller`, and
of a stream its requests and how to send.

Invariants
    * A call ends exactly once: with its answer, with a status, or silently when its client is gone.
    * What waits here is bounded.  Requests: by the stream's receive window, which opens again only when
      the handler has taken what was received.  Responses of a stream: by what a handler sends at once,
      beyond what the peer lets out.  Answers to unary calls: with much unsent (`UNSENT_BYTES_MAX`) no
      call is begun, and the result of one that was begun is encoded when there is room.
    * A deadline, a reset or the end of the server cancels a call; which of them it was decides with
      which status the client learns of it, if any.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from quoracy.errors import QuoracyError
from quoracy.faces.etcd.answer import Answer, Metadata
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.methods import Streaming, Unary
from quoracy.faces.etcd.serving.calls import (
    UNSENT_BYTES_MAX,
    Call,
    CallHost,
    Status,
    send_trailers_only,
)
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
    whole_message,
)
from quoracy.wire.http2 import ErrorCode
from quoracy.wire.protobuf import Message

__all__ = ["StreamCall", "UnaryCall"]

logger = logging.getLogger(__name__)

# Requests that have begun to arrive: the client is not made to wait with the rest of one, since all of
# them might wait for each other, so the call that goes beyond this is refused.
PARTIAL_BYTES_MAX = 32 * 1024 * 1024


class GrpcCall(Call):
    """What both kinds of call share: a deadline, and one way to end."""

    __slots__ = ("_ending", "_gone", "_head", "_over", "_partial_bytes")

    def __init__(self, host: CallHost, stream_id: int, head: RequestHead, is_open_ended: bool) -> None:
        super().__init__(host, stream_id, head.path, is_open_ended)
        self._head = head
        self._over = False
        self._partial_bytes = 0  # what of the host's is this call's
        self._ending: Status | None = None  # why it was cancelled
        self._gone = False  # the client
        timeout_s = head.timeout_s
        if timeout_s is not None:
            host.deadlines.add(self, timeout_s)

    def fail(self, error: BaseException) -> None:
        """End with the status that an error means."""
        if isinstance(error, QuoracyError):
            self._end(status_of(error))
        else:
            logger.error("%s failed", self.path, exc_info=error)
            self._end((StatusCode.INTERNAL, "an unexpected error; the server's log has it"))

    def _cancelled(self, status: Status | None) -> None:
        if status is None:
            self._gone = True
        elif self._ending is None:
            self._ending = status

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
        send_trailers_only(self.host, self.stream_id, status)


class UnaryCall(GrpcCall):
    """One request, one response: a `Caller`."""

    __slots__ = ("_answer", "_payload", "_reader", "_replied_bytes", "_reply", "_result", "method")

    def __init__(self, host: CallHost, stream_id: int, head: RequestHead, method: Unary) -> None:
        super().__init__(host, stream_id, head, method.is_wait)
        self.method = method
        self._reader: MessageReader | None = None
        self._payload: bytes | None = None
        self._answer: Answer | None = None  # of the operation that was begun
        self._result: Any = None  # that waits for room
        # A reply that may leave with the sync, and how large its body is.
        self._reply: Reply | None = None
        self._replied_bytes = 0

    # -- the request

    def received(self, data: bytes, flow_bytes: int, end_stream: bool) -> None:
        host = self.host
        host.http2.consumed(self.stream_id, flow_bytes)
        # Nearly every request is one whole message in the one frame that ends the stream.
        if end_stream and self._reader is None:
            payload = whole_message(data, host.message_bytes_max)
            if payload is not None:
                self._payload = payload
                self._begin()
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
        self._begin()

    def _begin(self) -> None:
        if self.host.unsent_bytes > UNSENT_BYTES_MAX:
            self.host.waiting_for_room[self] = None
            return
        payload, self._payload = self._payload, None
        assert payload is not None
        try:
            answer = self.method.begin(payload, self)
        except Exception as error:  # noqa: BLE001 (`fail` tells the client, and the log if need be)
            self.fail(error)
            return
        if not self._over:
            self._answer = answer

    def go_on(self) -> None:
        if self._payload is not None:
            self._begin()
        else:
            assert self._answer is not None
            result, self._result = self._result, None
            self.done(self._answer, result, None)

    def cancel(self, status: Status | None) -> None:
        if self._take_reply_back():
            return
        self._cancelled(status)
        answer = self._answer
        if answer is None or not answer.cleans_up or self._result is not None:
            self._end(status)
        if answer is not None:
            answer.abandon()

    # -- the answer

    def done(self, answer: Answer, result: Any, error: BaseException | None) -> None:
        if self._over:  # its deadline passed meanwhile, or its client left
            return
        if self._reply is not None and self._take_reply_back():
            return
        if error is not None:
            if self._gone or self._ending is not None:
                self._end(self._ending)  # it has cleaned up
            else:
                self.fail(error)
            return
        host = self.host
        if host.unsent_bytes > UNSENT_BYTES_MAX:
            # Not encoded yet, it is little more than references to what the store has anyway.
            self._answer, self._result = answer, result
            host.waiting_for_room[self] = None
            return
        try:
            metadata, data = answer.metadata(result), answer.encode(result)
        except Exception as failure:  # noqa: BLE001 (as above)
            self.fail(failure)
            return
        self._send(metadata, data)

    def reply(self, data: bytes) -> Reply | None:
        host = self.host
        http2 = host.http2
        if self._over or host.writing_paused or http2.has_data_to_send:
            return None
        body = frame(data)
        whole = http2.response(self.stream_id, RESPONSE_HEAD, body, OK_TRAILERS)
        reply = None if whole is None else host.replies.offer(whole)
        if reply is not None:
            http2.reserve(len(body))
            self._reply, self._replied_bytes = reply, len(body)
        return reply

    def _take_reply_back(self) -> bool:
        """Whether a reply was sent, and this call is over; if not, none ever is."""
        reply, self._reply = self._reply, None
        if reply is None:
            return False
        http2 = self.host.http2
        http2.reserve(-self._replied_bytes)
        if not self.host.replies.withdraw(reply):
            return False
        http2.response_sent(self.stream_id, self._replied_bytes)
        self._forget(StatusCode.OK)
        return True

    def _send(self, metadata: Metadata, data: bytes) -> None:
        host = self.host
        if not self._gone:
            head = response_head(metadata) if metadata else RESPONSE_HEAD
            host.http2.send_response(self.stream_id, head, frame(data), OK_TRAILERS)
            host.unsent_bytes += len(data)
        self._forget(StatusCode.OK)
        if self.method.is_wait:
            # It waited for the write of another client, which is answered later in this turn.
            host.flush_now()
        else:
            host.flush_soon()

    def _forget(self, code: StatusCode) -> None:
        self._answer = self._payload = self._result = None
        self.host.waiting_for_room.pop(self, None)
        super()._forget(code)


class StreamCall(GrpcCall):
    """A stream of responses to one request or to many; an iterator of the requests."""

    __slots__ = (
        "_head_sent",
        "_owed_bytes",
        "_reader",
        "_requests",
        "_senders",
        "_task",
        "_waiting",
        "is_finished",
        "method",
    )

    def __init__(
        self, host: CallHost, stream_id: int, head: RequestHead, method: Streaming[Any, Any]
    ) -> None:
        super().__init__(host, stream_id, head, is_open_ended=True)
        self.method = method
        self._reader = MessageReader(host.message_bytes_max, head.encoding)
        self._requests: deque[bytes] = deque()
        self._owed_bytes = 0
        self._waiting: asyncio.Future[Message] | None = None  # the handler, for a request
        self.is_finished = False
        self._head_sent = False
        # What the peer does not take yet.
        self._senders: deque[tuple[asyncio.Future[None], Sequence[Message]]] = deque()
        self._task: asyncio.Task[None] = host.loop.create_task(method.handle(self, self.send))
        self._task.add_done_callback(self._handled)

    def cancel(self, status: Status | None) -> None:
        self._cancelled(status)
        self._task.cancel()

    def _handled(self, task: asyncio.Task[None]) -> None:
        """The handler is done."""
        if task.cancelled():
            self._end(self._ending)
        elif (error := task.exception()) is not None:
            self.fail(error)
        else:
            self._end((StatusCode.OK, ""))

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
        if end_stream:
            self.is_finished = True
        if not self._requests:
            self._give_back()
        self._hand_over()

    def received_end(self) -> None:
        self.is_finished = True
        self._hand_over()

    def __aiter__(self) -> StreamCall:
        return self

    def __anext__(self) -> asyncio.Future[Message]:
        self._waiting = waiting = self.host.loop.create_future()
        self._hand_over()
        return waiting

    def _hand_over(self) -> None:
        """Give the handler that waits the next request, or the end of them."""
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        if self._requests:
            payload = self._requests.popleft()
            if not self._requests:
                self._give_back()
            try:
                waiting.set_result(self.method.request.decode(payload))
            except QuoracyError as error:
                waiting.set_exception(error)
        elif self.is_finished:
            waiting.set_exception(StopAsyncIteration())
        else:
            return
        self._waiting = None

    def _give_back(self) -> None:
        """Everything received was taken: the client may send as much again."""
        self.host.http2.consumed(self.stream_id, self._owed_bytes)
        self._owed_bytes = 0
        self.host.flush_soon()

    # -- to the client

    def send(self, *responses: Message) -> asyncio.Future[None]:
        """Queue responses; done when the peer has taken what was sent before."""
        sent: asyncio.Future[None] = self.host.loop.create_future()
        if self._senders or self._is_blocked():
            self._senders.append((sent, responses))
        else:
            self._put(sent, responses)
        return sent

    def _put(self, sent: asyncio.Future[None], responses: Sequence[Message]) -> None:
        http2 = self.host.http2
        try:
            data = b"".join([frame(each.encode()) for each in responses])
        except QuoracyError as error:
            sent.set_exception(error)
            return
        if not self._head_sent:
            self._head_sent = True
            http2.send_headers(self.stream_id, RESPONSE_HEAD)
        http2.send_data(self.stream_id, data)
        self.host.flush_soon()
        sent.set_result(None)

    def _is_blocked(self) -> bool:
        return self.host.writing_paused or self.host.http2.pending(self.stream_id) > 0

    def may_send(self) -> None:
        # In order, and no more than the peer takes: of a thousand watches behind one slow reader, the
        # next one goes.
        while self._senders and not self._is_blocked():
            sent, responses = self._senders.popleft()
            if not sent.done():  # its handler was cancelled
                self._put(sent, responses)

    def _send_status(self, status: Status) -> None:
        if not self._head_sent and status[0] is not StatusCode.OK:
            send_trailers_only(self.host, self.stream_id, status)
            return
        http2 = self.host.http2
        if not self._head_sent:
            http2.send_headers(self.stream_id, RESPONSE_HEAD)
        http2.send_headers(self.stream_id, status_trailers(*status), end_stream=True)
        if not self.is_finished and not http2.pending(self.stream_id):
            # Or the client would go on sending into a call that is over (RFC 9113, section 8.1).
            http2.reset(self.stream_id, ErrorCode.NO_ERROR)
        self.host.flush_soon()
