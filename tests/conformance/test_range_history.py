"""Ranges can be read at any revision that was not compacted away."""

from __future__ import annotations

import pytest

from quoracy.errors import FutureRevision, InvalidRequest
from quoracy.store.api import Store
from quoracy.store.model import Delete, KeyRange, KeyValue, Put, Txn
from tests.support.asking import EVERYTHING, contents, get


async def test_every_revision_shows_the_store_as_it_was(store: Store) -> None:
    await store.put(b"a", b"1")
    await store.put(b"b", b"1")
    await store.txn(Txn(then=(Put(b"a", b"2"), Delete(b"b"), Put(b"c", b"1"))))
    await store.delete(b"a")
    await store.put(b"a", b"3")
    assert [await contents(store, at=revision) for revision in range(1, 7)] == [
        {},
        {b"a": b"1"},
        {b"a": b"1", b"b": b"1"},
        {b"a": b"2", b"c": b"1"},
        {b"c": b"1"},
        {b"a": b"3", b"c": b"1"},
    ]


async def test_the_past_shows_the_revisions_version_and_lease_of_its_time(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"1")
    await store.put(b"k", b"2", lease=lease)
    await store.delete(b"k")
    await store.put(b"k", b"3")
    assert [await get(store, b"k", at=revision) for revision in (2, 3, 4, 5)] == [
        KeyValue(b"k", b"1", create_revision=2, mod_revision=2, version=1),
        KeyValue(b"k", b"2", create_revision=2, mod_revision=3, version=2, lease=lease),
        None,
        KeyValue(b"k", b"3", create_revision=5, mod_revision=5, version=1),
    ]


async def test_a_read_of_the_past_answers_with_the_newest_revision(store: Store) -> None:
    for i in range(3):
        await store.put(b"k", b"%d" % i)
    assert (await store.range(b"k", at=2)).revision == 4


async def test_a_range_of_the_past_is_limited_and_counted_by_the_past(store: Store) -> None:
    for key in (b"a", b"b", b"c"):
        await store.put(key)
    await store.delete(EVERYTHING)
    result = await store.range(KeyRange.from_key(b"a"), at=4, limit=2)
    assert [kv.key for kv in result.kvs] == [b"a", b"b"]
    assert (result.count, result.more) == (3, True)


async def test_the_newest_revision_can_be_named(store: Store) -> None:
    revision = (await store.put(b"k", b"v")).revision
    assert await contents(store, at=revision) == {b"k": b"v"}


async def test_a_revision_that_does_not_exist_yet_is_refused(store: Store) -> None:
    await store.put(b"k")
    with pytest.raises(FutureRevision) as caught:
        await store.range(b"k", at=3)
    assert (caught.value.wanted, caught.value.newest) == (3, 2)


@pytest.mark.parametrize("at", [0, -1])
async def test_a_number_that_is_no_revision_is_refused(store: Store, at: int) -> None:
    with pytest.raises(InvalidRequest):
        await store.range(b"k", at=at)
