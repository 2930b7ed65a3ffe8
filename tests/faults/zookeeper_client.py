"""A client of ZooKeeper's protocol that does nothing by itself: no heartbeats, no second attempt.

What kazoo and others do for their users is in the way of a test that wants a session to be silent, two
connections for it, or five thousand of them.

Invariants
    * Requests are answered in the order they were asked in, or the connection is over: anything else
      that comes from the server fails the test.
    * What the server says that is no answer is an event, kept in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tests.differential.zk_jute import JuteReader, boolean, buffer, int32, int64, text, vector
from tests.differential.zk_requests import Op

__all__ = [
    "BAD_VERSION",
    "EPHEMERAL",
    "NO_NODE",
    "PATIENCE_S",
    "SEQUENTIAL",
    "Expired",
    "Lost",
    "Refused",
    "Session",
    "ZkClient",
]

PATIENCE_S = 30.0
EPHEMERAL, SEQUENTIAL = 1, 2
NO_NODE, BAD_VERSION = -101, -103

_EVENT, _PING, _SET_WATCHES = -1, -2, -8
_EVENT_NAMES = {1: "created", 2: "deleted", 3: "changed", 4: "child"}
_OPEN_ACL = vector([int32(31) + text("world") + text("anyone")])
_HEADER = struct.Struct(">iqi")


class Lost(Exception):
    """The connection ended: whether the request was done is open."""


class Expired(Exception):
    """The server says that there is no such session."""


class Refused(Exception):
    """The server's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Session:
    """What it takes to go on with a session by another connection."""

    id: int
    password: bytes
    timeout_ms: int


