"""One connection: order, events before answers, what breaks it, and what it may make us keep."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import cast

import pytest

from quoracy.faces.zookeeper.serving import connection as module
from quoracy.faces.zookeeper.serving.connection import IDENTITIES_MAX
from quoracy.faces.zookeeper.serving.request_queue import KEPT_BYTES_MAX
from quoracy.faces.zookeeper.serving.server import Face
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.wire.zookeeper.codes import Err, EventType, Op
from tests.support.zookeeper_frames import (
    MULTI_END,
    OPEN,
    acl,
    auth_body,
    connect_frame,
    create_body,
    frame,
    get_body,
    multi_header,
    request,
    set_body,
    text,
)

from . import dialogue
from .dialogue import Client, Event, Reply, serving

GET_ROOT = request(7, Op.GET_DATA, get_body(b"/"))


@pytest.fixture(autouse=True, params=[False, True], ids=["in process", "remote"])
def stores_are_remote(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in this process is followed in another way than one that is not: both must do."""
    monkeypatch.setattr(dialogue, "stores_are_remote", request.param)


async def connected(face: Face, *, port: int = 50_000) -> Client:
    client = Client(face, port=port)
    await client.connect()
    return client


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def data_of(reply: Reply) -> bytes:
    size = int.from_bytes(reply.body[:4], "big")
    return reply.body[4 : 4 + size]


# -- the beginning ---------------------------------------------------------------------------


async def test_everything_may_come_byte_by_byte() -> None:
    async with serving() as face:
        client = Client(face)
        for byte in connect_frame():
            client.say(bytes((byte,)))
        assert (await client.connected()).session_id
        for byte in GET_ROOT:
            client.say(bytes((byte,)))
        assert (await client.reply()).xid == 7


async def test_requests_right_behind_the_connect_request_are_answered_after_it() -> None:
    async with serving() as face:
        client = Client(face)
        create = request(1, Op.CREATE, create_body(b"/a", b"1"))
        get = request(2, Op.GET_DATA, get_body(b"/a"))
        client.say(connect_frame(), create, get, request(3, Op.CLOSE_SESSION), GET_ROOT)
        assert (await client.connected()).session_id
        replies = [await client.reply() for _ in range(3)]
        assert [(each.xid, each.err) for each in replies] == [(1, 0), (2, 0), (3, 0)]
        assert data_of(replies[1]) == b"1"
        assert client.is_closed()
        assert client.unparsed == b""


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 0x00100000),
        frame(b"abc"),
        frame(connect_frame()[4:40]),
        b"nope",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xfb\x01\xff\xfb\x03",
    ],
    ids=["0", "-1", "2**31-1", "2**20", "short", "cut", "no word", "http", "telnet"],
)
async def test_what_is_no_connect_request_ends_the_connection(data: bytes) -> None:
    async with serving() as face:
        for pieces in ([data], [bytes((byte,)) for byte in data]):
            client = Client(face)
            for piece in pieces:
                client.say(piece)
            assert client.is_closed()
            assert client.unparsed == b""
        assert face.stats.connections == set()


async def test_four_letter_word() -> None:
    settings = ZooKeeperSettings(commands_whitelist=frozenset({"ruok"}))
    async with serving(settings) as face:
        for pieces in ([b"ruok"], [b"r", b"u", b"o", b"k"], [b"ruok\r\n"], [b"ru", b"ok\n", b"more"]):
            client = Client(face)
            for piece in pieces:
                client.say(piece)
            await client.wait_closed()
            assert client.unparsed == b"imok"
        client = Client(face)
        client.say(b"wchp")
        await client.wait_closed()
        assert client.unparsed == b"wchp is not executed because it is not in the whitelist.\n"


async def test_word_is_no_word_behind_a_connect_request() -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(b"srvr")
        assert client.is_closed()
        assert client.unparsed == b""


# -- order -----------------------------------------------------------------------------------


