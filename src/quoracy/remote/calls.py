"""One call on a connection: a unary one is a future, a streaming one can be sent to and read from.

Calls only keep what belongs to one stream; `exchange.Channel` moves the bytes and tells them what came.

Invariants
    * A call ends exactly once: with an answer, a status, or a `CallLost`.
    * What a stream keeps unread is bounded by its HTTP/2 window, which is given back as messages are
      taken.  Of an incomplete message it is given back at once: `answer_bytes_max` bounds that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from quoracy.errors import QuoracyError
from quoracy.remote import call_waits
from quoracy.remote.call_errors import AnswerUnreadable, CallLost
from quoracy.wire.grpc import (
    GrpcError,
    MessageReader,
    StatusCode,
    status_from_headers,
    whole_message,
)
from quoracy.wire.http2 import ErrorCode, HeaderBlock, WholeAnswer

if TYPE_CHECKING:
    from quoracy.remote.channel import Channel

__all__ = ["Called", "StreamCall", "UnaryCall"]


_ALL_IS_WELL: Final = (StatusCode.OK, "")


def _loss_by_reset(code: int) -> CallLost:
    if code == ErrorCode.REFUSED_STREAM:
        return CallLost("the server did not take the request", left=False)
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)
    return CallLost(f"the server reset the stream ({name})", left=True)


class Called:
    """As much of a future as a call needs, for who wants to be called instead of waiting.

    (A class for each who does, and no function: compiled, the call is a jump.)
    """

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, answer: bytes) -> None:
        self._done = True
        self.answered(answer, None)

    def set_exception(self, error: BaseException) -> None:
        self._done = True
        self.answered(None, error)

    def answered(self, answer: bytes | None, error: BaseException | None) -> None:
        """The answer, or what went wrong: once."""
        raise NotImplementedError


class UnaryCall:
    """One request, one answer."""

    __slots__ = (
        "answer", "answer_head", "began", "deadline", "head", "payload", "reader", "result",
        "stream_id",
    )  # fmt: skip

    def __init__(
        self,
        head: bytes,
        payload: bytes,
        *,
        began: float,
        deadline: float,
        result: asyncio.Future[bytes] | Called,
    ) -> None:
        self.head, self.payload = head, payload
        self.began, self.deadline, self.result = began, deadline, result
        self.stream_id = 0  # until it was sent
        self.answer_head: HeaderBlock | None = None
        self.reader: MessageReader | None = None
        self.answer: bytes | None = None

    def on_head(self, head: HeaderBlock, *, ends: bool) -> None:
        if ends or head.status != b"200":
            self.on_status(head)
        else:
            self.answer_head = head

    def on_data(self, data: bytes, size_max: int) -> bool:
        """Take part of the answer; False if that ends the call."""
        if self.answer_head is None:
            return True  # the call failed already
        if self.reader is None:
            # Nearly every answer is one whole message in one frame.
            if self.answer is None and (message := whole_message(data, size_max)) is not None:
                self.answer = message
                return True
            self.reader = MessageReader(size_max, self.answer_head.get(b"grpc-encoding"))
        try:
            messages = self.reader.feed(data)
        except GrpcError as error:
            self.fail(AnswerUnreadable(error.message))
            return False
        for message in messages:
            if self.answer is not None:
                self.fail(AnswerUnreadable("two messages where there should be one"))
                return False
            self.answer = message
        return True

    def on_status(self, trailers: HeaderBlock) -> None:
        if self.result.done():
            return
        if trailers.note is _ALL_IS_WELL:
            if self.answer is not None:
                self.result.set_result(self.answer)
                return
        elif trailers.note is None:
            # The same bytes say the same again: of nearly all calls, that all is well.
            status = status_from_headers(trailers)
            trailers.note = _ALL_IS_WELL if status == _ALL_IS_WELL else status
        code, message = cast(tuple[StatusCode, str], trailers.note)
        if code is not StatusCode.OK:
            self.fail(GrpcError(code, message))
        elif self.answer is None:
            self.fail(AnswerUnreadable("the call ended well and without one"))
        else:
            self.result.set_result(self.answer)

    def on_answer(self, answer: WholeAnswer, size_max: int) -> None:
        """Take all of it at once."""
        if answer.trailers.note is _ALL_IS_WELL and answer.head.status == b"200":
            message = whole_message(answer.data, size_max)
            if message is not None and self.answer_head is None and not self.result.done():
                result = self.result
                if isinstance(result, Called):
                    result.set_result(message)
                else:
                    result.set_result(message)
                return
        self.on_head(answer.head, ends=False)
        if self.on_data(answer.data, size_max):
            self.on_status(answer.trailers)

    def on_reset(self, code: int) -> None:
        self.fail(_loss_by_reset(code))

    def fail(self, error: QuoracyError) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class StreamCall:
    """A call with any number of messages in both directions.

    `send` waits while the server takes nothing; `receive` gives the next message, and raises what the
    call ended with, again and again.  One task may wait in each.  Who would rather be called with each
    message says so with `listen`; `receive` then only tells the end.
    """

    # What may wait for the server to take it before `send` waits.
    PENDING_BYTES_MAX: ClassVar[int] = 256 * 1024

    def __init__(self, channel: Channel, stream_id: int, size_max: int) -> None:
        self.stream_id = stream_id
        self._size_max = size_max
        self._channel = channel
        self._reader: MessageReader | None = None
        self._messages: deque[bytes] = deque()
        self._untaken = 0  # flow-controlled bytes that `_messages` came in
        self._ended: QuoracyError | None = None
        self._listener: Callable[[bytes], None] | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        return self._ended is not None

    def send(self, payload: bytes) -> Coroutine[Any, Any, None]:
        """Send one message.  Raises what the call ended with, if it did."""
        return call_waits.send(self, payload)

    @property
    def is_full(self) -> bool:
        """Whether the server has to take something before more is sent."""
        pending = self._channel.pending(self.stream_id)
        return self._ended is None and pending > self.PENDING_BYTES_MAX

    def wait_drained(self) -> asyncio.Future[None]:
        self._drained = drained = asyncio.get_running_loop().create_future()
        return drained

    def send_now(self, payload: bytes) -> None:
        if self._ended is not None:
            raise self._ended
        self._channel.send_message(self.stream_id, payload)

    def send_soon(self, payload: bytes) -> None:
        """Send one small message, or nothing if the call has ended: `receive` tells."""
        if self._ended is None:
            self._channel.send_message(self.stream_id, payload)

    def finish_sending(self) -> None:
        if self._ended is None:
            self._channel.half_close(self.stream_id)

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Call it with each message that comes from now on, in the turn in which it comes.

        It must not raise; whatever it is told after it cancelled the call is not for it.
        """
        assert not self._messages, "what came before would be told after what comes now"
        self._listener = listener

    def receive(self) -> Coroutine[Any, Any, bytes]:
        """The next message.  A call that ended well raises GrpcError(OK)."""
        return call_waits.receive(self)

    def take(self) -> bytes | None:
        """The next message, if one is here; raises what the call ended with."""
        if not self._messages:
            if self._ended is not None:
                raise self._ended
            return None
        message = self._messages.popleft()
        if not self._messages:
            self._channel.consumed(self.stream_id, self._untaken)
            self._untaken = 0
        return message

    def wait_arrival(self) -> asyncio.Future[None]:
        self._arrived = arrived = asyncio.get_running_loop().create_future()
        return arrived

    def cancel(self) -> None:
        """Be done with it, whatever still comes."""
        if self._ended is None:
            self._channel.abandon(self.stream_id)
            self.fail(CallLost("the call was given up", left=True))

    # -- told by the channel ------------------------------------------------------------------

    def on_head(self, head: HeaderBlock, *, ends: bool) -> None:
        if ends or head.status != b"200":
            self.on_status(head)
        else:
            self._reader = MessageReader(self._size_max, head.get(b"grpc-encoding"))

    def on_data(self, data: bytes, flow_bytes: int) -> bool:
        """Take part of the answer; False if that ends the call."""
        messages: list[bytes] = []
        if self._reader is not None:
            try:
                messages = self._reader.feed(data)
            except GrpcError as error:
                self._channel.consumed(self.stream_id, flow_bytes)
                self.fail(AnswerUnreadable(error.message))
                return False
        if self._listener is not None or not messages:
            self._channel.consumed(self.stream_id, flow_bytes)
        if self._listener is not None:
            for message in messages:
                self._listener(message)
        elif messages:
            self._untaken += flow_bytes
            self._messages.extend(messages)
            _wake(self._arrived)
        return True

    def on_status(self, trailers: HeaderBlock) -> None:
        self.fail(GrpcError(*status_from_headers(trailers)))

    def on_answer(self, answer: WholeAnswer) -> None:
        """Take all of it at once: what was opened to go on for long ends with its first message."""
        self.on_head(answer.head, ends=False)
        if self._ended is None and self.on_data(answer.data, 0):
            self.on_status(answer.trailers)

    def on_reset(self, code: int) -> None:
        self.fail(_loss_by_reset(code))

    def on_drained(self) -> None:
        _wake(self._drained)

    def fail(self, error: QuoracyError) -> None:
        if self._ended is None:
            self._ended = error
            _wake(self._arrived)
            _wake(self._drained)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
