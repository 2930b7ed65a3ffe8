"""The queue under a name: one owner, in order of arrival, and nobody is left behind."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import InvalidRequest, LeaseLost, LeaseNotFound
from quoracy.store import contention
from quoracy.store.api import Store
from quoracy.store.contention import Place
from quoracy.store.model import KeyRange, Revision, Txn, TxnResult

NAME = b"jobs/nightly"


async def joined(store: Store, value: bytes = b"") -> Place:
    lease = await store.grant(60)
    return await contention.join(store, NAME, lease.id, value)


async def turns(count: int = 20) -> None:
    """Let every other task run as far as it can without a disk."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_first_to_join_owns_the_name(store: Store) -> None:
    first = await joined(store, b"a")
    second = await joined(store, b"b")
    assert first.was_first
    assert not second.was_first
    assert first.token < second.token
    found = await contention.owner(store, NAME)
    assert found is not None
    assert (found.kv.key, found.kv.value) == (first.key, b"a")


async def test_key_is_name_slash_lease_in_hex(store: Store) -> None:
    lease = await store.grant(60)
    place = await contention.join(store, NAME, lease.id)
    assert place.key == NAME + b"/" + f"{lease.id:x}".encode()
    found = await store.range(place.key)
    assert (found.kvs[0].create_revision, found.kvs[0].lease) == (place.token, lease.id)


async def test_joining_twice_with_one_lease_is_one_place(store: Store) -> None:
    first = await joined(store, b"a")
    again = await contention.join(store, NAME, first.lease, b"b")
    assert (again.token, again.value, again.was_first) == (first.token, b"a", True)
    assert (await store.range(KeyRange.prefix(NAME + b"/"))).count == 1


async def test_waiter_is_first_when_the_owner_leaves(store: Store) -> None:
    first, second = await joined(store), await joined(store)
    waiting = asyncio.create_task(contention.wait_first(store, second))
    await turns()
    assert not waiting.done()
    left_at = await contention.leave(store, first)
    assert await waiting >= left_at


async def test_release_wakes_the_next_and_nobody_else(store: Store) -> None:
    places = [await joined(store) for _ in range(20)]
    waiting = [asyncio.create_task(contention.wait_first(store, place)) for place in places]
    order = []
    for index, place in enumerate(places):
        await waiting[index]
        await turns()
        assert [task.done() for task in waiting] == [True] * (index + 1) + [False] * (19 - index)
        order.append(place.token)
        await contention.leave(store, place)
    assert order == sorted(order)


class Counting:
    """Counts the transactions it is asked for; waiters on it have to look for themselves."""

    def __init__(self, store: Store, *, expected: int) -> None:
        self._store = store
        self.txns_count = 0
        self._expected = expected
        self.reached = asyncio.Event()

    async def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        return await contention.wait_by_watching(cast("Store", self), name, key, token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def txn(self, txn: Txn) -> TxnResult:
        result = await self._store.txn(txn)
        self.txns_count += 1
        if self.txns_count == self._expected:
            self.reached.set()
        return result


async def test_release_makes_only_the_next_one_look(store: Store) -> None:
    places = [await joined(store) for _ in range(10)]
    counting = Counting(store, expected=9)
    asked = cast("Store", counting)
    waiting = [asyncio.create_task(contention.wait_first(asked, place)) for place in places[1:]]
    await counting.reached.wait()
    await contention.leave(store, places[0])
    await waiting[0]
    await contention.leave(store, places[1])
    await waiting[1]
    assert counting.txns_count == 11
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_waiter_in_the_middle_leaves_and_the_rest_keep_their_order(store: Store) -> None:
    first, second, third = [await joined(store) for _ in range(3)]
    waiting = asyncio.create_task(contention.wait_first(store, third))
    await turns()
    await contention.leave(store, second)
    await turns()
    assert not waiting.done()
    await contention.leave(store, first)
    await waiting


async def test_owner_that_died_is_followed_by_the_next(timed_store: Store, clock: ManualClock) -> None:
    store = timed_store
    dies = await contention.join(store, NAME, (await store.grant(5)).id)
    lives = await contention.join(store, NAME, (await store.grant(3600)).id)
    waiting = asyncio.create_task(contention.wait_first(store, lives))
    await turns()
    await clock.advance(6)
    await waiting
    assert dies.token < lives.token


async def test_waiter_whose_place_is_gone_does_not_become_owner(store: Store) -> None:
    first, second = await joined(store), await joined(store)
    waiting = asyncio.create_task(contention.wait_first(store, second))
    await turns()
    await store.revoke(second.lease)
    await contention.leave(store, first)
    with pytest.raises(LeaseLost, match="is gone"):
        await waiting


async def test_place_made_anew_by_the_same_lease_is_another_place(store: Store) -> None:
    old = await joined(store)
    await store.delete(old.key)
    new = await contention.join(store, NAME, old.lease)
    with pytest.raises(LeaseLost):
        await contention.wait_first(store, old)
    await contention.leave(store, old)
    assert (await store.range(new.key)).count == 1


async def test_leaving_twice_does_nothing(store: Store) -> None:
    place = await joined(store)
    left_at = await contention.leave(store, place)
    assert await contention.leave(store, place) == left_at


async def test_proclaim_changes_the_value_and_keeps_the_token(store: Store) -> None:
    place = await joined(store, b"a")
    await contention.proclaim(store, place, b"b")
    found = await contention.owner(store, NAME)
    assert found is not None
    assert (found.kv.value, found.kv.create_revision) == (b"b", place.token)
    assert found.kv.lease == place.lease


async def test_proclaim_of_a_lost_place_is_refused(store: Store) -> None:
    place = await joined(store)
    await contention.leave(store, place)
    with pytest.raises(LeaseLost):
        await contention.proclaim(store, place, b"b")
    assert (await store.range(place.key)).count == 0


async def test_join_needs_a_lease_that_exists(store: Store) -> None:
    with pytest.raises(LeaseNotFound):
        await contention.join(store, NAME, 4711)
    with pytest.raises(InvalidRequest, match="needs a lease"):
        await contention.join(store, NAME, 0)


async def test_nobody_owns_an_empty_name(store: Store) -> None:
    assert await contention.owner(store, NAME) is None


async def test_other_names_are_other_queues(store: Store) -> None:
    lease = (await store.grant(60)).id
    await contention.join(store, NAME + b"2", lease)
    await contention.join(store, b"jobs", lease)
    assert await contention.owner(store, NAME) is None


async def test_observe_shows_every_owner_and_value_in_order(store: Store) -> None:
    async with aclosing(contention.observe(store, NAME)) as owners:
        upcoming = asyncio.ensure_future(anext(owners))
        await turns()
        assert not upcoming.done()
        first = await joined(store, b"a")
        assert (await upcoming).kv.value == b"a"
        second = await joined(store, b"b")
        await contention.proclaim(store, first, b"a2")
        seen = await anext(owners)
        assert (seen.kv.value, seen.kv.create_revision) == (b"a2", first.token)
        await contention.leave(store, first)
        seen = await anext(owners)
        assert (seen.kv.value, seen.kv.create_revision) == (b"b", second.token)


async def test_waiting_outlives_compaction(store: Store) -> None:
    first, second = await joined(store), await joined(store)
    waiting = asyncio.create_task(contention.wait_first(store, second))
    await turns()
    for number in range(10):
        await store.put(b"other", b"%d" % number)
    await store.compact((await store.status()).revision)
    await contention.leave(store, first)
    await waiting
