"""kazoo's sessions on a real ZooKeeper and on Quoracy: lost connections, lost sessions, killed clients.

A session's end is awaited as the deletion of what it held, never by the clock.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NodeExistsError, SessionExpiredError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL

from tests.interop.kazoo_clients import Clients, Heard, States, held_by_a_process
from tests.interop.programs import WAIT_S_MAX
from tests.interop.zookeepers import CutProxy, takes_long

# As short as kazoo, which beats at half of two thirds of it, can keep on a busy machine.
_SHORT_S = 2.0


def test_a_cut_connection_is_made_again_for_the_same_session(clients: Clients) -> None:
    with CutProxy(clients.zookeeper.port) as proxy:
        client = clients.connect(port=proxy.port)
        session = client.client_id
        client.create("/mine", ephemeral=True)
        states = States(client)
        for _ in range(5):
            proxy.cut()
            assert [states.next(), states.next()] == [KazooState.SUSPENDED, KazooState.CONNECTED]
            assert client.client_id == session
            assert client.exists("/mine").ephemeralOwner == session[0]
        client.stop()
        assert states.next() == KazooState.LOST
    assert clients.connect().exists("/mine") is None


def test_what_was_in_flight_when_the_connection_was_cut_is_told_so(clients: Clients) -> None:
    with CutProxy(clients.zookeeper.port) as proxy:
        client = clients.connect(port=proxy.port)
        client.create("/n", b"0")
        proxy.swallow()
        asked = [client.set_async("/n", b"lost"), client.get_async("/n")]
        proxy.cut()
        for each in asked:
            with pytest.raises(ConnectionLoss):
                each.get(timeout=WAIT_S_MAX)
        proxy.carry()
        # Whether it was done is open, and the client asks.
        assert client.retry(client.get, "/n")[0] in (b"0", b"lost")


def test_watchers_see_what_happened_while_the_connection_was_away(clients: Clients) -> None:
    with CutProxy(clients.zookeeper.port) as proxy:
        client, other = clients.connect(port=proxy.port), clients.connect()
        client.create("/w", b"0")
        data: Heard[bytes] = Heard()
        children: Heard[list[str]] = Heard()
        client.DataWatch("/w", data)
        client.ChildrenWatch("/w", lambda names: children(sorted(names)))
        assert (data.next(), children.next()) == (b"0", [])
        states = States(client)
        proxy.swallow()
        other.set("/w", b"1")
        other.create("/w/child")
        proxy.cut()
        states.until(KazooState.SUSPENDED)
        proxy.carry()
        assert (data.next(), children.next()) == (b"1", ["child"])
        other.set("/w", b"2")
        assert data.next() == b"2"


@takes_long
def test_a_session_ends_when_its_client_is_silent_for_the_timeout(clients: Clients) -> None:
    witness = clients.connect()
    gone: Heard[WatchedEvent] = Heard()
    with CutProxy(clients.zookeeper.port) as proxy:
        client = clients.connect(port=proxy.port, timeout=_SHORT_S)
        session = client.client_id
        client.create("/mine", ephemeral=True)
        assert witness.exists("/mine", watch=gone) is not None
        states = States(client)
        proxy.swallow()
        assert gone.next().type == EventType.DELETED
        proxy.carry()
        assert states.next() == KazooState.SUSPENDED
        assert states.next() == KazooState.LOST
        assert states.next() == KazooState.CONNECTED
        assert client.client_id[0] != session[0]
        assert client.exists("/mine") is None


@takes_long
def test_a_client_that_is_idle_keeps_its_session(clients: Clients) -> None:
    """Only heartbeats, for longer than the timeout: another's end shows that time has passed."""
    client = clients.connect(timeout=_SHORT_S)
    client.create("/idle", ephemeral=True)
    states = States(client)
    witness = clients.connect()
    gone: Heard[WatchedEvent] = Heard()
    with CutProxy(clients.zookeeper.port) as proxy:
        other = clients.connect(port=proxy.port, timeout=1.5 * _SHORT_S)
        other.create("/other", ephemeral=True)
        witness.exists("/other", watch=gone)
        proxy.swallow()
        assert gone.next().type == EventType.DELETED
        proxy.carry()
        other.stop()
    assert states.is_silent
    assert witness.exists("/idle").ephemeralOwner == client.client_id[0]


