"""The state hash: equal for equal contents, different otherwise, at any kept revision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from quoracy.errors import Compacted, FutureRevision
from quoracy.store.api import Store
from quoracy.store.digest import Digest
from quoracy.store.model import Delete, LeaseId, Put, Txn
from tests.support.asking import EVERYTHING, newest, turns
from tests.support.engines import Engine


async def _fill(store: Store) -> None:
    await store.grant(60, id=LeaseId(7))
    for i in range(20):
        await store.put(b"k%d" % (i % 6), b"%d" % i, lease=7 if i % 4 == 0 else 0)
    await store.delete(b"k3")


async def test_stores_with_the_same_content_have_the_same_hash(engine: Engine) -> None:
    async with engine.open("one") as one, engine.open("two") as two:
        await _fill(one)
        await _fill(two)
        for at in (None, 1, 5, 22):
            assert (await one.hash(at=at)).digest == (await two.hash(at=at)).digest


async def _put_other_value(store: Store) -> None:
    await store.put(b"k1", b"other")


async def _put_with_lease(store: Store) -> None:
    await store.put(b"k1", b"same", lease=7)


async def _put_same(store: Store) -> None:
    await store.put(b"k1", b"same")


async def _put_anew(store: Store) -> None:
    await store.txn(Txn(then=(Delete(b"k1"),)))
    await store.put(b"k1", b"same")


async def _put_other_key(store: Store) -> None:
    await store.put(b"k9", b"same")


async def _delete(store: Store) -> None:
    await store.delete(b"k1")


_CHANGES: list[Callable[[Store], Coroutine[None, None, None]]] = [
    _put_other_value,
    _put_with_lease,
    _put_same,
    _put_anew,
    _put_other_key,
    _delete,
]


async def test_any_difference_in_content_shows(engine: Engine) -> None:
    digests = []
    for change in _CHANGES:
        async with engine.open(change.__name__) as store:
            await _fill(store)
            before = (await store.hash()).digest
            await change(store)
            digests += [before, (await store.hash()).digest]
    # The same beginning, and six different ends.
    assert len(set(digests[::2])) == 1
    assert len(set(digests)) == 7


async def test_the_hash_is_the_digest_of_what_a_range_shows(store: Store) -> None:
    await _fill(store)
    for at in (None, 10):
        digest = Digest()
        digest.update((await store.range(EVERYTHING, at=at)).kvs)
        assert (await store.hash(at=at)).digest == digest.hexdigest()


async def test_the_hash_of_a_past_revision_is_what_it_was_then(store: Store) -> None:
    was: dict[int, str] = {}
    for i in range(10):
        await store.put(b"k%d" % (i % 3), b"%d" % i)
        state = await store.hash()
        was[state.revision] = state.digest
    assert len(set(was.values())) == 10
    for revision, digest in was.items():
        state = await store.hash(at=revision)
        assert (state.revision, state.digest) == (revision, digest)


async def test_compaction_changes_no_hash(store: Store) -> None:
    await _fill(store)
    before = [(await store.hash(at=at)).digest for at in (15, 20, None)]
    await store.compact(15)
    after = [await store.hash(at=at) for at in (15, 20, None)]
    assert [state.digest for state in after] == before
    assert [state.compact_revision for state in after] == [15, 15, 15]


async def test_the_hash_of_more_keys_than_a_page_is_of_one_moment(store: Store) -> None:
    for start in range(0, 2500, 100):
        await store.txn(Txn(then=tuple(Put(b"%05d" % i, b"v") for i in range(start, start + 100))))
    revision = await newest(store)
    hashing = asyncio.ensure_future(store.hash())
    await turns(2)
    await store.put(b"00500", b"changed meanwhile")
    state = await hashing
    # Which moment it was may depend on a network; but it was one, not some of each.
    assert state.revision in (revision, revision + 1)
    digest = Digest()
    digest.update((await store.range(EVERYTHING, at=state.revision)).kvs)
    assert state.digest == digest.hexdigest()


async def test_the_hash_of_a_revision_that_is_not_kept_is_refused(store: Store) -> None:
    await _fill(store)
    await store.compact(10)
    with pytest.raises(Compacted):
        await store.hash(at=9)
    with pytest.raises(FutureRevision):
        await store.hash(at=99)
