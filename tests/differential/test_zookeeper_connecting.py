"""The first bytes of a connection, right and wrong: Quoracy takes them as ZooKeeper does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.differential.zk_asking import create, exists, ping
from tests.differential.zk_connection import Closed, Connected, Item, RawConnection, Replied
from tests.differential.zk_jute import boolean, buffer, int32, int64, text
from tests.differential.zk_lockstep import Lockstep, Server
from tests.differential.zk_requests import Op, encode
from tests.differential.zk_sides import running_pair
from tests.support.zookeeper_server import zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=str(zookeeper_missing()))

_PASSWORD = bytes(16)
_FRAME_MAX = 0xFFFFF


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with running_pair(tmp_path_factory.mktemp("connecting")) as lockstep:
        lockstep.begin()
        yield _both(lockstep)


def _both(lockstep: Lockstep) -> tuple[Server, Server]:
    theirs, ours = (side.server for side in lockstep.sides)
    return theirs, ours


def _body(
    *,
    version: int = 0,
    last_zxid: int = 0,
    timeout_ms: int = 30_000,
    session_id: int = 0,
    password: bytes | None = _PASSWORD,
    rest: bytes = boolean(False),
) -> bytes:
    head = int32(version) + int64(last_zxid) + int32(timeout_ms) + int64(session_id)
    return head + buffer(password) + rest


_BODIES: Mapping[str, bytes] = {
    "as usual": _body(),
    "of an old client": _body(rest=b""),
    "read only": _body(rest=boolean(True)),
    "with another byte for read only": _body(rest=b"\7"),
    "with bytes left over": _body(rest=b"\0more than that"),
    "of another version": _body(version=1),
    "of a negative version": _body(version=-1),
    "without a password": _body(password=None),
    "with an empty password": _body(password=b""),
    "with a short password": _body(password=b"short"),
    "with a long password": _body(password=bytes(1_000)),
    "with a password of another client": _body(password=b"x" * 16),
    "with a timeout of 0": _body(timeout_ms=0),
    "with a negative timeout": _body(timeout_ms=-5),
    "with the longest timeout": _body(timeout_ms=2**31 - 1),
    "with a negative zxid": _body(last_zxid=-1),
    "with the last zxid there is": _body(last_zxid=2**63 - 1),
    "for the session -1": _body(session_id=-1),
    "for the session 1": _body(session_id=1),
    "for the last session there is": _body(session_id=2**63 - 1),
    "for the first session there is": _body(session_id=-(2**63)),
    "without anything": b"",
    "cut after the version": _body()[:4],
    "cut in the zxid": _body()[:7],
    "cut after the zxid": _body()[:12],
    "cut after the timeout": _body()[:16],
    "cut after the session": _body()[:24],
    "cut after the length of the password": _body()[:28],
    "cut in the password": _body()[:35],
    "with a length of the password that lies": _body()[:24] + int32(2**31 - 1) + bytes(4),
    "with a negative length of the password": _body()[:24] + int32(-2) + bytes(17),
}


@pytest.mark.parametrize("name", _BODIES)
def test_a_request_to_connect(servers: tuple[Server, Server], name: str) -> None:
    theirs, ours = (_connected_with(server, _BODIES[name]) for server in servers)
    assert theirs == ours


_FIRST_BYTES: Mapping[str, bytes] = {
    "a length of 0": int32(0),
    "a negative length": int32(-1),
    "the least length": int32(-(2**31)),
    "the greatest length": int32(2**31 - 1),
    "one byte more than a frame may have": int32(_FRAME_MAX + 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "words that are none": b"what",
}


@pytest.mark.parametrize("name", _FIRST_BYTES)
def test_first_bytes_that_are_refused(servers: tuple[Server, Server], name: str) -> None:
    for server in servers:
        connection = RawConnection(server.name, server.port)
        connection.send_raw(_FIRST_BYTES[name])
        try:
            assert isinstance(connection.next_item(), Closed), server.name
        finally:
            connection.close()


def test_requests_right_behind_the_request_to_connect(servers: tuple[Server, Server]) -> None:
    """A client need not wait for the answer: what it sends meanwhile is answered after it."""
    answers = []
    for server in servers:
        connection = RawConnection(server.name, server.port)
        connection.send_raw(_frame(_body()) + _asked(1, Op.EXISTS) + _asked(2, Op.EXISTS))
        answers.append([_plain_connected(connection.next_connected()), *_next(connection, 2)])
        connection.close()
    assert answers[0] == answers[1]


def test_bytes_that_come_one_by_one(servers: tuple[Server, Server]) -> None:
    for server in servers:
        connection = RawConnection(server.name, server.port)
        for byte in _frame(_body()):
            connection.send_raw(bytes([byte]))
        assert connection.next_connected() != Closed()
        for byte in _asked(1, Op.EXISTS):
            connection.send_raw(bytes([byte]))
        assert _next(connection, 1) == [(1, 0)]
        connection.close()


def test_a_client_that_has_seen_what_the_server_has(servers: tuple[Server, Server]) -> None:
    """The last zxid of the server is let in, the next one is not."""
    for server in servers:
        connection = RawConnection(server.name, server.port)
        connection.connect()
        connection.ask([(ping(), b"")])
        answer = connection.next_item()
        assert isinstance(answer, Replied)
        ahead = RawConnection(server.name, server.port)
        assert isinstance(ahead.connect(last_zxid=answer.zxid + 1), Closed), server.name
        level = RawConnection(server.name, server.port)
        assert isinstance(level.connect(last_zxid=answer.zxid), Connected), server.name
        for one in (connection, ahead, level):
            one.close()


def test_a_second_request_to_connect_is_a_request_like_others(servers: tuple[Server, Server]) -> None:
    """Its version is taken for an xid, and the upper half of its zxid for the operation."""
    answers = []
    for server in servers:
        connection = RawConnection(server.name, server.port)
        connection.connect()
        connection.send_raw(_frame(_body()))
        answers.append(_next(connection, 2))
        connection.close()
    assert answers[0] == answers[1]


def test_changes_before_hanging_up_are_made(servers: tuple[Server, Server]) -> None:
    """Nobody waits for the answer, and the change is made all the same."""
    for server in servers:
        connection = RawConnection(server.name, server.port)
        connection.connect()
        requests = [create(f"/left-behind-{number}") for number in range(5)]
        connection.ask([(request, encode(request, lambda mark: 0)) for request in requests])
        # The answer to the first shows that all five have come: they were sent at once.
        assert isinstance(connection.next_item(), Replied)
        connection.close()
        other = RawConnection(server.name, server.port)
        other.connect()
        wait = exists("/left-behind-4", watch=True)
        other.ask([(wait, encode(wait, lambda mark: 0))])
        found = other.next_item()
        assert isinstance(found, Replied)
        if found.err:
            other.next_item()  # it was about to be made: this is the event
        other.close()


def _connected_with(server: Server, body: bytes) -> tuple[object, ...]:
    connection = RawConnection(server.name, server.port)
    try:
        answer = connection.connect_with(body)
        plain = _plain_connected(answer)
        refused = isinstance(answer, Connected) and not answer.session_id
        return (*plain, isinstance(connection.next_item(), Closed)) if refused else plain
    finally:
        connection.close()


def _plain_connected(answer: Connected | Closed) -> tuple[object, ...]:
    if isinstance(answer, Closed):
        return ("hung up",)
    length = None if answer.password is None else len(answer.password)
    return (
        answer.protocol_version,
        answer.timeout_ms,
        answer.session_id != 0,
        length,
        answer.read_only,
        answer.rest,
    )


def _frame(body: bytes) -> bytes:
    return int32(len(body)) + body


def _asked(xid: int, op: int) -> bytes:
    return _frame(int32(xid) + int32(op) + text("/") + boolean(False))


def _next(connection: RawConnection, count: int) -> list[object]:
    def plain(item: Item) -> object:
        return (item.xid, item.err) if isinstance(item, Replied) else type(item).__name__

    return [plain(connection.next_item()) for _ in range(count)]
