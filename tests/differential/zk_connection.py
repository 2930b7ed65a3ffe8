"""A client of one ZooKeeper server that decides nothing: it sends what it is told and keeps what comes.

Invariants
    * Every wait has a deadline, and silence is an error that says whose.
    * Replies, events and the end of the connection are kept in the order in which they came.
    * `fence` gives all that the server had sent before it answered the fence: nothing waits for luck.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from tests.differential.zk_jute import JuteReader, Unreadable, boolean, buffer, int32, int64, text
from tests.differential.zk_requests import Op, Request

__all__ = [
    "_ANSWER_S_MAX",
    "Closed",
    "Connected",
    "EventCame",
    "Item",
    "RawConnection",
    "Replied",
    "Silence",
    "Tamper",
    "as_it_is",
]

_ANSWER_S_MAX = 20.0
_FENCE_XID = 1 << 24
_PING_XID = -2
_EVENT_XID = -1


class Silence(AssertionError):
    """A server neither answered nor hung up."""


@dataclass(frozen=True)
class Connected:
    """The answer to the request to connect."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None
    rest: bytes


@dataclass(frozen=True)
class Replied:
    request: Request | None  # None: nobody asked
    xid: int
    zxid: int
    err: int
    body: bytes


@dataclass(frozen=True)
class EventCame:
    zxid: int
    err: int
    body: bytes


@dataclass(frozen=True)
class Closed:
    """The server hung up."""


Item: TypeAlias = Connected | Replied | EventCame | Closed
Tamper: TypeAlias = Callable[[bytes], bytes | None]


def as_it_is(frame: bytes) -> bytes | None:
    return frame


class RawConnection:
    """One TCP connection.  `tamper` sees each frame that came and may change it, or lose it.

    Its fences are reads; where a server may not know yet what another of the same tree has answered,
    they have to be `syncs`, as a real client's would.
    """

    def __init__(self, name: str, port: int, tamper: Tamper = as_it_is, *, syncs: bool = False) -> None:
        self._name, self._tamper, self._syncs = name, tamper, syncs
        self._socket = socket.create_connection(("127.0.0.1", port), _ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = bytearray()
        self._ended = False
        self._asked: deque[tuple[int, Request]] = deque()
        self._xid = 0
        self._fences = _FENCE_XID

    def close(self) -> None:
        self._socket.close()
        self._ended = True

    # -- asking ------------------------------------------------------------------------------

    def connect(
        self,
        *,
        protocol_version: int = 0,
        last_zxid: int = 0,
        timeout_ms: int = 30_000,
        session_id: int = 0,
        password: bytes | None = bytes(16),
        read_only: bool | None = False,
    ) -> Connected | Closed:
        body = int32(protocol_version) + int64(last_zxid) + int32(timeout_ms) + int64(session_id)
        body += buffer(password) + (b"" if read_only is None else boolean(read_only))
        return self.connect_with(body)

    def connect_with(self, body: bytes) -> Connected | Closed:
        """Send any bytes where a request to connect belongs."""
        self.send_raw(int32(len(body)) + body)
        return self.next_connected()

    def next_connected(self) -> Connected | Closed:
        """The answer to a request to connect that was sent."""
        frame = self._next_frame()
        if frame is None:
            return Closed()
        reader = JuteReader(frame)
        answer = (reader.int32(), reader.int32(), reader.int64(), reader.buffer())
        read_only = reader.boolean() if reader.rest else None
        return Connected(*answer, read_only, reader.rest)

    def ask(self, requests: list[tuple[Request, bytes]]) -> None:
        """Send requests with their bodies, at once, and do not wait."""
        frames = bytearray()
        for request, body in requests:
            self._xid += 1
            xid = self._xid if request.xid is None else request.xid
            self._asked.append((xid, request))
            frames += int32(8 + len(body)) + int32(xid) + int32(request.op) + body
        self.send_raw(bytes(frames))

    def send_fence(self) -> None:
        """A request whose answer tells what came before it from what came after."""
        self._fences += 1
        op, body = (Op.SYNC, text("/")) if self._syncs else (Op.EXISTS, text("/") + boolean(False))
        self.send_raw(int32(8 + len(body)) + int32(self._fences) + int32(op) + body)

    def send_raw(self, data: bytes) -> None:
        # If it has hung up, what it said before is still to be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    # -- hearing -----------------------------------------------------------------------------

    def fenced(self) -> list[Item]:
        """All that came before the answer to the last fence, or before the end."""
        items: list[Item] = []
        while (frame := self._next_frame()) is not None:
            item = self._item(frame)
            if isinstance(item, Replied) and item.xid == self._fences:
                return items
            items.append(item)
        items.append(Closed())
        return items

    def answered(self) -> list[Item]:
        """All that came before the answer to the last request and with it, and what a fence then shows.

        For requests after which a server may hang up: a fence right behind one may be answered or not.
        """
        items: list[Item] = []
        while self._asked:
            items.append(self.next_item())
            if isinstance(items[-1], Closed):
                return items
        last = items[-1]
        assert isinstance(last, Replied)
        assert last.request is not None
        if last.err != 0 or last.request.op == Op.CLOSE_SESSION:
            return [*items, self.next_item()]  # it is expected to hang up; else, silence
        self.send_fence()
        return items + self.fenced()

    def next_item(self) -> Item:
        frame = self._next_frame()
        return Closed() if frame is None else self._item(frame)

    def _item(self, frame: bytes) -> Item:
        reader = JuteReader(frame)
        try:
            xid, zxid, err = reader.int32(), reader.int64(), reader.int32()
        except Unreadable:
            raise AssertionError(f"{self._name} sent a frame that is not a reply: {frame!r}") from None
        body = reader.rest
        # A request may have the xid of events; an event of this version of ZooKeeper has no zxid.
        if xid == _EVENT_XID and not (zxid != -1 and self._asked and self._asked[0][0] == xid):
            return EventCame(zxid, err, body)
        if self._asked and xid == _replied_xid(*self._asked[0]):
            _, request = self._asked.popleft()
            return Replied(request, xid, zxid, err, body)
        return Replied(None, xid, zxid, err, body)

    def _next_frame(self) -> bytes | None:
        while True:
            if len(self._came) >= 4:
                end = 4 + int.from_bytes(self._came[:4], "big")
                if len(self._came) >= end:
                    frame = self._tamper(bytes(self._came[4:end]))
                    del self._came[:end]
                    if frame is not None:
                        return frame
                    continue
            if self._ended or not self._receive():
                return None

    def _receive(self) -> bool:
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            asked = ", ".join(str(request) for _, request in self._asked) or "a fence"
            raise Silence(f"{self._name} said nothing for {_ANSWER_S_MAX:g} s, asked {asked}") from None
        except ConnectionResetError:
            data = b""
        self._came += data
        self._ended = not data
        return bool(data)


def _replied_xid(xid: int, request: Request) -> int:
    """A ping is answered with the xid of pings, whatever it was asked with."""
    return _PING_XID if request.op == Op.PING else xid
