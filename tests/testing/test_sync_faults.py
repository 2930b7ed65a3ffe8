"""Tests without a loop: the same faults, the same clock, `quoracy.sync`, and clients of other kinds."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient, KazooState

import quoracy
import quoracy.sync
from quoracy.testing import Faults, Server, VirtualClock, server


@pytest.fixture
def running(clock: VirtualClock) -> Iterator[Server]:
    with server(clock=clock) as running:
        yield running


def test_paused_holder_learns_of_its_loss_only_when_it_goes_on(
    running: Server, clock: VirtualClock, faults: Faults
) -> None:
    with running.sync_connect() as q, running.sync_connect() as other:
        held = q.lock("a").acquire()
        with faults.pause(q):
            clock.advance_sync(20)
            assert other.lock("a").acquire(timeout=1).token > held.token
            assert not held.lost.is_set()
        assert not held.is_held
        with pytest.raises(quoracy.LockLost):
            held.check()


def test_expired_session_is_noticed_at_the_next_renewal(
    running: Server, clock: VirtualClock, faults: Faults
) -> None:
    with running.sync_connect() as q:
        with pytest.raises(quoracy.LockLost), q.lock("a") as held:
            faults.expire(q)
            clock.advance_sync(4)
            assert not held.is_held


def test_cut_off_holder_loses_and_comes_back(
    running: Server, clock: VirtualClock, faults: Faults
) -> None:
    with running.sync_connect() as q:
        held = q.lock("a").acquire()
        with faults.partition(q):
            clock.advance_sync(9.6)
            assert held.lost.wait(1)
        clock.advance_sync(11)
        assert q.state is quoracy.SessionState.CONNECTED
        assert q.lock("a").acquire(timeout=1).token > held.token


def test_lost_answer_and_broken_connection(running: Server, faults: Faults) -> None:
    with running.sync_connect() as q:
        faults.lose_answers(q)
        with pytest.raises(quoracy.Indeterminate):
            q.counter("n").add(1)
        faults.disconnect(q)
        assert q.counter("n").add(1) == 2


def test_code_that_connects_by_itself_is_broken_by_its_url(faults: Faults) -> None:
    with server() as running, quoracy.sync.connect(running.url) as q:
        with faults.lose_answers(running.url), pytest.raises(quoracy.Indeterminate):
            q.counter("n").add(1)
        faults.disconnect(running.url)
        assert q.counter("n").add(1) == 2
        with pytest.raises(quoracy.InvalidRequest, match="clock"):
            faults.pause(q)


def test_any_http_client_is_served() -> None:
    with server() as running, urllib.request.urlopen(f"http://{running.address}/health") as answer:
        assert answer.status == 200


def test_kazoo_sees_its_session_expire_and_its_network_break(faults: Faults) -> None:
    lost, suspended, connected = threading.Event(), threading.Event(), threading.Event()
    heard = {
        KazooState.LOST: lost,
        KazooState.SUSPENDED: suspended,
        KazooState.CONNECTED: connected,
    }
    with server() as running:
        client = KazooClient(running.zookeeper_hosts)
        client.start(10)
        try:
            client.add_listener(lambda state: heard[state].set())
            faults.disconnect(running.zookeeper_hosts)
            assert suspended.wait(10)
            assert connected.wait(10)
            assert not lost.is_set()
            connected.clear()
            running.expire(client.client_id[0])
            assert lost.wait(10)
            assert connected.wait(10)
            with pytest.raises(quoracy.InvalidRequest, match="etcd"):
                faults.lose_answers(running.zookeeper_hosts)
        finally:
            client.stop()
            client.close()
