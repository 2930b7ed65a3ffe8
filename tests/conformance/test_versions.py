"""What every key remembers: its create and mod revision, its version, its lease."""

from __future__ import annotations

from quoracy.store.api import Store
from quoracy.store.model import Delete, KeyValue, Put, Txn
from tests.support.asking import get


async def test_a_new_key_has_version_1_and_one_revision(store: Store) -> None:
    await store.put(b"other")
    await store.put(b"k", b"v")
    assert await get(store, b"k") == KeyValue(
        b"k", b"v", create_revision=3, mod_revision=3, version=1, lease=0
    )


async def test_each_put_raises_version_and_mod_revision_and_keeps_create_revision(
    store: Store,
) -> None:
    await store.put(b"k", b"1")
    await store.put(b"other")
    await store.put(b"k", b"2")
    await store.put(b"k", b"2")
    assert await get(store, b"k") == KeyValue(
        b"k", b"2", create_revision=2, mod_revision=5, version=3, lease=0
    )


async def test_version_counts_the_puts_of_its_own_key_only(store: Store) -> None:
    for _ in range(3):
        await store.put(b"busy")
    await store.put(b"calm")
    found = (await get(store, b"calm"), await get(store, b"busy"))
    assert [kv and kv.version for kv in found] == [1, 3]


async def test_a_key_put_again_after_a_delete_starts_anew(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    await store.delete(b"k")
    await store.put(b"k", b"3")
    assert await get(store, b"k") == KeyValue(
        b"k", b"3", create_revision=5, mod_revision=5, version=1, lease=0
    )


async def test_a_key_deleted_and_put_by_consecutive_transactions_starts_anew(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.txn(Txn(then=(Delete(b"k"),)))
    await store.txn(Txn(then=(Put(b"k", b"2"),)))
    kv = await get(store, b"k")
    assert kv is not None
    assert (kv.create_revision, kv.version) == (4, 1)


async def test_a_key_remembers_the_lease_of_its_last_put(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", lease=lease)
    held = await get(store, b"k")
    await store.put(b"k")
    freed = await get(store, b"k")
    assert (held and held.lease, freed and freed.lease) == (lease, 0)


async def test_an_empty_value_is_a_value(store: Store) -> None:
    await store.put(b"k", b"")
    kv = await get(store, b"k")
    assert kv is not None
    assert (kv.value, kv.version) == (b"", 1)


async def test_any_bytes_are_a_key_and_a_value(store: Store) -> None:
    for key in (b"\0", b"\0\0", b"\xff", b"\xff\xff", b"/", bytes(range(256))):
        await store.put(key, key[::-1])
        kv = await get(store, key)
        assert kv is not None
        assert (kv.key, kv.value) == (key, key[::-1])
