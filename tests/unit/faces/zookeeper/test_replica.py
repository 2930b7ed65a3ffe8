"""A replica: up from the store, kept up by it, and down with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, Overloaded, StoreClosed, Unavailable
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree import replica as replicas
from quoracy.faces.zookeeper.tree.watches import WatchKind
from quoracy.store.model import Txn, TxnResult
from quoracy.wire.zookeeper.requests import Delete, Multi, SetData
from tests.support.failing_disk import break_disk
from tests.support.zookeeper_core import (
    Ensemble,
    Listener,
    assert_idle,
    assert_same_tree,
    create,
    ensemble,
    loaded_tree,
    stat_of,
)
from tests.support.zookeeper_model import (
    CHILDREN_CHANGED,
    DATA_CHANGED,
    NODE_CREATED,
    NODE_DELETED,
    Model,
)
from tests.support.zookeeper_stores import Relay


@pytest.fixture
async def it() -> AsyncIterator[Ensemble]:
    async with ensemble() as it:
        yield it


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- coming up -------------------------------------------------------------------------------


async def test_a_new_tree_is_as_zookeeper_begins(it: Ensemble) -> None:
    first = await it.start()
    model = Model(zxid=first.tree.zxid)
    assert {path: stat_of(node) for path, node in first.tree.nodes.items()} == {
        path: node.stat() for path, node in model.nodes.items()
    }
    assert {path: node.acl for path, node in first.tree.nodes.items()} == {
        path: node.acl for path, node in model.nodes.items()
    }
    before = first.tree.zxid
    second = await it.start()
    assert second.tree.zxid == before
    assert_same_tree(first.tree, second.tree)


async def test_a_tree_of_many_pages_is_read_at_one_revision(
    it: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_PAGE_KEYS", 3)
    await it.start()
    client = await it.session()
    for number in range(20):
        await client.ask(create(b"/%02d" % number))
    starting = asyncio.ensure_future(it.start())
    for number in range(20):
        await client.ask(Delete(b"/%02d" % number, -1))
        await client.ask(create(b"/%02d/" % number + b"x"))
        await client.ask(create(b"/n%02d" % number))
    second = await starting
    await it.settle()
    assert_same_tree(it.replicas[0].tree, second.tree)


async def test_it_comes_up_although_history_is_compacted_while_it_reads(
    it: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_PAGE_KEYS", 2)
    first = await it.start()
    client = await it.session()
    for number in range(10):
        await client.ask(create(b"/%d" % number))
    relay = Relay(it.store)
    relay.range_errors += [Compacted(wanted=1, oldest=2)]
    second = await it.start(store=relay)
    starting = asyncio.ensure_future(it.start(store=Relay(it.store)))
    for _ in range(5):
        await asyncio.sleep(0)
        made = await client.ask(SetData(b"/", b"", -1))
        assert made is not None
        await it.store.compact(made.zxid)
    third = await starting
    await it.settle()
    for other in (second, third):
        assert_same_tree(first.tree, other.tree)
        assert not other.tree.moved


async def test_it_does_not_come_up_on_a_store_that_is_away(it: Ensemble) -> None:
    relay = Relay(it.store)
    relay.range_errors.append(Unavailable("away"))
    with pytest.raises(Unavailable, match="away"):
        await it.start(store=relay)


# -- following -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["in process", "far away"])
async def test_watchers_hear_of_a_write_before_its_author_is_answered(it: Ensemble, way: str) -> None:
    replica = await it.start(store=None if way == "in process" else Relay(it.store))
    client = await it.session()
    replica.watches.add(b"/", client, WatchKind.RECURSIVE)
    listener = Listener(replica)
    listener.watch(b"/a", WatchKind.DATA)
    listener.watch(b"/", WatchKind.CHILD)
    made = [client.submit(create(b"/a")), client.submit(SetData(b"/a", b"", -1))]
    zxids = [outcome.zxid for outcome in await asyncio.gather(*made) if outcome]
    assert client.told == [(what, zxid) for zxid in zxids for what in ("event", "answer")]
    assert listener.heard == [
        (zxids[0], (NODE_CREATED, b"/a")),
        (zxids[0], (CHILDREN_CHANGED, b"/")),
    ]


async def test_what_others_write_in_the_store_moves_the_zxid(it: Ensemble) -> None:
    """Keys that are not this face's make no change, but whoever waits for their revision goes on."""
    near, far = await it.start(), await it.start(store=Relay(it.store))
    put = await it.store.put(b"elsewhere")
    for replica in (near, far):
        async with asyncio.timeout(20):
            await replica.caught_up(put.revision)
        assert replica.tree.zxid == put.revision