async def test_answers_come_in_the_order_of_the_requests() -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(
            request(1, Op.CREATE, create_body(b"/a", b"1")),
            request(2, Op.GET_DATA, get_body(b"/a")),
            request(3, Op.SET_DATA, set_body(b"/a", b"2")),
            request(4, Op.CREATE, create_body(b"/a", b"")),
            request(5, Op.GET_DATA, get_body(b"/a")),
            request(-2, Op.PING),
            request(6, Op.SYNC, text(b"/a")),
            request(7, Op.DELETE, text(b"/a") + struct.pack(">i", 0)),
            request(8, Op.EXISTS, get_body(b"/nowhere")),
            request(9, Op.RECONFIG, b"\xff" * 20),
            request(10, Op.GET_DATA, b"cut"),
        )
        replies = [await client.reply() for _ in range(11)]
        assert [(each.xid, each.err) for each in replies] == [
            (1, 0),
            (2, 0),
            (3, 0),
            (4, Err.NODE_EXISTS),
            (5, 0),
            (-2, 0),
            (6, 0),
            (7, Err.BAD_VERSION),
            (8, Err.NO_NODE),
            (9, Err.RECONFIG_DISABLED),
            (10, Err.MARSHALLING_ERROR),
        ]
        assert data_of(replies[1]) == b"1"
        assert data_of(replies[4]) == b"2"
        zxids = [each.zxid for each in replies]
        assert zxids == sorted(zxids)
        assert zxids[-1] == face.tree.zxid


async def test_pipelined_writes_share_commits_and_keep_their_order() -> None:
    async with serving() as face:
        client = await connected(face)
        await client.create(b"/a")
        before = client.sends_count
        client.say(*[request(xid, Op.SET_DATA, set_body(b"/a", b"%d" % xid)) for xid in range(1, 201)])
        assert [(await client.reply()).xid for _ in range(200)] == list(range(1, 201))
        reply = await client.ask(Op.GET_DATA, get_body(b"/a"))
        assert data_of(reply) == b"200"
        if not dialogue.stores_are_remote:
            assert client.sends_count - before < 100


async def test_reads_of_one_input_are_answered_with_one_write() -> None:
    async with serving() as face:
        client = await connected(face)
        before = client.sends_count
        client.say(GET_ROOT * 50)
        assert client.sends_count == before + 1
        for _ in range(50):
            assert (await client.reply()).err == 0


async def test_many_requests_at_once_leave_turns_to_others() -> None:
    async with serving() as face:
        client, other = await connected(face), await connected(face)
        client.say(*[request(xid, Op.GET_DATA, get_body(b"/")) for xid in range(5000)])
        first = client.unparsed.count(struct.pack(">i", 0))
        other.say(GET_ROOT)
        assert (await other.reply()).xid == 7
        assert [(await client.reply()).xid for _ in range(5000)] == list(range(5000))
        assert first < 100_000
        assert client.is_read()


async def test_close_session_is_answered_last() -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(
            *[request(xid, Op.CREATE, create_body(b"/%d" % xid, flags=1)) for xid in range(20)],
            request(20, Op.CLOSE_SESSION),
            request(21, Op.CREATE, create_body(b"/too-late")),
        )
        client.say(request(22, Op.CREATE, create_body(b"/much-too-late")))
        assert [(await client.reply()).xid for _ in range(21)] == list(range(21))
        assert client.is_closed()
        await settle()
        assert set(face.tree.nodes[b"/"].children) == {b"zookeeper"}
        assert face.throttle.count == face.throttle.size == 0


async def test_close_session_is_answered_though_the_session_is_known_to_be_gone() -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(request(1, Op.CLOSE_SESSION))
        face.sessions.gone(client.connection.session_id)
        assert not client.is_closed()
        assert (await client.reply())[::2] == (1, 0)
        await client.wait_closed()


async def test_ping_has_its_own_xid_and_the_newest_zxid() -> None:
    async with serving() as face:
        client = await connected(face)
        await client.create(b"/a")
        assert await client.ask(Op.PING, xid=5) == Reply(-2, face.tree.zxid, 0, b"")


@pytest.mark.parametrize("xid", [-1, -2, -4, -8, 0, 2**31 - 1, -(2**31)])
async def test_any_xid_is_given_back(xid: int) -> None:
    async with serving() as face:
        client = await connected(face)
        assert (await client.ask(Op.GET_DATA, get_body(b"/"), xid=xid)).xid == xid


# -- events ----------------------------------------------------------------------------------


async def test_event_comes_before_the_answer_that_could_show_the_change() -> None:
    async with serving() as face:
        watcher, writer = await connected(face), await connected(face)
        await writer.create(b"/a", b"1")
        await watcher.ask(Op.GET_DATA, get_body(b"/a", watch=True))
        await writer.ask(Op.GET_DATA, get_body(b"/a", watch=True))
        writer.say(request(1, Op.SET_DATA, set_body(b"/a", b"2")))
        assert await writer.event() == Event(EventType.DATA_CHANGED, b"/a")
        reply = await writer.reply()
        assert (reply.xid, reply.err) == (1, 0)
        assert await watcher.event() == Event(EventType.DATA_CHANGED, b"/a")
        assert data_of(await watcher.ask(Op.GET_DATA, get_body(b"/a"))) == b"2"


