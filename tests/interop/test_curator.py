"""Apache Curator's recipes, two clients against each other, on a real ZooKeeper and on Quoracy.

The programs in `java/` say what their clients saw; what they say is proven on the real one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.protocol.states import EventType, WatchedEvent

from tests.interop.kazoo_clients import Clients, Heard
from tests.interop.programs import Running, run, until
from tests.interop.zookeeper_java import CURATOR_JARS, java_command, javac
from tests.interop.zookeepers import CutProxy, ZooKeeper, takes_long

_SOURCES = Path(__file__).with_name("java")

TOUR = """
nodes: created /nodes/deep/leaf x
nodes: protected /nodes/GUID-p-0000000001
nodes: or set /nodes/deep/leaf y
nodes: children [deep, ttl]
nodes: empty container gone true
transaction: CREATE /tx/a 0
transaction: SET_DATA /tx 0
transaction: CHECK /tx 0
transaction: DELETE /tx/a 0
transaction: failed BADVERSION 2
cache: at first [NODE_CREATED /cache , NODE_CREATED /cache/old , NODE_CREATED /cache/old/leaf 0]
cache: NODE_CREATED /cache/new 1
cache: NODE_CHANGED /cache/old/leaf 2
cache: NODE_DELETED /cache/old/leaf 2
cache: size 3
path cache: at first 1
path cache: CHILD_ADDED /old-cache/b 1
path cache: CHILD_UPDATED /old-cache/b 2
path cache: CHILD_REMOVED /old-cache/b 2
tree cache: at first [NODE_ADDED /old-cache, NODE_ADDED /old-cache/a]
tree cache: NODE_ADDED /old-cache/a/deep
tree cache: NODE_REMOVED /old-cache/a/deep
persistent node: NodeDeleted
persistent node: made again here
persistent node: closed true
persistent ttl node: ttl
group: [one, two]
group: [one]
queue: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
persistent watcher: [NodeCreated /w/a, NodeCreated /w/a/b, NodeDataChanged /w/a/b, NodeDeleted /w/a/b]
persistent watch: [NodeDataChanged /w, NodeChildrenChanged /w, NodeDataChanged /w]
mutex: taken while held false
mutex: passed on after one of two releases false
mutex: passed on true
mutex: counted 60
read-write: second reader true
read-write: writer beside a reader false
read-write: writer alone true
read-write: writer reads, too true
read-write: reader beside a writer false
read-write: reader after the writer true
semaphore: a fourth of three false
semaphore: what was given back 2
semaphore: not even the holder twice false
latch: true false first
latch: next true second
selector: first
selector: leader first, others led []
selector: next second
barrier: passed while set false
barrier: passed true
double barrier: alone false
double barrier: together true true
double barrier: left true true
shared count: 7 set true
shared count: heard true 8
shared count: set from a value that is past false
atomic: 40
"""

Command = Callable[..., list[str]]


@pytest.fixture(scope="module")
def curator(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command that runs the programs, which are compiled once."""
    classes = tmp_path_factory.mktemp("classes")
    done = run(*javac(_SOURCES, classes, jars=CURATOR_JARS))
    assert done.code == 0, done.err

    def command(*arguments: str) -> list[str]:
        return java_command("CuratorTour", *arguments, jars=CURATOR_JARS, classes=classes)

    return command


def test_every_recipe(zookeeper: ZooKeeper, curator: Command) -> None:
    done = run(*curator(zookeeper.address, "tour"))
    assert done.out.splitlines() == TOUR.strip().splitlines()
    assert (done.code, done.err) == (0, "")


@takes_long
def test_what_a_killed_process_held_goes_to_the_next(zookeeper: ZooKeeper, curator: Command) -> None:
    """A mutex and a leader's latch; the second process waits in the queue of both."""
    with Clients(zookeeper, "/curator") as clients:
        client = clients.connect()
        with Running(curator(zookeeper.address, "hold", "/killed")) as holder:
            assert holder.line() == "holds"
            with Running(curator(zookeeper.address, "hold", "/killed")) as waiting:
                until(lambda: len(client.get_children("/killed")) == 2, "the second to wait")
                assert waiting.is_silent
                holder.end(signal.SIGKILL)
                assert waiting.line() == "holds"
                assert len(client.get_children("/killed-latch")) == 1


@takes_long
def test_a_leader_and_a_cache_through_lost_connections(zookeeper: ZooKeeper, curator: Command) -> None:
    with Clients(zookeeper, "/curator") as clients, CutProxy(zookeeper.port) as proxy:
        client = clients.connect()
        client.create("/followed")
        client.create("/follow-latch")  # or it would be a container, which goes when it is empty
        with Running(curator(f"127.0.0.1:{proxy.port}", "follow")) as follower:
            assert sorted(follower.lines(2)) == ["NODE_CREATED /followed", "leads"]

            # Away for a moment: the session goes on, and what it missed is shown afterwards.
            proxy.swallow()
            client.create("/followed/missed")
            proxy.cut()
            _hear(follower, "leads no more", "state SUSPENDED")
            proxy.carry()
            _hear(follower, "state RECONNECTED", "leads", "NODE_CREATED /followed/missed")

            # Away for too long: what it led by is gone, and it leads again with a session of its own.
            (latch,) = client.get_children("/follow-latch")
            gone: Heard[WatchedEvent] = Heard()
            client.exists(f"/follow-latch/{latch}", watch=gone)
            proxy.swallow()
            assert gone.next().type == EventType.DELETED
            client.create("/followed/later")
            proxy.carry()
            _hear(
                follower,
                *("state SUSPENDED", "leads no more", "state LOST"),
                *("state RECONNECTED", "leads", "NODE_CREATED /followed/later"),
            )
            follower.say("\n")
            follower.line_with("closed")


def _hear(follower: Running, *lines: str) -> None:
    """These, in whatever order its threads say them; on a busy machine there may be others, too."""
    awaited = set(lines)
    while awaited:
        awaited.discard(follower.line())
