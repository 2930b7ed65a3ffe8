"""Writes that lose a race, that the store refuses or loses, and those of sessions that end or move."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from quoracy.engines.opening import open_embedded
from quoracy.errors import (
    DataError,
    Indeterminate,
    NoSpace,
    Overloaded,
    StoreClosed,
    TooLarge,
    Unavailable,
)
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.writing import pipeline
from quoracy.faces.zookeeper.writing.in_flight import Outcome
from quoracy.store.model import Compare, Put, Txn, TxnResult
from quoracy.store.rules import Limits
from quoracy.wire.zookeeper.codes import Err
from quoracy.wire.zookeeper.requests import (
    Acl,
    CloseSession,
    Delete,
    Multi,
    SetData,
    Sync,
)
from tests.support.zookeeper_core import (
    Client,
    Ensemble,
    assert_idle,
    assert_same_tree,
    create,
    ensemble,
)
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


# -- races and losses ------------------------------------------------------------------------


async def test_one_that_lost_a_race_does_not_drag_all_others_along(it: Ensemble, relay: Relay) -> None:
    """Many writes in flight, each prepared on the one before it, and the first comes to nothing.

    None may be prepared again on those that are bound to fail: they would fail for ever.
    """
    first, *others = [await it.session() for _ in range(20)]
    await first.ask(create(b"/q"))
    gate = Gate(relay)
    lost = first.submit(create(b"/q/n-", flags=2))
    answers = [client.submit(create(b"/q/n-", flags=2)) for client in others]
    await gate.held(20)
    revoked = await it.store.revoke(first.session_id)
    await it.replica.caught_up(revoked)
    passed = 0
    while not all(answer.done() for answer in answers):
        # One after the other, each with time to be answered and prepared again behind the rest.
        passed += 1
        assert passed <= 3 * len(others)
        await gate.held(1)
        gate.pass_one()
        await _turns()
    assert await lost is None
    for answer in answers:
        _ok(answer.result())
    assert it.replica.tree.nodes[b"/q"].creates == 19
    gate.open()


async def test_what_is_in_flight_below_a_lost_one_still_counts(it: Ensemble, relay: Relay) -> None:
    """One of three is refused by the store: the next is prepared on the first two, not on the tree."""
    one, two, three, four = [await it.session() for _ in range(4)]
    await one.ask(create(b"/q"))
    gate = Gate(relay)
    answers = [client.submit(create(b"/q/n-", flags=2)) for client in (one, two)]
    full = three.submit(create(b"/q/n-", flags=2))
    await gate.held(3)
    gate.fail(2, NoSpace(size=2, size_max=1))
    outcome = await full
    assert outcome is not None
    assert outcome.err == Err.SYSTEM_ERROR
    last = four.submit(create(b"/q/n-", flags=2))
    gate.open()
    paths = [(await answer).body[4:] for answer in (*answers, last)]  # type: ignore[union-attr]
    assert paths == [b"/q/n-%010d" % number for number in range(3)]


@pytest.mark.parametrize(
    "error",
    [
        Overloaded(pending=2, pending_max=1),
        Unavailable("gone"),
        Indeterminate("who knows"),
        StoreClosed(),
        DataError("odd"),
        RuntimeError("odder"),
    ],
)
async def test_nothing_behind_a_write_that_nobody_knows_of_is_begun(
    it: Ensemble, relay: Relay, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = await it.session(), await it.session()
    gate = Gate(relay)
    answers = [client.submit(create(b"/%d" % number)) for number in range(3)]
    answers.append(client.submit(Sync(b"/")))
    theirs = other.submit(create(b"/theirs"))
    await gate.held(2)
    gate.fail(0, error)
    gate.open()
    assert [await answer for answer in answers] == [None] * 4
    assert _ok(await theirs)
    assert [record.levelno for record in caplog.records if record.levelno >= logging.ERROR] == (
        [logging.ERROR] if isinstance(error, RuntimeError) else []
    )
    # The session itself goes on.
    assert _ok(await client.ask(create(b"/0")))
    assert b"/1" not in it.replica.tree.nodes


@pytest.mark.parametrize(
    ("error", "err"),
    [
        (NoSpace(size=2, size_max=1), Err.SYSTEM_ERROR),
        (TooLarge("it", size=2, size_max=1, setting="x"), Err.BAD_ARGUMENTS),
    ],
)
async def test_what_the_store_refuses_is_an_error_and_the_session_goes_on(
    it: Ensemble, relay: Relay, error: BaseException, err: Err
) -> None:
    client = await it.session()
    gate = Gate(relay)
    answers = [client.submit(create(b"/%d" % number)) for number in range(2)]
    await gate.held(1)
    gate.fail(0, error)
    gate.open()
    refused = await answers[0]
    assert refused is not None
    assert refused.err == err
    assert _ok(await answers[1])


async def test_more_operations_than_a_store_takes_are_refused(it: Ensemble, replica: Replica) -> None:
    client = await it.session()
    many = Multi(tuple(create(b"/m%d" % number) for number in range(200)))
    assert await client.err(many) == Err.BAD_ARGUMENTS
    assert await client.err(create(b"/after")) == 0


async def test_a_full_store_refuses_and_takes_again_what_makes_room() -> None:
    limits = Limits(storage_bytes_max=200_000)
    async with open_embedded("memory:", limits=limits) as store:
        replica = Replica(store, ZooKeeperSettings())
        run = asyncio.ensure_future(replica.run())
        await replica.ready.wait()
        await store.grant(60, id=1)  # type: ignore[arg-type]
        record = layout.encode_session(b"p" * 16, 60_000, replica.node_id)
        await replica.caught_up((await store.put(layout.session_key(1), record, lease=1)).revision)
        it = Ensemble(store, None, ZooKeeperSettings())  # type: ignore[arg-type]
        client = Client(1, replica, it.history)
        errs = [await client.err(create(b"/%d" % number, b"x" * 20_000)) for number in range(15)]
        assert errs[0] == 0
        assert errs[-1] == Err.SYSTEM_ERROR
        assert set(errs) == {0, Err.SYSTEM_ERROR}
        full = [client.submit(create(b"/n%d" % number, b"x" * 20_000)) for number in range(3)]
        assert {outcome.err for outcome in await asyncio.gather(*full) if outcome} == {Err.SYSTEM_ERROR}
        for number in range(5):
            assert await client.err(Delete(b"/%d" % number, -1)) == 0
        assert await client.err(create(b"/room", b"x" * 20_000)) == 0
        assert_idle(replica)
        run.cancel()
        await asyncio.wait((run,))


async def test_a_write_that_always_loses_is_given_up(
    it: Ensemble, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_ATTEMPTS_MAX", 5)
    client = await it.session()
    await client.ask(create(b"/a"))

    async def interfere(txn: Txn) -> TxnResult:
        (kv,) = (await it.store.range(layout.node_key(b"/a"))).kvs
        await it.store.put(kv.key, kv.value)
        return await it.store.txn(txn)

    relay.courier = interfere
    answers = [client.submit(SetData(b"/a", b"", -1)), client.submit(create(b"/b"))]
    assert [await answer for answer in answers] == [None, None]
    relay.courier = None
    assert b"/b" not in it.replica.tree.nodes
    assert await client.err(SetData(b"/a", b"", -1)) == 0


async def test_in_process_too_a_write_that_always_loses_is_given_up(
    it: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_ATTEMPTS_MAX", 1)
    replica = await it.start()
    client, gone = await it.session(), await it.session()
    await gone.ask(create(b"/e", flags=1))
    behind: list[asyncio.Future[Outcome | None]] = []
    outcomes: list[Outcome | None] = []

    def go_on(outcome: Outcome | None) -> None:
        outcomes.append(outcome)
        ended.append(asyncio.ensure_future(it.store.revoke(gone.session_id)))
        asyncio.get_running_loop().call_soon(interfered)

    def interfered() -> None:
        """The session's end is carried out, and not seen yet."""
        assert b"/e" in replica.tree.nodes
        behind.append(client.submit(SetData(b"/e", b"", -1)))

    ended: list[asyncio.Future[int]] = []
    replica.submit(create(b"/a"), client, go_on)
    await _turns()
    assert [await answer for answer in behind] == [None]
    await ended[0]
    assert _ok(await client.ask(create(b"/c")))


