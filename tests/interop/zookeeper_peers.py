"""A peer that says to a ZooKeeper port whatever a test wants, and one that only wants to be served."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from typing import NamedTuple, Self

from quoracy.wire.zookeeper.codes import Err, EventType, Op
from tests.interop.programs import WAIT_S_MAX
from tests.support.zookeeper_frames import connect_frame, create_body, get_body, request, set_body

__all__ = ["Bystander", "Peer", "Reply"]


class Reply(NamedTuple):
    xid: int
    zxid: int
    err: int
    body: bytes


class Peer:
    """A raw connection; with `connect`, one that has a session."""

    def __init__(self, port: int, *, connect: bool = True, timeout_ms: int = 10_000) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session_id, self.password = 0, bytes(16)
        if connect:
            self.send(connect_frame(timeout_ms=timeout_ms))
            _, self.session_id, self.password = self.connected()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Whether the server still listens."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def flood(self, data: bytes, times: int, *, patience_s: float = 1.0) -> int:
        """Say the same again and again, until the server has had enough: how often it took it whole."""
        self._socket.settimeout(patience_s)
        try:
            for number in range(times):
                if not self.send(data):
                    return number
        finally:
            self._socket.settimeout(WAIT_S_MAX)
        return times

    def read(self, size: int) -> bytes:
        """As many bytes, or fewer if the server hangs up."""
        data = bytearray()
        try:
            while len(data) < size and (piece := self._socket.recv(size - len(data))):
                data += piece
        except ConnectionResetError:
            pass
        return bytes(data)

    def read_all(self) -> bytes:
        """Everything until the server hangs up; fails if it does not."""
        return self.read(1 << 30)

    def frame(self) -> bytes:
        head = self.read(4)
        assert len(head) == 4, f"the server hung up after {head!r}"
        size = int.from_bytes(head, "big")
        data = self.read(size)
        assert len(data) == size, "the server hung up within a frame"
        return data

    def connected(self) -> tuple[int, int, bytes]:
        """Timeout, session and password of the ConnectResponse."""
        _, timeout_ms, session_id, size = struct.unpack_from(">iiqi", frame := self.frame())
        return timeout_ms, session_id, frame[20 : 20 + size]

    def reply(self) -> Reply:
        xid, zxid, err = struct.unpack_from(">iqi", frame := self.frame())
        return Reply(xid, zxid, err, frame[16:])

    def ask(self, op: int, body: bytes = b"", *, xid: int = 1) -> Reply:
        assert self.send(request(xid, op, body))
        return self.reply()

    @property
    def is_over(self) -> bool:
        """Whether the server hangs up: waits for it, and throws away what it says."""
        self.read_all()
        return True


class Bystander:
    """An honest client on a connection of its own: it writes, watches what it writes, and reads it."""

    _numbers = itertools.count()

    def __init__(self, port: int) -> None:
        self._peer = Peer(port)
        self._path = b"/bystander-%d" % next(self._numbers)
        assert self._peer.ask(Op.CREATE, create_body(self._path, flags=1)).err == Err.OK
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._rounds_count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.005):
                self._round()
        except BaseException as error:  # noqa: BLE001  the end of the block raises it
            self._failure = error

    def _round(self) -> None:
        """Its own write is shown by an event, then by the answer, then by a read."""
        self._rounds_count += 1
        value = b"%d" % self._rounds_count
        peer, xid = self._peer, self._rounds_count
        assert peer.ask(Op.GET_DATA, get_body(self._path, watch=True), xid=xid).err == Err.OK
        event = peer.ask(Op.SET_DATA, set_body(self._path, value, xid - 1), xid=xid)
        assert (event.xid, event.body[:4]) == (-1, struct.pack(">i", EventType.DATA_CHANGED))
        reply = peer.reply()
        assert (reply.xid, reply.err) == (xid, Err.OK)
        reply = peer.ask(Op.GET_DATA, get_body(self._path), xid=xid)
        assert (reply.xid, reply.err, reply.body[4 : 4 + len(value)]) == (xid, Err.OK, value)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S_MAX)
        try:
            if kind is None:
                assert not self._thread.is_alive(), "it waits for an answer"
                if self._failure is not None:
                    raise AssertionError("it was disturbed") from self._failure
                self._round()
                assert self._peer.ask(Op.CLOSE_SESSION).err == Err.OK
        finally:
            self._peer.__exit__()
