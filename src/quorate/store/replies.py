"""The answer to a write, sent by whoever makes the write durable, in the moment in which it is.

A thread that has synced a file has to wake the loop, and the loop has to run, before a client hears
that its write is durable.  But the answer is known before: so a face may hand it over with the write.
The loop is told all the same, and does the rest while the answer is on its way.

Apart from `api`, and compiled, since every write of a lone client makes one.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Reply"]


class Reply:
    """Bytes for a socket: sent by another thread, or taken back.

    Until it was taken back, or is known to be sent, nothing else may be written to the socket, and the
    descriptor must not be closed.
    """

    __slots__ = ("_take_back", "data", "descriptor", "is_over", "sent_bytes")

    def __init__(self, descriptor: int, data: bytes) -> None:
        self.descriptor, self.data = descriptor, data
        self.sent_bytes = 0
        self.is_over = False  # it is not to be sent any more, by others
        self._take_back: Callable[[], int] | None = None

    def handed_over(self, take_back: Callable[[], int]) -> None:
        """Another thread may send it from now on; `take_back` ends that, and tells what it has sent."""
        self._take_back = take_back

    def over(self, sent_bytes: int) -> None:
        """The other thread is done with it."""
        self._take_back, self.sent_bytes = None, sent_bytes
        self.is_over = True

    def take_back(self) -> None:
        """From now on it is not sent, except for `sent_bytes` of it, which were."""
        if not self.is_over:
            self.over(0 if self._take_back is None else self._take_back())
