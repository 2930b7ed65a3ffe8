"""Several replicas of one tree, their sessions all writing at once, ending and moving in the middle.

Whatever happens, there is an order in which a single ZooKeeper would have answered the same; every
replica tells its watchers of it in that order, and all trees are the same in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.errors import LeaseNotFound
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.watches import WatchKind
from quoracy.store.model import Compare, Put, Txn
from quoracy.wire.zookeeper.requests import CloseSession
from tests.properties.zookeeper_requests import PATHS, examples, requests
from tests.support.zookeeper_core import (
    Client,
    Ensemble,
    Listener,
    asked,
    assert_idle,
    assert_same_tree,
    create,
    ensemble,
    loaded_tree,
    run,
    stat_of,
)
from tests.support.zookeeper_model import CHILDREN_CHANGED, DATA_CHANGED, Model, Request, judge
from tests.support.zookeeper_stores import Fate, Unreliable

_SESSIONS = 4

# A session asks for something, or: it is closed, its lease is revoked, it moves to another replica, or
# somebody writes a record of a znode by hand.
Step: TypeAlias = tuple[int, Request | str]

_steps = st.tuples(
    st.integers(0, _SESSIONS - 1),
    st.one_of(*[requests] * 10, st.sampled_from(["close", "expire", "move", "touch"])),
)
_bursts = st.lists(st.lists(_steps, min_size=1, max_size=20), min_size=1, max_size=3)

# How many replicas are in the process of the store and how many are far away.
_ways: dict[str, tuple[int, int]] = {
    "one in process": (1, 0),
    "one far away": (0, 1),
    "two in process": (2, 0),
    "three far away": (0, 3),
    "one in process, two far away": (1, 2),
}
# Those far away are slow at times, so that they overtake each other.
_delays = st.lists(st.sampled_from([Fate.FINE, Fate.SLOW, Fate.ANSWERED_LATE]), max_size=20)


class Scene:
    """The replicas, the model they are judged by, and the sessions."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.model = Model(zxid=ensemble.replica.tree.zxid)
        self.touched: list[tuple[int, Callable[[Model], None]]] = []
        self.clients: list[Client] = []
        self.watchers: list[Client] = []  # all there ever were
        self.listeners: list[Listener] = []
        for replica in ensemble.replicas:
            everywhere, here_and_there = Listener(replica), Listener(replica)
            everywhere.watch(b"/", WatchKind.RECURSIVE)
            for path in [b"/", *PATHS]:
                here_and_there.watch(path, WatchKind.PERSISTENT)
            self.listeners += [everywhere, here_and_there]

    async def open(self, index: int) -> Client:
        replicas = self.ensemble.replicas
        return self._watch(await self.ensemble.session(replicas[index % len(replicas)]))

    def _watch(self, client: Client) -> Client:
        client.replica.watches.add(b"/", client, WatchKind.RECURSIVE)
        self.watchers.append(client)
        return client

    async def burst(self, steps: list[Step]) -> None:
        """Everything at once, and then the verdict."""
        works: list[asyncio.Future[None]] = []
        now_ms = int(self.ensemble.clock.wall() * 1000)
        for index, step in steps:
            client = self.clients[index]
            if not isinstance(step, str):
                client.submit(step)
            elif step == "close":
                client.submit(CloseSession())
            else:
                works.append(asyncio.ensure_future(self._disturb(step, index)))
            await asyncio.sleep(0)
            self._read()
        await asyncio.gather(*works)
        while any(not question.is_answered for question in self.ensemble.history.questions):
            # (Whoever waits for the clock records losses, and is waited for by nobody.)
            await self.ensemble.clock.advance(0)
        await self.ensemble.settle()
        self.compare(now_ms)
        for index, client in enumerate(self.clients):
            if client.session_id not in client.replica.tree.sessions:
                self.clients[index] = await self.open(index)

    def _read(self) -> None:
        """Whatever a read shows now, watchers of the same replica have been told."""
        for everywhere in self.listeners[::2]:
            nodes = everywhere.replica.tree.nodes.values()
            assert max(node.mzxid for node in nodes) <= everywhere.last

    def _check_order(self) -> None:
        """To every session events and answers came in the order of zxids; of one, the event first."""
        for client in self.watchers:
            marks = [(zxid, what == "answer") for what, zxid in client.told]
            assert marks == sorted(marks)
            client.told.clear()

    async def _disturb(self, what: str, index: int) -> None:
        it, client = self.ensemble, self.clients[index]
        if what == "touch":
            await self._touch(PATHS[index])
            return
        try:
            if what == "expire":
                await it.store.revoke(client.session_id)
            else:
                at = it.replicas.index(client.replica) + 1
                there = it.replicas[at % len(it.replicas)]
                self.clients[index] = self._watch(await it.move(client, there))
        except LeaseNotFound:
            pass  # it ended already

    async def _touch(self, path: bytes) -> None:
        """Somebody writes a znode's record once more, as it is: that is a change of its data."""
        key = layout.node_key(path)
        found = (await self.ensemble.store.range(key)).kvs
        if not found:
            return
        record = layout.decode_node(found[0].value)
        if record[5] == layout.CREATED_HERE or record[6] != layout.OWN:
            return  # it would mean something else
        result = await self.ensemble.store.txn(
            Txn(
                (Compare.mod_revision(key, "=", found[0].mod_revision),),
                (Put(key, found[0].value, found[0].lease),),
            )
        )
        if not result.succeeded:
            return

        def happened(model: Model, zxid: int = result.revision) -> None:
            model.nodes[path].mzxid = zxid
            model.events.append((DATA_CHANGED, path))

        self.touched.append((result.revision, happened))

    async def grow(self) -> None:
        """A tree, and sessions."""
        now_ms = int(self.ensemble.clock.wall() * 1000)
        gardener = await self.ensemble.session()
        for path in PATHS:
            await gardener.ask(create(path))
        await gardener.close()
        await self.ensemble.settle()
        self.compare(now_ms)
        self.clients = [await self.open(index) for index in range(_SESSIONS)]

    def compare(self, now_ms: int) -> None:
        it = self.ensemble
        judge(self.model, asked(it.history.take()), now_ms=now_ms, ends=it.ends, others=self.touched)
        it.ends.clear()
        self.touched.clear()
        expected = {path: node.stat() for path, node in self.model.nodes.items()}
        for replica in it.replicas:
            tree = replica.tree
            assert {path: stat_of(node) for path, node in tree.nodes.items()} == expected
        self._check_order()
        events = self.model.events
        for everywhere, here_and_there in zip(self.listeners[::2], self.listeners[1::2], strict=True):
            assert everywhere.take() == [e for e in events if e[0] != CHILDREN_CHANGED]
            assert here_and_there.take() == [e for e in events if e[1] in (b"/", *PATHS)]
        events.clear()


@pytest.mark.parametrize("way", _ways)
@given(bursts=_bursts, delays=_delays)
@examples(35)
def test_all_agree_on_one_order(way: str, bursts: list[list[Step]], delays: list[Fate]) -> None:
    async def example() -> None:
        async with ensemble() as it:
            near, far = _ways[way]
            relays = [Unreliable(it.store, [], order=False) for _ in range(far)]
            for _ in range(near):
                await it.start()
            for relay in relays:
                await it.start(store=relay)
            scene = Scene(it)
            await scene.grow()
            for index, relay in enumerate(relays):
                relay.fates[:] = delays[index::far]
            for burst in bursts:
                await scene.burst(burst)
            await it.settle()
            trees = [replica.tree for replica in it.replicas]
            for tree in (*trees[1:], await loaded_tree(it.store)):
                assert_same_tree(trees[0], tree)
            assert_idle(it.replicas)

    run(example())
