"""WorkQueue: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.in_flight import Outcome
from quoracy.client.job import Job
from quoracy.client.queue_items import Window
from quoracy.client.recipes.work_queue import WorkQueue, WorkStats
from quoracy.clock import ManualClock
from quoracy.store.model import KeyRange, Put, Txn
from tests.support.asking import eventually, turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples


@pytest.fixture
async def here() -> AsyncIterator[quoracy.Connection]:
    """Where the kind of store makes no difference."""
    async with quoracy.connect("memory:") as connection:
        yield connection


async def counts(work: WorkQueue[str]) -> tuple[int, int, int]:
    stats = await work.stats()
    return stats.waiting, stats.claimed, stats.dead


async def lose_session(place: Place, q: quoracy.Connection) -> None:
    """As after its time to live: the store ends it, the connection is told, and has its next one."""
    session = await q.session()
    await place.store.revoke(session.id)
    session.lease_not_found()
    await q.wait_state(quoracy.SessionState.CONNECTED, timeout=20)


async def test_block_left_normally_acknowledges(place: Place, q: quoracy.Connection) -> None:
    work = q.work_queue("a", str)
    await work.put_many(["x", "y"])
    async with work.claim(timeout=5) as job:
        assert (job.item, job.attempts, job.is_held) == ("x", 1, True)
        assert await counts(work) == (1, 1, 0)
    assert job.is_acknowledged
    assert not job.is_held
    assert await counts(work) == (1, 0, 0)
    async with work.claim(timeout=5) as job:
        assert job.item == "y"
        await job.ack()
        await job.ack()  # a second time does nothing
        assert await counts(work) == (0, 0, 0)
    left = (await place.store.range(place.corner, keys_only=True)).kvs
    assert [kv.key for kv in left] == [place.key("a/tail")]


async def test_exception_returns_the_item_to_its_old_place(q: quoracy.Connection) -> None:
    work = q.work_queue("a", str)
    await work.put_many(["x", "y", "z"])
    with pytest.raises(ZeroDivisionError):
        async with work.claim() as job:
            raise ZeroDivisionError
    assert not job.is_acknowledged
    assert await counts(work) == (3, 0, 0)
    order = []
    other = q.work_queue("a", str)
    for _ in range(3):
        async with other.claim(timeout=0) as job:
            order.append((job.item, job.attempts))
    assert order == [("x", 2), ("y", 1), ("z", 1)]


async def test_release_returns_the_item(q: quoracy.Connection) -> None:
    work = q.work_queue("a", str)
    await work.put("x")
    async with work.claim() as job:
        await job.release()
        assert await counts(work) == (1, 0, 0)
    assert not job.is_acknowledged
    job = await work.take(timeout=0)
    assert (job.item, job.attempts) == ("x", 2)
    await job.ack()
    with pytest.raises(quoracy.TimedOut):
        await work.take(timeout=0)
    with pytest.raises(quoracy.TimedOut):
        async with work.claim(timeout=0.01):
            pytest.fail("the block was entered without a job")


async def test_lost_session_returns_the_item_at_once_and_cancels_the_body(place: Place) -> None:
    async with place.connect() as dying, place.connect() as other:
        work, elsewhere = dying.work_queue("a", str), other.work_queue("a", str)
        await work.put_many(["x", "y"])
        waiting: asyncio.Task[Job[str]] | None = None
        with pytest.raises(quoracy.LockLost):
            async with work.claim() as job:
                assert await second(elsewhere) == "y"
                waiting = asyncio.create_task(elsewhere.take(timeout=60))
                await lose_session(place, dying)
                await asyncio.get_running_loop().create_future()
        assert waiting is not None
        again = await waiting
        assert (again.item, again.attempts) == ("x", 2)
        assert again.token > job.token
        with pytest.raises(quoracy.LockLost):
            await job.ack()
        await again.ack()


async def second(work: WorkQueue[str]) -> str:
    async with work.claim(timeout=5) as job:
        return job.item


async def test_acknowledgement_of_a_lost_claim_is_refused_by_the_store(place: Place) -> None:
    """The worker does not know yet: only the store can tell."""
    async with place.connect() as paused, place.connect() as other:
        work, elsewhere = paused.work_queue("a", str), other.work_queue("a", str)
        await work.put("x")
        job = await work.take()
        await place.store.delete(job.key)  # as the end of its lease does
        again = await elsewhere.take(timeout=5)
        with pytest.raises(quoracy.LockLost):
            await job.ack()
        assert not job.is_acknowledged
        await job.release()  # takes nothing from the one who has it
        assert again.is_held
        assert await counts(elsewhere) == (0, 1, 0)
        await again.ack()
        assert await counts(elsewhere) == (0, 0, 0)


async def test_block_whose_claim_was_deleted_is_cancelled(place: Place, q: quoracy.Connection) -> None:
    work = q.work_queue("a", str)
    await work.put("x")
    with pytest.raises(quoracy.LockLost, match="deleted"):
        async with work.claim() as job:
            await place.store.delete(job.key)
            await asyncio.get_running_loop().create_future()
    assert await counts(work) == (1, 0, 0)


async def test_tokens_grow_across_claims_and_each_item_has_one_worker(place: Place) -> None:
    done: list[tuple[int, str]] = []
    busy: Counter[str] = Counter()
    async with place.connect() as one, place.connect() as other:
        queues = [one.work_queue("a", str), other.work_queue("a", str)]
        await queues[0].put_many([str(number) for number in range(60)])

        async def worker(work: WorkQueue[str], number: int) -> None:
            while True:
                try:
                    async with work.claim(timeout=0) as job:
                        busy[job.item] += 1
                        assert busy[job.item] == 1
                        await asyncio.sleep(0)
                        busy[job.item] -= 1
                        if job.attempts == 1 and int(job.item) % 7 == number:
                            raise LookupError
                        done.append((job.token, job.item))
                except LookupError:
                    pass
                except quoracy.TimedOut:
                    return

        await asyncio.gather(*(worker(queues[at % 2], at) for at in range(5)))
        # Who found nothing may have left before the last was returned.
        await worker(queues[0], -1)
    assert sorted(int(item) for _, item in done) == list(range(60))
    assert len({token for token, _ in done}) == 60


async def test_item_that_fails_too_often_becomes_a_dead_letter(q: quoracy.Connection) -> None:
    work = q.work_queue("a", str, attempts_max=2)
    await work.put_many(["poison", "fine"])
    for attempt in (1, 2):
        with pytest.raises(ValueError, match="bad"):
            async with work.claim(timeout=0) as job:
                assert (job.item, job.attempts) == ("poison", attempt)
                raise ValueError("bad item")
    assert await second(work) == "fine"
    assert await counts(work) == (0, 0, 1)
    (letter,) = await work.dead_letters()
    assert (letter.item, letter.attempts, letter.reason) == ("poison", 2, "ValueError: bad item")
    assert await work.requeue(letter)
    assert not await work.requeue(letter)
    assert await counts(work) == (1, 0, 0)
    async with work.claim(timeout=0) as job:
        assert (job.item, job.attempts) == ("poison", 1)
        await job.fail("not yet")
    assert await counts(work) == (1, 0, 0)


async def test_item_whose_workers_die_becomes_a_dead_letter(place: Place) -> None:
    async with place.connect() as q:
        work = q.work_queue("a", str, attempts_max=2)
        await work.put("kills")
        for _ in range(2):
            await work.take(timeout=5)
            await lose_session(place, q)
        with pytest.raises(quoracy.TimedOut):
            await work.take(timeout=0)
        (letter,) = await work.dead_letters()
        assert (letter.item, letter.attempts) == ("kills", 2)
        assert "never acknowledged" in letter.reason
        assert await work.discard(letter)
        assert not await work.discard(letter)
        assert await counts(work) == (0, 0, 0)


async def test_unreadable_item_becomes_a_dead_letter_and_the_work_goes_on(
    here: quoracy.Connection,
) -> None:
    await here.work_queue("a", str).put("no number")
    numbers = here.work_queue("a", int)
    await numbers.put(7)
    async with numbers.claim(timeout=5) as job:
        assert job.item == 7
    (letter,) = await numbers.dead_letters()
    assert letter.data == b"no number"
    with pytest.raises(quoracy.ValueUnreadable):
        _ = letter.item


async def test_dead_letters_come_in_pages(here: quoracy.Connection) -> None:
    work = here.work_queue("a", str, attempts_max=1)
    await work.put_many(list("abcde"))
    for _ in range(5):
        await (await work.take(timeout=0)).fail("no")
    first = await work.dead_letters(limit=3)
    rest = await work.dead_letters(limit=3, after=first[-1])
    assert [letter.item for letter in (*first, *rest)] == list("abcde")
    assert {letter.reason for letter in (*first, *rest)} == {"no"}


async def test_returned_item_wakes_one_who_waits(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        work, elsewhere = one.work_queue("a", str), other.work_queue("a", str)
        await work.put("x")
        job = await work.take()
        waiting = asyncio.create_task(elsewhere.take(timeout=60))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await job.release()
        assert (await waiting).attempts == 2


async def test_item_returned_elsewhere_comes_first_again_within_a_moment(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as one, timed.connect() as other:
        work, elsewhere = one.work_queue("a", str), other.work_queue("a", str)
        await work.put_many(["x", "y", "z"])
        job = await work.take()
        assert (await elsewhere.take()).item == "y"  # and it has seen z
        await job.release()
        await clock.advance(0.03)
        assert (await elsewhere.take()).item == "x"


async def test_item_returned_while_others_are_looked_at_is_not_missed(
    place: Place, q: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that goes on behind the claimed items: what comes back before it meanwhile counts."""
    work = q.work_queue("a", str)
    await work.put("x")
    job = await work.take()
    await place.store.put(place.key("a/tail"), b"%012x" % 3000)  # as after much traffic
    look = work._items.look

    async def look_late(start: int | None = None) -> Window:
        if start is not None and job.is_held:
            await job.release()
        return await look(start)

    monkeypatch.setattr(work._items, "look", look_late)
    assert (await work.take(timeout=10)).item == "x"


