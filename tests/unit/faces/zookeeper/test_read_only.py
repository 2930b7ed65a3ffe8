"""A store that has lost its cluster: who is hung up on, who is served read-only, and how it goes on.

That a real server without a quorum answers so too is seen in tests/differential.
"""

from __future__ import annotations

import struct

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import Unavailable
from quoracy.faces.zookeeper.admin.commands import run_command
from quoracy.faces.zookeeper.serving.server import Face
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.layout import node_key
from quoracy.store.model import KeyValue
from quoracy.wire.zookeeper.codes import Err, Op
from tests.support.zookeeper_frames import (
    MULTI_END,
    OPEN,
    auth_body,
    connect_frame,
    create_body,
    get_body,
    multi_header,
    request,
    set_body,
    text,
)

from .cell_stores import CellStore, cell_store
from .dialogue import Client, Connected, Event, serving
from .test_server import Client as SocketClient
from .test_server import listening, until

ALL_WORDS = ZooKeeperSettings(commands_whitelist=frozenset({"*"}))
REFUSED = Connected(0, 0, bytes(16), b"\1")


def read_only(told: Connected | None = None, *, zxid: int = 0) -> bytes:
    if told is None:
        return connect_frame(read_only=b"\1", zxid=zxid)
    return connect_frame(read_only=b"\1", session_id=told.session_id, password=told.password)


async def word(face: Face, text: str) -> str:
    client = await SocketClient.dial(face)
    client.writer.write(text.encode())
    said = await client.rest()
    await client.leave()
    return said.decode()


# -- everybody is hung up on -----------------------------------------------------------------


async def test_everybody_is_hung_up_on_when_nothing_can_be_written_and_again_when_it_can() -> None:
    async with cell_store() as store, listening(store=store) as face:
        client = await SocketClient.connect(face)
        store.lose_cluster()
        assert await client.rest() == b""
        stranger = await SocketClient.dial(face)
        stranger.writer.write(connect_frame())
        assert await stranger.rest() == b""
        reader = await SocketClient.dial(face)
        reader.writer.write(read_only())
        assert (await reader.frame())[-1:] == b"\1"
        store.find_cluster()
        assert await reader.rest() == b""
        again = await SocketClient.connect(face, client)
        assert again.session_id == client.session_id
        assert await again.ask(Op.CREATE, create_body(b"/mine", flags=1)) == 0
        for each in (client, stranger, reader, again):
            await each.leave()


async def test_who_asks_with_a_word_is_answered_all_the_same() -> None:
    async with cell_store() as store, listening(ALL_WORDS, store=store) as face:
        assert await word(face, "isro") == "rw"
        assert "Mode: follower\n" in await word(face, "srvr")
        mntr = await word(face, "mntr")
        assert "zk_server_state\tfollower\n" in mntr
        assert "zk_peer_state\tfollowing - broadcast\n" in mntr
        assert "zk_quorum_size\t3\n" in mntr
        assert "zk_quoracy_serving\t1\n" in mntr
        assert "zk_synced_followers" not in mntr
        store.set_health(role="leader")
        mntr = await word(face, "mntr")
        assert "zk_server_state\tleader\n" in mntr
        assert "zk_peer_state\tleading - broadcast\n" in mntr
        assert "zk_synced_followers\t1\n" in mntr  # the third member does not answer
        store.lose_cluster()
        assert await word(face, "isro") == "ro"
        srvr = await word(face, "srvr")
        assert srvr.splitlines()[1] == "READ-ONLY mode; serving only read-only clients"
        assert "Mode: read-only\n" in srvr
        mntr = await word(face, "mntr")
        assert "zk_server_state\tread-only\n" in mntr
        assert "zk_quoracy_serving\t0\n" in mntr
        assert "zk_quoracy_stale_ms\t2500\n" in mntr
        assert "zk_peer_state" not in mntr


async def test_admin_commands_say_who_leads_and_whether_it_is_read_only() -> None:
    async with cell_store() as store, serving(store=store) as face:
        leader = await run_command("leader", face, {})
        assert leader == {
            "is_leader": False,
            "leader_id": 1,
            "leader_ip": "10.0.0.1",
            "command": "leader",
            "error": None,
        }
        store.set_health(role="leader")
        assert (await run_command("leader", face, {}))["is_leader"]
        assert not (await run_command("isro", face, {}))["read_only"]
        store.lose_cluster()
        assert (await run_command("isro", face, {}))["read_only"]
        assert (await run_command("leader", face, {}))["error"] == "server is not initialized"
        assert (await run_command("srvr", face, {}))["server_stats"]["server_state"] == "read-only"


