"""Without a quorum: a node of a cell and a server of a real ensemble answer read-only clients alike.

The real one makes sessions for them only with localSessionsEnabled, so that is set.

QUORACY_FAULTS=long   only then, for two ensembles have to come up and to fall
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.differential.zk_connection import Closed, Connected, RawConnection, Replied
from tests.differential.zk_jute import boolean, buffer, int32, int64, text, vector
from tests.differential.zk_requests import Op, Request
from tests.faults.scale import LONG
from tests.interop.programs import until
from tests.support.zookeeper_cell import running_cell
from tests.support.zookeeper_ensemble import running_ensemble
from tests.support.zookeeper_server import four_letter_word

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not LONG, reason="takes QUORACY_FAULTS=long"),
]

_OPEN = vector([int32(31) + text("world") + text("anyone")])
_CREATE = text("/b") + buffer(b"x") + _OPEN + int32(0)
_CHECK = text("/a") + int32(-1)
_END = int32(-1) + boolean(True) + int32(-1)

_REQUESTS: list[tuple[int, bytes]] = [
    (Op.EXISTS, text("/a") + boolean(True)),
    (Op.GET_DATA, text("/a") + boolean(True)),
    (Op.GET_DATA, text("/none") + boolean(True)),
    (Op.GET_CHILDREN, text("/") + boolean(True)),
    (Op.GET_CHILDREN2, text("/a") + boolean(False)),
    (Op.GET_ACL, text("/a")),
    (Op.SYNC, text("/a")),
    (Op.CREATE, _CREATE),
    (Op.CREATE, b"not a body"),
    (Op.CREATE2, _CREATE),
    (Op.DELETE, text("/none") + int32(-1)),
    (Op.SET_DATA, text("/a") + buffer(b"y") + int32(-1)),
    (Op.SET_ACL, text("/a") + _OPEN + int32(-1)),
    (Op.CHECK, _CHECK),
    (Op.MULTI, int32(Op.CHECK) + boolean(False) + int32(-1) + _CHECK + _END),
    (
        Op.MULTI_READ,
        int32(Op.GET_DATA) + boolean(False) + int32(-1) + text("/none") + boolean(False) + _END,
    ),
    (Op.SET_WATCHES, int64(0) + vector([]) + vector([]) + vector([])),
    (Op.ADD_WATCH, text("/a") + int32(0)),
    (Op.GET_EPHEMERALS, text("/")),
    (Op.GET_ALL_CHILDREN_NUMBER, text("/a")),
    (Op.WHO_AM_I, b""),
    (Op.CLOSE_SESSION, b""),
]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of the real one and of ours: one server each that has a znode /a and no quorum."""
    directory: Path = tmp_path_factory.mktemp("quorums")
    with ExitStack() as running, ThreadPoolExecutor() as starting:
        starting_cell = starting.submit(
            lambda: running.enter_context(
                running_cell(directory / "cell", "--zookeeper-4lw-commands-whitelist", "*")
            )
        )
        ensemble = running.enter_context(
            running_ensemble(
                directory / "ensemble",
                localSessionsEnabled="true",
                localSessionsUpgradingEnabled="true",
            )
        )
        cell = starting_cell.result()
        for port in (ensemble.ports[0], cell.port(0)):
            connection = RawConnection("one", port)
            connection.connect()
            connection.ask([(Request(Op.CREATE), text("/a") + buffer(b"x") + _OPEN + int32(0))])
            answer = connection.next_item()
            assert isinstance(answer, Replied)
            assert answer.err == 0
            connection.close()
        ensemble.kill(1, 2)
        cell.kill_members(1, 2)
        ensemble.wait(0, "isro", "ro")
        until(lambda: four_letter_word(cell.port(0), "isro") == "ro", "a read-only server")
        yield ensemble.ports[0], cell.port(0)


def test_requests_of_a_read_only_client_are_answered_alike(ports: tuple[int, int]) -> None:
    theirs, ours = (_answers(port) for port in ports)
    assert ours == theirs
    assert {-119, 0, -101} == {err for _, err, _ in theirs}


def _answers(port: int) -> list[tuple[int, int, int]]:
    """Of each request: what it was, the error, and the length of the answer."""
    connection = RawConnection("one", port)
    connected = connection.connect(read_only=True)
    assert isinstance(connected, Connected)
    assert connected.session_id
    assert connected.read_only
    answers: list[tuple[int, int, int]] = []
    for op, body in _REQUESTS:
        connection.ask([(Request(op), body)])
        answer = connection.next_item()
        assert isinstance(answer, Replied)
        # How many children the root has is a matter of what each has there.
        length = 0 if op in (Op.GET_CHILDREN, Op.GET_EPHEMERALS) else len(answer.body)
        answers.append((op, answer.err, length))
    assert isinstance(connection.next_item(), Closed)
    again = RawConnection("one", port)
    over = again.connect(
        read_only=True, session_id=connected.session_id, password=connected.password or b""
    )
    assert isinstance(over, Connected)
    assert (over.session_id, over.timeout_ms, over.read_only) == (0, 0, True)
    for each in (connection, again):
        each.close()
    return answers


@pytest.mark.parametrize("read_only", [False, None])
def test_who_did_not_ask_for_that_is_hung_up_on(ports: tuple[int, int], read_only: bool | None) -> None:
    for port in ports:
        connection = RawConnection("one", port)
        assert isinstance(connection.connect(read_only=read_only), Closed)
        connection.close()


def test_words_say_that_it_is_read_only(ports: tuple[int, int]) -> None:
    for port in ports:
        assert four_letter_word(port, "ruok") == "imok"
        srvr = four_letter_word(port, "srvr").splitlines()
        assert srvr[1] == "READ-ONLY mode; serving only read-only clients"
        assert "Mode: read-only" in srvr
        mntr = four_letter_word(port, "mntr")
        assert "zk_server_state\tread-only\n" in mntr
        assert "zk_peer_state" not in mntr
        assert "zk_quorum_size" not in mntr
