"""The sessions of a connection, one after the other, on a clock the test owns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

import quoracy
from quoracy.client.connection import Connection
from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.errors import Indeterminate
from quoracy.store.contention import joining
from tests.support.asking import eventually, turns
from tests.support.unreliable_store import Unreliable

CONNECTED, SUSPENDED, LOST = (
    quoracy.SessionState.CONNECTED,
    quoracy.SessionState.SUSPENDED,
    quoracy.SessionState.LOST,
)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Unreliable]:
    async with open_embedded("memory:", clock=clock) as store:
        yield Unreliable(store)


@pytest.fixture
async def q(store: Unreliable, clock: ManualClock) -> AsyncIterator[Connection]:
    async with quoracy.connect(store, clock=clock, session_ttl=10.0) as q:  # type: ignore[arg-type]
        yield q


async def test_trouble_suspends_and_passes(
    store: Unreliable, q: Connection, clock: ManualClock
) -> None:
    told: list[quoracy.SessionState] = []
    q.on_state(told.append)
    session = await q.session()
    store.refuses = True
    await clock.advance(4.0)
    assert q.state is SUSPENDED
    store.refuses = False
    await q.wait_state(SUSPENDED)
    await clock.advance(2.0)
    assert q.state.name == "CONNECTED"
    assert await q.session() is session
    assert told == [SUSPENDED, CONNECTED]


async def test_loss_is_told_before_the_server_ends_the_lease_and_a_new_session_is_made(
    store: Unreliable, q: Connection, clock: ManualClock
) -> None:
    told: list[quoracy.SessionState] = []
    q.on_state(told.append)
    held = await q.lock("a").acquire()
    session = await q.session()
    store.refuses = True
    while not held.lost.is_set():
        assert clock.now() < 15
        await clock.advance(0.1)
    assert (await store._store.time_to_live(session.id)).remaining_s > 0
    assert q.state is LOST
    with pytest.raises(quoracy.TimedOut, match="a session for the lock b"):
        waiting = asyncio.create_task(q.lock("b").acquire(timeout=1.0))
        await turns()
        await clock.advance(1.5)
        await waiting
    store.refuses = False
    waiting = asyncio.create_task(q.lock("a").acquire())
    while not waiting.done():
        assert clock.now() < 40
        await clock.advance(0.5)
    again = await waiting
    assert again.token > held.token
    assert not held.is_held
    assert (await q.session()).id != session.id
    assert told == [SUSPENDED, LOST, CONNECTED]


async def test_listener_that_raises_disturbs_nobody(q: Connection) -> None:
    told: list[quoracy.SessionState] = []
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def raises(state: quoracy.SessionState) -> None:
        raise ZeroDivisionError

    def adds(state: quoracy.SessionState) -> None:
        q.on_state(told.append)

    q.on_state(raises)
    remove = q.on_state(adds)
    (await q.session()).lease_not_found()
    await turns()
    assert q.state is CONNECTED
    assert told == [CONNECTED]  # what was added while LOST was told hears of what follows
    remove()
    assert len(complaints) == 2


async def test_acquisition_of_unknown_outcome_raises_and_is_removed(
    store: Unreliable, q: Connection, clock: ManualClock
) -> None:
    store.loses = True
    with pytest.raises(Indeterminate):
        await q.lock("a").acquire()

    async def nobody() -> bool:
        return await q.lock("a").contenders() == ()

    await eventually(nobody)
    store.loses = False
    async with q.lock("a") as held:
        assert held.is_held


async def test_acquisition_that_arrives_late_is_removed_when_it_does(
    store: Unreliable, q: Connection
) -> None:
    store.drops = True
    with pytest.raises(Indeterminate):
        await q.lock("a").acquire()
    store.drops = False
    await turns()
    session = await q.session()
    key = b"a/%x" % session.id
    async with q.lock("a") as held:
        assert held.key != key  # an attempt whose end is not known keeps its key
    # The request was on its way all the time.
    await store.txn(joining(b"a", key, session.id, b""))

    async def nobody() -> bool:
        return await q.lock("a").contenders() == ()

    await eventually(nobody)


async def test_release_of_unknown_outcome_raises_and_goes_on(
    store: Unreliable, q: Connection, clock: ManualClock
) -> None:
    held = await q.lock("a").acquire()
    store.drops = True
    with pytest.raises(Indeterminate):
        await held.release()
    assert not held.is_held
    store.drops = False

    async def nobody() -> bool:
        return await q.lock("a").contenders() == ()

    await eventually(nobody)


async def test_closed_connection_says_so(store: Unreliable, clock: ManualClock) -> None:
    async with quoracy.connect(store, clock=clock) as q:  # type: ignore[arg-type]
        lock = q.lock("a")
        held = await lock.acquire()
        waiting = asyncio.create_task(q.lock("a").acquire())
        await turns()
    with pytest.raises(quoracy.StoreClosed):
        await lock.acquire()
    with pytest.raises(quoracy.StoreClosed):
        q.lock("b")
    assert not held.is_held
    with pytest.raises(quoracy.StoreClosed):
        await waiting
    assert await store._store.leases() == ()


async def test_everything_ends_with_the_connection(store: Unreliable, clock: ManualClock) -> None:
    before = asyncio.all_tasks()
    async with quoracy.connect(store, clock=clock) as q:  # type: ignore[arg-type]
        await q.lock("a").acquire()
        await clock.advance(1.0)  # so that its key is watched
    await turns()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("name", ["", "a/"])
async def test_name_that_is_none_is_refused(q: Connection, name: str) -> None:
    with pytest.raises(quoracy.InvalidRequest, match="is no name"):
        q.lock(name)


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
async def test_timeout_that_is_none_is_refused(q: Connection, timeout: float) -> None:
    with pytest.raises(quoracy.InvalidRequest, match="timeout is"):
        await q.lock("a").acquire(timeout=timeout)


async def test_options_of_a_connection_that_make_no_sense_are_refused() -> None:
    with pytest.raises(quoracy.InvalidRequest, match="session_ttl"):
        async with quoracy.connect("memory:", session_ttl=0):
            pass
    with pytest.raises(quoracy.InvalidRequest, match="namespace"):
        async with quoracy.connect("memory:", namespace="a/"):
            pass
    with pytest.raises(quoracy.InvalidRequest, match="names no store"):
        async with quoracy.connect("nowhere"):
            pass


async def test_namespace_is_put_before_names(store: Unreliable, clock: ManualClock) -> None:
    async with quoracy.connect(store, clock=clock, namespace="team") as q:  # type: ignore[arg-type]
        async with q.lock("a") as held:
            assert held.key.startswith(b"team/a/")


async def test_identity_is_host_and_process_unless_given(q: Connection) -> None:
    assert q.identity.endswith(f":{os.getpid()}")


async def test_what_is_won_with_a_session_that_is_over_by_then_is_not_held(
    store: Unreliable, q: Connection, clock: ManualClock
) -> None:
    """A process that is stopped while the answer is on its way waits again, with its next session."""
    answer = store._store.txn

    async def slow(txn: quoracy.Txn) -> quoracy.TxnResult:
        result = await answer(txn)
        store.txn = answer  # type: ignore[method-assign]
        clock.jump(20.0)
        return result

    store.txn = slow  # type: ignore[method-assign]
    acquiring = asyncio.create_task(q.lock("a").acquire())
    while not acquiring.done():
        await clock.advance(1.0)
    held = acquiring.result()
    held.check()
    assert len(await q.lock("a").contenders()) == 1


async def test_try_with_a_session_that_is_over_by_then_wins_nothing(
    store: Unreliable, q: Connection, clock: ManualClock
) -> None:
    answer = store._store.txn

    async def slow(txn: quoracy.Txn) -> quoracy.TxnResult:
        result = await answer(txn)
        store.txn = answer  # type: ignore[method-assign]
        clock.jump(20.0)
        return result

    store.txn = slow  # type: ignore[method-assign]
    trying = asyncio.create_task(q.lock("a").try_acquire())
    while not trying.done():
        await clock.advance(1.0)
    with pytest.raises(quoracy.TimedOut, match="a session for"):
        trying.result()
    await clock.advance(11.0)  # what the old session may have left goes with it
    assert len(await q.lock("a").contenders()) == 0


@pytest.mark.parametrize("recipe", ["lock", "rwlock", "semaphore", "work queue"])
async def test_now_or_not_at_all_does_not_wait_for_a_session_either(
    store: Unreliable, q: Connection, recipe: str
) -> None:
    store.refuses = True  # no new session can be had
    (await q.session()).lease_not_found()
    with pytest.raises(quoracy.TimedOut, match="a session for"):
        match recipe:
            case "lock":
                await q.lock("a").try_acquire()
            case "rwlock":
                await q.rwlock("a").try_acquire_write()
            case "semaphore":
                await q.semaphore("a", 1).try_acquire()
            case "work queue":
                await q.work_queue("a").take(timeout=0)


async def test_refusal_of_a_new_session_is_not_the_end_of_asking(
    store: Unreliable, q: Connection, clock: ManualClock
) -> None:
    """A full store refuses leases until there is room: an error that passes like any other."""
    grant = store._store.grant

    async def full(ttl_s: float) -> quoracy.LeaseGrant:
        raise quoracy.NoSpace(size=2, size_max=1)

    store.grant = full  # type: ignore[method-assign]
    (await q.session()).lease_not_found()
    await clock.advance(5.0)
    assert q.state is LOST
    store.grant = grant  # type: ignore[method-assign]
    await clock.advance(5.0)
    assert q.state.name == "CONNECTED"


async def test_store_that_is_closed_below_a_connection_ends_its_waits(clock: ManualClock) -> None:
    async with open_embedded("memory:", clock=clock) as below:
        opened = quoracy.connect(below, clock=clock)
        q = await opened.__aenter__()
    (await q.session()).lease_not_found()
    with pytest.raises(quoracy.StoreClosed):
        async with asyncio.timeout(10):
            await q.lock("a").acquire()
    await opened.__aexit__(None, None, None)