async def test_events_of_one_change_go_out_with_one_write() -> None:
    async with serving() as face:
        watcher, writer = await connected(face), await connected(face)
        for path in (b"/a", b"/b", b"/c"):
            await writer.ask(Op.CREATE, create_body(path, flags=1))
            await watcher.ask(Op.EXISTS, get_body(path, watch=True))
        before = watcher.sends_count
        await writer.ask(Op.CLOSE_SESSION)
        events = [await watcher.event() for _ in range(3)]
        assert {each.path for each in events} == {b"/a", b"/b", b"/c"}
        assert watcher.sends_count == before + 1


async def test_who_may_not_read_is_not_told() -> None:
    async with serving() as face:
        owner, stranger = await connected(face), await connected(face)
        assert (await owner.ask(Op.AUTH, auth_body(b"digest", b"me:secret"), xid=-4)).err == 0
        only_me = acl((31, b"auth", b""))
        for client in (owner, stranger):
            reply = await client.ask(Op.EXISTS, get_body(b"/secret", watch=True))
            assert reply.err == Err.NO_NODE
        owner.say(request(3, Op.CREATE, create_body(b"/secret", acls=only_me)))
        assert await owner.event() == Event(EventType.CREATED, b"/secret")
        assert (await owner.reply()).err == 0
        await owner.create(b"/public")
        assert (await stranger.ask(Op.GET_DATA, get_body(b"/public"), xid=9)).xid == 9


async def test_watches_go_with_the_connection() -> None:
    async with serving() as face:
        client, writer = await connected(face), await connected(face)
        await client.ask(Op.EXISTS, get_body(b"/a", watch=True))
        assert face.watches.count == 1
        client.lose()
        assert face.watches.count == 0
        await writer.create(b"/a")


async def test_set_watches_tells_what_was_missed() -> None:
    async with serving() as face:
        client, writer = await connected(face), await connected(face)
        await writer.create(b"/a")
        paths = struct.pack(">i", 1) + text(b"/a")
        none = struct.pack(">i", 0)
        client.say(request(-8, Op.SET_WATCHES, struct.pack(">q", 1) + paths + none + none))
        assert await client.event() == Event(EventType.DATA_CHANGED, b"/a")
        assert (await client.reply())[:3] == (-8, face.tree.zxid, 0)


# -- who it is -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [b"digest", b"ip"])
async def test_auth_is_answered_at_once_with_no_zxid(scheme: bytes) -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(
            request(1, Op.CREATE, create_body(b"/a")), request(-4, Op.AUTH, auth_body(scheme, b"a:b"))
        )
        assert await client.reply() == Reply(-4, 0, 0, b"")
        assert (await client.reply()).xid == 1


@pytest.mark.parametrize("scheme", [b"world", b"auth", b"sasl", b"nobody", b""])
async def test_failed_auth_is_told_and_ends_the_connection(scheme: bytes) -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(request(-4, Op.AUTH, auth_body(scheme, b"x")), GET_ROOT)
        assert await client.reply() == Reply(-4, 0, Err.AUTH_FAILED, b"")
        assert client.is_closed()
        assert client.unparsed == b""
        assert face.stats.auth_failed_count == 1


async def test_one_connection_cannot_be_any_number_of_people() -> None:
    async with serving() as face:
        client = await connected(face)
        for number in range(IDENTITIES_MAX):
            reply = await client.ask(Op.AUTH, auth_body(b"digest", b"%d:x" % number), xid=-4)
            assert reply.err == 0
        same = request(-4, Op.AUTH, auth_body(b"digest", b"0:x"))
        client.say(same * 10_000)
        for _ in range(10_000):
            assert (await client.reply()).err == 0
        client.say(request(-4, Op.AUTH, auth_body(b"digest", b"one:more")))
        assert (await client.reply()).err == Err.AUTH_FAILED
        assert client.is_closed()


async def test_sasl_is_answered_as_by_a_server_without_it() -> None:
    async with serving() as face:
        client = await connected(face)
        assert await client.ask(Op.SASL, text(b"token"), xid=3) == Reply(3, 0, 0, b"\xff" * 4)
        assert (await client.ask(Op.GET_DATA, get_body(b"/"))).err == 0


