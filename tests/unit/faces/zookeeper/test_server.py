"""The shell: who may connect, what happens when the store goes away or the server stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self, cast

import pytest

from quoracy.engines.opening import open_embedded
from quoracy.errors import Unavailable
from quoracy.faces.zookeeper.serving import server as module
from quoracy.faces.zookeeper.serving.server import Face, serve_zookeeper
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.store.api import Store
from quoracy.wire.zookeeper.codes import Err, Op
from tests.support.certificates import Authority
from tests.support.zookeeper_frames import connect_frame, create_body, get_body, request

from .dialogue import Remote

WAIT_S_MAX = 20.0


class Client:
    """A client with a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.session_id, self.password = 0, bytes(16)

    @classmethod
    async def dial(cls, face: Face, **options: Any) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", face.client_port, **options))

    @classmethod
    async def connect(cls, face: Face, before: Client | None = None) -> Self:
        client = await cls.dial(face)
        await client.join(before)
        return client

    async def join(self, before: Client | None = None) -> None:
        if before is None:
            self.writer.write(connect_frame())
        else:
            again = connect_frame(session_id=before.session_id, password=before.password)
            self.writer.write(again)
        payload = await self.frame()
        _, _, self.session_id, size = struct.unpack_from(">iiqi", payload)
        self.password = payload[20 : 20 + size]

    async def frame(self) -> bytes:
        async with asyncio.timeout(WAIT_S_MAX):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    async def ask(self, op: int, body: bytes = b"", *, xid: int = 1) -> int:
        """The error."""
        self.writer.write(request(xid, op, body))
        got, _, err = struct.unpack_from(">iqi", await self.frame())
        assert got == xid
        return int(err)

    async def rest(self) -> bytes:
        """What came until the server hung up."""
        async with asyncio.timeout(WAIT_S_MAX):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def leave(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def until(is_so: Callable[[], bool]) -> None:
    """There is no event for what the other side of a socket has noticed."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0)


def bound() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


@contextlib.asynccontextmanager
async def listening(
    settings: ZooKeeperSettings | None = None, *, store: Store | None = None
) -> AsyncIterator[Face]:
    async with contextlib.AsyncExitStack() as running:
        if store is None:
            store = await running.enter_async_context(open_embedded("memory:"))
        yield await running.enter_async_context(serve_zookeeper(store, bound(), settings=settings))


class Fragile(Remote):
    """A store that can go away, and come back."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_away = asyncio.Event()
        self.is_back = asyncio.Event()
        self.is_back.set()
        self.on_away: Callable[[], None] = lambda: None

    def go_away(self) -> None:
        self.is_back.clear()
        self.is_away.set()
        self.on_away()

    def come_back(self) -> None:
        self.is_away.clear()
        self.is_back.set()

    def watch(self, *args: Any, **options: Any) -> _FragileWatch:
        return _FragileWatch(self, self.store.watch(*args, **options))

    async def range(self, *args: Any, **options: Any) -> Any:
        self._check()
        return await self.store.range(*args, **options)

    async def txn(self, *args: Any, **options: Any) -> Any:
        self._check()
        return await self.store.txn(*args, **options)

    async def keep_alive(self, *args: Any, **options: Any) -> Any:
        self._check()
        return await self.store.keep_alive(*args, **options)

    def _check(self) -> None:
        if self.is_away.is_set():
            raise Unavailable("the store is away")


class _FragileWatch:
    def __init__(self, store: Fragile, stream: Any) -> None:
        self._store, self._stream = store, stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._stream.__aexit__(*args)

    def poll(self) -> Any:
        self._store._check()
        return self._stream.poll()

    def on_ready(self, call: Callable[[], None]) -> None:
        self._stream.on_ready(call)
        self._store.on_away = call


async def test_client_is_served() -> None:
    async with listening() as face:
        client = await Client.connect(face)
        assert await client.ask(Op.CREATE, create_body(b"/a", b"1")) == Err.OK
        assert await client.ask(Op.GET_DATA, get_body(b"/a")) == Err.OK
        assert await client.ask(Op.CLOSE_SESSION) == Err.OK
        assert await client.rest() == b""
        assert face.tree.sessions == {}
        await client.leave()


async def test_one_too_many_from_an_address_is_closed_at_once() -> None:
    async with listening(ZooKeeperSettings(max_client_cnxns=3)) as face:
        clients = [await Client.connect(face) for _ in range(3)]
        refused = await Client.dial(face)
        assert await refused.rest() == b""
        assert face.stats.connection_rejected == 1
        await refused.leave()
        for client in clients:
            assert await client.ask(Op.GET_DATA, get_body(b"/")) == Err.OK
        await clients.pop().leave()
        await until(lambda: len(face.stats.connections) == 2)
        clients.append(await Client.connect(face))
        for client in clients:
            await client.leave()


async def test_one_too_many_of_all_is_closed_at_once() -> None:
    async with listening(ZooKeeperSettings(max_cnxns=2, max_client_cnxns=0)) as face:
        clients = [await Client.connect(face) for _ in range(2)]
        clients.append(await Client.dial(face))
        assert await clients[-1].rest() == b""
        for client in clients:
            await client.leave()


async def test_no_limit_is_no_limit() -> None:
    async with listening(ZooKeeperSettings(max_client_cnxns=0)) as face:
        clients = [await Client.connect(face) for _ in range(70)]
        assert len(face.stats.connections) == 70
        for client in clients:
            await client.leave()


async def test_refusals_are_logged_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CHECK_EVERY_S", 0.05)
    async with listening(ZooKeeperSettings(max_client_cnxns=1)) as face:
        clients = [await Client.connect(face)]
        for _ in range(10):
            clients.append(await Client.dial(face))
            assert await clients[-1].rest() == b""
        await until(lambda: "refused" in caplog.text)
        assert caplog.text.count("maxClientCnxns is 1") <= 10
        assert "from 127.0.0.1" in caplog.text
        for client in clients:
            await client.leave()


async def test_who_does_not_say_what_it_wants_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONLESS_S", 0.1)
    async with listening() as face:
        silent, served = await Client.dial(face), await Client.connect(face)
        silent.writer.write(connect_frame()[:-1])
        assert await silent.rest() == b""
        assert face.stats.sessionless_connections_expired == 1
        assert await served.ask(Op.GET_DATA, get_body(b"/")) == Err.OK
        await silent.leave()
        await served.leave()


async def test_word_is_answered_to_who_has_closed_its_side() -> None:
    async with listening(ZooKeeperSettings(commands_whitelist=frozenset({"*"}))) as face:
        for word in (b"ruok", b"srvr", b"mntr", b"dump"):
            client = await Client.dial(face)
            client.writer.write(word)
            client.writer.write_eof()
            assert len(await client.rest()) >= 4
            await client.leave()


async def test_last_words_arrive_although_more_was_sent() -> None:
    async with listening() as face:
        client = await Client.connect(face)
        client.writer.write(request(1, 999) + request(2, Op.GET_DATA, get_body(b"/")) * 500_000)
        assert struct.unpack_from(">iqi", await client.frame()) == (1, -1, Err.UNIMPLEMENTED)
        assert await client.rest() == b""
        await client.leave()


async def test_peer_that_closes_is_forgotten() -> None:
    async with listening() as face:
        client = await Client.connect(face)
        await client.ask(Op.EXISTS, get_body(b"/a", watch=True))
        await client.leave()
        await until(lambda: not face.stats.connections)
        assert face.watches.count == 0
        assert len(face.tree.sessions) == 1  # it may come back


async def test_server_that_stops_answers_what_it_has_taken_and_ends_no_session() -> None:
    async with open_embedded("memory:") as store:
        async with listening(store=store) as face:
            idle, busy = await Client.connect(face), await Client.connect(face)
            busy.writer.write(
                b"".join(
                    request(xid, Op.CREATE, create_body(b"/%d" % xid, flags=1)) for xid in range(50)
                )
            )
            await until(lambda: face.throttle.count > 0)
        rest = await busy.rest()
        answered = []
        while rest:
            size = int.from_bytes(rest[:4], "big")
            answered.append(struct.unpack_from(">iqi", rest, 4)[::2])
            rest = rest[4 + size :]
        assert answered == [(xid, Err.OK) for xid in range(50)]
        assert await idle.rest() == b""
        assert set(await store.leases()) == {idle.session_id, busy.session_id}
        async with listening(store=store) as face:
            again = await Client.connect(face, busy)
            assert again.session_id == busy.session_id
            assert await again.ask(Op.EXISTS, get_body(b"/49")) == Err.OK
            await again.leave()
        await idle.leave()
        await busy.leave()


async def test_clients_are_hung_up_on_when_the_store_goes_away_and_served_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.02)
    settings = ZooKeeperSettings(commands_whitelist=frozenset({"*"}))
    async with open_embedded("memory:") as real:
        store = Fragile(real)
        async with listening(settings, store=cast(Store, store)) as face:
            client = await Client.connect(face)
            assert await client.ask(Op.CREATE, create_body(b"/mine", flags=1)) == Err.OK
            store.go_away()
            assert await client.rest() == b""
            assert not bool(face.running)
            refused = await Client.dial(face)
            refused.writer.write(connect_frame(session_id=client.session_id, password=client.password))
            assert await refused.rest() == b""
            asking = await Client.dial(face)
            asking.writer.write(b"stat")
            assert await asking.rest() == b"This ZooKeeper instance is not currently serving requests\n"
            waiting = await Client.dial(face)  # connects before, and speaks after
            store.come_back()
            await until(lambda: face.running)
            await waiting.join(client)
            assert waiting.session_id == client.session_id
            assert await waiting.ask(Op.EXISTS, get_body(b"/mine")) == Err.OK
            assert await waiting.ask(Op.CREATE, create_body(b"/mine2", flags=1)) == Err.OK
            for each in (client, refused, asking, waiting):
                await each.leave()


