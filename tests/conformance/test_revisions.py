"""One global, gapless revision: each transaction that changes something gets the next one."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.errors import LeaseNotFound, Rejected
from quoracy.store.api import Store
from quoracy.store.model import Compare, Delete, KeyRange, Put, Range, Txn
from tests.support.asking import EVERYTHING, contents, newest


async def test_an_empty_store_is_at_revision_1(store: Store) -> None:
    assert await newest(store) == 1
    assert (await store.status()).revision == 1
    assert (await store.hash()).revision == 1


async def test_the_first_write_makes_revision_2(store: Store) -> None:
    assert (await store.put(b"k", b"v")).revision == 2


async def test_each_write_makes_the_next_revision(store: Store) -> None:
    made = [
        (await store.put(b"a", b"1")).revision,
        (await store.put(b"b", b"2")).revision,
        (await store.delete(b"a")).revision,
        (await store.txn(Txn(then=(Put(b"c"),)))).revision,
    ]
    assert made == [2, 3, 4, 5]


async def test_a_put_that_changes_nothing_visible_is_a_write(store: Store) -> None:
    await store.put(b"k", b"v")
    assert (await store.put(b"k", b"v")).revision == 3


async def test_a_transaction_makes_one_revision_however_many_keys_it_writes(store: Store) -> None:
    await store.put(b"old/1")
    await store.put(b"old/2")
    puts = tuple(Put(b"new/%d" % i) for i in range(20))
    result = await store.txn(Txn(then=(*puts, Delete(KeyRange.prefix(b"old/")))))
    assert result.revision == 4
    assert {kv.mod_revision for kv in (await store.range(EVERYTHING)).kvs} == {4}


async def test_a_range_delete_makes_one_revision(store: Store) -> None:
    await store.put(b"a")
    await store.put(b"b")
    assert (await store.delete(EVERYTHING)).revision == 4


async def test_reads_make_none(store: Store) -> None:
    await store.put(b"k", b"v")
    assert (await store.range(b"k")).revision == 2
    assert (await store.range(EVERYTHING, at=1)).revision == 2
    assert (await store.txn(Txn(then=(Range(b"k"), Txn(then=(Range(b"k"),)))))).revision == 2
    await store.hash()
    await store.status()
    async with store.watch(b"k"):
        pass
    assert (await store.put(b"k")).revision == 3


async def test_a_delete_that_matches_nothing_makes_none(store: Store) -> None:
    await store.put(b"k")
    assert (await store.delete(b"other")).revision == 2
    assert (await store.delete(KeyRange.prefix(b"other/"))).revision == 2
    assert (await store.txn(Txn(then=(Delete(b"other"),)))).revision == 2
    assert await newest(store) == 2


async def test_a_transaction_whose_taken_branch_is_empty_makes_none(store: Store) -> None:
    await store.put(b"k")
    result = await store.txn(Txn((Compare.missing(b"k"),), then=(Put(b"k"),)))
    assert (result.succeeded, result.revision, result.results) == (False, 2, ())


async def test_a_rejected_request_makes_none(store: Store) -> None:
    await store.put(b"k")
    for refused in (
        store.put(b""),
        store.put(b"k", lease=77),
        store.put(b"missing", ignore_value=True),
        store.txn(Txn(then=(Put(b"a"), Put(b"a")))),
        store.range(b"k", at=9),
    ):
        with pytest.raises(Rejected):
            await refused
    assert await newest(store) == 2


async def test_leases_and_compaction_make_none(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    lease = (await store.grant(60)).id
    await store.keep_alive(lease)
    await store.time_to_live(lease, keys=True)
    await store.leases()
    await store.compact(2)
    assert await store.revoke(lease) == 3
    with pytest.raises(LeaseNotFound):
        await store.revoke(lease)
    assert await newest(store) == 3


async def test_concurrent_writes_get_every_revision_once(store: Store) -> None:
    results = await asyncio.gather(*(store.put(b"k%d" % i, b"%d" % i) for i in range(200)))
    assert sorted(result.revision for result in results) == list(range(2, 202))
    for i, result in enumerate(results):
        assert (await contents(store, at=result.revision))[b"k%d" % i] == b"%d" % i


async def test_a_read_after_an_acknowledged_write_sees_it(store: Store) -> None:
    async def writer(name: bytes) -> None:
        for i in range(20):
            revision = (await store.put(name, b"%d" % i)).revision
            seen = await store.range(name)
            assert seen.revision >= revision
            assert seen.kvs[0].value == b"%d" % i

    await asyncio.gather(*(writer(b"w%d" % i) for i in range(10)))