def test_a_session_moves_to_whoever_has_its_password(clients: Clients) -> None:
    witness = clients.connect()
    gone: Heard[WatchedEvent] = Heard()
    with CutProxy(clients.zookeeper.port) as proxy:
        first = clients.connect(port=proxy.port)
        first.create("/mine", ephemeral=True)
        session = first.client_id
        witness.exists("/mine", watch=gone)
        states = States(first)
        proxy.swallow()  # so that the first cannot take it back
        second = clients.connect(client_id=session)
        assert second.client_id == session
        assert states.next() == KazooState.SUSPENDED, "the server did not hang up on the first"
        assert second.exists("/mine").ephemeralOwner == session[0]
        second.stop()
        assert gone.next().type == EventType.DELETED
        proxy.carry()
        assert [states.next(), states.next()] == [KazooState.LOST, KazooState.CONNECTED]
        assert first.client_id[0] != session[0]


def test_a_wrong_password_gets_a_new_session_and_leaves_the_old_alone(clients: Clients) -> None:
    owner = clients.connect()
    owner.create("/mine", ephemeral=True)
    session, password = owner.client_id
    thief = clients.connect(client_id=(session, bytes(byte ^ 1 for byte in password)))
    assert thief.client_id[0] != session
    assert thief.exists("/mine").ephemeralOwner == session
    # ZooKeeper hangs up on the owner before it looks at the password; the session is the owner's still.
    assert owner.retry(owner.exists, "/mine").ephemeralOwner == session
    assert owner.client_id == (session, password)


def test_a_session_that_is_closed_by_another_of_its_clients_is_expired(clients: Clients) -> None:
    client = clients.connect()
    client.create("/mine", ephemeral=True)
    states = States(client)
    twin = clients.connect(client_id=client.client_id)
    twin.stop()
    states.until(KazooState.LOST)
    states.until(KazooState.CONNECTED)
    assert client.exists("/mine") is None
    client.create("/mine", ephemeral=True)


@takes_long
def test_every_request_of_an_expired_session_fails(clients: Clients) -> None:
    witness = clients.connect()
    gone: Heard[WatchedEvent] = Heard()
    with CutProxy(clients.zookeeper.port) as proxy:
        client = clients.connect(port=proxy.port, timeout=_SHORT_S)
        client.create("/mine", ephemeral=True)
        witness.exists("/mine", watch=gone)
        proxy.swallow()
        asked = [client.create_async(f"/late-{number}") for number in range(10)]
        assert gone.next().type == EventType.DELETED
        proxy.carry()
        for each in asked:
            with pytest.raises((ConnectionLoss, SessionExpiredError)):
                each.get(timeout=WAIT_S_MAX)
        client.retry(client.exists, "/")
    assert not [name for name in witness.get_children("/") if name.startswith("late")]


def test_stop_and_start_make_a_new_session(clients: Clients) -> None:
    client = clients.connect()
    sessions = {client.client_id[0]}
    for _ in range(3):
        client.create("/mine", ephemeral=True)
        client.restart()
        sessions.add(client.client_id[0])
        assert client.exists("/mine") is None
    assert len(sessions) == 4


def test_authentication_is_done_again_on_a_new_connection(clients: Clients) -> None:
    with CutProxy(clients.zookeeper.port) as proxy:
        client = clients.connect(port=proxy.port, auth_data=[("digest", "ann:secret")])
        client.create("/private", b"x", acl=CREATOR_ALL_ACL)
        states = States(client)
        proxy.cut()
        states.until(KazooState.CONNECTED)
        assert client.get("/private")[0] == b"x"


@takes_long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda each: each.name)
def test_what_a_process_held_is_free_after_its_end(clients: Clients, number: signal.Signals) -> None:
    witness = clients.connect()
    gone: Heard[WatchedEvent] = Heard()
    with held_by_a_process(clients, "node", "/held", timeout_s=_SHORT_S) as holder:
        assert holder.line().startswith("holds ")
        assert witness.exists("/held", watch=gone) is not None
        holder.process.send_signal(number)
        assert gone.next().type == EventType.DELETED
        if number is signal.SIGSTOP:
            # It slept through its end, and is told when it wakes.
            holder.process.send_signal(signal.SIGCONT)
            for state in (KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED):
                holder.line_with(state)


def test_many_clients_at_once(clients: Clients) -> None:
    """Threads of forty clients create the same names: each name is created once."""
    count = 40
    created: Heard[str] = Heard()
    start = threading.Barrier(count, timeout=WAIT_S_MAX)

    def work(client: Any) -> None:
        start.wait()
        for name in range(20):
            try:
                created(client.create(f"/{name}"))
            except NodeExistsError:
                continue

    connected = [clients.connect() for _ in range(count)]
    threads = [threading.Thread(target=work, args=(client,)) for client in connected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S_MAX)
    assert sorted(created.next() for _ in range(20)) == sorted(f"/{name}" for name in range(20))
    assert created.is_silent
    sessions = {client.client_id[0] for client in connected}
    assert len(sessions) == count
