"""Random requests to a replica and to a naive model of ZooKeeper: a client cannot tell them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.faces.zookeeper.tree.acl import Identity
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.tree.watches import WatchKind
from quoracy.faces.zookeeper.writing.in_flight import Outcome
from quoracy.store.api import Store
from tests.properties.zookeeper_requests import PATHS, examples, requests
from tests.support.zookeeper_core import (
    Client,
    Ensemble,
    Listener,
    asked,
    assert_idle,
    assert_same_tree,
    create,
    decoded,
    ensemble,
    loaded_tree,
    run,
    stat_of,
)
from tests.support.zookeeper_model import CHILDREN_CHANGED, Model, Request, judge
from tests.support.zookeeper_stores import Relay

_SESSIONS = 3

# A session asks for something, or ends: closed, or because its lease was revoked.
Step: TypeAlias = tuple[int, Request | str]

_steps = st.lists(
    st.tuples(
        st.integers(0, _SESSIONS - 1), st.one_of(*[requests] * 12, st.sampled_from(["close", "expire"]))
    ),
    max_size=30,
)

_behind: list[Callable[[Store], Store | None]] = [lambda _: None, Relay]
on_every_way = pytest.mark.parametrize("stand_before", _behind, ids=["in process", "far away"])


class Lockstep:
    """A replica and the model, side by side."""

    def __init__(self, ensemble: Ensemble, replica: Replica) -> None:
        self.ensemble, self.replica = ensemble, replica
        self.model = Model(zxid=replica.tree.zxid)
        self.clients: list[Client] = []
        self.everywhere = Listener(replica)
        self.everywhere.watch(b"/", WatchKind.RECURSIVE)
        self.here_and_there = Listener(replica)
        for path in [b"/", *PATHS]:
            self.here_and_there.watch(path, WatchKind.PERSISTENT)

    @property
    def now_ms(self) -> int:
        return int(self.ensemble.clock.wall() * 1000)

    async def open(self, index: int) -> Client:
        who = Identity("digest", "one:x") if index == 0 else None
        return await self.ensemble.session(self.replica, *([who] if who else []))

    def judge(self, client: Client, request: Request, outcome: Outcome | None) -> None:
        """The model, asked the same, answers the same."""
        assert outcome is not None
        expected = self.model.ask(
            request,
            session=client.session_id,
            zxid=outcome.zxid,
            now_ms=self.now_ms,
            ids=tuple((id.scheme, id.id) for id in client.ids),
        )
        assert decoded(request, outcome) == expected, request

    async def grow(self) -> None:
        """Begin with a tree, so that more can be done."""
        gardener = await self.ensemble.session(self.replica)
        for path in PATHS:
            self.judge(gardener, request := create(path), await gardener.ask(request))
        await gardener.close()

    async def end(self, index: int, how: str) -> None:
        client = self.clients[index]
        if how == "close":
            outcome = await client.close()
            assert outcome is not None
            zxid = outcome.zxid
        else:
            zxid = await self.ensemble.store.revoke(client.session_id)
            await self.replica.caught_up(zxid)
        self.model.end_session(client.session_id, zxid=zxid)
        self.clients[index] = await self.open(index)

    def compare(self) -> None:
        """The trees are the same, and so is what watchers were told."""
        tree, model = self.replica.tree, self.model
        assert {path: stat_of(node) for path, node in tree.nodes.items()} == {
            path: node.stat() for path, node in model.nodes.items()
        }
        for path, node in tree.nodes.items():
            known = model.nodes[path]
            assert (node.data, node.acl, node.ttl_ms) == (known.data, known.acl, known.ttl_ms)
            assert set(node.children) == known.children
            assert node.kind == ("persistent", "ephemeral", "container", "ttl").index(known.kind)
        events = model.events
        assert self.everywhere.take() == [e for e in events if e[0] != CHILDREN_CHANGED]
        assert self.here_and_there.take() == [e for e in events if e[1] in (b"/", *PATHS)]
        events.clear()


@on_every_way
@given(grown=st.booleans(), steps=_steps)
@examples(70)
def test_one_after_the_other_as_zookeeper_would(
    stand_before: Callable[[Store], Store | None], grown: bool, steps: list[Step]
) -> None:
    async def example() -> None:
        async with ensemble() as it:
            replica = await it.start(store=stand_before(it.store))
            pair = Lockstep(it, replica)
            if grown:
                await pair.grow()
            pair.clients = [await pair.open(index) for index in range(_SESSIONS)]
            for index, step in steps:
                it.clock.jump(0.001)
                if isinstance(step, str):
                    await pair.end(index, step)
                else:
                    client = pair.clients[index]
                    pair.judge(client, step, await client.ask(step))
                pair.compare()
            await it.settle()
            pair.compare()
            assert_same_tree(replica.tree, await loaded_tree(it.store))
            assert_idle(replica)

    run(example())


_bursts = st.lists(
    st.lists(st.tuples(st.integers(0, _SESSIONS - 1), requests), min_size=1, max_size=25),
    min_size=1,
    max_size=3,
)


@on_every_way
@given(grown=st.booleans(), bursts=_bursts)
@examples(70)
def test_many_at_once_as_in_some_order(
    stand_before: Callable[[Store], Store | None],
    grown: bool,
    bursts: list[list[tuple[int, Request]]],
) -> None:
    async def example() -> None:
        async with ensemble() as it:
            replica = await it.start(store=stand_before(it.store))
            pair = Lockstep(it, replica)
            if grown:
                await pair.grow()
            clients = [await pair.open(index) for index in range(_SESSIONS)]
            for burst in bursts:
                it.history.take()
                await asyncio.gather(*[clients[index].submit(request) for index, request in burst])
                questions = it.history.take()
                assert all(question.outcome is not None for question in questions)
                judge(pair.model, asked(questions), now_ms=pair.now_ms)
                pair.compare()
            await it.settle()
            assert_same_tree(replica.tree, await loaded_tree(it.store))
            assert_idle(replica)

    run(example())