# -- what breaks it --------------------------------------------------------------------------


@pytest.mark.parametrize("op", [0, 10, 23, 99, 108, 1000, -1, -10, -12, 2**31 - 1, -(2**31)])
async def test_unknown_operation_is_told_and_ends_the_connection(op: int) -> None:
    async with serving() as face:
        client = await connected(face)
        create = request(1, Op.CREATE, create_body(b"/a"))
        client.say(create, request(2, op, bytes(40)), GET_ROOT)
        assert (await client.reply())[::2] == (1, 0)
        assert await client.reply() == Reply(2, -1, Err.UNIMPLEMENTED, b"")
        await client.wait_closed()
        assert client.unparsed == b""


@pytest.mark.parametrize(
    "data",
    [
        *[frame(bytes(size)) for size in range(8)],
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF),
        request(-4, Op.AUTH, b"\0"),
        request(-4, Op.AUTH, struct.pack(">ii", 0, -7)),
        request(1, Op.SASL, b"\0"),
    ],
)
async def test_what_cannot_be_read_at_all_ends_the_connection(data: bytes) -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(GET_ROOT, data, GET_ROOT)
        assert (await client.reply()).xid == 7
        assert client.is_closed()
        assert client.unparsed == b""


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (Op.GET_DATA, b""),
        (Op.GET_DATA, struct.pack(">i", -7) + b"/a\0"),
        (Op.GET_DATA, struct.pack(">i", -1) + b"\0"),
        (Op.GET_DATA, struct.pack(">i", 100) + b"/a\0"),
        (Op.CREATE, b"\0\0"),
        (Op.CREATE, text(b"/a") + text(b"") + struct.pack(">i", 2**31 - 1) + bytes(4)),
        (Op.MULTI, b""),
        (Op.MULTI, multi_header(Op.CHECK) + text(b"/") + struct.pack(">i", -1)),
        (Op.MULTI, multi_header(99) + MULTI_END),
        (Op.SET_WATCHES, b""),
        (Op.SET_WATCHES, struct.pack(">qi", 0, 2**31 - 1)),
        (Op.RECONFIG, b""),
    ],
)
async def test_what_cannot_be_read_inside_a_request_fails_that_request(op: Op, body: bytes) -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(request(3, op, body), GET_ROOT)
        assert await client.reply() == Reply(3, face.tree.zxid, Err.MARSHALLING_ERROR, b"")
        assert (await client.reply())[::2] == (7, 0)


async def test_error_of_our_own_ends_one_connection() -> None:
    async with serving() as face:
        client, other = await connected(face), await connected(face)
        cast(dict[bytes, object], face.tree.nodes)[b"/broken"] = "not a znode"  # a bug
        get_broken = request(7, Op.GET_DATA, get_body(b"/broken"))
        client.say(get_broken)
        assert client.is_closed()
        client = await connected(face)
        client.say(request(1, Op.CREATE, create_body(b"/a")), get_broken)  # at its turn, in the replica
        await client.wait_closed()
        assert face.stats.unrecoverable_error_count == 2
        del face.tree.nodes[b"/broken"]
        assert (await other.ask(Op.GET_DATA, get_body(b"/a"))).err == 0


# -- what it may make the server keep --------------------------------------------------------


async def test_peer_that_does_not_read_is_not_answered_and_in_the_end_not_read() -> None:
    async with serving() as face:
        client = await connected(face)
        await client.create(b"/big", bytes(500_000))
        get = request(1, Op.GET_DATA, get_body(b"/big"))
        sent = 0

        def send(data: bytes) -> None:
            nonlocal sent
            sent += len(data)
            client.connection.pause()

        client.send = send  # type: ignore[method-assign]
        client.say(get * 1000)
        assert 500_000 < sent < 1_000_000
        assert client.is_read()
        for _ in range(10):
            client.say(get * 1000)
        assert not client.is_read()
        assert sent < 1_000_000
        while not client.is_read():
            client.connection.resume()
        assert face.stats.outstanding < 11_000


async def test_kept_requests_are_answered_in_order_when_the_peer_reads_again() -> None:
    async with serving() as face:
        client = await connected(face)
        client.connection.pause()
        client.say(*[request(xid, Op.GET_DATA, get_body(b"/")) for xid in range(100)])
        client.say(*[request(xid, Op.CREATE, create_body(b"/%d" % xid)) for xid in range(100, 200)])
        await settle()
        assert client.unparsed == b""
        client.connection.resume()
        assert [(await client.reply()).xid for _ in range(200)] == list(range(200))


