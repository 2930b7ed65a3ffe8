"""Lock: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio

import pytest

import quoracy
from quoracy.clock import ManualClock
from tests.support.asking import eventually, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place


async def nothing_left(place: Place) -> bool:
    return not (await place.store.range(place.corner, keys_only=True)).kvs


async def test_block_holds_and_leaves_nothing(place: Place, q: quoracy.Connection) -> None:
    async with q.lock("a") as held:
        held.check()
        assert held.key.startswith(place.key("a") + b"/")
        assert await q.lock("a").try_acquire() is None
    assert not held.is_held
    assert not held.lost.is_set()
    assert await nothing_left(place)
    with pytest.raises(quoracy.LockLost, match="released"):
        held.check()


async def test_fencing_token_grows_across_holders(place: Place) -> None:
    tokens: list[int] = []

    async def work() -> None:
        async with place.connect() as q:
            for _ in range(3):
                async with q.lock("a") as held:
                    tokens.append(held.token)

    await asyncio.gather(*(work() for _ in range(3)))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 9


async def test_waiters_are_served_in_order_also_those_of_one_connection(place: Place) -> None:
    order: list[int] = []
    async with place.connect() as one, place.connect() as other:
        lock = one.lock("a")
        first = await lock.acquire()
        waiting = []

        async def wait(number: int, q: quoracy.Connection) -> None:
            async with q.lock("a") as held:
                assert held.is_held
                order.append(number)

        for number in range(6):
            waiting.append(asyncio.create_task(wait(number, one if number % 3 else other)))

            async def joined(count: int = number + 2) -> bool:
                return len(await lock.contenders()) == count

            await eventually(joined)
        await first.release()
        await asyncio.gather(*waiting)
    assert order == list(range(6))


async def test_contenders_are_named_in_order(place: Place) -> None:
    async with place.connect(identity="ann") as ann, place.connect(identity="bob") as bob:
        async with ann.lock("a") as held:
            waiting = asyncio.create_task(bob.lock("a").acquire())

            async def both() -> bool:
                return len(await ann.lock("a").contenders()) == 2

            await eventually(both)
            first, second = await ann.lock("a").contenders()
            assert (first.identity, first.token) == ("ann", held.token)
            assert (second.identity, second.token > held.token) == ("bob", True)
        await (await waiting).release()


async def test_wait_that_is_over_raises_and_leaves_nothing(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        async with one.lock("a"):
            with pytest.raises(quoracy.TimedOut) as caught:
                await other.lock("a").acquire(timeout=0.05)
            assert isinstance(caught.value, TimeoutError)
            with pytest.raises(quoracy.TimedOut):
                await other.lock("a").acquire(timeout=0)
            with pytest.raises(quoracy.TimedOut):
                async with other.lock("a").hold(timeout=0.01):
                    pytest.fail("the block was entered without holding")

            async def alone() -> bool:
                return len(await one.lock("a").contenders()) == 1

            await eventually(alone)


async def test_free_lock_is_got_with_no_time_to_wait(q: quoracy.Connection) -> None:
    held = await q.lock("a").acquire(timeout=0)
    await held.release()
    await held.release()  # a second time does nothing


async def test_revoked_session_cancels_the_body_and_raises(place: Place) -> None:
    async with place.connect() as q:
        with pytest.raises(quoracy.LockLost) as caught:
            async with q.lock("a") as held:
                session = await q.session()
                await place.store.revoke(session.id)
                session.lease_not_found()
                await asyncio.get_running_loop().create_future()
        assert held.error is caught.value
        assert held.lost.is_set()
        async with q.lock("a") as again:  # with the next session
            assert again.token > held.token


async def test_deleted_key_cancels_the_body(place: Place, q: quoracy.Connection) -> None:
    with pytest.raises(quoracy.LockLost, match="deleted"):
        async with q.lock("a") as held:
            await place.store.delete(held.key)
            await asyncio.get_running_loop().create_future()


async def test_loss_with_the_event_only_lets_the_body_end_and_raises_then(place: Place) -> None:
    async with place.connect() as q:
        reached = False
        with pytest.raises(quoracy.LockLost):
            async with q.lock("a", cancel_on_loss=False) as held:
                (await q.session()).lease_not_found()
                await held.lost.wait()
                await asyncio.sleep(0)
                assert not held.is_held
                reached = True
        assert reached


async def test_error_of_the_body_goes_on_after_a_loss(q: quoracy.Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        async with q.lock("a", cancel_on_loss=False):
            (await q.session()).lease_not_found()
            raise ZeroDivisionError


async def test_cancellation_from_outside_is_obeyed_although_the_lock_is_lost_too(
    q: quoracy.Connection,
) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with q.lock("a"):
            entered.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    (await q.session()).lease_not_found()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_reentrant_lock_is_entered_again_by_its_task_and_by_nobody_else(
    q: quoracy.Connection,
) -> None:
    lock = q.lock("a", reentrant=True)
    async with lock as outer:
        async with q.lock("a", reentrant=True) as inner:
            assert inner.token == outer.token
            other = asyncio.create_task(lock.try_acquire())
            assert await other is None
        outer.check()
    assert not outer.is_held
    assert len(await lock.contenders()) == 0


async def test_lost_reentrant_lock_ends_both_blocks(place: Place, q: quoracy.Connection) -> None:
    lock = q.lock("a", reentrant=True)
    with pytest.raises(quoracy.LockLost):
        async with lock:
            async with lock:
                session = await q.session()
                await place.store.revoke(session.id)
                session.lease_not_found()
                await asyncio.get_running_loop().create_future()
    async with lock:
        pass


async def test_write_under_the_lock_is_refused_once_it_is_gone(
    place: Place, q: quoracy.Connection
) -> None:
    with pytest.raises(quoracy.LockLost):
        async with q.lock("a", cancel_on_loss=False) as held:
            await held.txn(quoracy.Put(place.key("data"), b"1"))
            await place.store.delete(held.key)
            await held.txn(quoracy.Put(place.key("data"), b"2"))
    assert (await place.store.range(place.key("data"))).kvs[0].value == b"1"


async def test_cancelled_at_every_await_no_place_is_left(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:

        async def alone(count: int) -> bool:
            return len(await one.lock("a").contenders()) == count

        async def use() -> None:
            async with other.lock("a"):
                await asyncio.sleep(0)

        async for _ in cancelled_everywhere(use):
            await eventually(lambda: alone(0))
        async with one.lock("a"):

            async def give_up() -> None:
                with pytest.raises(quoracy.TimedOut):
                    await other.lock("a").acquire(timeout=0.02)

            async for _ in cancelled_everywhere(give_up):
                await eventually(lambda: alone(1))


async def test_waiting_goes_on_in_the_next_session(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        held = await one.lock("a").acquire()
        waiting = asyncio.create_task(other.lock("a").acquire())

        async def both() -> bool:
            return len(await one.lock("a").contenders()) == 2

        await eventually(both)
        before = await other.session()
        await place.store.revoke(before.id)
        before.lease_not_found()
        await other.wait_state(quoracy.SessionState.CONNECTED, timeout=20)
        await eventually(both)
        await held.release()
        assert (await waiting).is_held


# -- time ------------------------------------------------------------------------------------------


async def test_holder_knows_before_the_server_gives_it_away(timed: Place, clock: ManualClock) -> None:
    async with timed.connect(session_ttl=10.0) as q, timed.connect(session_ttl=10.0) as other:
        held = await q.lock("a").acquire()
        waiting = asyncio.create_task(other.lock("a").acquire())
        await clock.advance(100.0)
        held.check()  # kept alive all the time
        # The process stands still: nobody renews anything, no timer fires.
        clock.jump(9.6)
        assert not held.is_held
        with pytest.raises(quoracy.LockLost):
            held.check()
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_lock_held_for_too_long_is_lost(timed: Place, clock: ManualClock) -> None:
    async with timed.connect() as q:
        with pytest.raises(quoracy.LockLost, match="held for 5 s"):
            async with q.lock("a", hold_max=5.0):
                await clock.advance(6.0)
                await asyncio.get_running_loop().create_future()
        await until(lambda: q.cleanup.pending == 0)
        assert await q.lock("a").contenders() == ()


async def test_loss_that_nobody_noticed_is_told_at_the_end(place: Place, q: quoracy.Connection) -> None:
    with pytest.raises(quoracy.LockLost, match="when it was released"):
        async with q.lock("a") as held:
            await place.store.delete(held.key)
    assert held.lost.is_set()
    again = await q.lock("a").acquire()
    await place.store.delete(again.key)
    with pytest.raises(quoracy.LockLost):
        await again.release()


async def test_block_that_outlived_its_session_unnoticed_raises(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect(session_ttl=10.0) as q:
        with pytest.raises(quoracy.LockLost, match="could not be renewed in time"):
            async with q.lock("a"):
                clock.jump(20.0)  # the process stood still; nothing was awaited since


async def test_acquisition_that_is_closed_while_it_is_sent_leaves_no_place(
    place: Place, q: quoracy.Connection
) -> None:
    # As happens to tasks that are left when their loop ends, and to a coroutine that is driven by hand.
    lock = q.lock("a")
    acquiring = lock.acquire()
    acquiring.send(None)
    acquiring.close()
    async with place.connect() as other, asyncio.timeout(10):
        async with other.lock("a"):
            pass
        assert await lock.contenders() == ()