async def test_free_item_is_found_behind_many_that_are_claimed(place: Place) -> None:
    """More claims than a look shows, over several buckets; then the first of all is returned."""
    async with place.connect() as q:
        work = q.work_queue("a", int)
        for number in range(0, 700, 100):
            await work.put_many(range(number, number + 100))
        items = KeyRange.prefix(place.key("a/items/"))
        session = await q.session()
        claim_of = {
            kv.value: kv.key.replace(b"/items/", b"/claims/") + b"/other"
            for kv in (await place.store.range(items)).kvs
        }
        claims = [claim for value, claim in claim_of.items() if value != b"650"]
        for at in range(0, len(claims), 100):
            puts = tuple(Put(key, b"", session.id) for key in claims[at : at + 100])
            await place.store.txn(Txn(then=puts))
        job = await work.take(timeout=0)
        assert job.item == 650
        with pytest.raises(quoracy.TimedOut):
            await work.take(timeout=0)
        await place.store.delete(claim_of[b"0"])
        assert (await work.take(timeout=5)).item == 0


async def test_cancellation_anywhere_leaves_no_claim_and_loses_nothing(place: Place) -> None:
    async with place.connect() as q:
        work = q.work_queue("a", str, attempts_max=None)
        present, done = {"0", "1"}, set[str]()
        await work.put_many(sorted(present))

        async def one_job() -> None:
            async with work.claim(timeout=20) as job:
                done.add(job.item)

        async def unclaimed() -> bool:
            return (await work.stats()).claimed == 0

        async for attempt in cancelled_everywhere(one_job):
            assert not attempt.swallowed
            await eventually(unclaimed)
            items = (await place.store.range(KeyRange.prefix(place.key("a/items/")))).kvs
            gone = present - {kv.value.decode() for kv in items}
            # Cancelled while the acknowledgement was on its way, it may have gone through.
            assert gone <= done
            assert gone or not attempt.completed
            present -= gone
            if gone:
                present.add(str(attempt.point + 1))
                await work.put(str(attempt.point + 1))
        assert not q._keys_reserved


