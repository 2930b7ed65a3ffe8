"""Semaphore: what it promises, on every kind of store."""

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
from quoracy.client import queue_entry as attempts
from quoracy.client.recipes import semaphore
from quoracy.client.recipes.semaphore import Semaphore, Share
from quoracy.clock import ManualClock
from quoracy.store.model import Range, Txn
from tests.support.asking import eventually, turns, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place, open_place
from tests.support.profiles import examples
from tests.support.recording import Recording, Trouble, writes_to


async def waits(slots: Semaphore, count: int) -> None:
    """Until so many hold a share or wait for one."""

    async def are_there() -> bool:
        return len(await slots.contenders()) == count

    await eventually(are_there)


async def only_the_size_left(place: Place) -> None:
    async def is_so() -> bool:
        found = await place.store.range(place.corner, keys_only=True)
        return [kv.key for kv in found.kvs] == [place.key("a/size")]

    await eventually(is_so)


async def lose(place: Place, q: quoracy.Connection) -> None:
    session = await q.session()
    await place.store.revoke(session.id)
    session.lease_not_found()


@asynccontextmanager
async def troubled(tmp_path: Path) -> AsyncIterator[tuple[Recording, Semaphore, Place]]:
    """A semaphore of size 1 on a store that can be made to misbehave."""
    async with open_place("memory", tmp_path) as place:
        recording = Recording(place.store)
        async with quoracy.connect(recording, namespace=place.namespace) as q:
            yield recording, q.semaphore("a", 1), place


async def test_no_more_than_its_size_is_held(place: Place) -> None:
    held = held_max = 0
    tokens: list[int] = []

    async def work(number: int) -> None:
        nonlocal held, held_max
        async with place.connect() as q:
            for weight in (1, 2, 1):
                async with q.semaphore("a", 3).hold(weight) as share:
                    held += weight
                    held_max = max(held_max, held)
                    tokens.append(share.token)
                    assert share.is_held
                    await asyncio.sleep(0.001)
                    held -= weight

    await asyncio.gather(*(work(number) for number in range(4)))
    assert held_max <= 3
    assert held_max > 1
    assert len(set(tokens)) == 12
    await only_the_size_left(place)


