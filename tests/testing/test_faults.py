"""Each fault does to a connection what it says, in memory and over the network, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

import quoracy
from quoracy import Connection, SessionState
from quoracy.testing import Faults, Memory, Server, VirtualClock, memory

Place = Memory | Server


async def held_until_lost(q: Connection, name: str) -> str:
    """Code under test: it holds a lock for as long as it has it."""
    try:
        async with q.lock(name):
            await asyncio.Event().wait()
    except quoracy.LockLost as error:
        return str(error)
    return "left"


async def holding(q: Connection, clock: VirtualClock, name: str = "a") -> asyncio.Task[str]:
    task = asyncio.create_task(held_until_lost(q, name))
    await clock.advance(0.2)
    assert not task.done()
    return task


async def test_time_passes_and_sessions_are_kept(place: Place, clock: VirtualClock) -> None:
    async with place.connect() as q:
        async with q.lock("a") as held:
            await clock.advance(100)
            assert held.is_held
            assert q.state is SessionState.CONNECTED


async def test_what_follows_from_a_timer_is_over_when_time_has_passed(
    place: Place, clock: VirtualClock
) -> None:
    """However many round trips it takes."""
    async with place.connect() as q:

        async def later() -> None:
            await q.clock.sleep(1)
            for _ in range(30):
                await q.counter("n").add(1)

        working = asyncio.create_task(later())
        await clock.advance(0.9)
        assert not working.done()
        await clock.advance(0.1)
        assert working.done()
        await working
        assert await q.counter("n").get() == 30


# -- expire ------------------------------------------------------------------------------------


async def test_expired_session_frees_what_it_held_at_once(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q, place.connect() as other:
        working = await holding(q, clock)
        await faults.expire(q)
        await other.lock("a").acquire(timeout=1)
        await clock.advance(10 / 3)
        assert "lost" in await working
        assert q.state is SessionState.CONNECTED  # with a session that holds nothing


async def test_expiry_is_learned_from_the_server_and_not_before(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q:
        states: list[SessionState] = []
        q.on_state(states.append)
        await faults.expire(q)
        assert q.state is SessionState.CONNECTED
        await clock.advance(3)
        assert states == []
        await clock.advance(1)
        assert states == [SessionState.LOST, SessionState.CONNECTED]


async def test_session_itself_can_be_expired(place: Place, clock: VirtualClock, faults: Faults) -> None:
    async with place.connect() as q:
        session = await q.session()
        await faults.expire(session)
        await faults.expire(session)  # it is gone already: nothing more happens
        await clock.advance(4)
        assert session.is_lost
        assert (await q.session()).id != session.id


# -- pause -------------------------------------------------------------------------------------


async def test_paused_holder_learns_of_its_loss_only_when_it_goes_on(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q, place.connect() as other:
        held = await q.lock("a").acquire()
        with faults.pause(q):
            await clock.advance(20)
            taken = await other.lock("a").acquire(timeout=1)
            assert taken.token > held.token
            assert not held.lost.is_set()  # a stopped process is told nothing
        assert not held.is_held  # the first thing it looks at is the clock
        await clock.advance(0.1)
        assert held.lost.is_set()
        with pytest.raises(quoracy.LockLost):
            held.check()


async def test_short_pause_costs_nothing(place: Place, clock: VirtualClock, faults: Faults) -> None:
    async with place.connect() as q:
        async with q.lock("a") as held:
            with faults.pause(q):
                await clock.advance(8)
            await clock.advance(30)
            assert held.is_held


async def test_requests_of_a_paused_connection_wait(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q:
        faults.pause(q)
        adding = asyncio.create_task(q.counter("n").add(1))
        await clock.advance(2)
        assert not adding.done()
        faults.resume(q)
        assert await adding == 1


# -- partition ---------------------------------------------------------------------------------


async def test_cut_off_holder_gives_up_before_the_server_does(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q, place.connect() as other:
        held = await q.lock("a").acquire()
        waiting = asyncio.create_task(other.lock("a").acquire())
        with faults.partition(q):
            await clock.advance(7)
            assert q.state.name == "SUSPENDED"
            assert held.is_held
            await clock.advance(2.6)
            assert held.lost.is_set()
            assert not waiting.done()  # nobody has it now
            await clock.advance(4)
            assert (await waiting).token > held.token
        await clock.advance(10)
        assert q.state is SessionState.CONNECTED


async def test_healed_in_time_nothing_is_lost(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q:
        async with q.lock("a") as held:
            faults.partition(q)
            await clock.advance(8)
            faults.heal(q)
            await clock.advance(30)
            assert held.is_held
            assert q.state is SessionState.CONNECTED


async def test_partition_is_of_one_connection_only(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q, place.connect() as other:
        with faults.partition(q):
            assert await other.counter("n").add(1) == 1


async def test_watch_misses_nothing_in_a_partition(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q, place.connect() as other:
        async with q.store.watch(b"k") as batches:
            with faults.partition(q):
                await other.store.put(b"k", b"1")
                await other.store.put(b"k", b"2")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(batches), 0.05)
            seen: list[bytes] = []
            while len(seen) < 2:
                seen += [event.kv.value for event in (await anext(batches)).events]
            assert seen == [b"1", b"2"]


async def test_answer_does_not_get_through_either(clock: VirtualClock, faults: Faults) -> None:
    async with memory(clock=clock) as place, place.connect() as q:
        putting = asyncio.create_task(q.store.put(b"k", b"v"))
        await asyncio.sleep(0)  # it is at the store, and not answered yet
        with faults.partition(q):
            await clock.advance(1)
            assert (await place.store.range(b"k")).count == 1
            assert not putting.done()
        await putting


async def test_request_that_gets_no_answer_ends_as_the_client_of_a_server_ends_it(
    clock: VirtualClock, faults: Faults
) -> None:
    async with memory(clock=clock) as place, place.connect(request_timeout=2) as q:
        with faults.partition(q):
            reading = asyncio.create_task(q.store.range(b"k"))
            writing = asyncio.create_task(q.store.put(b"k", b"v"))
            await clock.advance(1.9)
            assert not reading.done()
            assert not writing.done()
            await clock.advance(0.2)
            assert isinstance(reading.exception(), quoracy.Unavailable)
            assert isinstance(writing.exception(), quoracy.Indeterminate)


# -- disconnect --------------------------------------------------------------------------------


async def test_broken_connection_is_made_again_and_the_session_lives(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q:
        async with q.lock("a") as held:
            faults.disconnect(q)
            assert await q.counter("n").add(1) == 1
            await clock.advance(30)
            assert held.is_held


async def test_write_under_way_is_of_unknown_outcome_when_the_connection_breaks(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q:
        with faults.partition(q):
            putting = asyncio.create_task(q.store.put(b"k", b"v"))
            await clock.advance(0)
            faults.disconnect(q)
            with pytest.raises(quoracy.Indeterminate):
                await putting


# -- lost answers ------------------------------------------------------------------------------


async def test_write_whose_answer_is_lost_was_applied_once(place: Place, faults: Faults) -> None:
    async with place.connect() as q:
        faults.lose_answers(q, 2)
        for _ in range(2):
            with pytest.raises(quoracy.Indeterminate):
                await q.counter("n").add(1)
        assert await q.counter("n").add(1) == 3


async def test_every_kind_of_write_can_lose_its_answer(place: Place, faults: Faults) -> None:
    async with place.connect() as q:
        store = q.store
        with faults.lose_answers(q), pytest.raises(quoracy.Indeterminate):
            await store.put(b"k", b"v")
        assert (await store.range(b"k")).count == 1
        with faults.lose_answers(q), pytest.raises(quoracy.Indeterminate):
            await store.delete(b"k")
        assert (await store.range(b"k")).count == 0
        with faults.lose_answers(q), pytest.raises(quoracy.Indeterminate):
            await store.txn(quoracy.Txn(then=(quoracy.Put(b"k", b"v"),)))
        assert (await store.range(b"k")).count == 1
        with faults.lose_answers(q):
            await store.txn(quoracy.Txn(then=(quoracy.Range(b"k"),)))  # no write, so it does not count
            with pytest.raises(quoracy.Indeterminate):
                await store.put(b"k", b"v")


async def test_reads_and_renewals_lose_no_answers(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q:
        with faults.lose_answers(q):
            assert await q.counter("n").get() == 0
            await clock.advance(10)
            assert q.state is SessionState.CONNECTED
        assert await q.counter("n").add(1) == 1  # none was lost, and none will be


# -- mending and refusing ----------------------------------------------------------------------


async def test_faults_of_one_connection_end_each_for_itself(
    place: Place, clock: VirtualClock, faults: Faults
) -> None:
    async with place.connect() as q:
        with faults.partition(q):
            faults.pause(q).end()
            adding = asyncio.create_task(q.counter("n").add(1))
            await clock.advance(1)
            assert not adding.done()
        assert await adding == 1


async def test_all_is_mended_at_the_end_of_the_block(place: Place, clock: VirtualClock) -> None:
    async with place.connect() as q:
        with Faults() as faults:
            faults.partition(q)
            faults.pause(q)
            faults.lose_answers(q, 5)
        assert await q.counter("n").add(1) == 1


async def test_connection_that_is_broken_can_say_goodbye(place: Place) -> None:
    """With the clock at rest nobody else would ever get what it held."""
    async with place.connect() as q:
        await q.lock("a").acquire()
        Faults().partition(q)
        Faults().pause(q)
    async with place.connect() as q, asyncio.timeout(60):
        await q.lock("a").acquire()


async def test_what_has_no_network_of_ours_is_refused(faults: Faults) -> None:
    async with quoracy.connect("memory:") as q:
        for refused in (faults.partition, faults.disconnect, faults.pause):
            with pytest.raises(quoracy.InvalidRequest, match=r"quoracy\.testing"):
                refused(q)
    with pytest.raises(quoracy.InvalidRequest, match="no network"):
        faults.partition("quoracy://127.0.0.1:1")