async def test_cancelled_wait_leaves_nothing(place: Place) -> None:
    async with place.connect() as q:
        work = q.work_queue("a", str)

        async def wait() -> None:
            with pytest.raises(quoracy.TimedOut):
                await work.take(timeout=0.01)

        async for attempt in cancelled_everywhere(wait):
            assert not attempt.swallowed
        assert (await place.store.range(place.corner)).kvs == ()


async def test_waiting_goes_on_with_the_next_session(place: Place) -> None:
    async with place.connect() as q:
        work = q.work_queue("a", str)
        waiting = asyncio.create_task(work.take(timeout=60))
        await turns()
        await lose_session(place, q)
        await work.put("x")
        job = await waiting
        assert job.is_held
        await job.ack()


async def test_claim_held_too_long_is_lost(timed: Place, clock: ManualClock) -> None:
    async with timed.connect() as q:
        work = q.work_queue("a", str, hold_max=3)
        await work.put("x")

        async def hang() -> None:
            async with work.claim():
                await asyncio.get_running_loop().create_future()

        hanging = asyncio.create_task(hang())
        await turns()
        await clock.advance(2.9)
        assert await work.stats() == WorkStats(0, 1, 0, (await work.stats()).revision)
        await clock.advance(0.2)
        with pytest.raises(quoracy.LockLost, match="held for 3 s"):
            await hanging
        await turns()
        assert await counts(work) == (1, 0, 0)


