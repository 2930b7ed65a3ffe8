"""kazoo's locks, semaphores, elections and barriers on a real ZooKeeper and on Quoracy."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.exceptions import CancelledError, LockTimeout
from kazoo.protocol.states import KazooState

from tests.interop.kazoo_clients import Clients, Heard, States, held_by_a_process, in_thread
from tests.interop.programs import WAIT_S_MAX, until
from tests.interop.zookeepers import CutProxy, takes_long

_SHORT_S = 2.0


def _result(future: Future[Any]) -> Any:
    return future.result(WAIT_S_MAX)


def _queued(client: Any, path: str, count: int) -> None:
    """Returns when so many stand in the queue of a lock."""
    enough = threading.Event()

    def look(children: list[str]) -> bool:
        if len(children) >= count:
            enough.set()
        return not enough.is_set()

    client.ensure_path(path)
    client.ChildrenWatch(path, look)
    assert enough.wait(WAIT_S_MAX), f"fewer than {count} in {path}"


# -- Lock -----------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_and_is_passed_on_in_order(clients: Clients) -> None:
    first = clients.connect()
    held = first.Lock("/lock", "0")
    assert held.acquire()
    order: Heard[str] = Heard()
    waiting: list[Future[None]] = []
    inside = threading.Lock()

    def take(name: str) -> None:
        with clients.connect().Lock("/lock", name):
            assert inside.acquire(blocking=False), "two hold the lock"
            order(name)
            inside.release()

    for number in range(1, 7):
        waiting.append(in_thread(take, str(number)))
        _queued(first, "/lock", number + 1)
    assert held.contenders() == [str(number) for number in range(7)]
    assert order.is_silent
    held.release()
    for each in waiting:
        _result(each)
    assert [order.next() for _ in range(6)] == [str(number) for number in range(1, 7)]
    assert first.get_children("/lock") == []


def test_a_lock_can_be_tried_for_given_up_and_cancelled(clients: Clients) -> None:
    first, second = clients.connect(), clients.connect()
    assert first.Lock("/lock", "first").acquire()
    other = second.Lock("/lock", "second")
    assert other.acquire(blocking=False) is False
    with pytest.raises(LockTimeout):
        other.acquire(timeout=0.1)
    assert first.get_children("/lock") != []
    waiting = in_thread(other.acquire)
    _queued(first, "/lock", 2)
    other.cancel()
    with pytest.raises(CancelledError):
        _result(waiting)
    assert len(first.get_children("/lock")) == 1, "who gave up is still in the queue"


def test_a_lock_outlives_a_cut_connection_of_its_holder_and_of_who_waits(clients: Clients) -> None:
    witness = clients.connect()
    with CutProxy(clients.zookeeper.port) as proxy:
        holder, waiter = clients.connect(port=proxy.port), clients.connect(port=proxy.port)
        lock = holder.Lock("/lock", "holder")
        assert lock.acquire()
        states = [States(holder), States(waiter)]
        waiting = in_thread(waiter.Lock("/lock", "waiter").acquire)
        _queued(witness, "/lock", 2)
        for _ in range(3):
            proxy.cut()
            for each in states:
                each.until(KazooState.CONNECTED)
        assert not waiting.done()
        assert len(witness.get_children("/lock")) == 2
        lock.release()
        assert _result(waiting) is True


@takes_long
def test_a_lock_is_free_when_the_session_of_its_holder_ends(clients: Clients) -> None:
    waiter = clients.connect()
    with CutProxy(clients.zookeeper.port) as proxy:
        holder = clients.connect(port=proxy.port, timeout=_SHORT_S)
        lock = holder.Lock("/lock", "holder")
        assert lock.acquire()
        states = States(holder)
        proxy.swallow()
        assert waiter.Lock("/lock", "waiter").acquire(timeout=WAIT_S_MAX)
        proxy.carry()
        assert [states.next(), states.next()] == [KazooState.SUSPENDED, KazooState.LOST]
        states.until(KazooState.CONNECTED)
        assert lock.contenders() == ["waiter"]


@takes_long
@pytest.mark.parametrize("what", ["lock", "read lock", "semaphore"])
def test_what_a_killed_process_held_goes_to_the_next(clients: Clients, what: str) -> None:
    client = clients.connect()
    next_holder = {
        "lock": client.Lock("/held", "next"),
        "read lock": client.WriteLock("/held", "next"),
        "semaphore": client.Semaphore("/held", "next"),
    }[what]
    with held_by_a_process(clients, what, "/held", timeout_s=_SHORT_S) as holder:
        holder.line_with("holds ")
        assert not next_holder.acquire(blocking=False)
        holder.end(signal.SIGKILL)
        assert next_holder.acquire(timeout=WAIT_S_MAX)


def test_many_threads_of_many_clients_count_under_one_lock(clients: Clients) -> None:
    counter = clients.connect()
    counter.create("/count", b"0")

    def work(client: Any) -> None:
        for _ in range(10):
            with client.Lock("/lock"):
                value = int(client.get("/count")[0])
                client.set("/count", b"%d" % (value + 1))

    connected = [clients.connect() for _ in range(4)]
    for each in [in_thread(work, client) for client in connected * 2]:
        _result(each)
    assert counter.get("/count")[0] == b"80"


# -- read and write locks, semaphores -------------------------------------------------------------


def test_readers_share_and_a_writer_waits_for_them_in_turn(clients: Clients) -> None:
    first, second, third, fourth = (clients.connect() for _ in range(4))
    reading = [first.ReadLock("/rw", "r1"), second.ReadLock("/rw", "r2")]
    assert all(lock.acquire() for lock in reading)
    order: Heard[str] = Heard()

    def take(lock: Any, name: str) -> None:
        with lock:
            order(name)

    writer = in_thread(take, third.WriteLock("/rw", "w"), "write")
    _queued(first, "/rw", 3)
    reader = in_thread(take, fourth.ReadLock("/rw", "r3"), "read")
    _queued(first, "/rw", 4)
    assert not fourth.WriteLock("/rw", "late").acquire(blocking=False)
    reading[0].release()
    assert order.is_silent
    reading[1].release()
    _result(writer)
    _result(reader)
    # The reader that came after the writer did not overtake it.
    assert [order.next(), order.next()] == ["write", "read"]


def test_a_semaphore_has_as_many_leases_as_it_says(clients: Clients) -> None:
    connected = [clients.connect() for _ in range(5)]
    semaphores = [
        client.Semaphore("/sem", f"{number}", max_leases=3) for number, client in enumerate(connected)
    ]
    assert all(semaphore.acquire() for semaphore in semaphores[:3])
    assert semaphores[3].acquire(blocking=False) is False
    assert sorted(semaphores[4].lease_holders()) == ["0", "1", "2"]
    waiting = [in_thread(semaphore.acquire) for semaphore in semaphores[3:]]
    semaphores[1].release()
    semaphores[0].release()
    assert [_result(each) for each in waiting] == [True, True]
    assert sorted(semaphores[0].lease_holders()) == ["2", "3", "4"]
    with pytest.raises(ValueError, match="Inconsistent max leases"):
        connected[0].Semaphore("/sem", "odd", max_leases=4).acquire()


# -- Election -------------------------------------------------------------------------------------


def test_an_election_has_one_leader_after_another(clients: Clients) -> None:
    witness = clients.connect()
    order: Heard[str] = Heard()
    resign = {name: threading.Event() for name in "abc"}

    def lead(name: str) -> None:
        order(name)
        assert resign[name].wait(WAIT_S_MAX)

    running = {}
    for number, name in enumerate("abc", start=1):
        election = clients.connect().Election("/election", name)
        running[name] = in_thread(election.run, lead, name)
        _queued(witness, "/election", number)
    assert order.next() == "a"
    assert witness.Election("/election").contenders() == ["a", "b", "c"]
    for name, successor in (("a", "b"), ("b", "c")):
        assert order.is_silent
        resign[name].set()
        _result(running[name])
        assert order.next() == successor
    resign["c"].set()
    _result(running["c"])


@takes_long
def test_a_leader_whose_session_ends_is_followed_by_the_next(clients: Clients) -> None:
    led: Heard[str] = Heard()
    done = threading.Event()

    def lead(name: str) -> None:
        led(name)
        assert done.wait(WAIT_S_MAX)

    with CutProxy(clients.zookeeper.port) as proxy:
        first = clients.connect(port=proxy.port, timeout=_SHORT_S)
        second = clients.connect()
        running = [in_thread(first.Election("/election", "first").run, lead, "first")]
        assert led.next() == "first"
        running.append(in_thread(second.Election("/election", "second").run, lead, "second"))
        proxy.swallow()
        assert led.next() == "second"
        proxy.carry()
        done.set()
        for each in running:
            _result(each)


# -- barriers -------------------------------------------------------------------------------------


def test_a_barrier_holds_everyone_until_it_is_removed(clients: Clients) -> None:
    first = clients.connect()
    barrier = first.Barrier("/barrier")
    barrier.create()
    waiting = [in_thread(clients.connect().Barrier("/barrier").wait) for _ in range(3)]
    assert clients.connect().Barrier("/barrier").wait(0.05) is False
    assert not any(each.done() for each in waiting)
    assert barrier.remove() is True
    assert [_result(each) for each in waiting] == [True, True, True]
    assert barrier.remove() is False
    assert clients.connect().Barrier("/barrier").wait() is True


def test_a_double_barrier_is_entered_and_left_together(clients: Clients) -> None:
    count = 4
    barriers = [clients.connect().DoubleBarrier("/double", count, f"{n}") for n in range(count)]
    witness = clients.connect()
    entering = [in_thread(barrier.enter) for barrier in barriers[:-1]]
    _queued(witness, "/double", count - 1)
    assert not any(each.done() for each in entering)
    barriers[-1].enter()
    for each in entering:
        _result(each)
    assert all(barrier.participating for barrier in barriers)
    leaving = [in_thread(barrier.leave) for barrier in barriers[1:]]
    until(lambda: len(witness.get_children("/double")) <= 2, "those that leave to be seen")
    assert not all(each.done() for each in leaving)
    barriers[0].leave()
    for each in leaving:
        _result(each)
    assert witness.get_children("/double") == []