async def test_a_write_by_another_hand_is_not_lost(it: Ensemble, relay: Relay) -> None:
    """It changed the ACL; the data that is being set must not bring the old one back."""
    one, other, third = [await it.session() for _ in range(3)]
    await one.ask(create(b"/a", b"0"))
    gate = Gate(relay)
    first, second = one.submit(SetData(b"/a", b"1", 0)), other.submit(SetData(b"/a", b"2", -1))
    await gate.held(2)
    # With the version that the first would make, and of the same key.
    (kv,) = (await it.store.range(layout.node_key(b"/a"))).kvs
    record = layout.decode_node(kv.value)
    secret = (Acl(31, "digest", "x:y"),)
    value = layout.encode_node(
        record[0],
        record[1],
        secret,
        ctime=record[3],
        mtime=record[4],
        czxid=record[5],
        mzxid=kv.mod_revision,
        version=0,
        aversion=1,
        owner=0,
    )
    result = await it.store.txn(Txn((Compare.version(kv.key, "=", 1),), (Put(kv.key, value),)))
    assert result.succeeded
    gate.open()
    outcomes = [await first, await second, await third.ask(SetData(b"/a", b"3", -1))]
    assert [outcome.err for outcome in outcomes if outcome] == [Err.NO_AUTH] * 3
    assert it.replica.tree.nodes[b"/a"].acl == secret
    assert it.replica.tree.nodes[b"/a"].data == b"0"


