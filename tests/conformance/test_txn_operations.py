"""What a transaction does: operations in order, each seeing those before it, all in one revision."""

from __future__ import annotations

import asyncio

from quoracy.store.api import Store
from quoracy.store.model import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    KeyValue,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from tests.support.asking import EVERYTHING, contents, get, newest


async def test_results_come_in_the_order_of_the_operations(store: Store) -> None:
    await store.put(b"old", b"1")
    result = await store.txn(
        Txn(
            then=(
                Range(b"old"),
                Put(b"new", b"2"),
                Delete(b"old", prev_kv=True),
                Txn(then=(Put(b"nested", b"3"),)),
                Range(EVERYTHING),
            )
        )
    )
    before, put, deleted, nested, after = result.results
    assert isinstance(before, RangeResult)
    assert isinstance(put, PutResult)
    assert isinstance(deleted, DeleteResult)
    assert isinstance(nested, TxnResult)
    assert isinstance(after, RangeResult)
    assert [kv.key for kv in before.kvs] == [b"old"]
    assert (put.revision, put.prev_kv) == (3, None)
    assert (deleted.revision, deleted.deleted) == (3, 1)
    assert deleted.prev_kvs == (KeyValue(b"old", b"1", 2, 2, 1),)
    assert (nested.revision, nested.succeeded) == (3, True)
    assert [kv.key for kv in after.kvs] == [b"nested", b"new"]
    assert result.revision == 3


async def test_a_range_sees_what_was_written_before_it_in_the_transaction(store: Store) -> None:
    await store.put(b"a", b"old")
    await store.put(b"b", b"old")
    result = await store.txn(
        Txn(
            then=(
                Range(EVERYTHING),
                Put(b"a", b"new"),
                Range(EVERYTHING),
                Delete(b"b"),
                Range(EVERYTHING),
                Txn(then=(Range(EVERYTHING, count_only=True), Put(b"c", b"new"))),
                Range(EVERYTHING),
            )
        )
    )
    seen = [
        {kv.key: kv.value for kv in part.kvs}
        for part in result.results
        if isinstance(part, RangeResult)
    ]
    assert seen == [
        {b"a": b"old", b"b": b"old"},
        {b"a": b"new", b"b": b"old"},
        {b"a": b"new"},
        {b"a": b"new", b"c": b"new"},
    ]
    nested = result.results[5]
    assert isinstance(nested, TxnResult)
    assert isinstance(nested.results[0], RangeResult)
    assert nested.results[0].count == 1


async def test_a_range_inside_sees_the_new_revisions(store: Store) -> None:
    result = await store.txn(Txn(then=(Put(b"k", b"v"), Range(b"k"))))
    found = result.results[1]
    assert isinstance(found, RangeResult)
    assert found.kvs == (KeyValue(b"k", b"v", 2, 2, 1),)


async def test_a_range_inside_can_read_the_past(store: Store) -> None:
    await store.put(b"k", b"1")
    result = await store.txn(Txn(then=(Put(b"k", b"2"), Range(b"k", at=2))))
    found = result.results[1]
    assert isinstance(found, RangeResult)
    assert [kv.value for kv in found.kvs] == [b"1"]


async def test_a_range_of_the_past_inside_counts_nothing_that_the_transaction_wrote(
    store: Store,
) -> None:
    await store.put(b"a", b"1")
    before = await store.put(b"b", b"1")
    # Enough of them that counting takes back what was written since, instead of walking.
    for number in range(10):
        before = await store.put(b"more/%d" % number)
    past = Range(EVERYTHING, at=before.revision, limit=1)
    result = await store.txn(Txn(then=(Put(b"c", b"1"), Delete(b"a"), Put(b"d", b"1"), past)))
    found = result.results[-1]
    assert isinstance(found, RangeResult)
    assert ([kv.key for kv in found.kvs], found.count, found.more) == ([b"a"], 12, True)


