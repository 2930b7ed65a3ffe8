"""How an operation begun on a store ends: `Completion`, and the `Reply` that may leave with the sync.

Compiled: every operation of a busy server touches one of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from quoracy.native import mypyc_attr

__all__ = ["Completion", "FutureCompletion", "Reply", "Sending"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Completion:
    """What is called as an operation proceeds; one object for each operation.

    The order of calls is: `applied` at most once, `reply` at most once, `done` exactly once.  None of
    them may raise.  All are called on the loop of the store.
    """

    __slots__ = ("on_abandon",)

    def __init__(self) -> None:
        # Set by a store that can stop early; called at most once.
        self.on_abandon: Callable[[], None] | None = None

    def applied(self, result: Any) -> None:
        """The write has taken effect in memory, and this will be its result once it is durable.

        Only the embedded engine calls it, maybe inside `submit`, in the order in which writes take
        effect.  Nothing of it may leave the process before `done`; if the disk fails, `done` gets an
        error.
        """

    def reply(self, result: Any) -> Reply | None:
        """The answer to this result, if it can be sent by another thread as soon as it is durable.

        Asked only where an answer can leave with the sync.  `done` is called all the same; by then it
        is known how much of the reply was sent.
        """
        del result
        return None

    def done(self, result: Any, error: BaseException | None) -> None:
        """The operation has ended: with its result, or with an error and no result.

        Never called inside `submit`; inside `read` it may be.
        """
        raise NotImplementedError

    def abandon(self) -> None:
        """The caller no longer waits.

        Stops a read that goes on in pieces, a wait, and a write that was not sent yet; whatever else
        was begun goes on.  `done` is called in any case.
        """
        stop, self.on_abandon = self.on_abandon, None
        if stop is not None:
            stop()


@mypyc_attr(allow_interpreted_subclasses=True)
class FutureCompletion(Completion):
    """A completion whose `future` can be awaited.  The future is made on first use."""

    __slots__ = ("_future", "_loop", "error", "is_done", "result")

    def __init__(self, loop: Any) -> None:
        super().__init__()
        self._loop = loop
        self._future: Any = None
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def future(self) -> Any:
        if self._future is None:
            self._future = self._loop.create_future()
            if self.is_done:
                self._settle()
        return self._future

    def done(self, result: Any, error: BaseException | None) -> None:
        self.is_done, self.result, self.error = True, result, error
        if self._future is not None:
            self._settle()

    def _settle(self) -> None:
        if self._future.done():  # the caller was cancelled
            return
        if self.error is None:
            self._future.set_result(self.result)
        else:
            self._future.set_exception(self.error)


class Sending(Protocol):
    """The part of a reply that another thread may be sending."""

    def take_back(self) -> int:
        """Stop sending; how many bytes were sent."""
        ...


_S = TypeVar("_S", bound=Sending)


class Reply:
    """Bytes for a socket, sent by the thread that syncs in the moment in which a write is durable.

    Without it the thread wakes the loop, and the loop has to run before a client learns of its write.

    Until it was taken back, or is known to be sent, nothing else may be written to the socket, and the
    descriptor must not be closed.
    """

    __slots__ = ("_sending", "data", "descriptor", "is_over", "sent_bytes")

    def __init__(self, descriptor: int, data: bytes) -> None:
        self.descriptor, self.data = descriptor, data
        self.sent_bytes = 0
        self.is_over = False  # no other thread may send it any more
        self._sending: Sending | None = None

    def hand_over(self, make: Callable[[int, bytes], _S]) -> _S:
        """What another thread may send from now on, made of the descriptor and the bytes."""
        sending = make(self.descriptor, self.data)
        self._sending = sending
        return sending

    def take_back(self) -> None:
        """From now on it is not sent, except for the `sent_bytes` of it that were."""
        if not self.is_over:
            self.is_over = True
            sending, self._sending = self._sending, None
            if sending is not None:
                self.sent_bytes = sending.take_back()
