"""ReadWriteLock: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.recipes.rwlock import ReadHeld, ReadWriteLock, WriteHeld
from quoracy.clock import ManualClock
from quoracy.store.model import Range, Txn
from tests.support.asking import eventually, turns, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place, open_place
from tests.support.profiles import examples
from tests.support.recording import Recording, Trouble, writes_to


async def waits(lock: ReadWriteLock, count: int) -> None:
    """Until so many hold the lock or wait for it."""

    async def are_there() -> bool:
        return len(await lock.contenders()) == count

    await eventually(are_there)


async def nothing_left(place: Place) -> None:
    async def is_empty() -> bool:
        return not (await place.store.range(place.corner, keys_only=True)).kvs

    await eventually(is_empty)


async def lose(place: Place, q: quoracy.Connection) -> None:
    session = await q.session()
    await place.store.revoke(session.id)
    session.lease_not_found()


async def test_readers_share_and_a_writer_does_not(place: Place, q: quoracy.Connection) -> None:
    lock = q.rwlock("a")
    async with lock.read() as one, lock.read() as two:
        assert one.is_held
        assert two.is_held
        assert one.key != two.key
        assert await lock.try_acquire_write() is None
    async with lock.write() as held:
        assert held.is_held
        assert await lock.try_acquire_read() is None
        assert await lock.try_acquire_write() is None
    await nothing_left(place)


async def test_everyone_is_served_in_order_and_readers_in_between_share(place: Place) -> None:
    order: list[str] = []
    async with place.connect() as one, place.connect() as other:
        lock = one.rwlock("a")
        first = await lock.acquire_read()
        names = ["w1", "r1", "r2", "w2", "w3", "r3"]
        together = asyncio.Barrier(2)

        async def wait(name: str) -> None:
            mine = (other if name in ("r1", "w2") else one).rwlock("a")
            async with mine.read() if name[0] == "r" else mine.write() as held:
                order.append(name)
                tokens[name] = held.token
                if name in ("r1", "r2"):
                    await together.wait()  # neither gets past it unless both read

        tokens = {"first": first.token}
        waiting = []
        for at, name in enumerate(names):
            waiting.append(asyncio.create_task(wait(name)))
            await waits(lock, at + 2)
        assert order == []
        await first.release()
        await asyncio.gather(*waiting)
        assert [order[0], sorted(order[1:3]), *order[3:]] == ["w1", ["r1", "r2"], "w2", "w3", "r3"]
        assert sorted(tokens, key=tokens.__getitem__) == ["first", *names]
        assert await lock.contenders() == ()


async def test_nobody_writes_beside_anybody(place: Place) -> None:
    readers = writers = highest = 0

    async def work(number: int) -> None:
        nonlocal readers, writers, highest
        async with place.connect() as q:
            lock = q.rwlock("a")
            for turn in range(4):
                if (number + turn) % 3:
                    async with lock.read():
                        readers += 1
                        await asyncio.sleep(0.002)
                        assert writers == 0
                        readers -= 1
                else:
                    async with lock.write() as held:
                        writers += 1
                        assert held.token > highest
                        highest = held.token
                        await asyncio.sleep(0.001)
                        assert (readers, writers) == (0, 1)
                        writers -= 1

    await asyncio.gather(*(work(number) for number in range(4)))
    await nothing_left(place)


async def test_reader_waits_behind_a_writer_that_waits(place: Place, q: quoracy.Connection) -> None:
    lock = q.rwlock("a")
    reading = await lock.acquire_read()
    writer = asyncio.create_task(lock.acquire_write())
    await waits(lock, 2)
    assert await lock.try_acquire_read() is None
    late = asyncio.create_task(lock.acquire_read())
    await waits(lock, 3)
    writer.cancel()  # then there is nobody to wait for
    assert (await late).is_held
    assert reading.is_held
    await waits(lock, 2)


async def test_contenders_tell_who_and_what_and_whether_they_hold(place: Place) -> None:
    async with place.connect(identity="ann") as ann, place.connect(identity="bob") as bob:
        lock = ann.rwlock("a")
        async with lock.read() as held:
            writer = asyncio.create_task(bob.rwlock("a").acquire_write())
            await waits(lock, 2)
            reader = asyncio.create_task(lock.acquire_read())
            await waits(lock, 3)
            found = await lock.contenders()
            assert [(each.kind, each.identity, each.is_holding) for each in found] == [
                ("read", "ann", True),
                ("write", "bob", False),
                ("read", "ann", False),
            ]
            assert found[0].token == held.token
            assert found[0].key == held.key
            assert [each.token for each in found] == sorted({each.token for each in found})
        writing = await writer
        assert [each.is_holding for each in await lock.contenders()] == [True, False]
        assert writing.token == found[1].token
        await writing.release()
        await (await reader).release()


async def test_wait_that_is_over_raises_and_leaves_nothing(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        async with one.rwlock("a").write():
            lock = other.rwlock("a")
            for seconds in (0.03, 0):
                with pytest.raises(quoracy.TimedOut, match="the read lock a"):
                    await lock.acquire_read(timeout=seconds)
                with pytest.raises(quoracy.TimedOut, match="the write lock a"):
                    await lock.acquire_write(timeout=seconds)
            with pytest.raises(quoracy.TimedOut):
                async with lock.read(timeout=0.01):
                    pytest.fail("the block was entered without holding")
            await waits(lock, 1)
        await nothing_left(place)


async def test_what_is_free_is_got_with_no_time_to_wait(q: quoracy.Connection) -> None:
    lock = q.rwlock("a")
    async with lock.read(timeout=0), lock.read(timeout=0):
        pass
    async with lock.write(timeout=0):
        pass
    with pytest.raises(quoracy.InvalidRequest, match="timeout"):
        await lock.acquire_read(timeout=-1)


# -- downgrade -------------------------------------------------------------------------------------


async def test_downgrade_lets_readers_in_and_no_writer(place: Place, q: quoracy.Connection) -> None:
    lock = q.rwlock("a")
    async with lock.write() as held:
        before = asyncio.create_task(lock.acquire_read())
        await waits(lock, 2)
        writer = asyncio.create_task(lock.acquire_write())
        await waits(lock, 3)
        after = asyncio.create_task(lock.acquire_read())
        await waits(lock, 4)
        token = held.token
        await held.downgrade()
        reader = await before
        assert held.is_held
        assert (held.kind, held.token, reader.is_held) == ("read", token, True)
        await held.downgrade()  # a second time does nothing
        found = await lock.contenders()
        assert [(each.kind, each.is_holding) for each in found] == [
            ("read", True),
            ("read", True),
            ("write", False),
            ("read", False),
        ]
        await reader.release()
        await waits(lock, 3)
        assert not writer.done()
    writing = await writer
    assert not after.done()
    await writing.release()
    await (await after).release()
    with pytest.raises(quoracy.LockLost, match="released"):
        await writing.downgrade()
    await nothing_left(place)


async def test_lock_that_is_lost_after_a_downgrade_cancels_the_body(place: Place) -> None:
    async with place.connect() as q:
        lock = q.rwlock("a")
        with pytest.raises(quoracy.LockLost, match="the read lock a"):
            async with lock.write() as held:
                await held.downgrade()
                await lose(place, q)
                await asyncio.get_running_loop().create_future()
        assert held.lost.is_set()
        with pytest.raises(quoracy.LockLost, match="deleted"):
            async with lock.write() as held:
                await held.downgrade()
                await place.store.delete(held.key)
                await asyncio.get_running_loop().create_future()
        await nothing_left(place)


async def test_downgrade_of_what_was_taken_away_raises(place: Place, q: quoracy.Connection) -> None:
    lock = q.rwlock("a", cancel_on_loss=False)
    with pytest.raises(quoracy.LockLost):
        async with lock.write() as held:
            await place.store.delete(held.key)
            await held.downgrade()
    await nothing_left(place)  # what readers wait for is gone too


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_block_whose_key_was_deleted_at_its_end_raises(
    place: Place, q: quoracy.Connection, kind: str
) -> None:
    lock = q.rwlock("a")
    with pytest.raises(quoracy.LockLost):
        async with lock.read() if kind == "read" else lock.write() as held:
            await place.store.delete(held.key)
    await nothing_left(place)


# -- loss ------------------------------------------------------------------------------------------


async def test_lost_session_frees_the_lock_and_ends_the_block(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        lock = other.rwlock("a")
        with pytest.raises(quoracy.LockLost):
            async with one.rwlock("a").write() as held:
                reader = asyncio.create_task(lock.acquire_read())
                await waits(lock, 2)
                await lose(place, one)
                await asyncio.get_running_loop().create_future()
        async with release_txn(await reader) as reading:
            assert reading.token > held.token


async def test_waiting_goes_on_in_the_next_session(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        lock = one.rwlock("a")
        held = await lock.acquire_write()
        waiting = [
            asyncio.create_task(other.rwlock("a").acquire_write()),
            asyncio.create_task(other.rwlock("a").acquire_read()),
        ]
        await waits(lock, 3)
        before = await lock.contenders()
        await lose(place, other)

        async def again() -> bool:
            now = await lock.contenders()
            return len(now) == 3 and not {each.token for each in now[1:]} & {
                each.token for each in before[1:]
            }

        await eventually(again)
        await held.release()
        for task in asyncio.as_completed(waiting):
            await (await task).release()


async def test_waiter_whose_key_was_deleted_waits_again(place: Place, q: quoracy.Connection) -> None:
    lock = q.rwlock("a")
    held = await lock.acquire_write()
    waiting = asyncio.create_task(lock.acquire_read())
    await waits(lock, 2)
    await place.store.delete((await lock.contenders())[1].key)
    await held.release()
    async with release_txn(await waiting) as reading:
        assert [each.token for each in await lock.contenders()] == [reading.token]


async def test_stopped_process_does_not_enter_with_a_session_that_is_over(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect(session_ttl=10.0) as q, timed.connect(session_ttl=1000.0) as other:
        lock = q.rwlock("a")
        held = await other.rwlock("a").acquire_write()
        waiting = asyncio.create_task(lock.acquire_read())
        await waits(lock, 2)
        late = (await lock.contenders())[1].key
        clock.jump(9.8)  # our process stands still; the store has not noticed yet
        await held.release()
        await clock.advance(1.0)
        async with release_txn(await asyncio.wait_for(waiting, 10)) as reading:
            assert reading.is_held
            assert reading.key != late


# -- cancellation ----------------------------------------------------------------------------------


async def test_cancelled_at_every_await_nothing_is_left(place: Place) -> None:
    async with place.connect() as q:
        mine = q.rwlock("a")

        async def use() -> None:
            async with mine.read():
                await asyncio.sleep(0)
            async with mine.write() as held:
                await held.downgrade()

        async for _ in cancelled_everywhere(use):
            await nothing_left(place)


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_cancelled_while_waiting_nothing_is_left(tmp_path: Path, kind: str) -> None:
    async with open_place("memory", tmp_path) as place, place.connect() as one:
        lock = one.rwlock("a")
        async with place.connect() as other:
            mine = other.rwlock("a")
            async with lock.write() as held:

                async def give_up() -> None:
                    with pytest.raises(quoracy.TimedOut):
                        async with (
                            mine.read(timeout=0.02) if kind == "read" else mine.write(timeout=0.02)
                        ):
                            pytest.fail("the block was entered without holding")

                async def only_the_holder() -> bool:
                    count = (await place.store.range(place.corner, count_only=True)).count
                    return count == 2  # the entry and the marker of the one who holds it

                async for _ in cancelled_everywhere(give_up):
                    await eventually(only_the_holder)
                assert held.is_held


# -- trouble ---------------------------------------------------------------------------------------


@asynccontextmanager
async def troubled(tmp_path: Path) -> AsyncIterator[tuple[Recording, ReadWriteLock, Place]]:
    """A lock on a store that can be made to misbehave."""
    async with open_place("memory", tmp_path) as place:
        recording = Recording(place.store)
        async with quoracy.connect(recording, namespace=place.namespace) as q:
            yield recording, q.rwlock("a"), place


async def test_release_that_was_refused_is_made_good_in_the_background(tmp_path: Path) -> None:
    for trouble in (Trouble.REFUSED, Trouble.LATE):
        async with troubled(tmp_path) as (recording, lock, place):
            held = await lock.acquire_write()
            recording.plan(trouble, writes_to(b"/queue/", deletes=True))
            with pytest.raises((quoracy.Unavailable, quoracy.Indeterminate)):
                await held.release()
            await nothing_left(place)
            async with lock.write() as again:
                await recording.arrive()  # too late to hit anybody
                await turns()
                assert [each.token for each in await lock.contenders()] == [again.token]


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("trouble", [Trouble.LATE, Trouble.ANSWER_LOST])
async def test_acquisition_of_unknown_outcome_raises_and_is_taken_back(
    tmp_path: Path, kind: str, trouble: Trouble
) -> None:
    async with troubled(tmp_path) as (recording, lock, place):
        for is_try in (False, True):
            recording.plan(trouble, writes_to(b"/queue/"))
            acquire = {
                "read": (lock.acquire_read, lock.try_acquire_read),
                "write": (lock.acquire_write, lock.try_acquire_write),
            }[kind][is_try]
            with pytest.raises(quoracy.Indeterminate):
                await acquire()
            await nothing_left(place)
            await turns()
            await recording.arrive()
            await nothing_left(place)
        async with lock.write(timeout=5):
            pass


async def test_waiter_that_cannot_withdraw_at_once_is_gone_soon(tmp_path: Path) -> None:
    for trouble in (Trouble.REFUSED, Trouble.LATE):
        async with troubled(tmp_path) as (recording, lock, _):
            async with lock.read():
                waiting = asyncio.create_task(lock.acquire_write())
                await waits(lock, 2)
                recording.plan(trouble, writes_to(b"/writers/", deletes=True))
                waiting.cancel()
                await asyncio.wait([waiting])
                async with lock.read(timeout=5):  # nobody is left to wait for
                    assert recording.met.is_set()
                await waits(lock, 1)


async def test_refused_while_waiting_is_asked_again(tmp_path: Path) -> None:
    def looks(txn: Txn) -> bool:
        own = [op.keys for op in txn.then if isinstance(op, Range) and isinstance(op.keys, bytes)]
        return any(b"/queue/" in key for key in own)

    async with troubled(tmp_path) as (recording, lock, _):
        held = await lock.acquire_write()
        waiting = asyncio.create_task(lock.acquire_read())
        await waits(lock, 2)
        recording.plan(Trouble.REFUSED, looks)
        await held.release()
        await (await asyncio.wait_for(waiting, 10)).release()
        assert recording.met.is_set()
        recording.plan(Trouble.REFUSED, writes_to(b"/queue/"))
        with pytest.raises(quoracy.Unavailable):
            await lock.acquire_read()


async def test_forgotten_history_while_waiting_lets_nobody_in(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, lock, _):
        held = await lock.acquire_write()
        recording.plan(Trouble.OVERTAKEN, writes_to(b"/queue/"))
        waiting = asyncio.create_task(lock.acquire_read())
        await recording.met.wait()
        await turns()
        assert not waiting.done()
        await held.release()
        await (await asyncio.wait_for(waiting, 10)).release()


async def test_session_that_ended_unnoticed_is_replaced(timed: Place) -> None:
    async with timed.connect() as q:
        await timed.store.revoke((await q.session()).id)
        async with q.rwlock("a").write(timeout=1000):  # of a clock that stands still
            pass


async def test_downgrade_of_unknown_outcome_may_be_called_again(tmp_path: Path) -> None:
    for trouble in (Trouble.LATE, Trouble.ANSWER_LOST):
        async with troubled(tmp_path) as (recording, lock, place):
            async with lock.write() as held:
                recording.plan(trouble, writes_to(b"/queue/"))
                with pytest.raises(quoracy.Indeterminate):
                    await held.downgrade()
                await held.downgrade()
                assert held.kind == "read"
                async with lock.read(timeout=0):
                    await recording.arrive()
                    assert await lock.try_acquire_write() is None
            await recording.arrive()
            await nothing_left(place)


# -- who watches what ------------------------------------------------------------------------------


async def test_waiter_watches_only_the_one_it_waits_for(timed: Place, clock: ManualClock) -> None:
    recording = Recording(timed.store)
    # Holders watch their own keys after a while: on this clock, never.
    async with quoracy.connect(recording, namespace=timed.namespace, clock=clock) as q:
        lock = q.rwlock("a")
        await lock.acquire_read()
        await lock.acquire_read()
        tasks = []
        for at, kind in enumerate("wwrr"):
            acquire = lock.acquire_read if kind == "r" else lock.acquire_write
            tasks.append(asyncio.create_task(acquire()))
            await waits(lock, at + 3)
            await watches(recording, at + 1)
        found = await lock.contenders()
        writers = [each.key.replace(b"/queue/", b"/writers/") for each in found]
        assert recording.watched == [found[1].key, found[2].key, writers[3], writers[3]]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watches(recording: Recording, count: int) -> None:
    await until(lambda: len(recording.watched) == count)


# -- any order of events, against a list -----------------------------------------------------------


@asynccontextmanager
async def release_txn(held: ReadHeld | WriteHeld) -> AsyncIterator[ReadHeld | WriteHeld]:
    """A block around something that is held already."""
    try:
        yield held
    finally:
        await held.release()


@dataclass
class Someone:
    kind: str
    connection: int
    task: asyncio.Task[ReadHeld | WriteHeld]


@dataclass
class Model:
    """The queue as a list; who holds follows from it."""

    queue: list[Someone] = field(default_factory=list)

    def holders(self) -> list[Someone]:
        found: list[Someone] = []
        for at, each in enumerate(self.queue):
            if each.kind == "write":
                return found if at else [each]
            found.append(each)
        return found


STEPS = st.one_of(
    st.tuples(st.sampled_from(["read", "write", "try read", "try write"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["release", "cancel", "downgrade"]), st.integers(0, 7)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, max_size=25))
async def test_any_schedule_is_what_a_list_says(tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    async with open_place("memory", tmp_path) as place, place.connect() as one, place.connect() as two:
        connections = (one, two)
        model = Model()
        try:
            for step, number in steps:
                await take_step(place, connections, model, step, number)
                await agrees(one.rwlock("a"), model)
        finally:
            for each in model.queue:
                each.task.cancel()
            await asyncio.gather(*(each.task for each in model.queue), return_exceptions=True)


async def take_step(
    place: Place,
    connections: tuple[quoracy.Connection, quoracy.Connection],
    model: Model,
    step: str,
    number: int,
) -> None:
    holders = model.holders()
    if step in ("read", "write"):
        lock = connections[number].rwlock("a")
        acquire = lock.acquire_read() if step == "read" else lock.acquire_write()
        model.queue.append(Someone(step, number, asyncio.create_task(acquire)))
        await waits(lock, len(model.queue))
    elif step.startswith("try"):
        await try_it(connections[number].rwlock("a"), model, step.split()[1], number)
    elif step == "release" and holders:
        each = holders[number % len(holders)]
        await (await each.task).release()
        model.queue.remove(each)
    elif step == "downgrade" and holders and holders[0].kind == "write":
        held = await holders[0].task
        assert isinstance(held, WriteHeld)
        await held.downgrade()
        holders[0].kind = "read"
    elif step == "cancel" and (waiting := [each for each in model.queue if each not in holders]):
        each = waiting[number % len(waiting)]
        each.task.cancel()
        await asyncio.wait([each.task])
        model.queue.remove(each)
    elif step == "lose":
        lost = [each for each in model.queue if each.connection == number]
        await lose(place, connections[number])
        for each in lost:
            model.queue.remove(each)
            if each in holders:
                held = await each.task
                assert not held.is_held
        # Those who waited wait again, in whichever order they came to it.
        again = [each for each in lost if each not in holders]
        lock = connections[number].rwlock("a")
        await waits(lock, len(model.queue) + len(again))
        for each in again:
            each.task.cancel()
            await asyncio.wait([each.task])
            if not each.task.cancelled():
                await each.task.result().release()


async def try_it(lock: ReadWriteLock, model: Model, kind: str, number: int) -> None:
    held = await (lock.try_acquire_read() if kind == "read" else lock.try_acquire_write())
    has_writer = any(each.kind == "write" for each in model.queue)
    is_free = not has_writer if kind == "read" else not model.queue
    assert (held is not None) == is_free
    if held is not None:

        async def have() -> ReadHeld | WriteHeld:
            return held

        model.queue.append(Someone(kind, number, asyncio.create_task(have())))


async def agrees(lock: ReadWriteLock, model: Model) -> None:
    await waits(lock, len(model.queue))
    expected = model.holders()
    await asyncio.wait_for(asyncio.gather(*(each.task for each in expected)), 20)
    await turns()
    assert [each for each in model.queue if each.task.done()] == expected
    tokens = [each.task.result().token for each in expected]
    assert tokens == sorted(set(tokens))
    found = await lock.contenders()
    assert [(each.kind, each.is_holding) for each in found] == [
        (each.kind, each in expected) for each in model.queue
    ]