async def test_a_second_delete_inside_finds_nothing_left(store: Store) -> None:
    await store.put(b"k")
    result = await store.txn(Txn(then=(Delete(b"k"), Delete(EVERYTHING))))
    first, second = result.results
    assert isinstance(first, DeleteResult)
    assert isinstance(second, DeleteResult)
    assert (first.deleted, second.deleted, result.revision) == (1, 0, 3)


async def test_prev_kv_inside_is_the_state_before_the_operation(store: Store) -> None:
    await store.put(b"k", b"1")
    result = await store.txn(Txn(then=(Put(b"k", b"2", prev_kv=True), Put(b"n", prev_kv=True))))
    first, second = result.results
    assert isinstance(first, PutResult)
    assert isinstance(second, PutResult)
    assert first.prev_kv == KeyValue(b"k", b"1", 2, 2, 1)
    assert second.prev_kv is None


async def test_ignore_value_and_lease_work_inside(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"v", b"kept")
    await store.put(b"l", b"old", lease=lease)
    await store.txn(
        Txn(then=(Put(b"v", ignore_value=True, lease=lease), Put(b"l", b"new", ignore_lease=True)))
    )
    assert await get(store, b"v") == KeyValue(b"v", b"kept", 2, 4, 2, lease)
    assert await get(store, b"l") == KeyValue(b"l", b"new", 3, 4, 2, lease)
    assert (await store.time_to_live(lease, keys=True)).keys == (b"l", b"v")


async def test_an_empty_transaction_succeeds_and_does_nothing(store: Store) -> None:
    result = await store.txn(Txn())
    assert (result.succeeded, result.results, result.revision) == (True, (), 1)


async def test_a_read_only_transaction_reads_one_moment(store: Store) -> None:
    await store.txn(Txn(then=(Put(b"a", b"0"), Put(b"b", b"0"))))

    async def write() -> None:
        for i in range(1, 50):
            await store.txn(Txn(then=(Put(b"a", b"%d" % i), Put(b"b", b"%d" % i))))

    async def read() -> None:
        for _ in range(50):
            result = await store.txn(Txn(then=(Range(b"a"), Range(b"b"))))
            a, b = result.results
            assert isinstance(a, RangeResult)
            assert isinstance(b, RangeResult)
            assert a.kvs[0].value == b.kvs[0].value
            assert a.kvs[0].mod_revision <= result.revision

    await asyncio.gather(write(), read())


async def test_compare_and_swap_lets_one_of_many_win(store: Store) -> None:
    async def claim(name: bytes) -> bool:
        result = await store.txn(Txn((Compare.missing(b"lock"),), then=(Put(b"lock", name),)))
        return result.succeeded

    names = [b"%d" % i for i in range(50)]
    won = await asyncio.gather(*(claim(name) for name in names))
    assert won.count(True) == 1
    assert await contents(store) == {b"lock": names[won.index(True)]}
    assert await newest(store) == 2


async def test_counting_with_compare_and_swap_loses_no_increment(store: Store) -> None:
    await store.put(b"n", b"0")

    async def increment() -> None:
        while True:
            kv = (await store.range(b"n")).kvs[0]
            swapped = await store.txn(
                Txn(
                    (Compare.mod_revision(b"n", "=", kv.mod_revision),),
                    then=(Put(b"n", b"%d" % (int(kv.value) + 1)),),
                )
            )
            if swapped.succeeded:
                return

    await asyncio.gather(*(increment() for _ in range(20)))
    assert await contents(store) == {b"n": b"20"}
    assert await newest(store) == 22


async def test_a_delete_by_range_inside_removes_the_range(store: Store) -> None:
    for key in (b"a/1", b"a/2", b"b"):
        await store.put(key)
    result = await store.txn(Txn(then=(Delete(KeyRange.prefix(b"a/"), prev_kv=True), Put(b"c"))))
    deleted = result.results[0]
    assert isinstance(deleted, DeleteResult)
    assert [kv.key for kv in deleted.prev_kvs] == [b"a/1", b"a/2"]
    assert set(await contents(store)) == {b"b", b"c"}