async def test_clients_that_are_served_read_only_may_look_for_a_server_that_writes() -> None:
    async with cell_store() as store, listening(store=store) as face:
        assert await word(face, "isro") == "rw"
        store.lose_cluster()
        assert await word(face, "isro") == "ro"
        assert "whitelist" in await word(face, "mntr")


async def test_server_that_starts_without_its_cluster_serves_read_only() -> None:
    async with cell_store() as store:
        async with serving(store=store) as before:
            await (client := Client(before)).connect()
            await client.create(b"/a", b"x")
            client.lose()
        store.lose_cluster()
        async with serving(store=store) as face:
            client = Client(face)
            assert (await client.connect(read_only())).read_only == b"\1"
            assert (await client.ask(Op.GET_DATA, get_body(b"/a"))).body[:5] == b"\0\0\0\1x"


# -- what a read-only server answers ---------------------------------------------------------

_CHECK = text(b"/a") + struct.pack(">i", -1)
REFUSED_REQUESTS = {
    Op.SYNC: text(b"/a"),
    Op.CREATE: create_body(b"/b"),
    Op.CREATE2: create_body(b"/b"),
    Op.CREATE_CONTAINER: create_body(b"/b", flags=4),
    Op.CREATE_TTL: create_body(b"/b", flags=5) + struct.pack(">q", 1000),
    Op.DELETE: text(b"/nowhere") + struct.pack(">i", -1),
    Op.SET_DATA: set_body(b"/a", b"y"),
    Op.SET_ACL: text(b"/a") + OPEN + struct.pack(">i", -1),
    Op.CHECK: _CHECK,
    Op.MULTI: multi_header(Op.CHECK) + _CHECK + MULTI_END,
    Op.RECONFIG: b"",
}
SERVED_REQUESTS = {
    Op.PING: b"",
    Op.EXISTS: get_body(b"/a", watch=True),
    Op.GET_DATA: get_body(b"/a", watch=True),
    Op.GET_CHILDREN2: get_body(b"/", watch=True),
    Op.GET_ACL: text(b"/a"),
    Op.MULTI_READ: multi_header(Op.GET_DATA) + get_body(b"/a") + MULTI_END,
    Op.AUTH: auth_body(b"digest", b"u:p"),
    Op.SET_WATCHES: struct.pack(">qiii", 0, 0, 0, 0),
    Op.ADD_WATCH: text(b"/a") + struct.pack(">i", 0),
    Op.GET_EPHEMERALS: text(b"/"),
    Op.GET_ALL_CHILDREN_NUMBER: text(b"/"),
    Op.WHO_AM_I: b"",
}


async def test_reads_are_served_and_whatever_could_change_something_is_refused() -> None:
    async with cell_store() as store, serving(store=store) as face:
        await (writer := Client(face)).connect()
        await writer.create(b"/a", b"x")
        store.lose_cluster()
        client = Client(face)
        told = await client.connect(read_only())
        assert told.session_id < 0
        assert (told.timeout_ms, told.read_only) == (10_000, b"\1")
        for op, body in REFUSED_REQUESTS.items():
            reply = await client.ask(op, body, xid=7)
            assert (reply.xid, reply.zxid, reply.err, reply.body) == (
                7,
                face.tree.zxid,
                Err.NOT_READ_ONLY,
                b"",
            ), op
        for op, body in SERVED_REQUESTS.items():
            assert (await client.ask(op, body)).err == 0, op
        assert (await client.ask(Op.CREATE, b"no body")).err == Err.NOT_READ_ONLY
        assert (await client.ask(Op.EXISTS, get_body(b"/b"))).err == Err.NO_NODE
        assert (await client.ask(Op.CLOSE_SESSION, xid=9)).err == 0
        assert client.is_closed()
        assert await Client(face).connect(read_only(told)) == REFUSED


