"""The answer to a write, sent by whoever makes the write durable, in the moment in which it is.

A thread that has synced a file has to wake the loop, and the loop has to run, before a client hears
that its write is durable.  But the answer is known before: so a face may hand it over with the write.
The loop is told all the same, and does the rest while the answer is on its way.

Apart from `api`, and compiled, since every write of a lone client makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["Reply", "Sending"]


class Sending(Protocol):
    """Whatever may be sending it."""

    def take_back(self) -> int:
        """End that; how many bytes were sent."""
        ...


_S = TypeVar("_S", bound=Sending)


class Reply:
    """Bytes for a socket: sent by another thread, or taken back.

    Until it was taken back, or is known to be sent, nothing else may be written to the socket, and the
    descriptor must not be closed.
    """

    __slots__ = ("_sending", "data", "descriptor", "is_over", "sent_bytes")

    def __init__(self, descriptor: int, data: bytes) -> None:
        self.descriptor, self.data = descriptor, data
        self.sent_bytes = 0
        self.is_over = False  # it is not to be sent any more, by others
        self._sending: Sending | None = None

    def hand_over(self, make: Callable[[int, bytes], _S]) -> _S:
        """What another thread may send from now on, of the descriptor and the bytes."""
        sending = make(self.descriptor, self.data)
        self._sending = sending
        return sending

    def take_back(self) -> None:
        """From now on it is not sent, except for `sent_bytes` of it, which were."""
        if not self.is_over:
            self.is_over = True
            sending, self._sending = self._sending, None
            if sending is not None:
                self.sent_bytes = sending.take_back()