async def test_server_without_its_store_starts_and_serves_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.02)
    async with open_embedded("memory:") as real:
        store = Fragile(real)
        store.go_away()
        async with listening(store=cast(Store, store)) as face:
            assert not bool(face.running)
            store.come_back()
            await until(lambda: face.running)
            client = await Client.connect(face)
            assert await client.ask(Op.GET_DATA, get_body(b"/")) == Err.OK
            await client.leave()


async def test_clients_are_served_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)
    trusting = ssl.create_default_context(cafile=authority.cert)
    async with open_embedded("memory:") as store:
        async with serve_zookeeper(store, bound(), ssl=context, secure_listener=bound()) as face:
            client = Client(
                *await asyncio.open_connection("127.0.0.1", face.secure_client_port, ssl=trusting)
            )
            await client.join()
            assert await client.ask(Op.CREATE, create_body(b"/a")) == Err.OK
            assert [each.secure for each in face.stats.connections] == [True]
            plain = await Client.connect(face, client)  # the same session, at the other port
            assert plain.session_id == client.session_id
            assert await client.rest() == b""
            wrong = Client(*await asyncio.open_connection("127.0.0.1", face.secure_client_port))
            wrong.writer.write(connect_frame())
            await wrong.rest()
            assert await plain.ask(Op.CLOSE_SESSION) == Err.OK
            for each in (client, plain, wrong):
                await each.leave()