async def test_watches_of_read_only_clients_fire() -> None:
    """What the store hears of late is shown late."""
    async with cell_store() as store, serving(store=store) as face:
        await (writer := Client(face)).connect()
        await writer.create(b"/a", b"x")
        store.lose_cluster()
        client = Client(face)
        await client.connect(read_only())
        assert (await client.ask(Op.EXISTS, get_body(b"/a", watch=True))).err == 0
        await store.inner.delete(node_key(b"/a"))
        assert await client.event() == Event(2, b"/a")


# -- sessions --------------------------------------------------------------------------------


async def test_client_comes_back_to_its_session_read_only_and_then_for_good() -> None:
    async with cell_store() as store, serving(store=store) as face:
        client = Client(face)
        told = await client.connect()
        await client.create(b"/mine", flags=1)
        client.lose()
        store.lose_cluster()
        reader = Client(face)
        assert await reader.connect(read_only(told)) == told._replace(read_only=b"\1")
        assert (await reader.ask(Op.EXISTS, get_body(b"/mine"))).err == 0
        assert (await reader.ask(Op.CLOSE_SESSION)).err == Err.NOT_READ_ONLY
        assert not reader.is_closed()
        second = Client(face)
        assert (await second.connect(read_only(told))).session_id == told.session_id
        assert reader.is_closed()
        store.find_cluster()
        assert second.is_closed()
        again = Client(face)
        assert await again.connect(read_only(told)) == told
        assert (await again.ask(Op.SET_DATA, set_body(b"/mine", b"x"))).err == 0
        assert face.tree.sessions[told.session_id].ephemerals == {b"/mine"}


async def test_session_that_was_made_read_only_is_over_when_the_store_is_back() -> None:
    async with cell_store() as store, serving(store=store) as face:
        store.lose_cluster()
        client = Client(face)
        told = await client.connect(read_only())
        client.lose()
        assert await Client(face).connect(read_only(told)) == told
        store.find_cluster()
        assert await Client(face).connect(read_only(told)) == REFUSED._replace(read_only=b"\0")


@pytest.mark.parametrize(
    "data",
    [
        connect_frame(),
        connect_frame(read_only=b""),
        connect_frame(read_only=b"\1", zxid=1 << 60),
        connect_frame(read_only=b"\1", session_id=77),
    ],
    ids=["not read-only", "old client", "saw the future", "unknown session"],
)
async def test_who_cannot_be_served_read_only_is_hung_up_on_without_a_word(data: bytes) -> None:
    async with cell_store() as store, serving(store=store) as face:
        store.lose_cluster()
        client = Client(face)
        client.say(data)
        assert client.is_closed()
        assert client.unparsed == b""


async def test_wrong_password_is_refused_read_only_too() -> None:
    async with cell_store() as store, serving(store=store) as face:
        told = await Client(face).connect()
        store.lose_cluster()
        for session in (told, await Client(face).connect(read_only())):
            assert (
                await Client(face).connect(read_only(session._replace(password=b"x" * 16))) == REFUSED
            )


async def test_silent_read_only_client_is_hung_up_on() -> None:
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        store.lose_cluster()
        client, silent = Client(face), Client(face)
        await client.connect(read_only())
        await silent.connect(read_only())
        for _ in range(11):
            await clock.advance(1.0)
            client.say(request(-2, Op.PING))
            assert (await client.reply()).xid == -2
        assert not client.is_closed()
        assert silent.is_closed()


async def test_session_that_is_seen_to_end_ends_read_only_too() -> None:
    async with cell_store() as store, serving(store=store) as face:
        told = await Client(face).connect()
        store.lose_cluster()
        reader = Client(face)
        await reader.connect(read_only(told))
        await store.inner.revoke(told.session_id)
        await reader.wait_closed()


# -- the replica -----------------------------------------------------------------------------


async def test_tree_goes_on_where_it_was_when_the_store_can_be_followed_again() -> None:
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        client = Client(face)
        await client.connect()
        replica = face.replica
        store.relay.fail_watch(Unavailable("no leader"))
        await until(lambda: not store.relay.watch_errors)
        await store.inner.put(node_key(b"/zookeeper/quota"), (await _root(store)).value)
        await clock.advance(0.5)
        await client.create(b"/a")
        assert face.replica is replica
        assert not client.is_closed()


async def _root(store: CellStore) -> KeyValue:
    return (await store.inner.range(node_key(b"/"))).kvs[0]