async def test_write_that_is_done_while_the_peer_does_not_read_is_answered_later() -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(request(1, Op.CREATE, create_body(b"/a")), request(2, Op.GET_DATA, get_body(b"/a")))
        client.connection.pause()
        await settle()
        assert client.unparsed == b""
        client.connection.resume()
        assert [(await client.reply()).xid for _ in range(2)] == [1, 2]


async def test_events_nobody_reads_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREAD_EVENTS_BYTES_MAX", 1000)
    async with serving() as face:
        watcher, writer = await connected(face), await connected(face)
        await writer.create(b"/a")
        add = text(b"/a") + struct.pack(">i", 0)
        assert (await watcher.ask(Op.ADD_WATCH, add)).err == 0
        watcher.connection.pause()
        for _ in range(20):
            await writer.ask(Op.SET_DATA, set_body(b"/a", b""))
            assert not watcher.is_closed()
        for _ in range(20):
            await writer.ask(Op.SET_DATA, set_body(b"/a", b""))
        assert watcher.is_closed()
        assert face.watches.count == 0


async def test_too_much_unanswered_makes_everybody_wait_and_nobody_starve() -> None:
    async with serving(ZooKeeperSettings(global_outstanding_limit=10)) as face:
        clients = [await connected(face, port=port) for port in range(8)]
        for number, client in enumerate(clients):
            client.say(
                *[
                    request(xid, Op.CREATE, create_body(b"/%d-%d" % (number, xid), bytes(100)))
                    for xid in range(600)
                ]
            )
            assert face.throttle.count <= 11 + len(clients)
            assert not client.is_read()
        assert face.stats.request_throttle_wait_count >= len(clients)
        for client in clients:
            assert [(await client.reply()).xid for _ in range(600)] == list(range(600))
            assert client.is_read()
        assert face.throttle.count == face.throttle.size == 0
        assert face.stats.outstanding == 0


async def test_who_has_nothing_unanswered_may_ask_for_one_thing_however_much_is() -> None:
    async with serving() as face:
        client = await connected(face)
        face.throttle.count += 1_000_000  # of others
        client.say(*[request(xid, Op.CREATE, create_body(b"/%d" % xid)) for xid in range(50)])
        assert face.throttle.count == 1_000_001
        assert [(await client.reply()).xid for _ in range(50)] == list(range(50))
        face.throttle.count -= 1_000_000


async def test_large_requests_count_by_their_size() -> None:
    async with serving() as face:
        face.throttle.bytes_max = 2_000_000
        client = await connected(face)
        for xid in range(10):
            client.say(request(xid, Op.CREATE, create_body(b"/%d" % xid, bytes(900_000))))
        assert face.throttle.size < 3_000_000
        assert not client.is_read()
        assert [(await client.reply()).xid for _ in range(10)] == list(range(10))


