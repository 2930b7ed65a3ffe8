"""Writes on their way: their order, what is refused, what has to wait, and what is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from quoracy.errors import (
    Overloaded,
    Unavailable,
)
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.writing.in_flight import Outcome
from quoracy.store.model import Txn, TxnResult
from quoracy.wire.zookeeper.codes import Err, Op
from quoracy.wire.zookeeper.requests import (
    Acl,
    Check,
    CloseSession,
    Delete,
    Multi,
    SetAcl,
    SetData,
    Sync,
)
from tests.support.zookeeper_core import (
    Client,
    Ensemble,
    assert_idle,
    create,
    decoded,
    ensemble,
    loaded_tree,
)
from tests.support.zookeeper_model import Stat
from tests.support.zookeeper_stores import Gate, Relay


@pytest.fixture
async def it() -> AsyncIterator[Ensemble]:
    async with ensemble() as it:
        yield it
        await it.settle()
        assert_idle(it.replicas)


@pytest.fixture(params=["in process", "far away"])
async def replica(request: pytest.FixtureRequest, it: Ensemble) -> Replica:
    return await it.start(store=None if request.param == "in process" else Relay(it.store))


@pytest.fixture
async def relay(it: Ensemble) -> Relay:
    """A replica far from its store; this is between them."""
    relay = Relay(it.store)
    await it.start(store=relay)
    return relay


def _ok(outcome: Outcome | None) -> int:
    """The zxid of a success."""
    assert outcome is not None
    assert outcome.err == 0
    return outcome.zxid


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- in order --------------------------------------------------------------------------------


async def test_writes_of_many_are_prepared_one_upon_the_other(it: Ensemble, replica: Replica) -> None:
    clients = [await it.session() for _ in range(5)]
    await clients[0].ask(create(b"/q"))
    answers = [client.submit(create(b"/q/n-", flags=2)) for client in clients for _ in range(10)]
    await asyncio.gather(*answers)
    assert replica.tree.nodes[b"/q"].creates == 50
    names = sorted(replica.tree.nodes[b"/q"].children)
    assert names == [b"n-%010d" % number for number in range(50)]
    for client in clients:
        own = [q.outcome for q in it.history.questions if q.client is client]
        assert [o.zxid for o in own if o] == sorted(o.zxid for o in own if o)


async def test_what_is_asked_in_the_answer_is_carried_out(it: Ensemble, replica: Replica) -> None:
    """Also when the first of it is refused on the spot: what follows has its place behind the rest."""
    client = await it.session()
    order: list[tuple[str, int]] = []

    def note(name: str, outcome: Outcome | None) -> None:
        assert outcome is not None
        order.append((name, outcome.err))

    def go_on(outcome: Outcome | None) -> None:
        note("first", outcome)
        replica.submit(Delete(b"/nowhere", -1), client, partial(note, "refused"))
        replica.submit(create(b"/a"), client, partial(note, "second"))
        replica.submit(Delete(b"", -1), client, partial(note, "malformed"))

    replica.submit(create(b"/a/b"), client, partial(note, "refused before"))
    replica.submit(create(b"/first"), client, go_on)
    await _turns()
    # And now: the lane that carries "second" must be the one that is asked.
    assert _ok(await client.ask(create(b"/a/b")))
    assert sorted(order) == [
        ("first", 0),
        ("malformed", Err.BAD_ARGUMENTS),
        ("refused", Err.NO_NODE),
        ("refused before", Err.NO_NODE),
        ("second", 0),
    ]


async def test_an_answer_that_asks_again_does_not_lose_its_place(it: Ensemble, relay: Relay) -> None:
    """While it is in flight nothing else of its session is, far from the store."""
    client = await it.session()
    sent = 0

    async def count(txn: Txn) -> TxnResult:
        nonlocal sent
        sent += 1
        assert sent == 1, "two writes of one session are under way"
        result = await relay.behind.txn(txn)
        sent -= 1
        return result

    relay.courier = count
    answers: list[asyncio.Future[Outcome | None]] = []
    asked_again = asyncio.Event()

    def again(outcome: Outcome | None) -> None:
        asked_again.set()
        for _ in range(2):
            answers.append(client.submit(Delete(b"no path", -1)))
            answers.append(client.submit(create(b"/s-", flags=2)))

    it.replica.submit(create(b"/a"), client, again)
    await asked_again.wait()
    answers.append(client.submit(create(b"/b")))
    outcomes = await asyncio.gather(*answers)
    errs = [outcome.err for outcome in outcomes if outcome]
    assert errs == [Err.BAD_ARGUMENTS, 0, Err.BAD_ARGUMENTS, 0, 0]


async def test_a_session_far_from_the_store_has_one_write_under_way(it: Ensemble, relay: Relay) -> None:
    one, other = await it.session(), await it.session()
    gate = Gate(relay)
    answers = [one.submit(create(b"/%d" % number)) for number in range(3)]
    answers.append(other.submit(create(b"/other")))
    await gate.held(2)
    await _turns()
    assert gate.held_count == 2
    gate.open()
    first, second, third, _ = [_ok(outcome) for outcome in await asyncio.gather(*answers)]
    assert first < second < third


# -- what was refused ------------------------------------------------------------------------


async def test_an_error_that_rests_on_what_is_in_flight_is_told_when_that_has_landed(
    it: Ensemble, relay: Relay
) -> None:
    one, other = await it.session(), await it.session()
    gate = Gate(relay)
    created = one.submit(create(b"/a"))
    refused = other.submit(create(b"/a"))
    await _turns()
    assert not refused.done()
    gate.open()
    assert _ok(await created)
    outcome = await refused
    assert outcome is not None
    assert outcome.err == Err.NODE_EXISTS


async def test_an_error_is_judged_again_if_what_it_rested_on_came_to_nothing(
    it: Ensemble, relay: Relay
) -> None:
    one, other = await it.session(), await it.session()
    gate = Gate(relay)
    lost = one.submit(create(b"/a"))
    created = other.submit(create(b"/a"))
    await gate.held(1)
    gate.fail(0, Overloaded(pending=2, pending_max=1))
    await gate.held(1)
    gate.open()
    assert await lost is None
    assert _ok(await created)


async def test_an_error_is_judged_again_if_its_base_lost_a_race(it: Ensemble, relay: Relay) -> None:
    one, other = await it.session(), await it.session()
    await other.ask(create(b"/p"))
    gate = Gate(relay)
    created = one.submit(create(b"/p/a"))
    refused = other.submit(create(b"/p/a"))
    await gate.held(1)
    await it.store.revoke(one.session_id)
    gate.open()
    assert await created is None
    assert _ok(await refused)


async def test_where_others_write_an_error_is_what_the_store_confirms(it: Ensemble) -> None:
    """The tree may be behind: what it shows was so, but need not be so when the client asks."""
    near, relay = await it.start(), Relay(it.store)
    behind = await it.start(store=relay)
    writer, reader = await it.session(near), await it.session(behind)
    await writer.ask(create(b"/a"))
    await it.settle()
    relay.watch_open.clear()
    await writer.ask(Delete(b"/a", -1))
    await writer.ask(create(b"/b"))
    assert b"/a" in behind.tree.nodes
    asked = [reader.submit(create(b"/a")), reader.submit(Delete(b"/b", 0))]
    await _turns()
    assert not any(answer.done() for answer in asked)
    relay.watch_open.set()
    for answer in asked:
        assert _ok(await answer)


async def test_what_is_wrong_in_itself_is_refused_without_the_store(it: Ensemble) -> None:
    relay = Relay(it.store)
    await it.start(store=relay)
    client = await it.session()
    before = relay.txns_count
    assert await client.err(Delete(b"no slash", -1)) == Err.BAD_ARGUMENTS
    assert await client.err(create(b"/a", acl=())) == Err.INVALID_ACL
    assert relay.txns_count == before
    assert await client.err(Delete(b"/nowhere", -1)) == Err.NO_NODE
    assert relay.txns_count == before + 1


async def test_a_znode_is_empty_as_soon_as_its_last_ephemeral_is_seen_to_go(
    it: Ensemble, replica: Replica
) -> None:
    """Also if something is in flight that was prepared while it was still there."""
    gone, client, deleter = [await it.session() for _ in range(3)]
    await client.ask(create(b"/p"))
    await gone.ask(create(b"/p/e", flags=1))
    for _ in range(20):
        # Something is always in flight at /p, and rests on what was before it.
        last = client.submit(SetData(b"/p", b"", -1))
        if b"/p/e" not in replica.tree.nodes:
            break
        if gone.session_id in replica.tree.sessions:
            asyncio.ensure_future(it.store.revoke(gone.session_id)).add_done_callback(lambda _: None)
            gone.session_id = 0
        await asyncio.sleep(0)
    assert replica.pipeline._pending
    deleted = deleter.submit(Delete(b"/p", -1))
    assert _ok(await deleted)
    await last


# -- sync and what only looks ------------------------------------------------------------------


async def test_after_a_sync_the_tree_shows_what_others_wrote_before_it(it: Ensemble) -> None:
    relay = Relay(it.store)
    near, behind = await it.start(), await it.start(store=relay)
    writer, reader = await it.session(near), await it.session(behind)
    relay.watch_open.clear()
    await writer.ask(create(b"/a"))
    await it.store.put(b"somebody else's")
    synced = reader.submit(Sync(b"/x"))
    await _turns()
    assert not synced.done()
    assert b"/a" not in behind.tree.nodes
    relay.watch_open.set()
    outcome = await synced
    assert outcome is not None
    assert outcome.body == b"\0\0\0\2/x"
    assert b"/a" in behind.tree.nodes


async def test_a_sync_that_fails_is_not_answered(it: Ensemble, relay: Relay) -> None:
    client = await it.session()
    relay.range_errors.append(Unavailable("gone"))
    assert await client.ask(Sync(b"/")) is None


async def test_what_only_looks_is_not_kept_waiting_by_those_who_write(
    it: Ensemble, replica: Replica
) -> None:
    """Others write the same znode without a pause; still its turn comes."""
    await _starve(it, Multi((Check(b"/hot", -1),)))


@pytest.mark.parametrize(
    "request_",
    [
        Multi((SetData(b"/hot", b"multi", -1),)),
        Multi((create(b"/hot/x", op=Op.CREATE2), SetData(b"/hot", b"", -1))),
        SetAcl(b"/hot", (Acl(31, "world", "anyone"),), -1),
        Delete(b"/hot", 7_000_000),
        create(b"/hot/y", b"x" * 5000),
    ],
)
async def test_what_has_to_wait_is_not_overtaken_for_ever(
    it: Ensemble, replica: Replica, request_: Multi
) -> None:
    await _starve(it, request_)


async def _starve(it: Ensemble, request: Multi) -> None:
    writers = [await it.session() for _ in range(4)]
    patient = await it.session()
    await patient.ask(create(b"/hot"))
    running = True

    def again(client: Client) -> Callable[[Outcome | None], None]:
        def on_outcome(outcome: Outcome | None) -> None:
            assert outcome is not None
            if running:
                it.replica.submit(SetData(b"/hot", b"y" * 100, -1), client, again(client))

        return on_outcome

    for writer in writers:
        again(writer)(Outcome(0, 0, b""))
    await _turns()
    answer = patient.submit(request)
    async with asyncio.timeout(20):
        await answer
    running = False
    for writer in writers:
        await writer.ask(Sync(b"/"))


async def test_two_that_wait_for_each_others_znodes_both_come_through(
    it: Ensemble, relay: Relay
) -> None:
    clients = [await it.session() for _ in range(4)]
    for path in (b"/a", b"/b"):
        await clients[0].ask(create(path))
    gate = Gate(relay)
    answers = [
        clients[0].submit(SetData(b"/a", b"", -1)),
        clients[1].submit(SetData(b"/b", b"", -1)),
        clients[2].submit(Multi((SetData(b"/a", b"", -1), SetData(b"/b", b"", -1)))),
        clients[3].submit(Multi((SetData(b"/b", b"", -1), SetData(b"/a", b"", -1)))),
        clients[0].submit(Multi((SetData(b"/a", b"", -1), SetData(b"/b", b"", -1)))),
    ]
    await gate.held(2)
    gate.open()
    for answer in answers:
        _ok(await answer)
    assert it.replica.tree.nodes[b"/a"].version == 4


# -- what is shown ---------------------------------------------------------------------------


async def test_a_stat_in_a_multi_knows_of_children_that_went_meanwhile(
    it: Ensemble, relay: Relay
) -> None:
    client, gone = await it.session(), await it.session()
    await client.ask(create(b"/p"))
    await gone.ask(create(b"/p/1", flags=1))
    await gone.ask(create(b"/p/2", flags=1))
    gate = Gate(relay)
    answer = client.submit(Multi((SetData(b"/p", b"", -1), create(b"/p/3"), SetData(b"/p", b"", -1))))
    await gate.held(1)
    ended = await it.store.revoke(gone.session_id)
    gate.open()
    outcome = await answer
    assert outcome is not None
    results = _results(outcome)
    first, _, second = [result[-1] for result in results]
    assert isinstance(first, Stat)
    assert isinstance(second, Stat)
    assert (first.num_children, first.cversion) == (0, 4)
    assert first.pzxid in (ended, outcome.zxid)
    assert (second.num_children, second.cversion, second.pzxid) == (1, 5, outcome.zxid)


def _results(outcome: Outcome) -> list[tuple[object, ...]]:
    _, results = decoded(Multi(()), outcome)
    assert isinstance(results, list)
    return results


async def test_a_stat_in_a_multi_knows_what_another_node_did_below(it: Ensemble) -> None:
    relay = Relay(it.store)
    near, far = await it.start(), await it.start(store=relay)
    here, there = await it.session(near), await it.session(far)
    await here.ask(create(b"/p"))
    await it.settle()
    gate = Gate(relay)
    answer = there.submit(Multi((SetData(b"/p", b"", -1),)))
    await gate.held(1)
    await here.ask(create(b"/p/1"))
    gate.open()
    outcome = await answer
    assert outcome is not None
    results = _results(outcome)
    (stat,) = results[0][1:]
    assert isinstance(stat, Stat)
    assert (stat.num_children, stat.cversion) == (1, 1)


# -- the end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["in process", "far away"])
async def test_when_a_replica_stops_all_are_told_that_nobody_knows(way: str) -> None:
    async with ensemble() as it:
        relay = Relay(it.store)
        replica = await it.start(store=None if way == "in process" else relay)
        one, other = await it.session(), await it.session()
        gate = Gate(relay)
        answers = [one.submit(create(b"/1")), other.submit(create(b"/1")), one.submit(create(b"/2"))]
        answers += [other.submit(Sync(b"/")), one.submit(CloseSession())]
        await it.stop(replica)
        outcomes = [await answer for answer in answers]
        assert outcomes[-1] is None
        assert way == "in process" or outcomes == [None] * 5
        assert replica.in_flight_count == 0
        assert await one.ask(create(b"/3")) is None
        assert_idle(replica)
        gate.open()
        await _turns()
        assert_idle(replica)
        assert b"/2" not in (await loaded_tree(it.store)).nodes or way == "in process"
