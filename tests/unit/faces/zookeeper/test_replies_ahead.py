"""Replies that leave with the sync of what they tell of: what clients of a durable store get."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from quoracy.compiled import is_compiled
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.faces.common.reply_socket import Descriptors
from quoracy.faces.zookeeper.serving.server import Face, serve_zookeeper
from quoracy.store.completion import Reply
from quoracy.wire.zookeeper.codes import XID_AUTH, XID_EVENT, Err, Op
from tests.support.held_disk import HeldDisk
from tests.support.zookeeper_frames import (
    auth_body,
    connect_frame,
    create_body,
    get_body,
    request,
    set_body,
    text,
)

from . import dialogue
from .dialogue import Client, serving

pytestmark = pytest.mark.skipif(not is_compiled(), reason="then the loop sends all replies")

_SOON_S = 20.0
_AUTH = request(XID_AUTH, Op.AUTH, auth_body(b"digest", b"me:secret"))


def _set(xid: int, data: bytes = b"new", path: bytes = b"/a") -> bytes:
    return request(xid, Op.SET_DATA, set_body(path, data))


def _delete_body(path: bytes) -> bytes:
    return text(path) + struct.pack(">i", -1)


class _SocketClient(Client):
    """One whose connection sends to a socket, as may others."""

    def __init__(self, face: Face, ours: socket.socket, theirs: socket.socket) -> None:
        super().__init__(face)
        self._ours, self.theirs = ours, theirs
        theirs.setblocking(False)
        self.replies.open(cast(asyncio.Transport, self))
        self.is_writing = False

    def send(self, data: bytes) -> None:
        assert not self.is_closed()
        self.sends_count += 1
        self._ours.sendall(data)

    # -- the transport, as `ReplySocket` uses it

    def get_extra_info(self, name: str) -> object:
        return self._ours if name == "socket" else None

    def is_closing(self) -> bool:
        return self.is_closed()

    def get_write_buffer_size(self) -> int:
        return int(self.is_writing)

    def write(self, data: bytes) -> None:
        self.send(data)

    # -- the client

    async def next(self) -> bytes:
        loop = asyncio.get_running_loop()
        while not self._has_frame():
            async with asyncio.timeout(_SOON_S):
                self.unparsed += await loop.sock_recv(self.theirs, 1 << 16)
        return self._pop()

    def next_of_another_thread(self) -> bytes:
        """While the loop stands still."""
        self.theirs.settimeout(_SOON_S)
        while not self._has_frame():
            self.unparsed += self.theirs.recv(1 << 16)
        self.theirs.setblocking(False)
        return self._pop()

    def has_more(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.unparsed += self.theirs.recv(1 << 16)
        return bool(self.unparsed)

    def _has_frame(self) -> bool:
        size = int.from_bytes(self.unparsed[:4], "big")
        return len(self.unparsed) >= 4 and len(self.unparsed) >= 4 + size

    def _pop(self) -> bytes:
        end = 4 + int.from_bytes(self.unparsed[:4], "big")
        payload, self.unparsed = self.unparsed[4:end], self.unparsed[end:]
        return payload


class _Held:
    """A face without listeners, on a store whose disk is held when the test says so."""

    def __init__(
        self, face: Face, store: EmbeddedStore, disk: HeldDisk, opened: contextlib.ExitStack
    ) -> None:
        self.face, self.store, self.disk, self._opened = face, store, disk, opened

    async def client(self) -> _SocketClient:
        ours, theirs = map(self._opened.enter_context, socket.socketpair())
        client = _SocketClient(self.face, ours, theirs)
        await client.connect()
        return client

    async def begun(self, client: _SocketClient, *data: bytes) -> list[Reply]:
        """Say this; replies that wait for the disk, which is held, with what was written."""
        await self.quiet()
        self.disk.hold()
        client.say(*data)
        await _until(lambda: self.disk.begun)
        return self.replies()

    def replies(self) -> list[Reply]:
        return [reply for sync in self.disk.begun for reply in (*sync.replies, *sync._attached)]

    async def quiet(self) -> None:
        """Everything is durable, and was told."""
        self.disk.release()
        await _until(lambda: self.face.replica.pipeline.count == 0)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Held]:
    assert not dialogue.stores_are_remote
    disk = HeldDisk(monkeypatch)
    with contextlib.ExitStack() as opened:
        async with (
            open_embedded(f"sqlite:{tmp_path / 'q.db'}") as store,
            serving(store=store) as face,
        ):
            held = _Held(face, store, disk, opened)
            client = await held.client()
            await client.create(b"/a", b"old")
            client.lose()
            yield held
            disk.release()


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(_SOON_S):
        while not condition():  # noqa: ASYNC110 (nobody tells of these)
            await asyncio.sleep(0)


def _head(payload: bytes) -> tuple[int, int, int]:
    xid, zxid, err = struct.unpack_from(">iqi", payload)
    return xid, zxid, err


class _Half:
    """Another thread that has sent a part when it is stopped."""

    def __init__(self, reply: Reply, count: int) -> None:
        self._reply, self._count = reply, count

    def take_back(self) -> int:
        return os.write(self._reply.descriptor, self._reply.data[: self._count])


# -- one connection


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (Op.SET_DATA, set_body(b"/a", b"new")),
        (Op.CREATE, create_body(b"/a/b")),
        (Op.CREATE2, create_body(b"/a/b")),
        (Op.DELETE, _delete_body(b"/a")),
    ],
    ids=["setData", "create", "create2", "delete"],
)
async def test_a_lone_write_is_answered_by_another_thread_once(
    held: _Held, op: int, body: bytes
) -> None:
    client = await held.client()
    sent_before = client.sends_count
    (reply,) = await held.begun(client, request(7, op, body))
    assert not client.has_more()
    revision = held.store.statistics().durable_revision + 1
    held.disk.release()
    payload = client.next_of_another_thread()
    assert reply.data[4:] == payload
    assert _head(payload) == (7, revision, 0)
    await held.quiet()
    assert not client.has_more()
    assert client.sends_count == sent_before
    assert held.face.throttle.count == 0
    stats = client.connection.stats
    assert (stats.sent_count, stats.queued, stats.last_zxid) == (2, 0, revision)


async def test_one_after_the_other_is_answered_like_that(held: _Held) -> None:
    client = await held.client()
    sent_before, handed_before = client.sends_count, held.disk.replies_count
    zxid = 0
    catch_up = held.face.catch_up
    for number in range(1, 301):
        catch_up()  # as whoever reads from a socket does
        client.say(_set(number, b"%d" % number))
        xid, after, err = _head(await client.next())
        assert (xid, err) == (number, 0)
        assert after > zxid
        zxid = after
    await held.quiet()
    assert not client.has_more()
    assert held.disk.replies_count == handed_before + 300
    assert client.sends_count <= sent_before + 300  # those that the loop was quicker with


async def test_settling_one_reply_does_not_take_back_the_next(held: _Held) -> None:
    """The client has its reply, and has written again, before the loop has learned of either."""
    client = await held.client()
    sent_before = client.sends_count
    (_,) = await held.begun(client, _set(1))
    held.disk.release()
    client.next_of_another_thread()
    held.face.catch_up()
    held.disk.hold()
    client.say(_set(2))
    for _ in range(20):
        await asyncio.sleep(0)
    (reply,) = held.replies()
    assert not reply.is_over
    held.disk.release()
    assert _head(client.next_of_another_thread())[0] == 2
    await held.quiet()
    assert client.sends_count == sent_before


async def test_what_is_told_ahead_is_what_a_read_shows_afterwards(held: _Held) -> None:
    one, another = await held.client(), await held.client()
    rng = random.Random(5)
    children: list[bytes] = []
    for number in range(100):
        if children and rng.random() < 0.4:
            before = request(1, Op.DELETE, _delete_body(children.pop()))
        elif rng.random() < 0.7:
            children.append(b"/a/%d" % number)
            before = request(1, Op.CREATE, create_body(children[-1]))
        else:
            before = _set(1, b"before")
        if rng.random() < 0.5:
            await held.begun(one, before)  # a commit of its own
        else:
            one.say(before)
        another.say(_set(2, b"%d" % number))
        held.disk.release()
        assert _head(await one.next())[2] == 0
        told = await another.next()
        assert _head(told)[2] == 0
        read = await another.ask(Op.GET_DATA, get_body(b"/a"))
        data = b"%d" % number
        assert read.body == text(data) + told[16:]
    created = await another.ask(Op.CREATE2, create_body(b"/c", b"data"))
    read = await another.ask(Op.GET_DATA, get_body(b"/c"))
    assert created.body == text(b"/c") + read.body[8:]


async def test_who_watches_is_answered_by_the_loop_with_the_event_first(held: _Held) -> None:
    client = await held.client()
    assert (await client.ask(Op.GET_DATA, get_body(b"/a", watch=True))).err == 0
    sent_before = client.sends_count
    assert await held.begun(client, _set(7)) == []
    held.disk.release()
    assert (await client.event()).path == b"/a"
    assert (await client.reply()).xid == 7
    assert client.sends_count == sent_before + 1
    assert len(await held.begun(client, _set(8))) == 1  # the watch is gone
    held.disk.release()
    assert (await client.reply()).xid == 8


async def test_a_watch_that_is_set_behind_a_write_tells_only_of_what_came_after(held: _Held) -> None:
    one, another = await held.client(), await held.client()
    (_,) = await held.begun(one, _set(1))
    one.say(request(2, Op.GET_DATA, get_body(b"/a", watch=True)))
    another.say(_set(1, b"newer"))
    held.disk.release()
    assert (await one.reply()).xid == 1
    read = await one.reply()
    assert (read.xid, read.err) == (2, 0)
    if not read.body.startswith(text(b"newer")):
        assert (await one.event()).path == b"/a"
    assert (await another.reply()).xid == 1
    await held.quiet()
    assert not one.has_more()


@pytest.mark.parametrize("reason", ["is writing", "paused"])
async def test_where_it_cannot_be_sent_ahead_the_loop_answers(held: _Held, reason: str) -> None:
    client = await held.client()
    if reason == "paused":
        client.connection.pause()
        client.say(_set(7))
        client.is_writing = True
        client.connection.resume()
        await client.reply()
    client.is_writing = True
    assert await held.begun(client, _set(8)) == []
    held.disk.release()
    assert (await client.reply()).xid == 8
    await held.quiet()
    assert not client.has_more()


async def test_a_peer_that_stops_reading_meanwhile_is_answered_once(held: _Held) -> None:
    client = await held.client()
    for number in range(1, 51):
        await held.begun(client, _set(number))
        client.connection.pause()
        held.disk.release()
        await held.quiet()
        client.connection.resume()
        assert (await client.reply()).xid == number
        await held.quiet()
        assert not client.has_more()


# -- what else goes out to it meanwhile


async def test_an_addauth_does_not_wait_for_a_write_on_its_way(held: _Held) -> None:
    client = await held.client()
    (reply,) = await held.begun(client, _set(7))
    client.say(_AUTH)
    assert (await client.reply()).xid == XID_AUTH
    assert reply.is_over  # nobody else may send any more
    assert not client.has_more()
    held.disk.release()
    assert (await client.reply()).xid == 7
    await held.quiet()
    assert not client.has_more()


async def test_an_addauth_around_the_moment_of_the_sync_cuts_into_nothing(held: _Held) -> None:
    client = await held.client()
    rng = random.Random(1)
    for number in range(1, 301):
        await held.begun(client, _set(number))
        held.disk.release()
        for _ in range(rng.choice([0, 0, 100, 300, 1000])):
            pass
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        client.say(_AUTH)
        xids = [(await client.reply()).xid, (await client.reply()).xid]
        assert sorted(xids) == [XID_AUTH, number]
        await held.quiet()
        assert not client.has_more()


@pytest.mark.parametrize("sent", [1, 4, 50])
async def test_what_was_sent_in_part_is_completed_before_anything_else(held: _Held, sent: int) -> None:
    client = await held.client()
    (reply,) = await held.begun(client, _set(7))
    reply.hand_over(lambda _descriptor, _data: _Half(reply, sent))
    client.say(_AUTH)
    assert await client.next() == reply.data[4:]
    assert (await client.reply()).xid == XID_AUTH
    await held.quiet()
    assert not client.has_more()


@pytest.mark.parametrize("sent", [0, 1, 50])
async def test_the_loop_sends_what_the_other_thread_has_not(held: _Held, sent: int) -> None:
    client = await held.client()
    (reply,) = await held.begun(client, _set(7))
    # Whoever has it by then, this is what comes of it.
    held.disk.begun[0].replies.clear()
    held.disk.begun[0]._attached.clear()
    reply.hand_over(lambda _descriptor, _data: _Half(reply, sent))
    held.disk.release()
    assert await client.next() == reply.data[4:]
    await held.quiet()
    assert not client.has_more()


async def test_requests_behind_it_are_answered_in_their_order(held: _Held) -> None:
    client = await held.client()
    (_,) = await held.begun(client, _set(1, b"1"))
    client.say(_set(2, b"2"))
    client.say(request(3, Op.GET_DATA, get_body(b"/a")))
    held.disk.release()
    assert [(await client.reply()).xid for _ in range(2)] == [1, 2]
    read = await client.reply()
    assert read.xid == 3
    assert read.body.startswith(text(b"2"))
    await held.quiet()
    assert not client.has_more()


async def test_requests_that_came_together_are_answered_by_the_loop(held: _Held) -> None:
    client = await held.client()
    handed_before = held.disk.replies_count
    assert await held.begun(client, _set(1), _set(2), _set(3)) == []
    held.disk.release()
    assert [(await client.reply()).xid for _ in range(3)] == [1, 2, 3]
    await held.quiet()
    assert not client.has_more()
    assert held.disk.replies_count == handed_before


async def test_replies_of_many_connections_leave_with_one_sync(held: _Held) -> None:
    clients = [await held.client() for _ in range(20)]
    await held.begun(clients[0], _set(0))
    for number, client in enumerate(clients):
        if number:
            client.say(_set(number))
    held.disk.release()
    assert [_head(client.next_of_another_thread())[0] for client in clients[:1]] == [0]
    assert [(await client.reply()).xid for client in clients[1:]] == list(range(1, 20))
    await held.quiet()
    assert not any(client.has_more() for client in clients)


# -- the end of a connection, or of the disk


@pytest.mark.parametrize("how", ["lost", "hung up on", "made no sense"])
async def test_nothing_is_sent_to_the_descriptor_of_a_connection_that_is_gone(
    held: _Held, how: str
) -> None:
    client = await held.client()
    (reply,) = await held.begun(client, _set(7))
    match how:
        case "lost":
            client.lose()
        case "hung up on":
            client.connection.hang_up("a test")
        case _:
            client.say(struct.pack(">i", -5))
    assert client.is_closed()
    assert reply.is_over
    revision = held.store.statistics().durable_revision
    held.disk.release()
    await _until(lambda: held.store.statistics().durable_revision > revision)
    await held.quiet()
    assert not client.has_more()
    another = await held.client()
    assert (await another.ask(Op.GET_DATA, get_body(b"/a"))).body.startswith(text(b"new"))


async def test_a_session_that_is_closed_behind_it_gets_both_replies(held: _Held) -> None:
    client = await held.client()
    await held.begun(client, _set(7))
    client.say(request(8, Op.CLOSE_SESSION))
    held.disk.release()
    assert [(await client.reply()).xid for _ in range(2)] == [7, 8]
    await client.wait_closed()
    assert not client.has_more()


async def test_if_the_disk_fails_nobody_is_answered_and_all_are_hung_up_on(held: _Held) -> None:
    one, another = await held.client(), await held.client()
    (reply,) = await held.begun(one, _set(7))
    another.say(_set(8))
    held.disk.break_down()
    held.disk.release()
    async with asyncio.timeout(_SOON_S):
        await one.wait_closed()
        await another.wait_closed()
    assert reply.is_over
    assert not one.has_more()
    assert not another.has_more()
    assert held.store.alarms


# -- through sockets


@pytest.fixture
async def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Face, HeldDisk]]:
    disk = HeldDisk(monkeypatch)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    async with (
        open_embedded(f"sqlite:{tmp_path / 'q.db'}") as store,
        serve_zookeeper(store, listener) as face,
    ):
        yield face, disk


class _Caller:
    """A client that waits for its replies, in a thread of its own."""

    def __init__(self, face: Face, seed: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", face.client_port), _SOON_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unparsed = b""
        self.rng = random.Random(seed)
        self.xid = 0
        self.zxid = 0
        self.watched: set[bytes] = set()
        self.written: list[int] = []  # the zxids of what it wrote
        self.socket.sendall(connect_frame())
        self.frame()

    def frame(self) -> bytes:
        while True:
            end = 4 + int.from_bytes(self._unparsed[:4], "big")
            if len(self._unparsed) >= max(end, 5):
                payload, self._unparsed = self._unparsed[4:end], self._unparsed[end:]
                return payload
            data = self.socket.recv(1 << 16)
            assert data, "it was hung up on"
            self._unparsed += data

    def ask(self, op: int, body: bytes) -> tuple[int, bytes]:
        """The error, and what else there is."""
        self.xid += 1
        self.socket.sendall(request(self.xid, op, body))
        return self.heard(self.xid)

    def heard(self, expected_xid: int) -> tuple[int, bytes]:
        while True:
            payload = self.frame()
            xid, zxid, err = _head(payload)
            if xid == XID_EVENT:
                self.watched.remove(payload[28:])  # each fires once
                continue
            assert xid == expected_xid
            assert zxid >= self.zxid
            self.zxid = zxid
            return err, payload[16:]

    def leave(self) -> None:
        """There is nothing left but the reply to this."""
        assert self.ask(Op.CLOSE_SESSION, b"") == (0, b"")
        while data := self.socket.recv(1 << 16):
            self._unparsed += data
        assert self._unparsed == b""
        self.socket.close()


_PATHS = [b"/s/%d" % number for number in range(6)]


def _mix(caller: _Caller) -> tuple[int, bytes, bytes]:
    """An operation, its path and its body."""
    rng, path = caller.rng, caller.rng.choice(_PATHS)
    chance = rng.random()
    if chance < 0.5:
        return Op.SET_DATA, path, set_body(path, rng.randbytes(rng.choice([3, 30, 3000])))
    if chance < 0.65:
        return Op.CREATE, path, create_body(path, flags=rng.choice([0, 1]))
    if chance < 0.75:
        return Op.DELETE, path, _delete_body(path)
    return Op.GET_DATA, path, get_body(path, watch=rng.random() < 0.3)


def _live(caller: _Caller, rounds: int) -> None:
    for _ in range(rounds):
        count = caller.rng.choice([1, 1, 1, 1, 2, 3, 8])
        asked = [_mix(caller) for _ in range(count)]
        frames = [
            request(caller.xid + 1 + index, op, body) for index, (op, _, body) in enumerate(asked)
        ]
        if caller.rng.random() < 0.5:
            frames = [b"".join(frames)]
        for frame in frames:
            caller.socket.sendall(frame)
        for op, path, body in asked:
            caller.xid += 1
            before = caller.zxid
            err, _ = caller.heard(caller.xid)
            assert err in (0, Err.NO_NODE, Err.NODE_EXISTS)
            if err == 0 and op != Op.GET_DATA:
                assert caller.zxid > before
                caller.written.append(caller.zxid)
            elif err == 0 and body[-1]:
                caller.watched.add(path)
    caller.leave()


@contextlib.contextmanager
def _callers(face: Face, count: int) -> Iterator[list[_Caller]]:
    callers = [_Caller(face, seed) for seed in range(count)]
    yield callers
    for caller in callers:
        caller.socket.close()


async def test_what_was_answered_is_read_at_once_on_any_connection(
    served: tuple[Face, HeldDisk],
) -> None:
    face, disk = served

    def talk() -> None:
        with _callers(face, 3) as (writer, reader, another):
            assert writer.ask(Op.CREATE, create_body(b"/a"))[0] == 0
            for number in range(500):
                data = b"%d" % number
                one, other = (writer, reader) if number % 2 else (another, writer)
                assert one.ask(Op.SET_DATA, set_body(b"/a", data))[0] == 0
                assert other.ask(Op.GET_DATA, get_body(b"/a"))[1].startswith(text(data))
                assert reader.ask(Op.GET_DATA, get_body(b"/a"))[1].startswith(text(data))

    await asyncio.to_thread(talk)
    assert disk.replies_count > 400


async def test_every_reply_arrives_once_and_in_order_whatever_is_asked(
    served: tuple[Face, HeldDisk],
) -> None:
    face, disk = served
    callers = await asyncio.to_thread(lambda: [_Caller(face, seed) for seed in range(8)])
    assert (await asyncio.to_thread(callers[0].ask, Op.CREATE, create_body(b"/s")))[0] == 0
    await asyncio.gather(*(asyncio.to_thread(_live, caller, 250) for caller in callers))
    written = [zxid for caller in callers for zxid in caller.written]
    assert len(written) == len(set(written))  # none was told of another one's write
    assert len(written) > 1000
    assert disk.replies_count > 300


async def test_clients_that_leave_in_the_middle_disturb_nobody(served: tuple[Face, HeldDisk]) -> None:
    """Not even those who get the numbers of their descriptors."""
    face, _ = served

    def come_and_go() -> None:
        with _callers(face, 1) as (stays,):
            assert stays.ask(Op.CREATE, create_body(b"/a"))[0] == 0
            for number in range(100):
                leaves = _Caller(face)
                leaves.socket.sendall(_set(1, b"left %d" % number))
                stays.xid += 1
                stays.socket.sendall(_set(stays.xid, b"%d" % number))
                leaves.socket.close()
                assert stays.heard(stays.xid)[0] == 0
            stays.leave()

    open_before = len(os.listdir("/proc/self/fd"))
    await asyncio.to_thread(come_and_go)
    await _until(lambda: len(os.listdir("/proc/self/fd")) <= open_before)


async def test_without_descriptors_to_spare_everybody_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HeldDisk(monkeypatch)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))

    def talk(face: Face) -> None:
        with _callers(face, 3) as callers:
            assert callers[0].ask(Op.CREATE, create_body(b"/a"))[0] == 0
            before = disk.replies_count
            for caller in callers * 10:
                assert caller.ask(Op.SET_DATA, set_body(b"/a", b"."))[0] == 0
            assert disk.replies_count == before + 10  # it was the first one's
            callers[0].leave()
            assert callers[1].ask(Op.SET_DATA, set_body(b"/a", b"."))[0] == 0

    async with (
        open_embedded(f"sqlite:{tmp_path / 'q.db'}") as store,
        serve_zookeeper(store, listener) as face,
    ):
        face.descriptors = Descriptors(1)
        await asyncio.to_thread(talk, face)
