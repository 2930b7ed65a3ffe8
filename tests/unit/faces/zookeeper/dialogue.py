"""Clients without sockets: connections of a face that stands on a real store, fed by hand."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, cast

from quoracy.clock import Clock
from quoracy.engines.opening import open_embedded
from quoracy.faces.common.reply_socket import ReplySocket
from quoracy.faces.zookeeper.serving.connection import Connection
from quoracy.faces.zookeeper.serving.server import Face, serve_zookeeper
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.store.api import Store
from quoracy.wire.zookeeper.codes import Op
from tests.support.zookeeper_frames import connect_frame, create_body, request

__all__ = [
    "Client",
    "Connected",
    "Event",
    "Remote",
    "Reply",
    "serving",
]


class Reply(NamedTuple):
    xid: int
    zxid: int
    err: int
    body: bytes


class Event(NamedTuple):
    type: int
    path: bytes


class Connected(NamedTuple):
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bytes  # as it stands there: empty if it does not


class Client:
    """One connection: what goes in, and what came out of it."""

    def __init__(self, face: Face, *, host: str = "127.0.0.1", port: int = 50_000) -> None:
        stats = face.stats.connected(host, port, now=face.clock.now(), wall=face.clock.wall())
        self.replies = ReplySocket(face.descriptors)  # that is not open: the loop sends them all
        self.connection = Connection(face, self, self.replies, stats)
        self._is_closed = False
        self._is_read = True
        self.sends_count = 0
        self.unparsed = b""
        self._heard = asyncio.Event()

    # -- the peer of the connection

    def send(self, data: bytes) -> None:
        assert not self._is_closed
        self.sends_count += 1
        self.unparsed += data
        self._heard.set()

    def close(self) -> None:
        assert not self._is_closed
        self._is_closed = True
        self._heard.set()

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True

    # -- the client

    def is_closed(self) -> bool:
        return self._is_closed

    def is_read(self) -> bool:
        return self._is_read

    def say(self, *data: bytes) -> None:
        self.connection.feed(b"".join(data))

    async def connect(self, data: bytes | None = None) -> Connected:
        self.say(connect_frame() if data is None else data)
        return await self.connected()

    async def connected(self) -> Connected:
        payload = await self.next()
        _, timeout_ms, session_id, size = struct.unpack_from(">iiqi", payload)
        return Connected(timeout_ms, session_id, payload[20 : 20 + size], payload[20 + size :])

    async def ask(self, op: int, body: bytes = b"", *, xid: int = 1) -> Reply:
        self.say(request(xid, op, body))
        return await self.reply()

    async def next(self) -> bytes:
        """The next frame that was sent to it."""
        while True:
            if len(self.unparsed) >= 4:
                end = 4 + int.from_bytes(self.unparsed[:4], "big")
                if len(self.unparsed) >= end:
                    payload, self.unparsed = self.unparsed[4:end], self.unparsed[end:]
                    return payload
            assert not self._is_closed, "it was hung up on"
            self._heard.clear()
            await self._heard.wait()

    async def reply(self) -> Reply:
        payload = await self.next()
        xid, zxid, err = struct.unpack_from(">iqi", payload)
        return Reply(xid, zxid, err, payload[16:])

    async def event(self) -> Event:
        reply = await self.reply()
        assert (reply.xid, reply.err) == (-1, 0)
        type, state, size = struct.unpack_from(">iii", reply.body)
        assert state == 3
        return Event(type, reply.body[12 : 12 + size])

    async def create(self, path: bytes, data: bytes = b"", **options: object) -> None:
        reply = await self.ask(Op.CREATE, create_body(path, data, **options))  # type: ignore[arg-type]
        assert reply.err == 0

    async def wait_closed(self) -> None:
        while not self._is_closed:
            self._heard.clear()
            await self._heard.wait()

    def lose(self) -> None:
        """The network ends the connection."""
        self._is_closed = True
        self.replies.close()
        self.connection.lost()


class Remote:
    """A store that does not say its head revision: every write has to be compared."""

    head_revision = None

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


# Every face stands on such a store while this is set.
stores_are_remote = False


@contextlib.asynccontextmanager
async def serving(
    settings: ZooKeeperSettings | None = None,
    *,
    clock: Clock | None = None,
    store: Store | None = None,
) -> AsyncIterator[Face]:
    """A face without listeners, on a store of its own unless one is given."""
    async with contextlib.AsyncExitStack() as running:
        if store is None:
            store = await running.enter_async_context(open_embedded("memory:", clock=clock))
        if stores_are_remote:
            store = cast(Store, Remote(store))
        yield await running.enter_async_context(
            serve_zookeeper(store, None, settings=settings, clock=clock)
        )