async def test_secure_listener_needs_a_certificate() -> None:
    async with open_embedded("memory:") as store:
        with bound() as listener, pytest.raises(ValueError, match="SSL context"):
            async with serve_zookeeper(store, None, secure_listener=listener):
                pass


@pytest.mark.parametrize("leaves", ["politely", "without a word", "asked a word", "said nothing"])
async def test_who_left_leaves_nothing_to_the_garbage_collector(leaves: str) -> None:
    """It comes seldom; until then a crowd that has left would hold the memory all around it."""
    async with listening() as face:
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(3):
                client = await Client.dial(face)
                if leaves == "asked a word":
                    client.writer.write(b"srvr")
                    assert b"Zookeeper version" in await client.rest()
                elif leaves != "said nothing":
                    await client.join()
                    assert await client.ask(Op.CREATE, create_body(b"/e", flags=3)) == Err.OK
                    assert await client.ask(Op.GET_DATA, get_body(b"/", watch=True)) == Err.OK
                    if leaves == "politely":
                        assert await client.ask(Op.CLOSE_SESSION) == Err.OK
                await client.leave()
                await until(lambda: not face.stats.connections)
            await asyncio.sleep(0)
            gc.collect()
            ours = [
                type(each).__name__ for each in gc.garbage if type(each).__module__[:7] == "quoracy"
            ]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert ours == []
