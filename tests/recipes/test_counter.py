"""Counter: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.connection import Connection
from quoracy.client.recipes.counter import Counter
from quoracy.clock import ManualClock
from tests.support.asking import turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples
from tests.support.unreliable_store import Unreliable


async def test_everyone_who_adds_gets_a_number_of_their_own(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        assert await Counter(one, "n").get() == 0
        counters = [Counter(q, "n") for q in (one, other)]
        numbers = await asyncio.gather(*(counters[at % 2].add() for at in range(30)))
        assert sorted(numbers) == list(range(1, 31))
        assert await counters[1].add(-31) == -1
        assert await counters[0].get() == -1


async def test_integers_of_any_size_are_kept(q: Connection) -> None:
    for value in (2**64, -(2**64), 10**700, -(10**700), 2**20_000):
        assert await Counter(q, "n").add(value) == value
        assert await Counter(q, "n").get() == value
        assert await Counter(q, "n").add(-value) == 0


async def test_value_is_decimal_text_to_other_clients(place: Place, q: Connection) -> None:
    await place.store.put(place.key("n"), b"41")
    assert await Counter(q, "n").add() == 42
    assert (await place.store.range(place.key("n"))).kvs[0].value == b"42"


async def test_something_else_under_the_name_is_told_and_can_be_corrected(
    place: Place, q: Connection
) -> None:
    counter = Counter(q, "n")
    await counter.add()
    for junk in (b"", b"4 2", b"1e3", b"0x", b"--1", "٣".encode()):
        await place.store.put(place.key("n"), junk)
        with pytest.raises(quoracy.ValueUnreadable, match="integer"):
            await counter.add()
        with pytest.raises(quoracy.ValueUnreadable, match="integer"):
            await counter.get()
    await place.store.put(place.key("n"), b"7")
    assert await counter.add() == 8


async def test_compare_and_set_changes_what_is_expected_and_nothing_else(q: Connection) -> None:
    counter = Counter(q, "n")
    assert not await counter.compare_and_set(1, 5)
    assert await counter.compare_and_set(0, 5)  # one that nobody changed is 0
    assert not await counter.compare_and_set(0, 6)
    assert await counter.get() == 5
    won = await asyncio.gather(*(Counter(q, "n").compare_and_set(5, 10 + at) for at in range(5)))
    assert sum(won) == 1
    assert await counter.get() == 10 + won.index(True)


async def test_repeated_request_adds_nothing_and_answers_the_same(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        assert await Counter(one, "n").add(5, request_id="a") == 5
        assert await Counter(one, "n").add(1) == 6
        assert await Counter(other, "n").add(5, request_id="a") == 5
        same = await asyncio.gather(
            *(Counter(q, "n").add(2, request_id="b") for q in (one, other, one, other))
        )
        assert set(same) == {8}
        assert await Counter(other, "n").get() == 8
        with pytest.raises(quoracy.InvalidRequest, match="id of its own"):
            await Counter(other, "n").add(3, request_id="b")
        with pytest.raises(quoracy.InvalidRequest, match="empty"):
            await Counter(other, "n").add(3, request_id="")


async def test_lost_answer_is_told_and_nothing_is_sent_twice(timed: Place) -> None:
    store = Unreliable(timed.store)
    async with quoracy.connect(store, clock=timed.clock) as q:  # type: ignore[arg-type]
        counter = Counter(q, "n")
        store.loses = True
        with pytest.raises(quoracy.Indeterminate):
            await counter.add(1)
        with pytest.raises(quoracy.Indeterminate):
            await counter.add(10, request_id="a")
        store.loses, store.drops = False, True
        with pytest.raises(quoracy.Indeterminate):
            await counter.add(100, request_id="b")
        store.drops = False
        assert await counter.get() == 11
        # Whoever gave an id finds out by asking again.
        assert await counter.add(10, request_id="a") == 11
        assert await counter.add(100, request_id="b") == 111


async def test_request_is_remembered_for_its_time_and_not_for_ever(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as q:
        counter = Counter(q, "n", remember=60)
        for number in range(10):
            await counter.add(request_id=f"r{number}")
            await clock.advance(59)
            assert await counter.add(request_id=f"r{number}") == number + 1
        await clock.advance(181)
        assert len((await timed.store.range(timed.corner)).kvs) == 1
        assert await counter.add(request_id="r9") == 11


async def test_request_is_remembered_although_the_lease_for_it_was_revoked(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect() as q:
        counter = Counter(q, "n")
        own = (await q.session()).id
        await counter.add(request_id="a")
        for lease in await timed.store.leases():
            if lease != own:
                await timed.store.revoke(lease)
        assert await counter.add(request_id="b") == 2
        assert await counter.add(request_id="b") == 2


async def test_cancelled_anywhere_a_request_counts_once(place: Place) -> None:
    async with place.connect() as q:
        counter = Counter(q, "n")

        async def add() -> None:
            await Counter(q, "n").add(request_id="a")

        async for _ in cancelled_everywhere(add):
            await turns()
        assert await counter.add(request_id="a") == 1
        assert await counter.get() == 1


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(10**30), 10**30), st.none() | st.sampled_from("abc")), max_size=12)
)
async def test_any_additions_at_once_sum_up(additions: list[tuple[int, str | None]]) -> None:
    async with quoracy.connect("memory:") as q:
        counters = [Counter(q, "n"), Counter(q, "n")]
        amounts = {request: n for n, request in additions}  # repeated with the same amount
        calls = [(n if request is None else amounts[request], request) for n, request in additions]
        await asyncio.gather(
            *(counters[at % 2].add(n, request_id=r) for at, (n, r) in enumerate(calls))
        )
        expected = sum(n for n, request in calls if request is None)
        expected += sum(n for request, n in amounts.items() if request is not None)
        assert await counters[0].get() == expected