async def test_an_answer_is_as_of_its_own_revision_not_of_a_later_one(it: Ensemble) -> None:
    """The store has answered many; each is told when the tree is at its zxid."""
    relay = Relay(it.store)
    replica = await it.start(store=relay)
    clients = [await it.session() for _ in range(10)]
    await clients[0].ask(create(b"/a", b"0"))
    relay.watch_open.clear()
    answers = [client.submit(SetData(b"/a", b"x" * n, -1)) for n, client in enumerate(clients)]
    await _turns()
    assert not any(answer.done() for answer in answers)
    relay.watch_open.set()
    outcomes = await asyncio.gather(*answers)  # (that each is told in time is asserted by Client)
    assert [outcome.zxid for outcome in outcomes if outcome] == sorted(
        outcome.zxid for outcome in outcomes if outcome
    )
    assert replica.tree.nodes[b"/a"].version == 10


async def test_a_revision_that_may_be_ours_waits_until_the_store_says_so(it: Ensemble) -> None:
    """The watch was quicker than the answer."""
    relay = Relay(it.store)
    replica = await it.start(store=relay)
    client = await it.session()
    answered = asyncio.Event()

    async def slow(txn: Txn) -> TxnResult:
        result = await it.store.txn(txn)
        await answered.wait()
        return result

    relay.courier = slow
    created = client.submit(create(b"/a"))
    await _turns(50)
    assert b"/a" not in replica.tree.nodes
    answered.set()
    outcome = await created
    assert outcome is not None
    assert replica.tree.nodes[b"/a"].czxid == outcome.zxid


# -- compacted under the watch -----------------------------------------------------------------


async def test_when_history_is_gone_watchers_are_told_the_difference(it: Ensemble) -> None:
    relay = Relay(it.store)
    near = await it.start()
    far = await it.start(store=relay)
    here, there = await it.session(near), await it.session(far)
    gone: list[int] = []
    moved: list[int] = []
    far.applier.on_session_gone, far.applier.on_session_moved = gone.append, moved.append
    for path in (b"/same", b"/set", b"/deleted", b"/deleted/child", b"/again", b"/set/twice"):
        await here.ask(create(path))
    await here.ask(create(b"/e", flags=1))
    await it.settle()
    listener = Listener(far)
    everything = Listener(far)
    everything.watch(b"/", WatchKind.RECURSIVE)
    for path in (b"/same", b"/set", b"/deleted", b"/again", b"/e", b"/new", b"/set/twice"):
        listener.watch(path, WatchKind.DATA)
    for path in (b"/", b"/same", b"/deleted"):
        listener.watch(path, WatchKind.CHILD)
    relay.watch_open.clear()
    await here.ask(SetData(b"/set", b"1", -1))
    await here.ask(SetData(b"/set/twice", b"1", -1))
    await here.ask(SetData(b"/set/twice", b"2", -1))
    await here.ask(Delete(b"/deleted/child", -1))
    await here.ask(Delete(b"/deleted", -1))
    await here.ask(Delete(b"/again", -1))
    await here.ask(create(b"/again", b"new"))
    await here.ask(create(b"/new"))
    await here.ask(create(b"/brief"))
    await here.ask(Delete(b"/brief", -1))
    await here.close()
    newest = await _newest(it)
    await it.store.compact(newest)
    relay.fail_watch(Compacted(wanted=1, oldest=newest))
    relay.watch_open.set()
    await it.settle()
    assert_same_tree(far.tree, await loaded_tree(it.store))
    assert sorted(everything.take()) == sorted(
        [
            (NODE_DELETED, b"/again"),
            (NODE_DELETED, b"/deleted"),
            (NODE_DELETED, b"/deleted/child"),
            (NODE_DELETED, b"/e"),
            (NODE_CREATED, b"/again"),
            (NODE_CREATED, b"/new"),
            (DATA_CHANGED, b"/set"),
            (DATA_CHANGED, b"/set/twice"),
        ]
    )
    heard = listener.take()
    assert heard.index((NODE_DELETED, b"/again")) < len(heard)
    assert (CHILDREN_CHANGED, b"/") in heard
    assert (NODE_DELETED, b"/deleted") in heard
    assert (CHILDREN_CHANGED, b"/same") not in heard
    assert (DATA_CHANGED, b"/same") not in heard
    assert heard.count((DATA_CHANGED, b"/set/twice")) == 1
    assert gone == [here.session_id]
    assert moved == []
    # And life goes on.
    assert await there.err(create(b"/after")) == 0
    assert everything.take() == [(NODE_CREATED, b"/after")]
    assert_idle(far)


