"""kazoo on a cell of three: nodes die and sessions go on, etcd goes away and clients read on.

A test that breaks something of the cell mends it, and keeps to its own nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotReadOnlyCallError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from tests.interop.kazoo_clients import Heard, States
from tests.interop.programs import WAIT_S_MAX, until
from tests.support.zookeeper_cell import Cell, running_cell
from tests.support.zookeeper_server import four_letter_word

# Longer than anything here is away.
_TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with running_cell(
        tmp_path_factory.mktemp("cell"), "--zookeeper-4lw-commands-whitelist", "*"
    ) as running:
        yield running


@contextlib.contextmanager
def connected(hosts: str, **options: Any) -> Iterator[Any]:
    client = KazooClient(
        hosts,
        timeout=_TIMEOUT_S,
        randomize_hosts=False,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1, max_jitter=0.05),
        **options,
    )
    client.start(WAIT_S_MAX)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def port_of(client: Any) -> int:
    return int(client._connection._socket.getpeername()[1])


def session_of(client: Any) -> int:
    return int(client.client_id[0])


def test_session_goes_on_at_another_node_when_its_own_is_killed(cell: Cell) -> None:
    """With its id, its ephemerals and its locks; and whoever watched learns what happened meanwhile."""
    with connected(cell.hosts) as client, connected(f"127.0.0.1:{cell.port(2)}") as other:
        assert port_of(client) == cell.port(0)
        client.create("/watched", b"before")
        client.create("/mine", ephemeral=True)
        lock = client.Lock("/lock")
        lock.acquire()
        data, children = Heard[bytes](), Heard[list[str]]()
        client.DataWatch("/watched", data)
        client.ChildrenWatch("/watched", children)
        assert (data.next(), children.next()) == (b"before", [])
        states, session = States(client), session_of(client)
        cell.kill_node(0)
        # Which the client hears of a moment later: meanwhile things happen.
        other.set("/watched", b"after")
        other.create("/watched/child")
        assert states.until(KazooState.CONNECTED)
        assert (data.next(), children.next()) == (b"after", ["child"])
        assert session_of(client) == session
        assert port_of(client) in cell.ports
        assert client.get("/mine")[1].ephemeralOwner == session
        assert lock.is_acquired
        assert len(other.get_children("/lock")) == 1
        client.set("/mine", b"still")
        other.sync("/mine")
        assert other.get("/mine")[0] == b"still"
        cell.start_node(0)


def test_session_is_known_at_every_node_and_served_at_one(cell: Cell) -> None:
    with connected(f"127.0.0.1:{cell.port(0)}") as first:
        first.create("/known", ephemeral=True)
        states, client_id = States(first), first.client_id
        with connected(f"127.0.0.1:{cell.port(1)}", client_id=client_id) as second:
            assert second.client_id == client_id
            assert states.until(KazooState.SUSPENDED)
            # The first comes back, so the second loses it, and so on: each is served as it asks.
            first.retry(first.set, "/known", b"1")
            second.retry(second.set, "/known", b"2")
            assert first.retry(first.get, "/known")[1].ephemeralOwner == client_id[0]


def test_read_only_client_reads_on_while_etcd_has_no_quorum(cell: Cell) -> None:
    with connected(cell.hosts, read_only=True) as client, connected(cell.hosts) as strict:
        states, strict_states = States(client), States(strict)
        client.create("/config", b"1")
        client.create("/ours", ephemeral=True)
        session, strict_session = session_of(client), session_of(strict)
        cell.kill_members(1, 2)
        assert states.until(KazooState.CONNECTED)
        assert client.client_state == KeeperState.CONNECTED_RO
        assert session_of(client) == session
        assert client.get("/config")[0] == b"1"
        assert set(client.get_children("/")) >= {"config", "ours", "zookeeper"}
        with pytest.raises(NotReadOnlyCallError):
            client.set("/config", b"2")
        with pytest.raises(NotReadOnlyCallError):
            client.create("/more", ephemeral=True)
        assert strict_states.until(KazooState.SUSPENDED)
        assert four_letter_word(cell.port(0), "isro") == "ro"
        assert "Mode: read-only" in four_letter_word(cell.port(0), "srvr")
        # Those who come now, too: with a session that is over when the cluster is back.
        with connected(cell.hosts, read_only=True) as newcomer:
            assert newcomer.client_state == KeeperState.CONNECTED_RO
            assert newcomer.get("/config")[0] == b"1"
        with pytest.raises(KazooTimeoutError), connected_for(1.0, cell.hosts):
            raise AssertionError("it was connected")
        cell.start_members(1, 2)
        until(lambda: client.client_state == KeeperState.CONNECTED, "a connection that writes")
        until(lambda: strict.client_state == KeeperState.CONNECTED, "a connection")
        assert (session_of(client), session_of(strict)) == (session, strict_session)
        client.set("/config", b"2")
        strict.sync("/config")
        assert strict.get("/config")[0] == b"2"
        assert client.get("/ours")[1].ephemeralOwner == session


@contextlib.contextmanager
def connected_for(seconds: float, hosts: str) -> Iterator[Any]:
    client = KazooClient(hosts, timeout=_TIMEOUT_S)
    try:
        client.start(seconds)
        yield client
    finally:
        client.stop()
        client.close()
