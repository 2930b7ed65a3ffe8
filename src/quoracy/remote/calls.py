"""Calls on a connection: unary ones, and streams of messages in both directions.

A call keeps what belongs to one stream; `channel.Channel` moves the bytes and passes on what came.

Invariants
    * A call ends exactly once: with an answer, a status, or a `CallLost`.
    * What a stream keeps unread is bounded by its HTTP/2 window, which is given back as messages are
      taken.  Of an incomplete message it is given back at once: `answer_bytes_max` bounds that.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from quoracy.errors import QuoracyError
from quoracy.remote.errors import AnswerUnreadable, CallLost
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

__all__ = ["AwaitedCall", "StreamCall", "UnaryCall"]


_ALL_IS_WELL: Final = (StatusCode.OK, "")


def _loss_by_reset(code: int) -> CallLost:
    if code == ErrorCode.REFUSED_STREAM:
        return CallLost("the server did not take the request", left=False)
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)
    return CallLost(f"the server reset the stream ({name})", left=True)


class UnaryCall:
    """One request, one answer.  A subclass says what is done with the answer.

    (A subclass and not a callback: compiled, a method is called directly.)
    """

    __slots__ = (
        "answer", "answer_head", "began", "deadline", "head", "is_over", "payload", "reader",
        "stream_id",
    )  # fmt: skip

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.head = b""
        self.began, self.deadline = 0.0, math.inf
        self.stream_id = 0  # until it is sent
        self.is_over = False
        self.answer_head: HeaderBlock | None = None
        self.reader: MessageReader | None = None
        self.answer: bytes | None = None

    def answered(self, answer: bytes | None, error: BaseException | None) -> None:
        """The call has ended: with an answer, or with an error and none.  Called once."""
        raise NotImplementedError

    def end(self, answer: bytes | None, error: BaseException | None) -> None:
        if not self.is_over:
            self.is_over = True
            self.answered(answer, error)

    def fail(self, error: QuoracyError) -> None:
        self.end(None, error)

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
        if trailers.note is _ALL_IS_WELL:
            if self.answer is not None:
                self.end(self.answer, None)
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
            self.end(self.answer, None)

    def on_answer(self, answer: WholeAnswer, size_max: int) -> None:
        """Take all of it at once."""
        if answer.trailers.note is _ALL_IS_WELL and answer.head.status == b"200":
            message = whole_message(answer.data, size_max)
            if message is not None and self.answer_head is None:
                self.end(message, None)
                return
        self.on_head(answer.head, ends=False)
        if self.on_data(answer.data, size_max):
            self.on_status(answer.trailers)

    def on_reset(self, code: int) -> None:
        self.fail(_loss_by_reset(code))


class AwaitedCall(UnaryCall):
    """A call whose answer is a future; cancelling that gives the call up."""

    __slots__ = ("_channel", "future")

    def __init__(self, channel: Channel, payload: bytes) -> None:
        super().__init__(payload)
        self._channel = channel
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.future.add_done_callback(self._future_over)

    def answered(self, answer: bytes | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if answer is not None:
            self.future.set_result(answer)
        else:
            assert error is not None
            self.future.set_exception(error)

    def _future_over(self, future: asyncio.Future[bytes]) -> None:
        if future.cancelled():
            self.is_over = True
            self._channel.give_up(self)


class StreamCall:
    """A call with any number of messages in both directions.

    `receive` gives the next message, and raises what the call ended with, again and again; one task may
    wait for it at a time.  After `listen` messages go to a function, and `receive` only ends.
    """

    def __init__(self, channel: Channel, stream_id: int, size_max: int) -> None:
        self.stream_id = stream_id
        self._size_max = size_max
        self._channel = channel
        self._reader: MessageReader | None = None
        self._messages: deque[bytes] = deque()
        self._untaken = 0  # flow-controlled bytes that `_messages` came in
        self._ended: QuoracyError | None = None
        self._listener: Callable[[bytes], None] | None = None
        self._receiving: asyncio.Future[bytes] | None = None

    @property
    def ended(self) -> bool:
        return self._ended is not None

    def send_soon(self, payload: bytes) -> None:
        """Send one small message; nothing if the call has ended, which `receive` raises."""
        if self._ended is None:
            self._channel.send_message(self.stream_id, payload)

    def finish_sending(self) -> None:
        if self._ended is None:
            self._channel.half_close(self.stream_id)

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Call it with each message that comes from now on, in the turn in which it comes.

        It must not raise.  It may still be called after it has cancelled the call.
        """
        assert not self._messages, "what came before would come after what comes now"
        self._listener = listener

    def receive(self) -> asyncio.Future[bytes]:
        """The next message.  A call that ended well raises GrpcError(OK)."""
        received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._messages:
            received.set_result(self._take())
        elif self._ended is not None:
            received.set_exception(self._ended)
        else:
            self._receiving = received
        return received

    def _take(self) -> bytes:
        message = self._messages.popleft()
        if not self._messages:
            self._channel.consumed(self.stream_id, self._untaken)
            self._untaken = 0
        return message

    def cancel(self) -> None:
        """Give it up, whatever still comes."""
        if self._ended is None:
            self._channel.abandon(self.stream_id)
            self.fail(CallLost("the call was given up", left=True))

    # -- called by the channel ----------------------------------------------------------------

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
            receiving, self._receiving = self._receiving, None
            if receiving is not None and not receiving.done():
                receiving.set_result(self._take())
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

    def fail(self, error: QuoracyError) -> None:
        if self._ended is None:
            self._ended = error
            receiving, self._receiving = self._receiving, None
            if receiving is not None and not receiving.done():
                receiving.set_exception(error)
