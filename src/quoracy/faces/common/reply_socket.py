"""The socket of a connection whose replies may leave with the sync (`store.completion.Reply`).

The thread that syncs a write sends its reply on a descriptor of its own, beside the transport.  So at
any moment either that thread may write to the socket or the loop: a connection offers a reply only when
nothing else waits to be written, and settles the one that is out before it writes anything.

    reply = socket.offer(data)      # in `Completion.reply`; given to the store
    ...
    if not socket.finish(reply):    # in `Completion.done`
        ...                         # nothing of it was sent: answer in the usual way
    ...
    socket.settle()                 # before anything else is written, and soon after `done`

Invariants
    * At most one reply of a connection is out.
    * What was sent in part is written to its end before anything else.
    * The descriptor is closed only when no reply is out.
"""

from __future__ import annotations

import asyncio
import os

from quoracy.store.completion import Reply

__all__ = ["DESCRIPTORS_MAX", "Descriptors", "ReplySocket"]

# A server needs descriptors for connections too, and a reply that does not leave with the sync is sent
# by the loop.
DESCRIPTORS_MAX = 1024

_NOT_ASKED = -2
_NONE = -1


class Descriptors:
    """Second descriptors of connections' sockets, `count_max` at a time."""

    def __init__(self, count_max: int = DESCRIPTORS_MAX) -> None:
        self._left = count_max

    def take(self, transport: asyncio.Transport) -> int:
        """One to send replies on; negative if there is none, or if what is written is encrypted.

        The transport's own may be closed, and its number be another socket's, at any time.
        """
        opened = transport.get_extra_info("socket")
        if not self._left or opened is None or transport.get_extra_info("sslcontext") is not None:
            return _NONE
        try:
            descriptor = os.dup(opened.fileno())
        except OSError:  # the system has none left
            return _NONE
        self._left -= 1
        return descriptor

    def give_back(self, descriptor: int) -> None:
        os.close(descriptor)
        self._left += 1


class ReplySocket:
    """What a connection knows of replies that other threads may send on its socket."""

    __slots__ = ("_descriptor", "_descriptors", "_is_due", "_reply", "_transport")

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._descriptor = _NOT_ASKED
        self._transport: asyncio.Transport | None = None
        self._reply: Reply | None = None
        self._is_due = False  # the write is durable: what was not sent is to be written here

    def open(self, transport: asyncio.Transport) -> None:
        """The connection was made."""
        self._transport = transport

    @property
    def is_busy(self) -> bool:
        """Whether a reply is out, so that it has to be settled before anything is written."""
        return self._reply is not None

    def offer(self, data: bytes) -> Reply | None:
        """A reply of these bytes that another thread may send; None if that is not possible now.

        The caller has queued nothing that is to be written before it.
        """
        if self._reply is not None:
            if not self._is_due:
                return None
            self.settle()  # mostly it was sent, and these bytes answer what came of it
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return None
        if self._descriptor < 0:
            if self._descriptor == _NOT_ASKED:
                self._descriptor = self._descriptors.take(transport)
            if self._descriptor < 0:
                return None
        self._reply = reply = Reply(self._descriptor, data)
        self._is_due = False
        return reply

    def finish(self, reply: Reply) -> bool:
        """The write is durable: whether its reply was sent, or will be when this is settled.

        If not, nothing of it was sent, or ever will be.
        """
        if reply is self._reply:
            self._is_due = True  # the other thread is probably sending it just now
            return True
        return reply.sent_bytes > 0

    def withdraw(self, reply: Reply) -> bool:
        """The call ends in another way: whether it is too late for that, as part of it was sent."""
        if reply is self._reply:
            self.settle()
        return reply.sent_bytes > 0

    def settle(self) -> None:
        """From now on only the caller writes to the socket; what is left of a reply is written."""
        reply, self._reply = self._reply, None
        if reply is None:
            return
        reply.take_back()
        sent, transport = reply.sent_bytes, self._transport
        if sent < len(reply.data) and (sent or self._is_due) and transport is not None:
            transport.write(reply.data[sent:] if sent else reply.data)
        self._is_due = False

    def close(self) -> None:
        """The connection is lost: nothing is written any more, and the descriptor is closed."""
        self._transport = None
        self.settle()
        if self._descriptor >= 0:
            self._descriptors.give_back(self._descriptor)
        self._descriptor = _NONE