class ZkClient:
    """One connection of one session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._asked: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._xid = 0
        self._reading: asyncio.Task[None] | None = None
        self.session = Session(0, bytes(16), 0)
        self.zxid = 0
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.closed = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        port: int,
        *,
        host: str = "127.0.0.1",
        timeout_ms: int = 30_000,
        session: Session | None = None,
        zxid: int = 0,
        patience_s: float = PATIENCE_S,
    ) -> ZkClient:
        """A new session, or another connection for one; raises Expired, Lost or OSError."""
        client = cls(*await asyncio.open_connection(host, port))
        try:
            async with asyncio.timeout(patience_s):
                await client._greet(timeout_ms, session, zxid)
        except BaseException:
            client.abort()
            raise
        client._reading = asyncio.create_task(client._read())
        return client

    async def _greet(self, timeout_ms: int, session: Session | None, zxid: int) -> None:
        known = session or self.session
        body = int32(0) + int64(zxid) + int32(timeout_ms) + int64(known.id) + buffer(known.password)
        body += boolean(False)
        self._writer.write(int32(len(body)) + body)
        answer = JuteReader(await self._frame())
        _, timeout_ms, id = answer.int32(), answer.int32(), answer.int64()
        if timeout_ms <= 0:
            raise Expired(f"session {known.id:#x}")
        assert session is None or id == session.id, "a session came back under another id"
        self.session = Session(id, answer.buffer() or b"", timeout_ms)
        self.zxid = zxid

    # -- the end ---------------------------------------------------------------------------------

    def abort(self) -> None:
        """Gone without a word; the session goes on."""
        self._writer.transport.abort()

    async def aborted(self) -> None:
        """The same, and returns when all of it is over."""
        self.abort()
        if self._reading is not None:
            await self._reading

    async def close(self) -> None:
        """Close the session, and the connection."""
        await self.request(Op.CLOSE_SESSION)
        await self.aborted()

    # -- requests --------------------------------------------------------------------------------

    async def create(self, path: str, data: bytes = b"", flags: int = 0) -> str:
        body = text(path) + buffer(data) + _OPEN_ACL + int32(flags)
        return JuteReader(await self.request(Op.CREATE, body)).text() or ""

    async def delete(self, path: str, version: int = -1) -> None:
        await self.request(Op.DELETE, text(path) + int32(version))

    async def create_all(self, *paths: str) -> None:
        """All of them, or none."""
        parts = (text(path) + buffer(b"") + _OPEN_ACL + int32(0) for path in paths)
        body = b"".join(int32(Op.CREATE) + boolean(False) + int32(-1) + part for part in parts)
        answer = JuteReader(await self.request(Op.MULTI, body + int32(-1) + boolean(True) + int32(-1)))
        kind, _, err = answer.int32(), answer.boolean(), answer.int32()
        if kind == Op.ERROR:
            raise Refused(err)

    async def set(self, path: str, data: bytes, version: int = -1) -> None:
        await self.request(Op.SET_DATA, text(path) + buffer(data) + int32(version))

    async def get(self, path: str, *, watch: bool = False) -> bytes:
        return (await self.get_versioned(path, watch=watch))[0]

    async def get_versioned(self, path: str, *, watch: bool = False) -> tuple[bytes, int]:
        answer = JuteReader(await self.request(Op.GET_DATA, text(path) + boolean(watch)))
        data = answer.buffer() or b""
        for _ in range(4):  # czxid, mzxid, ctime, mtime
            answer.int64()
        return data, answer.int32()

    async def exists(self, path: str, *, watch: bool = False) -> bool:
        try:
            await self.request(Op.EXISTS, text(path) + boolean(watch))
        except Refused as refusal:
            if refusal.code == NO_NODE:
                return False
            raise
        return True

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        answer = JuteReader(await self.request(Op.GET_CHILDREN, text(path) + boolean(watch)))
        return [name or "" for name in answer.vector(answer.text) or []]

    async def set_watches(
        self,
        zxid: int,
        *,
        data: Sequence[str] = (),
        exist: Sequence[str] = (),
        child: Sequence[str] = (),
    ) -> None:
        body = int64(zxid) + b"".join(vector(map(text, paths)) for paths in (data, exist, child))
        await self.request(Op.SET_WATCHES, body, xid=_SET_WATCHES)

    async def ping(self) -> None:
        await self.request(Op.PING, xid=_PING)

    async def keep_alive(self) -> None:
        """Heartbeats as clients send them, until cancelled or the connection ends."""
        with contextlib.suppress(Lost):
            while True:
                await asyncio.sleep(self.session.timeout_ms / 3000)
                self._ask(Op.PING, b"", _PING)  # an answer that is late does not hold up the next

    async def next_event(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await self.events.get()

    async def request(self, op: Op, body: bytes = b"", *, xid: int | None = None) -> bytes:
        """The body of the answer."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._ask(op, body, xid)

    def _ask(self, op: Op, body: bytes, xid: int | None) -> asyncio.Future[bytes]:
        if self.closed.is_set():
            raise Lost
        if xid is None:
            self._xid += 1
            xid = self._xid
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        # Whoever gave up waiting does not want to hear of it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._asked.append((xid, future))
        self._writer.write(int32(8 + len(body)) + int32(xid) + int32(op) + body)
        return future

    # -- answers ---------------------------------------------------------------------------------

    async def _frame(self) -> bytes:
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
            return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Lost from error

    async def _read(self) -> None:
        failure: Exception = Lost()
        try:
            while True:
                self._take(await self._frame())
        except Lost:
            return
        except AssertionError as error:
            failure = error
            raise
        finally:
            self.closed.set()
            for _, future in self._asked:
                if not future.done():
                    future.set_exception(failure)
            self._writer.transport.abort()

    def _take(self, frame: bytes) -> None:
        xid, zxid, err = _HEADER.unpack_from(frame)
        if xid == _EVENT:
            event = JuteReader(frame[_HEADER.size :])
            kind, _, path = event.int32(), event.int32(), event.text()
            self.events.put_nowait(f"{_EVENT_NAMES.get(kind, kind)} {path}")
            return
        assert self._asked, f"nobody asked, {xid} is answered"
        asked, future = self._asked.popleft()
        assert xid == asked, f"{asked} was asked, {xid} is answered"
        assert zxid >= self.zxid, f"zxid {zxid:#x} after {self.zxid:#x}"
        self.zxid = zxid
        if future.done():
            return
        if err:
            future.set_exception(Refused(err))
        else:
            future.set_result(frame[_HEADER.size :])