async def test_client_that_waits_is_heard_to_be_alive() -> None:
    async with serving() as face:
        client = await connected(face)
        session = face.sessions.get(client.connection.session_id)
        assert session is not None
        client.connection.pause()
        client.say(GET_ROOT)
        session.heard_at = 0.0
        client.say(request(-2, Op.PING))
        assert session.heard_at > 0
        assert client.is_read()
        client.say(request(-2, Op.PING) * (KEPT_BYTES_MAX // 8 + 1))
        assert not client.is_read()


async def test_lost_connection_leaves_nothing_behind() -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(*[request(xid, Op.CREATE, create_body(b"/%d" % xid)) for xid in range(100)])
        client.lose()
        assert face.throttle.count == face.throttle.size == 0
        assert face.stats.outstanding == 0
        other = await connected(face)
        reply = await other.ask(Op.EXISTS, get_body(b"/99", watch=True))
        if reply.err == Err.NO_NODE:  # but what was taken will be done
            assert await other.event() == Event(EventType.CREATED, b"/99")


async def test_connection_that_finishes_answers_what_it_has_taken() -> None:
    async with serving() as face:
        client = await connected(face)
        client.say(request(1, Op.CREATE, create_body(b"/a")), request(2, Op.GET_DATA, get_body(b"/a")))
        client.connection.finish()
        client.say(request(3, Op.CREATE, create_body(b"/b")))
        assert not client.is_closed()
        assert [(await client.reply()).xid for _ in range(2)] == [1, 2]
        await client.wait_closed()
        assert b"/b" not in face.tree.nodes


# -- chance ----------------------------------------------------------------------------------


def conversation(rng: random.Random) -> bytes:
    """Requests that make sense, mostly."""
    path = rng.choice([b"/", b"/a", b"/a/b", b"/c", b"//", b"", b"/\0", b"/a/", b"/..", b"/\xff\xfe"])
    watch = rng.random() < 0.3
    choices = [
        (Op.CREATE, create_body(path, rng.randbytes(5), flags=rng.choice([0, 1, 2, 3, 4, 9]))),
        (Op.CREATE2, create_body(path)),
        (Op.DELETE, text(path) + struct.pack(">i", -1)),
        (Op.GET_DATA, get_body(path, watch=watch)),
        (Op.EXISTS, get_body(path, watch=watch)),
        (Op.GET_CHILDREN2, get_body(path, watch=watch)),
        (Op.SET_DATA, set_body(path, rng.randbytes(9))),
        (Op.SET_ACL, text(path) + OPEN + struct.pack(">i", -1)),
        (Op.GET_ACL, text(path)),
        (Op.SYNC, text(path)),
        (Op.PING, b""),
        (
            Op.MULTI,
            multi_header(Op.CREATE)
            + create_body(path)
            + multi_header(Op.DELETE)
            + text(path)
            + struct.pack(">i", -1)
            + MULTI_END,
        ),
        (
            Op.MULTI_READ,
            multi_header(Op.GET_DATA) + get_body(path) + MULTI_END,
        ),
        (Op.SET_WATCHES, struct.pack(">qi", 1, 1) + text(path) + bytes(8)),
        (Op.SET_WATCHES2, struct.pack(">qi", 1, 1) + text(path) + bytes(16)),
        (Op.ADD_WATCH, text(path) + struct.pack(">i", rng.choice([0, 1, 2]))),
        (Op.REMOVE_WATCHES, text(path) + struct.pack(">i", rng.choice([1, 2, 3, 9]))),
        (Op.CHECK_WATCHES, text(path) + struct.pack(">i", 3)),
        (Op.GET_EPHEMERALS, text(path)),
        (Op.GET_ALL_CHILDREN_NUMBER, text(path)),
        (Op.WHO_AM_I, b""),
        (Op.AUTH, auth_body(b"digest", rng.randbytes(4))),
        (Op.CREATE_TTL, create_body(path) + struct.pack(">q", rng.choice([-1, 0, 5, 2**62]))),
        (Op.CREATE_CONTAINER, create_body(path, flags=4)),
        (Op.CHECK, text(path) + struct.pack(">i", 0)),
        (Op.SASL, text(b"")),
    ]
    op, body = rng.choice(choices)
    return request(rng.choice([1, 2, 3, -1, -2, -4, -8]), op, body)


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([0, 0, 0, 1, 2, 5])):
        at = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randrange(1, 9)]
            case 2:
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                changed[at : at + 4] = struct.pack(
                    ">i", rng.choice([0, -1, 1, 2**31 - 1, -(2**31), 100])
                )
            case 4:
                # Whatever happens inside, the frame is a frame.
                changed[:4] = struct.pack(">i", max(len(changed) - 4, 0))
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("seed", range(20))
async def test_mutated_requests_end_at_most_their_own_connection(seed: int) -> None:
    rng = random.Random(seed)
    async with serving() as face:
        bystander = await connected(face)
        await bystander.create(b"/bystander")
        for turn in range(30):
            client = Client(face, port=turn)
            client.say(mutated(rng, connect_frame()) if rng.random() < 0.2 else connect_frame())
            for _ in range(rng.randrange(20)):
                data = mutated(rng, conversation(rng))
                cut = rng.randrange(len(data) + 1)
                client.say(data[:cut])
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
                client.say(data[cut:])
            await asyncio.sleep(0)
            if not client.is_closed():
                client.lose()
            reply = await bystander.ask(Op.SET_DATA, set_body(b"/bystander", b"%d" % turn), xid=turn)
            assert (reply.xid, reply.err) == (turn, 0)
        await settle()
        assert face.stats.unrecoverable_error_count == 0
        assert face.throttle.count == face.throttle.size == 0
        assert face.stats.outstanding == 0
        assert len(face.stats.connections) == 1
        assert face.watches.count == 0
        assert not bystander.is_closed()
