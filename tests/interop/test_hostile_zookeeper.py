"""Peers that abuse ZooKeeper's protocol: each gets what it deserves, nobody else notices, and memory
stays bounded.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Iterator

import pytest

from quoracy.wire.zookeeper.codes import Err, Op
from tests.interop.programs import QuoracyServer, running_quoracy, until
from tests.interop.zookeeper_peers import Bystander, Peer, Reply
from tests.support.zookeeper_frames import (
    MULTI_END,
    OPEN,
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

MEMORY_BYTES_MAX = 96_000_000
SESSION_REFUSED = (0, 0, bytes(16))
GET_ROOT = request(7, Op.GET_DATA, get_body(b"/"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuoracyServer]:
    flags = ["--listen-zookeeper", "127.0.0.1:0", "--zookeeper-4lw-commands-whitelist", "*"]
    flags += ["--engine", "memory:", "--zookeeper-tick-time", "500"]
    with running_quoracy(tmp_path_factory.mktemp("quoracy"), *flags) as running:
        yield running


@pytest.fixture
def port(server: QuoracyServer) -> int:
    return server.zookeeper_port


@pytest.fixture(autouse=True)
def unharmed(server: QuoracyServer, port: int) -> Iterator[None]:
    """Around every test: another client is served as always, and the server does not grow."""
    with Bystander(port):
        before = server.rss_bytes
        yield
        assert server.rss_bytes - before < MEMORY_BYTES_MAX


def length(size: int) -> bytes:
    return struct.pack(">i", size)


# -- 1, 2: lengths ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 0x7FFFFFFF, 0x00100000, -(2**31)])
@pytest.mark.parametrize("connect", [False, True], ids=["before connect", "after connect"])
def test_length_that_cannot_be(port: int, size: int, connect: bool) -> None:
    with Peer(port, connect=connect) as peer:
        peer.send(length(size) + bytes(100))
        assert peer.read_all() == b""


def test_who_does_not_say_what_it_wants(port: int) -> None:
    """Hung up on after the 10 s that ZooKeeper gives as well; that single bytes come is no excuse."""
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Peer(port, connect=False)) for _ in range(3)]
        for peer, data in zip(silent, (b"", b"\0", length(45)), strict=True):
            peer.send(data)
        dripping = stack.enter_context(Peer(port, connect=False))
        for byte in connect_frame():
            if not dripping.send(bytes((byte,))):
                break
            time.sleep(0.3)
        for peer in (*silent, dripping):
            assert peer.read_all() == b""


def test_length_and_then_silence_lasts_as_long_as_the_session(port: int) -> None:
    with Peer(port, timeout_ms=1000) as peer:
        assert peer.ask(Op.CREATE, create_body(b"/loris", flags=1)).err == Err.OK
        peer.send(length(1_000_000) + bytes(500_000))
        assert peer.read_all() == b""
    with Peer(port) as peer:
        assert peer.ask(Op.EXISTS, get_body(b"/loris")).err == Err.NO_NODE


def test_largest_request_there_may_be(port: int) -> None:
    with Peer(port) as peer:
        room = 0xFFFFF - len(request(1, Op.CREATE, create_body(b"/large"))) + 4
        assert peer.ask(Op.CREATE, create_body(b"/large", bytes(room))).err == Err.OK
        assert len(peer.ask(Op.GET_DATA, get_body(b"/large")).body) > room
        assert peer.ask(Op.DELETE, text(b"/large") + length(-1)).err == Err.OK
        peer.send(request(1, Op.CREATE, create_body(b"/larger", bytes(room + 1))))
        assert peer.read_all() == b""


# -- 3 to 6: what is inside a frame ----------------------------------------------------------


@pytest.mark.parametrize("count", [2**31 - 1, 10**8, -2, -(2**31)])
def test_vector_that_is_not_there(port: int, count: int) -> None:
    create = text(b"/vector") + text(b"") + length(count) + bytes(12)
    watches = struct.pack(">qi", 0, count) + bytes(8)
    with Peer(port) as peer:
        for op, body in [(Op.CREATE, create), (Op.SET_WATCHES, watches), (Op.SET_WATCHES2, watches)]:
            # A vector whose length is negative is empty, as there.
            assert peer.ask(op, body).err in (Err.MARSHALLING_ERROR, Err.INVALID_ACL, Err.OK)
        assert peer.ask(Op.EXISTS, get_body(b"/vector")).err == Err.NO_NODE


@pytest.mark.parametrize("size", [-2, -7, -(2**31), 100, 2**31 - 1])
def test_string_of_an_impossible_length(port: int, size: int) -> None:
    with Peer(port) as peer:
        for op in (Op.GET_DATA, Op.EXISTS, Op.CREATE, Op.DELETE, Op.SET_DATA, Op.GET_ACL, Op.SYNC):
            assert peer.ask(op, length(size) + b"/a\0").err == Err.MARSHALLING_ERROR
        assert peer.ask(Op.GET_DATA, get_body(b"/")).err == Err.OK


def test_multi_without_an_end(port: int) -> None:
    part = multi_header(Op.CREATE) + create_body(b"/multi")
    with Peer(port) as peer:
        for body in (b"", part, part + multi_header(Op.CREATE), part + MULTI_END[:-1]):
            assert peer.ask(Op.MULTI, body).err == Err.MARSHALLING_ERROR
        assert peer.ask(Op.EXISTS, get_body(b"/multi")).err == Err.NO_NODE


def test_multi_of_a_hundred_thousand_operations(server: QuoracyServer, port: int) -> None:
    check = multi_header(Op.CHECK) + text(b"/") + length(-1)
    with Peer(port) as peer:
        # A frame is too short for more: that is what stops the rest.
        peer.send(request(1, Op.MULTI, check * 100_000 + MULTI_END))
        assert peer.read_all() == b""
    count = 0xFFFF0 // len(check)
    with Peer(port) as peer:
        reply = peer.ask(Op.MULTI, check * count + MULTI_END)
        assert reply.err in (Err.OK, Err.BAD_ARGUMENTS)
        assert peer.ask(Op.GET_DATA, get_body(b"/")).err == Err.OK


def test_multi_read_that_wants_more_than_there_is_memory(port: int) -> None:
    with Peer(port) as peer:
        assert peer.ask(Op.CREATE, create_body(b"/much", bytes(1_000_000))).err == Err.OK
        read = multi_header(Op.GET_DATA) + get_body(b"/much")
        count = 0xFFFF0 // len(read)
        assert peer.ask(Op.MULTI_READ, read * count + MULTI_END).err == Err.MARSHALLING_ERROR
        assert peer.ask(Op.DELETE, text(b"/much") + length(-1)).err == Err.OK


# -- 7: paths --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"//",
        b"/a/",
        b"/a//b",
        b"/.",
        b"/..",
        b"/a/../b",
        b"relative",
        b"/nul\0",
        b"/surrogate-\xed\xa0\x80",
        b"/no-utf8-\xff\xfe",
        b"/\x01control",
        b"/" + b"x" * 1_000_000,
    ],
    ids=lambda path: repr(path[:12]),
)
def test_path_that_is_none(port: int, path: bytes) -> None:
    with Peer(port) as peer:
        peer.ask(Op.CREATE, create_body(b"/a"))
        reply = peer.ask(Op.CREATE, create_body(path))
        if reply.err == Err.OK:
            # Java reads what is no UTF-8 as the replacement character, which may be in a path.
            assert b"\xff" in path or b"\xed" in path
            peer.ask(Op.DELETE, text(reply.body[4:]) + length(-1))
        else:
            # That there is no parent /a/ and no /a/.. is found first, as there.
            no_parent = path in (b"/a//b", b"/a/../b")
            assert reply.err == (Err.NO_NODE if no_parent else Err.BAD_ARGUMENTS)
        for op in (Op.GET_DATA, Op.EXISTS, Op.GET_CHILDREN2):
            peer.ask(op, get_body(path, watch=True))
        peer.ask(Op.SET_DATA, set_body(path, b""))
        peer.ask(Op.DELETE, text(path) + length(-1))
        peer.ask(Op.SET_ACL, text(path) + OPEN + length(-1))
        peer.ask(Op.ADD_WATCH, text(path) + length(1))
        peer.ask(Op.DELETE, text(b"/a") + length(-1))
        assert peer.ask(Op.GET_CHILDREN, get_body(b"/")).err == Err.OK


# -- 8: sessions -----------------------------------------------------------------------------


def test_session_of_somebody_else(port: int) -> None:
    with Peer(port) as owner:
        for password in (bytes(16), b"", b"x" * 16, owner.password[:15], owner.password + b"x"):
            with Peer(port, connect=False) as thief:
                thief.send(connect_frame(session_id=owner.session_id, password=password) + GET_ROOT)
                assert thief.connected() == SESSION_REFUSED
                assert thief.read_all() == b""
        assert owner.ask(Op.PING, xid=-2).err == Err.OK


@pytest.mark.parametrize("session_id", [1, -1, 2**63 - 1, -(2**63)])
def test_session_that_never_was(port: int, session_id: int) -> None:
    with Peer(port, connect=False) as peer:
        peer.send(connect_frame(session_id=session_id))
        assert peer.connected() == SESSION_REFUSED
        assert peer.read_all() == b""


@pytest.mark.parametrize("zxid", [2**63 - 1, 2**40])
def test_connect_from_the_future(port: int, zxid: int) -> None:
    with Peer(port, connect=False) as peer:
        peer.send(connect_frame(zxid=zxid))
        assert peer.read_all() == b""


def test_many_sessions_that_nobody_waits_for(server: QuoracyServer, port: int) -> None:
    for _ in range(300):
        with Peer(port, connect=False) as peer:
            peer.send(connect_frame())
    with Peer(port) as peer:
        assert peer.ask(Op.GET_DATA, get_body(b"/")).err == Err.OK


# -- 9: watches ------------------------------------------------------------------------------


def test_hundred_thousand_watches_of_one_client(server: QuoracyServer, port: int) -> None:
    before = server.rss_bytes
    with Peer(port) as peer:
        for start in range(0, 100_000, 1000):
            numbers = range(start, start + 1000)
            peer.send(
                b"".join(
                    request(number, Op.EXISTS, get_body(b"/w/%d" % number, watch=True))
                    for number in numbers
                )
            )
            for number in numbers:
                assert peer.reply()[::2] == (number, Err.NO_NODE)
        assert server.rss_bytes - before < MEMORY_BYTES_MAX
    with Peer(port) as peer:
        until(lambda: watches_count(port) == 0, "the watches to go with their client")


def watches_count(port: int) -> int:
    with Peer(port, connect=False) as peer:
        peer.send(b"wchs")
        return int(peer.read_all().split(b"Total watches:")[1])


def test_set_watches_of_the_largest_size_again_and_again(port: int) -> None:
    paths = [b"/sw/%06d" % number for number in range(128 * 1024 // 14)]
    vector = length(len(paths)) + b"".join(text(path) for path in paths)
    none = length(0)
    with Peer(port) as peer:
        for _ in range(100):
            reply = peer.ask(Op.SET_WATCHES, struct.pack(">q", 0) + none + vector + none, xid=-8)
            assert reply[::2] == (-8, Err.OK)


# -- 10, 11: requests that make no sense -----------------------------------------------------


def test_child_of_an_ephemeral(port: int) -> None:
    with Peer(port) as peer:
        assert peer.ask(Op.CREATE, create_body(b"/mortal", flags=1)).err == Err.OK
        for flags in (0, 1, 2, 3):
            reply = peer.ask(Op.CREATE, create_body(b"/mortal/child", flags=flags))
            assert reply.err == Err.NO_CHILDREN_FOR_EPHEMERALS


@pytest.mark.parametrize("op", [0, 10, 23, 99, 108, 2**31 - 1, -1, -10, -12, -(2**31)])
def test_operation_that_does_not_exist(port: int, op: int) -> None:
    with Peer(port) as peer:
        peer.send(request(5, op, bytes(100)) + GET_ROOT)
        assert peer.reply() == Reply(5, -1, Err.UNIMPLEMENTED, b"")
        assert peer.read_all() == b""


@pytest.mark.parametrize("xid", [-1, -2, -4, -8])
def test_xid_that_is_not_the_clients_to_choose(port: int, xid: int) -> None:
    with Peer(port) as peer:
        assert peer.ask(Op.GET_DATA, get_body(b"/"), xid=xid)[::2] == (xid, Err.OK)
        assert peer.ask(Op.CREATE, create_body(b"/xid", flags=1), xid=xid)[::2] == (xid, Err.OK)
        assert peer.ask(Op.DELETE, text(b"/xid") + length(-1), xid=xid)[::2] == (xid, Err.OK)


@pytest.mark.parametrize("flags", [-1, 7, 100, 2**31 - 1])
def test_create_of_an_unknown_kind(port: int, flags: int) -> None:
    with Peer(port) as peer:
        assert peer.ask(Op.CREATE, create_body(b"/kind", flags=flags)).err == Err.BAD_ARGUMENTS
        assert peer.ask(Op.EXISTS, get_body(b"/kind")).err == Err.NO_NODE


# -- 12: four-letter words -------------------------------------------------------------------


def test_word_in_single_bytes(port: int) -> None:
    with Peer(port, connect=False) as peer:
        for byte in b"ruok":
            peer.send(bytes((byte,)))
            time.sleep(0.02)  # so that they come as segments of their own
        assert peer.read_all() == b"imok"


@pytest.mark.parametrize(
    "data",
    [
        b"nope",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff\xfb\x01\xff\xfb\x03",
        b"\x16\x03\x01\x02\x00",
    ],
    ids=["unknown", "http", "telnet", "tls"],
)
def test_what_is_neither_a_word_nor_a_length(port: int, data: bytes) -> None:
    with Peer(port, connect=False) as peer:
        peer.send(data)
        assert peer.read_all() == b""


def test_many_words_at_once(port: int) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(port, connect=False)) for _ in range(40)]
        for word, peer in zip([b"srvr", b"mntr", b"cons", b"dump", b"wchp"] * 8, peers, strict=True):
            peer.send(word * 1000)
        for peer in peers:
            assert peer.read_all()


# -- 13: who they are ------------------------------------------------------------------------


def test_ten_thousand_times_the_same_identity(port: int) -> None:
    with Peer(port) as peer:
        for _ in range(100):
            peer.send(request(-4, Op.AUTH, auth_body(b"digest", b"me:secret")) * 100)
            for _ in range(100):
                assert peer.reply() == Reply(-4, 0, Err.OK, b"")


def test_ten_thousand_identities(port: int) -> None:
    with Peer(port) as peer:
        taken = 0
        for number in range(10_000):
            if not peer.send(request(-4, Op.AUTH, auth_body(b"digest", b"%d:x" % number))):
                break
            reply = peer.reply()
            if reply.err != Err.OK:
                assert reply.err == Err.AUTH_FAILED
                break
            taken += 1
        assert peer.read_all() == b""
        assert 100 < taken < 1000


def test_auth_that_fails(port: int) -> None:
    with Peer(port) as peer:
        peer.send(request(-4, Op.AUTH, auth_body(b"kerberos", bytes(100_000))) + GET_ROOT)
        assert peer.reply() == Reply(-4, 0, Err.AUTH_FAILED, b"")
        assert peer.read_all() == b""


# -- floods ----------------------------------------------------------------------------------


def test_peer_that_asks_for_much_and_reads_nothing(server: QuoracyServer, port: int) -> None:
    with Peer(port) as peer:
        assert peer.ask(Op.CREATE, create_body(b"/flood", bytes(1_000_000), flags=1)).err == Err.OK
        before = server.rss_bytes
        get = request(1, Op.GET_DATA, get_body(b"/flood"))
        assert peer.flood(get * 1000, 1000) < 1000
        assert server.rss_bytes - before < 32_000_000


def test_peer_that_writes_and_reads_nothing(server: QuoracyServer, port: int) -> None:
    with Peer(port) as peer:
        assert peer.ask(Op.CREATE, create_body(b"/flood2", flags=1)).err == Err.OK
        before = server.rss_bytes
        write = request(1, Op.SET_DATA, set_body(b"/flood2", bytes(100)))
        peer.flood(write * 100, 300)
        assert server.rss_bytes - before < MEMORY_BYTES_MAX


def test_peer_that_watches_and_reads_nothing(server: QuoracyServer, port: int) -> None:
    with Peer(port) as deaf, Peer(port) as loud:
        path = b"/" + b"l" * 2000
        assert loud.ask(Op.CREATE, create_body(path, flags=1)).err == Err.OK
        assert deaf.ask(Op.ADD_WATCH, text(path) + length(0)).err == Err.OK
        before = server.rss_bytes
        write = request(1, Op.SET_DATA, set_body(path, b""))
        for _ in range(150):
            loud.send(write * 100)
            for _ in range(100):
                assert loud.reply().err == Err.OK
            deaf.send(request(-2, Op.PING))
            if "of events unread" in server.log:
                break
        assert "of events unread" in server.log
        assert server.rss_bytes - before < MEMORY_BYTES_MAX


def test_more_connections_from_one_address_than_allowed(port: int) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(port, connect=False)) for _ in range(100)]
        for peer in peers:
            peer.send(b"ruok")
        answers = [peer.read_all() for peer in peers]
        assert answers.count(b"") > 30
        assert set(answers) == {b"", b"imok"}


def test_connections_that_come_and_go(port: int) -> None:
    rng = random.Random(4711)
    for _ in range(500):
        with contextlib.suppress(ConnectionError), Peer(port, connect=False) as peer:
            data = connect_frame() + GET_ROOT * 3 + request(1, Op.CLOSE_SESSION)
            peer.send(data[: rng.randrange(len(data))])


# -- chance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_noise(port: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        with contextlib.suppress(ConnectionError), Peer(port, connect=False) as peer:
            if rng.random() < 0.7:
                peer.send(connect_frame())
            for _ in range(rng.randrange(1, 10)):
                size = rng.choice([0, 8, 9, 30, 300, 5000])
                head = struct.pack(">ii", rng.randrange(-9, 100), rng.choice([*Op]))
                noise = head + rng.randbytes(size)
                if not peer.send(frame(noise) if rng.random() < 0.9 else noise):
                    break
