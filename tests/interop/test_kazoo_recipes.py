"""kazoo's counters, queues, parties, leases and caches on a real ZooKeeper and on Quoracy."""

from __future__ import annotations

import datetime
import signal
from concurrent.futures import Future
from typing import Any

from kazoo.protocol.states import EventType, KazooState
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.watchers import PatientChildrenWatch

from tests.interop.kazoo_clients import Clients, Heard, States, held_by_a_process, in_thread
from tests.interop.programs import WAIT_S_MAX, until
from tests.interop.zookeepers import CutProxy, takes_long

_SHORT_S = 2.0


def _results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(WAIT_S_MAX) for future in futures]


# -- counters and leases --------------------------------------------------------------------------


def test_a_counter_loses_no_step_of_anyone(clients: Clients) -> None:
    def work(client: Any) -> None:
        counter = client.Counter("/counter")
        for _ in range(15):
            counter += 2
            counter -= 1

    connected = [clients.connect() for _ in range(4)]
    _results([in_thread(work, client) for client in connected])
    assert clients.connect().Counter("/counter").value == 60


def test_counters_keep_their_type_and_know_what_came_before(clients: Clients) -> None:
    client = clients.connect()
    real = client.Counter("/real", default=0.5)
    real += 1.25
    assert (real.value, real.pre_value, real.post_value) == (1.75, 0.5, 1.75)
    curator = client.Counter("/curator", support_curator=True)
    curator += 7
    assert (curator.value, client.get("/curator")[0]) == (7, b"\x00\x00\x00\x07")


def test_a_lease_is_refused_while_another_has_it(clients: Clients) -> None:
    client = clients.connect()
    now = [datetime.datetime(2024, 1, 1)]  # noqa: DTZ001  kazoo's leases know no zones

    def lease(who: str) -> bool:
        hour = datetime.timedelta(hours=1)
        return bool(client.NonBlockingLease("/lease", hour, identifier=who, utcnow=lambda: now[0]))

    assert [lease("a"), lease("b"), lease("a")] == [True, False, True]
    now[0] += datetime.timedelta(hours=2)
    assert [lease("b"), lease("a")] == [True, False]


def test_a_lease_of_several_goes_to_that_many(clients: Clients) -> None:
    minute = datetime.timedelta(minutes=1)
    now = datetime.datetime(2024, 1, 1)  # noqa: DTZ001

    def lease(client: Any, who: int) -> bool:
        return bool(client.MultiNonBlockingLease(3, "/leases", minute, f"{who}", utcnow=lambda: now))

    connected = [clients.connect() for _ in range(6)]
    futures = [in_thread(lease, client, who) for who, client in enumerate(connected)]
    assert sorted(_results(futures)) == [False] * 3 + [True] * 3


# -- queues ---------------------------------------------------------------------------------------


def test_a_queue_gives_by_priority_then_by_age(clients: Clients) -> None:
    queue = clients.connect().Queue("/queue")
    assert queue.get() is None
    for value, priority in ((b"low", 200), (b"first", 50), (b"second", 50), (b"high", 1)):
        queue.put(value, priority)
    assert len(queue) == 4
    assert [queue.get() for _ in range(5)] == [b"high", b"first", b"second", b"low", None]


def test_a_queue_gives_each_entry_to_one_of_many(clients: Clients) -> None:
    filler = clients.connect().Queue("/queue")
    values = {b"%d" % number for number in range(60)}
    for value in values:
        filler.put(value)

    def take(client: Any) -> list[bytes]:
        queue, taken = client.Queue("/queue"), []
        while (value := queue.get()) is not None:
            taken.append(value)
        return taken

    connected = [clients.connect() for _ in range(4)]
    taken = _results([in_thread(take, client) for client in connected])
    assert sorted(value for values in taken for value in values) == sorted(values)


def test_a_locking_queue_keeps_an_entry_until_it_is_consumed(clients: Clients) -> None:
    first, second = (clients.connect().LockingQueue("/queue") for _ in range(2))
    first.put_all([b"a", b"b"])
    first.put(b"urgent", priority=1)
    assert first.get(timeout=WAIT_S_MAX) == first.get(timeout=WAIT_S_MAX) == b"urgent"
    assert second.get(timeout=WAIT_S_MAX) == b"a"
    assert (first.holds_lock(), len(first)) == (True, 3)
    assert first.consume() is True
    assert second.release() is True
    assert first.get(timeout=WAIT_S_MAX) == b"a"
    assert second.get(timeout=WAIT_S_MAX) == b"b"
    assert [first.consume(), second.consume(), first.consume(), len(first)] == [True, True, False, 0]
    waiting = in_thread(lambda: first.get(timeout=WAIT_S_MAX))
    second.put(b"late")
    assert waiting.result(WAIT_S_MAX) == b"late"


@takes_long
def test_an_entry_that_a_killed_process_held_is_given_again(clients: Clients) -> None:
    queue = clients.connect().LockingQueue("/queue")
    queue.put(b"work")
    with held_by_a_process(clients, "entry", "/queue", timeout_s=_SHORT_S) as holder:
        holder.line_with("holds ")
        assert queue.get(timeout=0.05) is None
        holder.end(signal.SIGKILL)
        assert queue.get(timeout=WAIT_S_MAX) == b"work"


# -- parties and partitions -----------------------------------------------------------------------