async def test_shares_are_granted_in_order_with_growing_tokens(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        slots = one.semaphore("a", 2)
        first = await slots.acquire(weight=2)
        granted: list[tuple[int, int]] = []
        waiting = []

        async def wait(number: int) -> None:
            async with (one if number % 2 else other).semaphore("a", 2) as share:
                granted.append((share.token, number))
                await asyncio.sleep(0)

        for number in range(6):
            waiting.append(asyncio.create_task(wait(number)))
            await waits(slots, number + 2)
        await first.release()
        await asyncio.gather(*waiting)
        assert [number for _, number in sorted(granted)] == list(range(6))
        assert min(granted)[0] > first.token


async def test_heavy_waiter_is_not_starved_by_light_ones(place: Place, q: quoracy.Connection) -> None:
    slots = q.semaphore("a", 3)
    light = await slots.acquire()
    heavy = asyncio.create_task(slots.acquire(weight=3))
    await waits(slots, 2)
    assert await slots.try_acquire() is None  # there is room, but somebody waits
    late = asyncio.create_task(slots.acquire())
    await waits(slots, 3)
    assert not late.done()
    await light.release()
    share = await heavy
    assert share.weight == 3
    assert not late.done()
    await share.release()
    await (await late).release()


async def test_contenders_tell_who_holds_and_who_waits(place: Place) -> None:
    async with place.connect(identity="ann") as ann, place.connect(identity="bob") as bob:
        slots = ann.semaphore("a", 2)
        async with slots.hold(weight=2) as share:
            waiting = asyncio.create_task(bob.semaphore("a").acquire())
            await waits(slots, 2)
            holder, waiter = await slots.contenders()
            assert (holder.identity, holder.weight, holder.token) == ("ann", 2, share.token)
            assert holder.is_holding
            assert (waiter.identity, waiter.weight, waiter.token) == ("bob", 1, None)
            assert not waiter.is_holding
            assert await slots.holders() == (holder,)
        await (await waiting).release()


async def test_wait_that_is_over_raises_and_leaves_nothing(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        async with one.semaphore("a", 1):
            slots = other.semaphore("a", 1)
            with pytest.raises(quoracy.TimedOut, match="a share of 1 of the semaphore a"):
                await slots.acquire(timeout=0.03)
            with pytest.raises(quoracy.TimedOut):
                await slots.acquire(timeout=0)
            with pytest.raises(quoracy.TimedOut):
                async with slots.hold(timeout=0.01):
                    pytest.fail("the block was entered without holding")
            await waits(slots, 1)
        await only_the_size_left(place)


async def test_what_is_free_is_got_with_no_time_to_wait(place: Place, q: quoracy.Connection) -> None:
    slots = q.semaphore("a", 2)
    async with slots.hold(timeout=0), slots.hold(timeout=0):
        assert await slots.try_acquire() is None
    with pytest.raises(quoracy.InvalidRequest, match="timeout"):
        await slots.acquire(timeout=-1)


# -- the size --------------------------------------------------------------------------------------


async def test_first_who_names_a_size_sets_it_and_another_is_told(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        with pytest.raises(quoracy.InvalidRequest, match="the semaphore a has no size yet"):
            await other.semaphore("a").acquire()
        slots = one.semaphore("a", 2)
        async with slots:
            with pytest.raises(quoracy.InvalidRequest, match=r"has the size 2, and .* with 3"):
                await other.semaphore("a", 3).acquire()
            with pytest.raises(quoracy.InvalidRequest, match=r"has the size 2, and .* with 3"):
                await other.semaphore("a", 3).try_acquire()
            async with other.semaphore("a"), other.semaphore("b", 3):
                pass
            assert await other.semaphore("a").size() == 2
        assert await other.semaphore("a").size() == 2  # also when nobody is there


async def test_of_two_first_sizes_one_is_refused(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        answers = await asyncio.gather(
            one.semaphore("a", 2).size(), other.semaphore("a", 3).size(), return_exceptions=True
        )
        assert sorted(isinstance(answer, quoracy.InvalidRequest) for answer in answers) == [False, True]


async def test_size_that_was_set_at_the_last_moment_stays(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, slots, place), place.connect() as q:

        async def be_quicker() -> None:
            assert await q.semaphore("a", 5).size() == 5

        recording.interleave(be_quicker, writes_to(b"/size"))
        with pytest.raises(quoracy.InvalidRequest, match="has the size 5"):
            await slots.acquire()
        assert await q.semaphore("a").size() == 5


@pytest.mark.parametrize("number", [0, -1])
async def test_sizes_and_weights_are_at_least_one(tmp_path: Path, number: int) -> None:
    async with open_place("memory", tmp_path) as place, place.connect() as q:
        with pytest.raises(quoracy.InvalidRequest, match="the size of the semaphore a"):
            q.semaphore("a", number)
        slots = q.semaphore("a", 2)
        for refused in (slots.resize(number), slots.acquire(number), slots.try_acquire(number)):
            with pytest.raises(quoracy.InvalidRequest, match=f"is {number}"):
                await refused
        with pytest.raises(quoracy.InvalidRequest, match="cannot be granted: its size is 2"):
            await slots.acquire(weight=3)
        await only_the_size_left(place)


async def test_larger_size_serves_those_who_wait(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        slots = one.semaphore("a", 1)
        first = await slots.acquire()
        waiting = [asyncio.create_task(slots.acquire()) for _ in range(3)]
        await waits(slots, 4)
        await other.semaphore("a").resize(3)
        await until(lambda: sum(task.done() for task in waiting) == 2)
        assert [each.is_holding for each in await slots.contenders()] == [True, True, True, False]
        await first.release()
        for task in waiting:
            await (await task).release()
        assert await slots.size() == 3
        async with slots.hold(weight=3):  # what had agreed with the size before goes on
            pass


async def test_smaller_size_evicts_nobody_and_grants_nothing_until_it_fits(
    place: Place, q: quoracy.Connection
) -> None:
    slots = q.semaphore("a", 4)
    held = [await slots.acquire() for _ in range(4)]
    waiting = asyncio.create_task(slots.acquire(weight=2))
    await waits(slots, 5)
    await slots.resize(2)
    for share in held[:3]:
        await share.release()
        await turns()
        assert [each.weight for each in (await slots.contenders())[-1:]] == [2]
        assert not waiting.done()
    assert held[3].is_held
    await held[3].release()
    assert (await waiting).is_held
    await (await waiting).release()


async def test_waiter_too_heavy_for_the_new_size_is_told_and_blocks_nobody(
    place: Place, q: quoracy.Connection
) -> None:
    slots = q.semaphore("a", 4)
    share = await slots.acquire()
    heavy = asyncio.create_task(slots.acquire(weight=4))
    await waits(slots, 2)
    light = asyncio.create_task(slots.acquire())
    await waits(slots, 3)
    await slots.resize(2)
    with pytest.raises(quoracy.InvalidRequest, match=r"a share of 4 .* its size is 2"):
        await heavy
    async with release_txn(await light):
        assert share.is_held
    await share.release()
    await only_the_size_left(place)


async def test_size_that_is_gone_is_set_again(place: Place, q: quoracy.Connection) -> None:
    slots = q.semaphore("a", 1)
    share = await slots.acquire()
    waiting = asyncio.create_task(slots.acquire())
    await waits(slots, 2)
    await place.store.delete(place.key("a/size"))
    await share.release()
    await (await waiting).release()
    assert await slots.size() == 1


# -- loss ------------------------------------------------------------------------------------------


async def test_lost_session_frees_its_share_and_ends_the_block(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        slots = other.semaphore("a")
        with pytest.raises(quoracy.LockLost, match="a share of 2 of the semaphore a"):
            async with one.semaphore("a", 2).hold(weight=2) as share:
                waiting = asyncio.create_task(slots.acquire())
                await waits(slots, 2)
                await lose(place, one)
                await asyncio.get_running_loop().create_future()
        assert share.lost.is_set()
        async with release_txn(await waiting) as next_share:
            assert next_share.token > share.token
            assert await slots.try_acquire() is not None


async def test_deleted_share_cancels_the_body(place: Place, q: quoracy.Connection) -> None:
    with pytest.raises(quoracy.LockLost, match="deleted"):
        async with q.semaphore("a", 1) as share:
            await place.store.delete(share.key)
            await asyncio.get_running_loop().create_future()


async def test_block_whose_share_was_deleted_at_its_end_raises(
    place: Place, q: quoracy.Connection
) -> None:
    with pytest.raises(quoracy.LockLost):
        async with q.semaphore("a", 1) as share:
            await place.store.delete(share.key)


async def test_waiting_goes_on_in_the_next_session(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        slots = one.semaphore("a", 1)
        share = await slots.acquire()
        waiting = [asyncio.create_task(other.semaphore("a").acquire()) for _ in range(2)]
        await waits(slots, 3)
        before = {each.key for each in (await slots.contenders())[1:]}
        await lose(place, other)

        async def again() -> bool:
            now = await slots.contenders()
            return len(now) == 3 and not before & {each.key for each in now}

        await eventually(again)
        await share.release()
        for task in asyncio.as_completed(waiting):
            await (await task).release()


async def test_waiter_whose_key_was_deleted_waits_again(place: Place, q: quoracy.Connection) -> None:
    slots = q.semaphore("a", 1)
    share = await slots.acquire()
    waiting = asyncio.create_task(slots.acquire())
    await waits(slots, 2)
    await place.store.delete((await slots.contenders())[1].key)
    await share.release()
    async with release_txn(await waiting) as held:
        assert [each.token for each in await slots.contenders()] == [held.token]


# -- cancellation ----------------------------------------------------------------------------------


async def test_cancelled_at_every_await_nothing_is_left(place: Place) -> None:
    async with place.connect() as q:
        slots = q.semaphore("a", 1)
        await slots.size()

        async def use() -> None:
            async with slots.hold():
                await asyncio.sleep(0)
            share = await slots.try_acquire()
            if share is not None:  # a place that was given up may still be on its way out
                await share.release()

        async for _ in cancelled_everywhere(use):
            await only_the_size_left(place)


async def test_cancelled_while_waiting_and_while_being_served_nothing_is_left(tmp_path: Path) -> None:
    async with (
        open_place("memory", tmp_path) as place,
        place.connect() as one,
        place.connect() as other,
    ):
        slots, mine = one.semaphore("a", 1), other.semaphore("a")
        first, handing_over = await slots.acquire(), asyncio.create_task(turns(0))

        async def hand_over() -> None:
            await waits(slots, 2)
            await first.release()

        async def wait() -> None:
            nonlocal handing_over
            handing_over = asyncio.create_task(hand_over())
            async with mine.hold():
                await asyncio.sleep(0)

        async for _ in cancelled_everywhere(wait):
            handing_over.cancel()
            await asyncio.wait([handing_over])
            await first.release()
            await only_the_size_left(place)
            first = await slots.acquire()


# -- trouble ---------------------------------------------------------------------------------------


async def test_grant_whose_answer_is_lost_is_found_and_not_made_twice(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, slots, place):
        first = await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await waits(slots, 2)
        behind = asyncio.create_task(slots.acquire())
        await waits(slots, 3)
        recording.plan(Trouble.ANSWER_LOST, writes_to(b"/holders/"))
        await first.release()
        async with release_txn(await asyncio.wait_for(waiting, 10)) as share:
            assert recording.met.is_set()
            assert [each.token for each in await slots.contenders()] == [share.token, None]
        await (await behind).release()
        await only_the_size_left(place)


async def test_grant_that_arrives_late_changes_nothing(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, slots, place):
        first = await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await waits(slots, 2)
        recording.plan(Trouble.LATE, writes_to(b"/holders/"))
        await first.release()
        share = await asyncio.wait_for(waiting, 10)  # asked for again
        await recording.arrive()
        assert [each.token for each in await slots.contenders()] == [share.token]
        await share.release()
        await recording.arrive()
        await only_the_size_left(place)


async def test_cancelled_after_a_grant_of_unknown_outcome_nothing_is_left(tmp_path: Path) -> None:
    for trouble in (Trouble.LATE, Trouble.ANSWER_LOST):
        async with troubled(tmp_path) as (recording, slots, place):
            first = await slots.acquire()
            waiting = asyncio.create_task(slots.acquire())
            await waits(slots, 2)
            recording.plan(trouble, writes_to(b"/holders/"))
            await first.release()
            await recording.met.wait()
            recording.plan(Trouble.REFUSED, writes_to(b"/holders/", deletes=True))
            waiting.cancel()
            await asyncio.wait([waiting])
            await only_the_size_left(place)
            await recording.arrive()
            await turns()
            await only_the_size_left(place)


async def test_acquisition_of_unknown_outcome_raises_and_is_taken_back(tmp_path: Path) -> None:
    for trouble in (Trouble.LATE, Trouble.ANSWER_LOST):
        for acquire in ("acquire", "try_acquire"):
            async with troubled(tmp_path) as (recording, slots, place):
                await slots.size()
                recording.plan(trouble, writes_to(b"/holders/"))
                with pytest.raises(quoracy.Indeterminate):
                    await getattr(slots, acquire)()
                await only_the_size_left(place)
                await turns()
                await recording.arrive()
                await only_the_size_left(place)
                async with slots:
                    pass


async def test_refused_while_waiting_is_asked_again(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, slots, _):
        first = await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await waits(slots, 2)
        recording.plan(Trouble.REFUSED, writes_to(b"/holders/"))
        await first.release()
        async with release_txn(await asyncio.wait_for(waiting, 10)) as share:
            assert share.is_held
        recording.plan(Trouble.REFUSED, writes_to(b"/holders/"))
        with pytest.raises(quoracy.Unavailable):
            await slots.acquire()


async def test_size_that_changes_at_the_last_moment_is_obeyed(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, slots, place):
        other = Recording(place.store)
        async with quoracy.connect(other, namespace=place.namespace) as q:

            async def shrink() -> None:
                await q.semaphore("a").resize(1)

            await slots.resize(2)
            recording.interleave(shrink, writes_to(b"/holders/"))
            with pytest.raises(quoracy.InvalidRequest, match="its size is 1"):
                await slots.acquire(weight=2)
            await slots.resize(2)
            recording.interleave(shrink, writes_to(b"/holders/"))
            with pytest.raises(quoracy.InvalidRequest, match="its size is 1"):
                await slots.try_acquire(weight=2)
            await slots.resize(2)
            first = await slots.acquire()
            waiting = asyncio.create_task(slots.acquire(weight=2))
            await waits(slots, 2)
            recording.interleave(shrink, writes_to(b"/holders/"))
            await first.release()
            with pytest.raises(quoracy.InvalidRequest, match="its size is 1"):
                await waiting
        await only_the_size_left(place)


async def test_one_who_joined_at_the_last_moment_is_first(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, slots, place), place.connect() as q:
        waiting: list[asyncio.Task[Share]] = []

        async def join() -> None:
            waiting.append(asyncio.create_task(q.semaphore("a").acquire(weight=2)))
            await waits(slots, 2)

        await slots.resize(2)
        first = await slots.acquire()
        recording.interleave(join, writes_to(b"/holders/"))
        late = asyncio.create_task(slots.acquire())
        await waits(slots, 3)
        assert len(await slots.holders()) == 1
        await first.release()
        await (await waiting[0]).release()
        first = await late
        recording.interleave(join, writes_to(b"/holders/"))
        assert await slots.try_acquire() is None
        await first.release()
        await (await waiting[1]).release()


async def test_session_that_ended_unnoticed_is_replaced(timed: Place) -> None:
    async with timed.connect() as q:
        slots = q.semaphore("a", 1)
        await slots.size()
        await timed.store.revoke((await q.session()).id)
        async with slots.hold(timeout=1000):  # of a clock that stands still
            pass


async def test_forgotten_history_while_waiting_grants_nothing(tmp_path: Path) -> None:
    async with troubled(tmp_path) as (recording, slots, _):
        first = await slots.acquire()

        def has_joined(txn: Txn) -> bool:
            """Whether it looks, and has joined the queue before."""
            return joined.is_set() and any(
                isinstance(op, Range) and op.keys == slots._keys.size for op in txn.then
            )

        def joins(txn: Txn) -> bool:
            if writes_to(b"/waiting/")(txn):
                joined.set()
            return False

        joined = asyncio.Event()
        recording.plan(Trouble.REFUSED, joins)
        recording.plan(Trouble.OVERTAKEN, has_joined)
        waiting = asyncio.create_task(slots.acquire())
        await recording.met.wait()
        await turns()
        assert not waiting.done()
        assert [each.is_holding for each in await slots.contenders()] == [True, False]
        await first.release()
        await (await waiting).release()


# -- who watches what, and how much is read ---------------------------------------------------------


async def test_one_waits_for_room_and_the_others_for_the_one_before_them(
    timed: Place, clock: ManualClock
) -> None:
    recording = Recording(timed.store)
    # Holders watch their own keys after a while: on this clock, never.
    async with quoracy.connect(recording, namespace=timed.namespace, clock=clock) as q:
        slots = q.semaphore("a", 1)
        await slots.acquire()
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(slots.acquire()))
            await waits(slots, number + 2)
            await watches(recording, number + 1)
        waiting = [each.key for each in (await slots.contenders())[1:]]
        assert recording.watched == [slots._keys.decisive, *waiting[:3]]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watches(recording: Recording, count: int) -> None:
    await until(lambda: len(recording.watched) == count)


async def test_holders_are_counted_however_many_pages_they_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "PAGE", 2)
    monkeypatch.setattr(semaphore, "PAGE", 2)
    async with open_place("memory", tmp_path) as place, place.connect() as q:
        slots = q.semaphore("a", 7)
        shares = [await slots.acquire() for _ in range(7)]
        assert await slots.try_acquire() is None
        assert [each.token for each in await slots.holders()] == [share.token for share in shares]


# -- any order of events, against a list -----------------------------------------------------------


@asynccontextmanager
async def release_txn(share: Share) -> AsyncIterator[Share]:
    try:
        yield share
    finally:
        await share.release()


@dataclass
class Someone:
    weight: int
    connection: int
    task: asyncio.Task[Share]


@dataclass
class Model:
    """Who holds and who waits, and the rule: the first who waits is served when it fits."""

    size: int = 3
    holders: list[Someone] = field(default_factory=list)
    waiting: list[Someone] = field(default_factory=list)
    refused: list[Someone] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.size - sum(each.weight for each in self.holders)

    def serve(self) -> None:
        while self.waiting:
            if self.waiting[0].weight > self.size:
                self.refused.append(self.waiting.pop(0))
            elif self.waiting[0].weight <= self.room:
                self.holders.append(self.waiting.pop(0))
            else:
                return


STEPS = st.one_of(
    st.tuples(st.sampled_from(["acquire 0", "acquire 1", "try 0", "try 1"]), st.integers(1, 3)),
    st.tuples(st.sampled_from(["release", "cancel"]), st.integers(0, 7)),
    st.tuples(st.just("resize"), st.integers(1, 5)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, max_size=25))
async def test_any_schedule_is_what_two_lists_say(tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    async with open_place("memory", tmp_path) as place, place.connect() as one, place.connect() as two:
        model = Model()
        await one.semaphore("a", model.size).size()
        try:
            for step, number in steps:
                await take_step(place, (one, two), model, step, number)
                model.serve()
                await agrees(one.semaphore("a"), model)
        finally:
            everyone = [each.task for each in (*model.holders, *model.waiting, *model.refused)]
            for task in everyone:
                task.cancel()
            await asyncio.gather(*everyone, return_exceptions=True)


async def take_step(
    place: Place,
    connections: tuple[quoracy.Connection, quoracy.Connection],
    model: Model,
    step: str,
    number: int,
) -> None:
    step, _, which = step.partition(" ")
    if step in ("acquire", "try"):
        slots = connections[int(which)].semaphore("a")
        if number > model.size:
            with pytest.raises(quoracy.InvalidRequest):
                await slots.acquire(number)
        elif step == "acquire":
            task = asyncio.create_task(slots.acquire(number))
            model.waiting.append(Someone(number, int(which), task))
            await waits(slots, len(model.holders) + len(model.waiting))
        else:
            await try_it(slots, model, number, int(which))
    elif step == "release" and model.holders:
        each = model.holders.pop(number % len(model.holders))
        await (await each.task).release()
    elif step == "cancel" and model.waiting:
        each = model.waiting.pop(number % len(model.waiting))
        each.task.cancel()
        await asyncio.wait([each.task])
    elif step == "resize":
        await connections[0].semaphore("a").resize(number)
        model.size = number
    elif step == "lose":
        await lose_one(place, connections[number], model, number)


async def lose_one(place: Place, q: quoracy.Connection, model: Model, number: int) -> None:
    # Those who wait would wait again, in whichever order they come to it: they go first.
    while leaving := [each for each in model.waiting if each.connection == number]:
        each = leaving[0]
        each.task.cancel()
        await asyncio.wait([each.task])
        model.waiting.remove(each)
        model.serve()
        await agrees(q.semaphore("a"), model)
    lost = [each for each in model.holders if each.connection == number]
    await lose(place, q)
    for each in lost:
        model.holders.remove(each)
        assert not each.task.result().is_held


async def try_it(slots: Semaphore, model: Model, weight: int, number: int) -> None:
    share = await slots.try_acquire(weight)
    assert (share is not None) == (not model.waiting and weight <= model.room)
    if share is not None:

        async def have() -> Share:
            return share

        model.holders.append(Someone(weight, number, asyncio.create_task(have())))


async def agrees(slots: Semaphore, model: Model) -> None:
    await waits(slots, len(model.holders) + len(model.waiting))
    await asyncio.wait_for(asyncio.gather(*(each.task for each in model.holders)), 20)
    for each in model.refused:
        with pytest.raises(quoracy.InvalidRequest):
            await asyncio.wait_for(each.task, 20)
    model.refused.clear()
    await turns()
    assert not any(each.task.done() for each in model.waiting)
    tokens = [each.task.result().token for each in model.holders]
    assert tokens == sorted(set(tokens))
    found = await slots.contenders()
    assert [each.token for each in found] == tokens + [None] * len(model.waiting)
    assert [each.weight for each in found] == [each.weight for each in (*model.holders, *model.waiting)]