# -- sessions --------------------------------------------------------------------------------


async def test_nothing_is_written_for_a_session_that_ended(it: Ensemble, replica: Replica) -> None:
    client = await it.session()
    ended = asyncio.ensure_future(it.store.revoke(client.session_id))
    await asyncio.sleep(0)
    answers = [client.submit(create(b"/a")), client.submit(create(b"/e", flags=1))]
    assert [await answer for answer in answers] == [None, None]
    await ended
    assert await client.ask(create(b"/b")) is None
    await it.settle()
    assert replica.tree.nodes.keys().isdisjoint({b"/a", b"/b", b"/e"})


@pytest.mark.parametrize("way", ["in process", "far away"])
async def test_a_session_that_moved_cannot_write_where_it_was(it: Ensemble, way: str) -> None:
    relay = Relay(it.store)
    old = await it.start(store=None if way == "in process" else relay)
    new = await it.start(store=Relay(it.store))
    moved: list[int] = []
    old.applier.on_session_moved = moved.append
    client = await it.session(old)
    relay.watch_open.clear()  # (in process it cannot be behind)
    there = await it.move(client, new)
    lost = client.submit(create(b"/old"))
    assert _ok(await there.ask(create(b"/new")))
    relay.watch_open.set()
    assert await lost is None
    await it.settle()
    assert moved == [client.session_id]
    assert b"/old" not in new.tree.nodes
    assert await client.ask(create(b"/old")) is None
    assert_same_tree(old.tree, new.tree)


async def test_a_session_whose_record_is_written_again_here_goes_on(
    it: Ensemble, replica: Replica
) -> None:
    """As when a client comes back with another timeout, while something of it is still under way."""
    client = await it.session()
    moving = asyncio.ensure_future(it.move(client, replica))
    await asyncio.sleep(0)
    assert _ok(await client.ask(create(b"/a")))
    await moving


async def test_a_close_waits_for_what_was_asked_before_it(it: Ensemble, replica: Replica) -> None:
    client = await it.session()
    answers = [client.submit(create(b"/e%d" % number, flags=1)) for number in range(3)]
    closed = client.submit(CloseSession())
    behind = client.submit(create(b"/behind"))
    for answer in answers:
        _ok(await answer)
    zxid = _ok(await closed)
    assert await behind is None
    assert zxid == it.ends[client.session_id]
    assert not [path for path in replica.tree.nodes if path.startswith(b"/e")]
    assert client.session_id not in await it.store.leases()


async def test_closing_a_session_that_ended_is_answered(it: Ensemble, replica: Replica) -> None:
    client = await it.session()
    await it.store.revoke(client.session_id)
    assert _ok(await client.ask(CloseSession()))
    await it.settle()
    again = await client.ask(CloseSession())
    assert again is not None
    assert again.err == 0


async def test_a_close_that_fails_is_not_answered(it: Ensemble, relay: Relay) -> None:
    client = await it.session()

    async def fail(lease: int) -> None:
        raise Indeterminate(f"{lease}: who knows")

    relay.revoke = fail  # type: ignore[method-assign, assignment]
    assert await client.ask(CloseSession()) is None
    assert client.session_id in it.replica.tree.sessions