async def _newest(it: Ensemble) -> int:
    return (await it.store.range(b"\0", count_only=True)).revision


async def test_children_are_told_to_go_before_their_parents(it: Ensemble) -> None:
    relay = Relay(it.store)
    near, far = await it.start(), await it.start(store=relay)
    client = await it.session(near)
    for path in (b"/a", b"/a/b", b"/a/b/c"):
        await client.ask(create(path))
    await it.settle()
    everything = Listener(far)
    everything.watch(b"/", WatchKind.RECURSIVE)
    relay.watch_open.clear()
    await client.ask(Multi((Delete(b"/a/b/c", -1), Delete(b"/a/b", -1), Delete(b"/a", -1))))
    await client.ask(Multi((create(b"/x"), create(b"/x/y"))))
    relay.fail_watch(Compacted(wanted=1, oldest=2))
    relay.watch_open.set()
    await it.settle()
    assert everything.take() == [
        (NODE_DELETED, b"/a/b/c"),
        (NODE_DELETED, b"/a/b"),
        (NODE_DELETED, b"/a"),
        (NODE_CREATED, b"/x"),
        (NODE_CREATED, b"/x/y"),
    ]


async def test_writes_under_way_when_history_is_gone(it: Ensemble) -> None:
    """What they showed can be shown no more, unless the tree is at their very zxid."""
    relay = Relay(it.store)
    replica = await it.start(store=relay)
    one, other, third = [await it.session() for _ in range(3)]
    await it.settle()
    relay.watch_open.clear()
    answers = [one.submit(create(b"/1")), other.submit(create(b"/2"))]
    await _turns()
    relay.fail_watch(Compacted(wanted=1, oldest=2))
    relay.watch_open.set()
    first, second = await asyncio.gather(*answers)
    assert first is None
    assert second is not None
    assert (second.err, second.zxid) == (0, replica.tree.zxid)
    assert {b"/1", b"/2"} <= replica.tree.nodes.keys()
    # One that is judged after the tree was read anew, and was made before.
    held = asyncio.Event()

    async def slow(txn: Txn) -> TxnResult:
        result = await it.store.txn(txn)
        await held.wait()
        return result

    relay.courier = slow
    late = third.submit(create(b"/3"))
    relay.watch_open.clear()
    await _turns()
    await it.store.put(b"elsewhere")
    relay.fail_watch(Compacted(wanted=1, oldest=2))
    await _turns(50)
    assert b"/3" in replica.tree.nodes
    held.set()
    assert await late is None
    relay.courier = None
    relay.watch_open.set()
    assert await third.err(Delete(b"/3", -1)) == 0
    await it.settle()
    assert_idle(replica)


async def test_a_tree_that_was_read_anew_is_written_as_it_is(it: Ensemble) -> None:
    """What was prepared before it was is no guide any more: children went in between."""
    relay = Relay(it.store)
    await it.start(store=relay)
    client, gone, other = [await it.session() for _ in range(3)]
    await client.ask(create(b"/p"))
    await gone.ask(create(b"/p/e", flags=1))
    held = asyncio.Event()

    async def slow(txn: Txn) -> TxnResult:
        await held.wait()
        return await it.store.txn(txn)

    relay.courier = slow
    pending = client.submit(SetData(b"/p", b"", -1))
    await _turns()
    await it.store.revoke(gone.session_id)
    relay.fail_watch(Compacted(wanted=1, oldest=2))
    await _turns(50)
    deleted = other.submit(Delete(b"/p", -1))
    held.set()
    relay.courier = None
    await pending
    outcome = await deleted
    assert outcome is not None
    assert outcome.err == 0


# -- children that went with their session ---------------------------------------------------


async def test_a_record_of_losses_that_lost_a_race_is_written_again(it: Ensemble) -> None:
    relay = Relay(it.store)
    replica = await it.start(store=relay)
    client, gone = await it.session(), await it.session()
    await client.ask(create(b"/p"))
    await gone.ask(create(b"/p/e", flags=1))
    await gone.ask(create(b"/e", flags=1))
    first = True

    async def interfere(txn: Txn) -> TxnResult:
        nonlocal first
        if first:
            first = False
            (kv,) = (await it.store.range(layout.kids_key(b"/p"))).kvs
            await it.store.put(kv.key, kv.value)
        return await it.store.txn(txn)

    relay.courier = interfere
    await it.store.revoke(gone.session_id)
    await it.settle()
    assert not first
    assert_same_tree(replica.tree, await loaded_tree(it.store))


