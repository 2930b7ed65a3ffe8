"""ZooKeeper's frames as a load generator needs them, and a blocking session to prepare things with.

Nothing of this is Quoracy's own codec: both servers are asked with the same bytes, made here.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from types import TracebackType
from typing import Self

__all__ = [
    "CONNECT",
    "EPHEMERAL",
    "HEADER",
    "NODE_EXISTS",
    "SEQUENTIAL",
    "STAT_BYTES",
    "Op",
    "Session",
    "create",
    "delete",
    "frame",
    "get_data",
    "greeting_is_a_session",
    "multi_delete",
    "parse_address",
    "path_only",
    "sessions",
    "set_data",
    "sync",
    "sync_all",
]


class Op(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    SYNC = 9
    PING = 11
    MULTI = 14
    CLOSE_SESSION = -11


EPHEMERAL, SEQUENTIAL = 1, 2
STAT_BYTES = 68
NODE_EXISTS = -110

# Every reply begins with these: its length after this, then xid, zxid and err.
HEADER = struct.Struct(">iiqi")

_SESSION_TIMEOUT_MS = 40_000
_PASSWORD_BYTES = 16
_CONNECT_BODY = struct.pack(
    f">iqiqi{_PASSWORD_BYTES}s?", 0, 0, _SESSION_TIMEOUT_MS, 0, _PASSWORD_BYTES, b"", False
)

# The first frame of a connection: a new session, please.
CONNECT = struct.pack(">i", len(_CONNECT_BODY)) + _CONNECT_BODY

_PATIENCE_S = 30.0

# ZooKeeper has the kernel queue 50 connections that it has not accepted yet; one more is dropped, and
# tried again by the kernel a second later.
_BEING_OPENED_MAX = 32


def frame(xid: int, op: int, body: bytes = b"") -> bytes:
    return struct.pack(">iii", 8 + len(body), xid, op) + body


def sync(path: bytes) -> bytes:
    return _buffer(path)


def path_only(path: bytes, *, watch: bool = False) -> bytes:
    """The body of getData and exists."""
    return _buffer(path) + (b"\1" if watch else b"\0")


get_data = path_only


def set_data(path: bytes, data: bytes) -> bytes:
    return _buffer(path) + _buffer(data) + _ANY_VERSION


def create(path: bytes, data: bytes = b"", *, flags: int = 0) -> bytes:
    return _buffer(path) + _buffer(data) + _OPEN_TO_ALL + struct.pack(">i", flags)


def delete(path: bytes) -> bytes:
    return _buffer(path) + _ANY_VERSION


def multi_delete(paths: Sequence[bytes]) -> bytes:
    """The body of a multi that deletes all of these or none."""
    each = b"".join(_MULTI_DELETE + delete(path) for path in paths)
    return each + _MULTI_END


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


_ANY_VERSION = struct.pack(">i", -1)
_OPEN_TO_ALL = struct.pack(">ii", 1, 31) + _buffer(b"world") + _buffer(b"anyone")
_MULTI_DELETE = struct.pack(">i?i", Op.DELETE, False, -1)
_MULTI_END = struct.pack(">i?i", -1, True, -1)


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


def greeting_is_a_session(greeting: bytes) -> bool:
    """Whether the whole first frame of a server grants a session: one that it refuses has no id."""
    (session_id,) = struct.unpack_from(">q", greeting, 12)
    return bool(session_id)


class Session:
    """One session with blocking calls: what prepares a load and clears up after it.

    `start` only sends the greeting, so that several can be on their way at once; `wait_granted` has to
    follow.  Calls are pipelined: the answers come in the order of the questions.
    """

    __slots__ = ("socket",)

    def __init__(self, socket: socket.socket) -> None:
        self.socket = socket

    @classmethod
    def start(cls, address: tuple[str, int]) -> Session:
        connection = socket.create_connection(address, timeout=_PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(CONNECT)
        return cls(connection)

    @classmethod
    def open(cls, address: tuple[str, int]) -> Session:
        session = cls.start(address)
        try:
            session.wait_granted()
        except BaseException:
            session.socket.close()
            raise
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.send_close()
                self.wait_closed()
        finally:
            self.socket.close()

    def wait_granted(self) -> None:
        if not greeting_is_a_session(self.receive_frame()):
            raise ConnectionError("the server answered, and granted no session")

    def calls(
        self, requests: Sequence[tuple[Op, bytes]], *, expected: frozenset[int] = frozenset()
    ) -> None:
        """Send all of these and see that each succeeds, or fails with a code that is expected."""
        self.socket.sendall(
            b"".join(frame(xid, op, body) for xid, (op, body) in enumerate(requests, 1))
        )
        for op, _ in requests:
            error = HEADER.unpack_from(self.receive_frame())[3]
            if error and error not in expected:
                raise RuntimeError(f"{op.name} was answered with error {error}")

    def send_close(self) -> None:
        """The server ends the session: it need not expire, and take its ephemerals with it, later."""
        self.socket.sendall(frame(0x7FFFFFFF, Op.CLOSE_SESSION))

    def wait_closed(self) -> None:
        self.receive_frame()

    def receive_frame(self) -> bytes:
        """The next whole frame, with its length in front."""
        head = self._receive(4)
        return head + self._receive(int.from_bytes(head, "big"))

    def _receive(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.socket.recv(count)
            if not part:
                raise ConnectionError("the server hung up")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def sync_all(addresses: Sequence[tuple[str, int]]) -> None:
    """See that every one of these servers has what was acknowledged by any of them before."""
    for address in addresses:
        with Session.open(address) as session:
            session.calls([(Op.SYNC, sync(b"/"))])


@contextmanager
def sessions(addresses: Sequence[tuple[str, int]], number: int) -> Iterator[list[Session]]:
    """So many sessions, opened several at a time; ended on the server afterwards if nothing failed.

    Servers take turns: the first session is with the first, and so on around.
    """
    with ExitStack() as stack:
        opened: list[Session] = []
        for at in range(number):
            if at >= _BEING_OPENED_MAX:
                opened[at - _BEING_OPENED_MAX].wait_granted()
            opened.append(Session.start(addresses[at % len(addresses)]))
            stack.callback(opened[-1].socket.close)
        for session in opened[-_BEING_OPENED_MAX:]:
            session.wait_granted()
        yield opened
        for session in opened:
            session.send_close()
        for session in opened:
            session.wait_closed()
