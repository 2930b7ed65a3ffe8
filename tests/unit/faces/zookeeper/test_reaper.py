"""What removes containers and TTL znodes that have served their time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.layout import NodeKind
from quoracy.faces.zookeeper.tree.znodes import Node
from quoracy.faces.zookeeper.writing.container_manager import Reaper, is_due
from quoracy.wire.zookeeper.codes import Op
from quoracy.wire.zookeeper.requests import Create, Delete, Multi, SetData
from tests.support.zookeeper_core import Client, Ensemble, assert_idle, create, ensemble
from tests.support.zookeeper_stores import Relay

_SETTINGS = ZooKeeperSettings(container_check_interval=60_000, container_max_per_minute=60)


def _container(path: bytes) -> Create:
    return create(path, op=Op.CREATE_CONTAINER, flags=4)


def _ttl(path: bytes, ttl_ms: int) -> Create:
    return create(path, op=Op.CREATE_TTL, flags=5, ttl_ms=ttl_ms)


@pytest.fixture
async def it() -> AsyncIterator[Ensemble]:
    async with ensemble(settings=_SETTINGS) as it:
        await it.start()
        yield it
        await it.settle()
        assert_idle(it.replicas)


@pytest.fixture
async def client(it: Ensemble) -> Client:
    return await it.session(ttl_s=100_000)


async def _sweep(it: Ensemble, settings: ZooKeeperSettings = _SETTINGS) -> None:
    sweep = asyncio.ensure_future(Reaper(it.replica, settings, it.clock).sweep())
    while not sweep.done():
        await it.clock.advance(1)
    await sweep


async def test_a_container_goes_when_its_last_child_has_gone(it: Ensemble, client: Client) -> None:
    nodes = it.replica.tree.nodes
    await client.ask(_container(b"/c"))
    await _sweep(it)
    assert b"/c" in nodes  # nobody has used it yet
    await client.ask(create(b"/c/a"))
    await _sweep(it)
    assert b"/c" in nodes
    await client.ask(Delete(b"/c/a", -1))
    await _sweep(it)
    assert b"/c" not in nodes
    assert not it.replica.tree.special


async def test_a_container_goes_when_its_children_went_with_their_session(
    it: Ensemble, client: Client
) -> None:
    await client.ask(_container(b"/c"))
    other = await it.session()
    await other.ask(create(b"/c/e", flags=1))
    await other.close()
    await _sweep(it)
    assert b"/c" not in it.replica.tree.nodes


async def test_a_container_that_was_never_used_goes_only_if_that_is_set(
    it: Ensemble, client: Client
) -> None:
    settings = ZooKeeperSettings(container_max_never_used=5_000)
    await client.ask(_container(b"/c"))
    await it.clock.advance(5)
    await _sweep(it, settings)
    assert b"/c" in it.replica.tree.nodes
    await it.clock.advance(1_000)
    await _sweep(it)
    assert b"/c" in it.replica.tree.nodes
    await _sweep(it, settings)
    assert b"/c" not in it.replica.tree.nodes


async def test_a_ttl_znode_goes_when_its_data_is_old_enough(it: Ensemble, client: Client) -> None:
    nodes = it.replica.tree.nodes
    await client.ask(_ttl(b"/t", 10_000))
    await it.clock.advance(10)
    await _sweep(it)
    assert b"/t" in nodes  # not older than that
    await client.ask(SetData(b"/t", b"again", -1))
    await it.clock.advance(9)
    await _sweep(it)
    assert b"/t" in nodes
    await it.clock.advance(2)
    await _sweep(it)
    assert b"/t" not in nodes


async def test_a_ttl_znode_stays_as_long_as_it_has_children(it: Ensemble, client: Client) -> None:
    await client.ask(_ttl(b"/t", 1))
    await client.ask(create(b"/t/child"))
    await it.clock.advance(100)
    await _sweep(it)
    assert b"/t" in it.replica.tree.nodes
    await client.ask(Delete(b"/t/child", -1))
    await _sweep(it)
    assert b"/t" not in it.replica.tree.nodes


async def test_others_stay(it: Ensemble, client: Client) -> None:
    await client.ask(create(b"/p"))
    await client.ask(create(b"/p/a"))
    await client.ask(Delete(b"/p/a", -1))
    await client.ask(create(b"/e", flags=1))
    # A container that became something else.
    await client.ask(_container(b"/c"))
    await client.ask(Multi((Delete(b"/c", -1), create(b"/c"), create(b"/c/x"), Delete(b"/c/x", -1))))
    await it.clock.advance(100)
    before = it.replica.tree.zxid
    await _sweep(it, ZooKeeperSettings(container_max_never_used=1))
    assert it.replica.tree.zxid == before


async def test_so_many_in_a_minute_and_no_more(it: Ensemble, client: Client) -> None:
    tree = it.replica.tree
    for number in range(5):
        await client.ask(_ttl(b"/t%d" % number, 1))
    await it.clock.advance(1)
    sweep = asyncio.ensure_future(Reaper(it.replica, _SETTINGS, it.clock).sweep())
    await it.clock.advance(0)
    left = [len(tree.special)]
    for _ in range(4):
        await it.clock.advance(0.9)
        left.append(len(tree.special))
        await it.clock.advance(0.1)
        await asyncio.wait((sweep,), timeout=0)
        left.append(len(tree.special))
    await sweep
    assert left[0] <= 5
    assert all(before - after <= 1 for before, after in itertools.pairwise(left))
    assert not tree.special


async def test_it_looks_every_interval(it: Ensemble, client: Client) -> None:
    running = asyncio.ensure_future(Reaper(it.replica, _SETTINGS, it.clock).run())
    await client.ask(_ttl(b"/t", 1))
    await it.clock.advance(59)
    assert b"/t" in it.replica.tree.nodes
    await it.clock.advance(2)
    await client.ask(create(b"/after"))
    assert b"/t" not in it.replica.tree.nodes
    await client.ask(_ttl(b"/t", 1))
    await it.clock.advance(61)
    await client.ask(Delete(b"/after", -1))
    assert b"/t" not in it.replica.tree.nodes
    running.cancel()
    await asyncio.wait((running,))


async def test_a_child_that_comes_in_between_saves_it(it: Ensemble, client: Client) -> None:
    """Its last child went, it was found to be due; then another came, and the removal is refused."""
    relay = Relay(it.store)
    behind = await it.start(store=relay)
    await client.ask(_container(b"/c"))
    await client.ask(create(b"/c/a"))
    await client.ask(Delete(b"/c/a", -1))
    await it.settle()
    relay.watch_open.clear()
    await client.ask(create(b"/c/b"))
    sweep = asyncio.ensure_future(Reaper(behind, _SETTINGS, it.clock).sweep())
    await it.clock.advance(1)
    relay.watch_open.set()
    await sweep
    await it.settle()
    assert {b"/c", b"/c/b"} <= behind.tree.nodes.keys()


async def test_where_several_look_the_first_wins(it: Ensemble, client: Client) -> None:
    second = await it.start(store=Relay(it.store))
    for number in range(3):
        await client.ask(_ttl(b"/t%d" % number, 1))
    await it.settle()
    await it.clock.advance(1)
    sweeps = [
        asyncio.ensure_future(Reaper(replica, _SETTINGS, it.clock).sweep())
        for replica in (it.replica, second)
    ]
    while not all(sweep.done() for sweep in sweeps):
        await it.clock.advance(1)
    await it.settle()
    assert not second.tree.special
    assert not it.replica.tree.special


async def test_a_store_that_fails_is_tried_again_at_the_next_sweep(
    it: Ensemble, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Relay(it.store)
    far = await it.start(store=relay)
    await client.ask(_ttl(b"/t", 1))
    await it.settle()
    await it.clock.advance(1)

    async def fail(_: object) -> None:
        raise ConnectionError("away")

    relay.courier = fail  # type: ignore[assignment]
    await asyncio.wait_for(Reaper(far, _SETTINGS, it.clock).sweep(), 20)
    assert "not known whether it happened" in caplog.text
    relay.courier = None
    await asyncio.wait_for(Reaper(far, _SETTINGS, it.clock).sweep(), 20)
    assert b"/t" not in far.tree.nodes


def test_what_is_due() -> None:
    settings = ZooKeeperSettings(container_max_never_used=100)

    def node(kind: NodeKind, **fields: int) -> Node:
        made = Node(b"/x")
        made.kind = kind
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def due(node: Node, now_ms: int) -> bool:
        return is_due(node, settings, now_ms=now_ms)

    assert not due(node(NodeKind.PERSISTENT), 10**9)
    assert not due(node(NodeKind.EPHEMERAL, creates=1), 10**9)
    assert due(node(NodeKind.CONTAINER, creates=1), 0)
    assert not due(node(NodeKind.CONTAINER, creates=1, children_count=1), 10**9)
    assert not due(node(NodeKind.CONTAINER, mtime=50), 150)
    assert due(node(NodeKind.CONTAINER, mtime=50), 151)
    assert not due(node(NodeKind.TTL, ttl_ms=100, mtime=50), 150)
    assert due(node(NodeKind.TTL, ttl_ms=100, mtime=50), 151)
    assert not due(node(NodeKind.TTL, ttl_ms=100, mtime=50, children_count=1), 10**9)
