"""Compaction: history before a revision is forgotten; that revision and all later ones stay intact."""

from __future__ import annotations

import pytest

from quoracy.errors import Compacted, FutureRevision, InvalidRequest
from quoracy.store.api import Store
from quoracy.store.model import Delete, Put, Range, Txn
from tests.support.asking import EVERYTHING, contents, eventually, get, newest


async def _write_history(store: Store) -> list[dict[bytes, bytes]]:
    """Revisions 2 to 11; the contents at each revision, by revision."""
    for change in (
        Txn(then=(Put(b"a", b"1"),)),
        Txn(then=(Put(b"b", b"1"), Put(b"c", b"1"))),
        Txn(then=(Put(b"a", b"2"),)),
        Txn(then=(Delete(b"b"),)),
        Txn(then=(Put(b"b", b"3"), Delete(b"c"))),
        Txn(then=(Put(b"a", b"3"), Put(b"d", b"1"))),
        Txn(then=(Delete(b"a"), Delete(b"d"))),
        Txn(then=(Put(b"e", b"1"),)),
        Txn(then=(Put(b"a", b"4"),)),
        Txn(then=(Delete(EVERYTHING),)),
    ):
        await store.txn(change)
    return [{}, *[await contents(store, at=revision) for revision in range(1, 12)]]


@pytest.mark.parametrize("at", range(1, 12))
async def test_the_compaction_revision_and_later_ones_read_as_before(store: Store, at: int) -> None:
    was = await _write_history(store)
    kept = [(await store.range(EVERYTHING, at=revision)).kvs for revision in range(at, 12)]
    await store.compact(at)
    for revision in range(1, at):
        with pytest.raises(Compacted) as caught:
            await store.range(EVERYTHING, at=revision)
        assert (caught.value.wanted, caught.value.oldest) == (revision, at)
    assert [await contents(store, at=revision) for revision in range(at, 12)] == was[at:]
    assert [(await store.range(EVERYTHING, at=revision)).kvs for revision in range(at, 12)] == kept
    assert (await store.status()).compact_revision == at


async def test_compacting_step_by_step_leaves_what_compacting_at_once_leaves(store: Store) -> None:
    was = await _write_history(store)
    for at in range(1, 12):
        await store.compact(at)
        assert [await contents(store, at=revision) for revision in range(at, 12)] == was[at:]


async def test_the_newest_state_is_never_compacted(store: Store) -> None:
    for i in range(10):
        await store.put(b"k%d" % (i % 3), b"%d" % i)
    before = (await store.range(EVERYTHING)).kvs
    await store.compact(await newest(store))
    assert (await store.range(EVERYTHING)).kvs == before


async def test_versions_count_on_over_a_compaction(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    await store.compact(3)
    await store.put(b"k", b"3")
    kv = await get(store, b"k")
    assert kv is not None
    assert (kv.create_revision, kv.mod_revision, kv.version) == (2, 4, 3)


async def test_a_key_put_after_its_deletion_was_compacted_starts_anew(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.delete(b"k")
    await store.put(b"other")
    await store.compact(4)
    await store.put(b"k", b"2")
    kv = await get(store, b"k")
    assert kv is not None
    assert (kv.create_revision, kv.version) == (5, 1)
    assert await contents(store, at=4) == {b"other": b""}


async def test_nothing_is_compacted_at_first(store: Store) -> None:
    assert (await store.status()).compact_revision == 0
    assert (await store.range(EVERYTHING, at=1)).kvs == ()


async def test_compacting_the_same_or_an_older_revision_is_refused(store: Store) -> None:
    await _write_history(store)
    await store.compact(5)
    for at in (1, 4, 5):
        with pytest.raises(Compacted) as caught:
            await store.compact(at)
        assert (caught.value.wanted, caught.value.oldest) == (at, 5)
    await store.compact(6)


async def test_compacting_the_future_is_refused(store: Store) -> None:
    await store.put(b"k")
    with pytest.raises(FutureRevision) as caught:
        await store.compact(3)
    assert (caught.value.wanted, caught.value.newest) == (3, 2)
    assert (await store.status()).compact_revision == 0


@pytest.mark.parametrize("at", [0, -1])
async def test_compacting_what_is_no_revision_is_refused(store: Store, at: int) -> None:
    await store.put(b"k")
    with pytest.raises((Compacted, InvalidRequest)):
        await store.compact(at)
    assert (await store.status()).compact_revision == 0


async def test_a_compacted_read_inside_a_transaction_refuses_all_of_it(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    await store.compact(3)
    with pytest.raises(Compacted):
        await store.txn(Txn(then=(Put(b"k", b"3"), Range(b"k", at=2))))
    with pytest.raises(Compacted):
        await store.txn(Txn(then=(Range(b"k", at=2),)))
    assert await contents(store) == {b"k": b"2"}


async def test_compaction_gives_space_back(store: Store) -> None:
    for _ in range(100):
        await store.put(b"k", bytes(10_000))

    async def filled() -> bool:  # at once, or, in etcd, with the next time it looks
        return (await store.status()).size_bytes >= 1_000_000

    await eventually(filled)
    full = (await store.status()).size_bytes
    await store.compact(await newest(store))

    async def shrunk() -> bool:
        await store.put(b"other")  # etcd gives freed pages back with the write after the next
        return (await store.status()).size_bytes < full / 10

    await eventually(shrunk)
    assert (await get(store, b"k")) is not None


async def test_writes_go_on_during_compaction(store: Store) -> None:
    for i in range(300):
        await store.put(b"k%d" % (i % 10), b"%d" % i)
    await store.compact(300)
    for i in range(50):
        await store.put(b"k%d" % (i % 10), b"new %d" % i)
        assert await contents(store, b"k%d" % (i % 10)) == {b"k%d" % (i % 10): b"new %d" % i}
    assert (await store.range(EVERYTHING, at=300)).count == 10