class Answering:
    """Answers the next write that has `key` in it with an error, after it was applied or instead."""

    def __init__(
        self, q: quoracy.Connection, patch: pytest.MonkeyPatch, error: Exception, *, applied: bool
    ) -> None:
        begin = q.writes.begin

        def answer(txn: Txn) -> Outcome:
            patch.undo()
            outcome = Outcome(asyncio.get_running_loop())
            if applied:
                begin(txn).add_done_callback(lambda _: outcome.done(None, error))
            else:
                outcome.done(None, error)
            return outcome

        patch.setattr(q.writes, "begin", answer)


@pytest.mark.parametrize("applied", [True, False])
async def test_claim_with_an_unknown_outcome_is_given_back(
    place: Place, q: quoracy.Connection, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    work = q.work_queue("a", str)
    await work.put("x")
    Answering(q, monkeypatch, quoracy.Indeterminate("the connection broke"), applied=applied)
    with pytest.raises(quoracy.Indeterminate):
        await work.take()

    async def free() -> bool:
        return await counts(work) == (1, 0, 0)

    await eventually(free)
    async with place.connect() as other:
        job = await other.work_queue("a", str).take(timeout=5)
        # What watches for the lost claim to appear does not touch anybody else's.
        await turns(50)
        assert job.attempts == (2 if applied else 1)
        await job.ack()


async def test_acknowledgement_that_was_not_taken_can_be_sent_again(
    here: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = here.work_queue("a", str)
    await work.put("x")
    async with work.claim() as job:
        Answering(here, monkeypatch, quoracy.Unavailable("no leader"), applied=False)
        with pytest.raises(quoracy.Unavailable):
            await job.ack()
        assert job.is_held
    assert job.is_acknowledged
    assert await counts(work) == (0, 0, 0)


async def test_block_that_cannot_acknowledge_returns_the_item_and_says_so(
    here: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = here.work_queue("a", str)
    await work.put("x")
    with pytest.raises(quoracy.Unavailable):
        async with work.claim() as job:
            Answering(here, monkeypatch, quoracy.Unavailable("no leader"), applied=False)
    assert not job.is_acknowledged
    assert await counts(work) == (1, 0, 0)


@pytest.mark.parametrize("applied", [True, False])
async def test_acknowledgement_with_an_unknown_outcome_holds_nothing(
    here: quoracy.Connection, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    work = here.work_queue("a", str)
    await work.put("x")
    with pytest.raises(quoracy.Indeterminate, match="done once more"):
        async with work.claim():
            Answering(here, monkeypatch, quoracy.Indeterminate("it broke"), applied=applied)

    async def settled() -> bool:
        return await counts(work) == (0 if applied else 1, 0, 0)

    await eventually(settled)


async def test_cancelled_acknowledgement_that_was_not_taken_returns_the_item(
    here: quoracy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = here.work_queue("a", str)
    await work.put("x")
    job = await work.take()
    outcome = Outcome(asyncio.get_running_loop())
    with monkeypatch.context() as patch:
        patch.setattr(here.writes, "begin", lambda _: outcome)
        acknowledging = asyncio.create_task(job.ack())
        await turns()
    acknowledging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acknowledging
    outcome.done(None, quoracy.Unavailable("no leader"))

    async def returned() -> bool:
        return await counts(work) == (1, 0, 0)

    await eventually(returned)


async def test_nonsense_is_refused(here: quoracy.Connection) -> None:
    with pytest.raises(quoracy.InvalidRequest, match="attempts_max"):
        here.work_queue("a", str, attempts_max=0)
    assert await here.work_queue("a", str).put_many([]) == 0


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 4)),
        st.tuples(st.just("claim"), st.integers(0, 1)),
        st.tuples(st.just("ack"), st.integers(0, 3)),
        st.tuples(st.just("release"), st.integers(0, 3)),
        st.tuples(st.just("lose"), st.integers(0, 1)),
    ),
    max_size=40,
)


@settings(max_examples=examples(60), deadline=None)
@given(steps=_STEPS)
def test_any_schedule_does_each_item_and_gives_it_to_one_at_a_time(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, int]]) -> None:
    async with (
        quoracy.open_store("memory:") as store,
        quoracy.connect(store) as one,
        quoracy.connect(store) as other,
    ):
        connections = [one, other]
        queues = [q.work_queue("a", int, attempts_max=None) for q in connections]
        # The naive model: what is in the queue, in order, and who has which.
        items: list[int] = []
        held: list[tuple[int, Job[int]]] = []
        done: list[int] = []
        number = 0
        for step, argument in steps:
            if step == "put":
                await queues[0].put_many(range(number, number + argument))
                items += range(number, number + argument)
                number += argument
            elif step == "claim":
                free = [item for item in items if item not in {job.item for _, job in held}]
                if not free:
                    with pytest.raises(quoracy.TimedOut):
                        await queues[argument].take(timeout=0)
                    continue
                job = await queues[argument].take(timeout=0)
                assert job.item in free
                assert all(job.token > earlier.token for _, earlier in held)
                held.append((argument, job))
            elif step == "lose":
                session = await connections[argument].session()
                await store.revoke(session.id)
                session.lease_not_found()
                await connections[argument].wait_state(quoracy.SessionState.CONNECTED)
                held = [(owner, job) for owner, job in held if owner != argument]
            elif held:
                _, job = held.pop(argument % len(held))
                if step == "ack":
                    await job.ack()
                    items.remove(job.item)
                    done.append(job.item)
                else:
                    await job.release()
            stats = await queues[0].stats()
            assert (stats.waiting, stats.claimed) == (len(items) - len(held), len(held))
        for _, job in held:
            await job.release()
        fresh = one.work_queue("a", int, attempts_max=None)
        order = []
        while items:
            async with fresh.claim(timeout=0) as job:
                order.append(job.item)
                items.remove(job.item)
        assert sorted(done + order) == list(range(number))
        assert order == sorted(order)
