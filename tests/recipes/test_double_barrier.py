"""DoubleBarrier: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.connection import Connection
from quoracy.client.recipes.double_barrier import (
    DoubleBarrier,
    Entered,
    Participant,
    RoundKeys,
    round_members,
)
from quoracy.clock import ManualClock
from tests.support.asking import contents, eventually, turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples


async def participants(place: Place, name: str = "x") -> int:
    keys = await contents(place.store, quoracy.KeyRange.prefix(place.key(name) + b"/in/"))
    return len(keys)


async def participating(place: Place, count: int) -> None:
    async def enough() -> bool:
        return await participants(place) == count

    await eventually(enough)


async def test_nobody_enters_before_all_are_there_and_nobody_leaves_before_all_are_done(
    place: Place,
) -> None:
    inside: list[int] = []
    left: list[int] = []
    go = asyncio.Event()

    async def work(number: int, q: Connection) -> Entered:
        async with DoubleBarrier(q, "x", 3) as entered:
            inside.append(number)
            if number == 2:
                await go.wait()
        left.append(number)
        return entered

    async with AsyncExitStack() as stack:
        qs = [await stack.enter_async_context(place.connect(identity=f"p{n}")) for n in range(3)]
        tasks = [asyncio.create_task(work(n, qs[n])) for n in range(2)]
        await participating(place, 2)
        assert inside == []
        tasks.append(asyncio.create_task(work(2, qs[2])))

        async def all_inside() -> bool:
            return len(inside) == 3

        await eventually(all_inside)
        with pytest.raises(quoracy.TimedOut):  # the round is closed to others
            await DoubleBarrier(qs[0], "x", 3).enter(timeout=0.05)
        assert left == []
        go.set()
        async with asyncio.timeout(20):
            entered = await asyncio.gather(*tasks)
        assert len({one.round for one in entered}) == 1
        assert {tuple(sorted(one.members)) for one in entered} == {("p0", "p1", "p2")}
        assert {one.missing for one in entered} == {()}
        assert list(await contents(place.store, place.corner)) == [place.key("x") + b"/withdrawn"]


async def test_rounds_follow_each_other_and_nobody_gets_ahead(place: Place) -> None:
    rounds: dict[int, list[int]] = {}

    async def work(q: Connection) -> None:
        barrier = DoubleBarrier(q, "x", 3)
        for number in range(4):
            async with barrier as entered:
                rounds.setdefault(entered.round, []).append(number)

    async with place.connect() as one, place.connect() as other:
        async with asyncio.timeout(60):
            await asyncio.gather(*(work(q) for q in (one, other, one)))
    assert [rounds[number] for number in sorted(rounds)] == [[n] * 3 for n in range(4)]


async def test_who_gives_up_waiting_is_not_counted(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        for timeout in (0.03, 0):
            with pytest.raises(quoracy.TimedOut):
                await DoubleBarrier(one, "x", 2).enter(timeout=timeout)
            assert await participants(place) == 0
        waiting = asyncio.create_task(DoubleBarrier(other, "x", 2).enter())
        await participating(place, 1)
        # What is there to be had is had without waiting.
        mine = await DoubleBarrier(one, "x", 2).enter(timeout=0)
        theirs = await waiting
        assert mine.round == theirs.round
        async with asyncio.timeout(20):
            await asyncio.gather(mine.leave(), theirs.leave())


async def test_participant_that_dies_before_the_round_does_not_count(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        async with place.connect() as dying:
            doomed = asyncio.create_task(DoubleBarrier(dying, "x", 2).enter())
            await participating(place, 1)
            session = await dying.session()
            await place.store.revoke(session.id)
            session.lease_not_found()
            with pytest.raises(quoracy.SessionLost):
                await doomed
        waiting = asyncio.create_task(DoubleBarrier(one, "x", 2).enter())
        await participating(place, 1)
        await turns()
        assert not waiting.done()
        theirs = await DoubleBarrier(other, "x", 2).enter(timeout=20)
        mine = await waiting
        await asyncio.gather(mine.leave(), theirs.leave())


async def test_participant_that_dies_inside_holds_nobody_up_and_is_missing(place: Place) -> None:
    async with place.connect(identity="ann") as one, place.connect(identity="bob") as other:
        entering = asyncio.create_task(DoubleBarrier(one, "x", 2).enter())
        await participating(place, 1)

        async def doomed() -> None:
            async with DoubleBarrier(other, "x", 2):
                session = await other.session()
                await place.store.revoke(session.id)
                session.lease_not_found()
                await asyncio.get_running_loop().create_future()

        dying = asyncio.create_task(doomed())
        async with asyncio.timeout(20):
            entered = await entering
            with pytest.raises(quoracy.LockLost):
                await dying
            await entered.leave()
        assert entered.missing == ("bob",)


async def test_participant_that_dies_while_the_others_leave_is_missing(place: Place) -> None:
    async with place.connect(identity="ann") as one, place.connect(identity="bob") as other:
        both = await asyncio.gather(*(DoubleBarrier(q, "x", 2).enter() for q in (one, other)))
        leaving = asyncio.create_task(both[0].leave())
        await asyncio.sleep(0.02)
        assert not leaving.done()
        await place.store.revoke((await other.session()).id)
        async with asyncio.timeout(20):
            await leaving
        assert both[0].missing == ("bob",)


async def test_block_that_raises_leaves_at_once_and_is_missing(place: Place) -> None:
    async def fail(q: Connection) -> None:
        async with DoubleBarrier(q, "x", 2):
            raise ZeroDivisionError

    async with place.connect(identity="ann") as one, place.connect(identity="bob") as other:
        failing = asyncio.create_task(fail(other))
        async with asyncio.timeout(20):
            async with DoubleBarrier(one, "x", 2) as entered:
                with pytest.raises(ZeroDivisionError):
                    await failing
        assert entered.missing == ("bob",)


async def test_leaving_that_takes_too_long_raises_and_counts_as_left(place: Place) -> None:
    async with place.connect(identity="ann") as one, place.connect(identity="bob") as other:
        first, second = await asyncio.gather(*(DoubleBarrier(q, "x", 2).enter() for q in (one, other)))
        with pytest.raises(quoracy.TimedOut, match="others to leave"):
            await first.leave(timeout=0.05)
        await first.leave()  # once is enough
        await second.leave(timeout=20)
        assert second.missing == ("ann",)  # it did not stay until the end


async def test_round_whose_members_all_died_is_cleared_away(place: Place) -> None:
    async with place.connect() as one:
        async with place.connect() as dying:
            await asyncio.gather(*(DoubleBarrier(dying, "x", 2).enter() for _ in range(2)))
        async with asyncio.timeout(20):
            both = await asyncio.gather(*(DoubleBarrier(one, "x", 2).enter() for _ in range(2)))
            await asyncio.gather(*(entered.leave() for entered in both))
        assert both[0].missing == ()


async def test_another_number_is_refused_and_disturbs_nobody(place: Place) -> None:
    async with place.connect() as q:
        waiting = asyncio.create_task(DoubleBarrier(q, "x", 2).enter())
        await participating(place, 1)
        with pytest.raises(quoracy.InvalidRequest, match="same number"):
            await DoubleBarrier(q, "x", 1).enter()
        both = await asyncio.gather(waiting, DoubleBarrier(q, "x", 2).enter(timeout=20))
        await asyncio.gather(*(entered.leave() for entered in both))
        with pytest.raises(quoracy.InvalidRequest, match="1 to"):
            DoubleBarrier(q, "x", 0)


async def test_participants_are_named_in_order(place: Place) -> None:
    async with place.connect(identity="ann") as ann, place.connect(identity="bob") as bob:
        tasks = []
        for count, q in enumerate((bob, ann), 1):
            tasks.append(asyncio.create_task(DoubleBarrier(q, "x", 3).enter()))
            await participating(place, count)
        assert await DoubleBarrier(ann, "x", 3).participants() == ("bob", "ann")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await participating(place, 0)


async def test_deleted_seat_ends_the_wait(place: Place, q: Connection) -> None:
    waiting = asyncio.create_task(DoubleBarrier(q, "x", 2).enter())
    await participating(place, 1)
    await place.store.delete(quoracy.KeyRange.prefix(place.key("x") + b"/in/"))
    async with asyncio.timeout(20):
        with pytest.raises(quoracy.SessionLost, match="deleted"):
            await waiting


async def test_cancelled_at_every_await_no_seat_is_left(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:

        async def give_up() -> None:
            with pytest.raises(quoracy.TimedOut):
                await DoubleBarrier(one, "x", 2).enter(timeout=0.01)

        async for _ in cancelled_everywhere(give_up):
            await participating(place, 0)

        partners: list[asyncio.Task[None]] = []

        async def enter(q: Connection) -> None:
            async with DoubleBarrier(q, "x", 2):
                await asyncio.sleep(0)

        def both() -> Coroutine[Any, Any, None]:
            partners.append(asyncio.create_task(enter(other)))
            return enter(one)

        async for attempt in cancelled_everywhere(both):
            if not attempt.completed:
                partners[-1].cancel()
            await asyncio.wait([partners[-1]])
            await participating(place, 0)
        assert not partners[-1].cancelled()


async def test_opener_does_not_count_on_who_has_given_up_meanwhile(timed: Place) -> None:
    async with timed.connect() as one, timed.connect() as other:
        keys = RoundKeys(timed.key("x"))
        first = Participant(one, await one.session(), keys, 2)
        second = Participant(other, await other.session(), keys, 2)
        await first.register()
        board = {kv.key: kv for kv in (await second.register()).kvs}  # both are there
        assert await first.withdraw_unless_in() is None
        assert await second.judge(board) is None
        assert keys.open not in await contents(timed.store)


async def test_who_gives_up_after_the_round_opened_is_in_it(timed: Place) -> None:
    async with timed.connect() as one, timed.connect() as other:
        keys = RoundKeys(timed.key("x"))
        first = Participant(one, await one.session(), keys, 2)
        second = Participant(other, await other.session(), keys, 2)
        await first.register()
        opened = await second.judge({kv.key: kv for kv in (await second.register()).kvs})
        assert opened is not None
        late = await first.withdraw_unless_in()
        assert late is not None
        assert late.create_revision == opened.create_revision


async def test_opener_that_hears_of_nothing_is_replaced(timed: Place, clock: ManualClock) -> None:
    """The one who completes the number dies before it opens the round: the next in line does."""
    async with timed.connect() as q:
        first = asyncio.create_task(DoubleBarrier(q, "x", 2).enter())
        await turns()
        async with timed.connect() as ghost:  # takes a seat, and never looks at the board
            value = (await timed.store.range(timed.corner)).kvs[0].value
            lease = (await ghost.session()).id
            await timed.store.put(timed.key("x") + b"/in/ghost", value, lease=lease)
            third = asyncio.create_task(DoubleBarrier(q, "x", 2).enter())
            await turns(100)
            assert not first.done()
            assert not third.done()
        async with asyncio.timeout(20):
            both = await asyncio.gather(first, third)
            await asyncio.gather(*(entered.leave() for entered in both))


@settings(max_examples=examples(25), deadline=None)
@given(
    count=st.integers(1, 3),
    fates=st.lists(
        st.sampled_from(["stays", "stays", "stays", "looks in", "fails", "lost"]), max_size=7
    ),
)
async def test_in_any_schedule_rounds_are_full_and_end(count: int, fates: list[str]) -> None:
    async with quoracy.open_store("memory:") as store:
        inside: dict[int, set[int]] = {}

        async def one(number: int, fate: str) -> None:
            async with quoracy.connect(store, identity=str(number)) as q:
                barrier = DoubleBarrier(q, "x", count)
                try:
                    async with barrier.inside(timeout=0 if fate == "looks in" else None) as entered:
                        assert str(number) in entered.members
                        inside.setdefault(entered.round, set()).add(number)
                        await asyncio.sleep(0)
                        if fate == "fails":
                            raise ZeroDivisionError
                        if fate == "lost":
                            (await q.session()).lease_not_found()
                            await asyncio.get_running_loop().create_future()
                except (quoracy.TimedOut, ZeroDivisionError, quoracy.LockLost):
                    return

        tasks = [asyncio.create_task(one(number, fate)) for number, fate in enumerate(fates)]

        async def too_few_are_left() -> bool:
            keys = RoundKeys(b"x")
            kvs = {kv.key: kv for kv in (await store.range(keys.everything)).kvs}
            opened = kvs.get(keys.open)
            members = () if opened is None else round_members(opened)
            busy = any(keys.record_of(member, kvs) for member in members)
            return not busy and sum(not task.done() for task in tasks) < count

        await eventually(too_few_are_left)  # whoever can enter does, and leaves
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Nobody dies while waiting here: so every round had all its members inside.
        assert all(len(members) == count for members in inside.values())
        assert not (await store.range(quoracy.KeyRange.prefix(b"x/in/"))).kvs