async def test_a_record_of_losses_that_could_not_be_written_is_tried_again_later(
    it: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Relay(it.store)
    replica = await it.start(store=relay)
    client, gone = await it.session(), await it.session()
    await client.ask(create(b"/p"))
    await gone.ask(create(b"/p/e", flags=1))

    async def refuse(txn: Txn) -> TxnResult:
        raise Overloaded(pending=2, pending_max=1)

    relay.courier = refuse
    ended = await it.store.revoke(gone.session_id)
    await replica.caught_up(ended)
    await it.clock.advance(0.5)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert replica.tree.nodes[b"/p"].pzxid == ended
    assert replica._recording is not None
    relay.courier = None
    await it.clock.advance(60)
    await it.settle()
    assert_same_tree(replica.tree, await loaded_tree(it.store))
    assert (await loaded_tree(it.store)).nodes[b"/p"].pzxid == ended


async def test_many_losses_are_recorded_in_several_transactions(it: Ensemble) -> None:
    replica = await it.start()
    client, gone = await it.session(), await it.session()
    for number in range(120):
        await client.ask(create(b"/%d" % number))
        await gone.ask(create(b"/%d/e" % number, flags=1))
    await gone.close()
    await it.settle()
    assert_same_tree(replica.tree, await loaded_tree(it.store))
    assert not (await loaded_tree(it.store)).unrecorded


# -- going down ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["in process", "far away"])
async def test_it_ends_when_the_store_is_closed(way: str) -> None:
    clock = ManualClock()
    async with open_embedded("memory:", clock=clock) as store:
        it = Ensemble(store, clock, ZooKeeperSettings())
        replica = await it.start(store=None if way == "in process" else Relay(store))
        client = await it.session()
        assert await client.err(create(b"/a")) == 0
        run = it.run_of(replica)
    with pytest.raises(StoreClosed):
        await run
    assert not replica.ready.is_set()
    assert await client.ask(create(b"/b")) is None
    with pytest.raises(Unavailable):
        await replica.caught_up(replica.tree.zxid + 1)
    assert_idle(replica)


async def test_whoever_waits_for_a_revision_is_told_that_it_stopped(it: Ensemble) -> None:
    replica = await it.start()
    waiting = asyncio.ensure_future(replica.caught_up(10_000))
    await asyncio.sleep(0)
    await it.stop(replica)
    with pytest.raises(Unavailable):
        await waiting


async def test_a_watch_that_fails_ends_it_and_a_new_one_goes_on(it: Ensemble) -> None:
    relay = Relay(it.store)
    replica = await it.start(store=relay)
    client = await it.session()
    await client.ask(create(b"/a"))
    relay.watch_open.clear()
    pending = client.submit(create(b"/b"))
    await _turns()
    relay.fail_watch(Unavailable("the line is cut"))
    with pytest.raises(Unavailable, match="cut"):
        await it.run_of(replica)
    assert await pending is None
    relay.watch_open.set()
    again = await it.start(store=relay)
    assert {b"/a", b"/b"} <= again.tree.nodes.keys()


async def test_when_the_disk_fails_nothing_is_acknowledged_and_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with open_embedded(f"sqlite:{tmp_path}/q.db", clock=clock) as store:
        it = Ensemble(store, clock, ZooKeeperSettings())
        replica = await it.start()
        one, other = await it.session(), await it.session()
        assert await one.err(create(b"/a")) == 0
        break_disk(store)
        answers = [
            one.submit(create(b"/b")),
            one.submit(create(b"/b/c")),
            other.submit(create(b"/b")),
            other.submit(create(b"/d")),
        ]
        assert [await answer for answer in answers] == [None] * 4
        with pytest.raises(Unavailable):
            await it.run_of(replica)
        assert_idle(replica)
        assert b"/b" not in replica.tree.nodes


async def test_an_error_of_its_own_ends_a_replica_not_the_store(
    it: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await it.start(), await it.start()

    def fail(id: int) -> None:
        raise RuntimeError("a bug")

    first.applier.on_session_gone = fail
    client, gone = await it.session(second), await it.session(second)
    await it.store.revoke(gone.session_id)
    with pytest.raises(RuntimeError, match="a bug"):
        await it.run_of(first)
    it.replicas.remove(first)
    assert await client.err(create(b"/a")) == 0