def test_a_party_is_whoever_joined_and_did_not_leave(clients: Clients) -> None:
    connected = [clients.connect() for _ in range(3)]
    for kind in ("Party", "ShallowParty"):
        parties = [
            getattr(client, kind)(f"/{kind}", f"{number}") for number, client in enumerate(connected)
        ]
        for party in parties:
            party.join()
        assert (sorted(parties[0]), len(parties[0])) == (["0", "1", "2"], 3)
        parties[1].leave()
        assert sorted(parties[2]) == ["0", "2"]
    witness = clients.connect()
    connected[0].stop()
    assert list(witness.Party("/Party")) == ["2"]
    assert list(witness.ShallowParty("/ShallowParty")) == ["2"]


@takes_long
def test_a_killed_process_leaves_the_party(clients: Clients) -> None:
    client = clients.connect()
    client.Party("/party", "here").join()
    with held_by_a_process(clients, "party", "/party", timeout_s=_SHORT_S) as member:
        member.line_with("holds ")
        assert sorted(client.Party("/party")) == ["here", "killed"]
        left: Heard[int] = Heard()
        client.ChildrenWatch("/party", lambda children: left(len(children)))
        member.end(signal.SIGKILL)
        left.until(1)
    assert list(client.Party("/party")) == ["here"]


def test_a_set_is_partitioned_among_who_is_there(clients: Clients) -> None:
    everything = tuple(range(7))
    connected = [clients.connect() for _ in range(2)]
    partitioners = [
        client.SetPartitioner("/set", set=everything, time_boundary=0.1, identifier=f"{number}")
        for number, client in enumerate(connected)
    ]

    def settled(count: int) -> bool:
        """Whoever has to give up its part does; true when the parts are everything, once."""
        there = partitioners[:count]
        for each in there:
            assert not each.failed
            if each.release:
                each.release_set()
        if not all(each.acquired for each in there):
            return False
        return sorted(part for each in there for part in each) == list(everything)

    until(lambda: settled(2), "two members to share the set")
    assert {len(list(each)) for each in partitioners} == {3, 4}
    partitioners[1].finish()
    until(lambda: settled(1), "the member that is left to have it all")
    partitioners[0].finish()


def test_a_patient_watch_waits_until_children_settle(clients: Clients) -> None:
    client, other = clients.connect(), clients.connect()
    client.create("/patient")
    settled = PatientChildrenWatch(client, "/patient", time_boundary=0.1).start()
    other.create("/patient/a")
    children, changed = settled.get(timeout=WAIT_S_MAX)
    assert set(children) <= {"a"}
    other.create("/patient/b")
    assert changed.get(timeout=WAIT_S_MAX) is not None


# -- caches ---------------------------------------------------------------------------------------


def test_a_tree_cache_follows_a_tree(clients: Clients) -> None:
    client, other = clients.connect(), clients.connect()
    other.create("/tree/old/leaf", b"0", makepath=True)
    cache = TreeCache(client, "/tree")
    heard: Heard[TreeEvent] = Heard()
    faults: Heard[Exception] = Heard()
    cache.listen(heard)
    cache.listen_fault(faults)
    cache.start()
    seen = set()
    while (event := heard.next()).event_type != TreeEvent.INITIALIZED:
        seen.add((event.event_type, event.event_data.path))
    assert seen == {(TreeEvent.NODE_ADDED, p) for p in ("/tree", "/tree/old", "/tree/old/leaf")}

    def change() -> tuple[int, str, bytes]:
        event = heard.next()
        return event.event_type, event.event_data.path, event.event_data.data

    other.create("/tree/new", b"1")
    assert change() == (TreeEvent.NODE_ADDED, "/tree/new", b"1")
    other.set("/tree/old/leaf", b"2")
    assert change() == (TreeEvent.NODE_UPDATED, "/tree/old/leaf", b"2")
    other.delete("/tree/old/leaf")
    assert change() == (TreeEvent.NODE_REMOVED, "/tree/old/leaf", b"2")
    assert cache.get_children("/tree") == {"old", "new"}
    assert cache.get_data("/tree/new").data == b"1"
    assert cache.get_data("/tree/old/leaf") is None
    assert faults.is_silent
    cache.close()


def test_a_tree_cache_catches_up_after_a_cut_connection(clients: Clients) -> None:
    with CutProxy(clients.zookeeper.port) as proxy:
        client, other = clients.connect(port=proxy.port), clients.connect()
        other.create("/tree/a", b"0", makepath=True)
        cache = TreeCache(client, "/tree")
        heard: Heard[int] = Heard()
        cache.listen(lambda event: heard(event.event_type))
        cache.start()
        heard.until(TreeEvent.INITIALIZED)
        states = States(client)
        proxy.swallow()
        other.set("/tree/a", b"1")
        other.create("/tree/b")
        proxy.cut()
        states.until(KazooState.SUSPENDED)
        proxy.carry()
        heard.until(TreeEvent.CONNECTION_RECONNECTED)
        until(lambda: cache.get_children("/tree") == {"a", "b"}, "the new node to be in the cache")
        until(lambda: cache.get_data("/tree/a").data == b"1", "the new data to be in the cache")
        cache.close()


def test_watchers_of_a_lost_session_go_on_in_the_next(clients: Clients) -> None:
    """kazoo's watchers set themselves up again; a watch set by hand is told that it is over."""
    client = clients.connect()
    client.create("/w", b"0")
    data: Heard[bytes] = Heard()
    by_hand: Heard[str] = Heard()
    client.DataWatch("/w", data)
    assert data.next() == b"0"
    client.get_children("/w", watch=lambda event: by_hand(event.type))
    states = States(client)
    twin = clients.connect(client_id=client.client_id)
    twin.stop()  # which closes the session for both
    states.until(KazooState.LOST)
    states.until(KazooState.CONNECTED)
    assert by_hand.next() == EventType.NONE
    clients.connect().set("/w", b"1")
    data.until(b"1")
