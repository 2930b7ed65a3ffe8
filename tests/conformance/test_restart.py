"""What was acknowledged is back after a restart: contents, history, leases, compaction, revisions."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.errors import Compacted
from quoracy.store.api import Store
from quoracy.store.model import Delete, KeyRange, LeaseId, Put, Txn
from tests.support.asking import EVERYTHING, contents, eventually, newest, read_to
from tests.support.engines import Capability, Engine


@pytest.fixture(autouse=True)
def _needs_reopen(engine: Engine) -> None:
    engine.needs(Capability.REOPEN)


async def _fill(store: Store) -> None:
    for id in (7, -3):
        await store.grant(60.5 + id, id=LeaseId(id))
    for i in range(40):
        await store.put(b"k%d" % (i % 9), b"%d" % i, lease=7 if i % 5 == 0 else 0)
    await store.delete(KeyRange(b"k2", b"k4"))
    await store.txn(Txn(then=(Put(b"z", b"1", lease=-3), Put(b"a", b"2"), Delete(b"k5"))))
    await store.put(b"\xff\x00", bytes(range(256)))


async def test_contents_and_all_history_are_back(engine: Engine) -> None:
    async with engine.open() as store:
        await _fill(store)
        revision = await newest(store)
        before = [(await store.range(EVERYTHING, at=at)).kvs for at in range(1, revision + 1)]
        digest = (await store.hash()).digest
    async with engine.open() as store:
        assert await newest(store) == revision
        after = [(await store.range(EVERYTHING, at=at)).kvs for at in range(1, revision + 1)]
        assert after == before
        assert (await store.hash()).digest == digest


async def test_a_watch_from_before_hears_the_same_events_in_the_same_order(engine: Engine) -> None:
    async with engine.open() as store:
        await _fill(store)
        revision = await newest(store)
        async with store.watch(EVERYTHING, after=1, prev_kv=True) as stream:
            before = await read_to(stream, revision)
    async with engine.open() as store:
        async with store.watch(EVERYTHING, after=1, prev_kv=True) as stream:
            assert await read_to(stream, revision) == before


async def test_a_watch_goes_on_over_a_restart_without_gap_or_repetition(engine: Engine) -> None:
    heard: list[int] = []
    after = 1
    for _ in range(3):
        async with engine.open() as store, store.watch(EVERYTHING, after=after) as stream:
            for i in range(5):
                await store.put(b"k%d" % i)
            for _ in range(3):
                heard.append((await anext(stream)).revision)
            after = stream.revision
    async with engine.open() as store, store.watch(EVERYTHING, after=after) as stream:
        heard += [batch.revision for batch in await read_to(stream, 16)]
    assert heard == list(range(2, 17))


async def test_leases_and_the_keys_they_hold_are_back(engine: Engine) -> None:
    async with engine.open() as store:
        await _fill(store)
        before = [await store.time_to_live(lease, keys=True) for lease in (7, -3)]
    async with engine.open() as store:
        assert await store.leases() == (-3, 7)
        after = [await store.time_to_live(lease, keys=True) for lease in (7, -3)]
        assert [(s.id, s.ttl_s, s.keys) for s in after] == [(s.id, s.ttl_s, s.keys) for s in before]
        assert after[0].keys
        await store.revoke(7)
        assert not [kv for kv in (await store.range(EVERYTHING)).kvs if kv.lease == 7]
        assert after[0].keys[0] not in await contents(store)


async def test_versions_and_revisions_count_on(engine: Engine) -> None:
    async with engine.open() as store:
        await store.put(b"k", b"1")
        await store.put(b"k", b"2")
        await store.put(b"gone", b"1")
        await store.delete(b"gone")
    async with engine.open() as store:
        assert (await store.put(b"k", b"3")).revision == 6
        assert (await store.put(b"gone", b"2")).revision == 7
        k, gone = (await store.range(b"k")).kvs[0], (await store.range(b"gone")).kvs[0]
        assert (k.create_revision, k.version) == (2, 3)
        assert (gone.create_revision, gone.version) == (7, 1)


async def test_a_revision_whose_keys_are_all_gone_and_compacted_is_not_used_again(
    engine: Engine,
) -> None:
    async with engine.open() as store:
        await store.put(b"k")
        await store.delete(b"k")
        await store.compact(3)
    async with engine.open() as store:
        assert await newest(store) == 3
        assert (await store.put(b"k")).revision == 4


async def test_compaction_is_back(engine: Engine) -> None:
    async with engine.open() as store:
        await _fill(store)
        await store.compact(20)
        revision = await newest(store)
        before = [(await store.range(EVERYTHING, at=at)).kvs for at in range(20, revision + 1)]
    async with engine.open() as store:
        assert (await store.status()).compact_revision == 20
        with pytest.raises(Compacted):
            await store.range(EVERYTHING, at=19)
        with pytest.raises(Compacted):
            await store.compact(20)
        after = [(await store.range(EVERYTHING, at=at)).kvs for at in range(20, revision + 1)]
        assert after == before
        async with store.watch(EVERYTHING, after=19) as stream:
            heard = [batch.revision for batch in await read_to(stream, revision)]
        assert heard == list(range(20, revision + 1))


async def test_what_compaction_left_over_is_cleared_after_a_restart(engine: Engine) -> None:
    async with engine.open() as store:
        for _ in range(50):
            await store.put(b"k", bytes(10_000))

        async def filled() -> bool:  # at once, or, in etcd, with the next time it looks
            return (await store.status()).size_bytes >= 500_000

        await eventually(filled)
        full = (await store.status()).size_bytes
        await store.compact(await newest(store))
    async with engine.open() as store:

        async def shrunk() -> bool:
            await store.put(b"other")  # etcd gives freed pages back with the write after the next
            return (await store.status()).size_bytes < full / 5

        await eventually(shrunk)


async def test_an_empty_store_comes_back_empty(engine: Engine) -> None:
    for _ in range(3):
        async with engine.open() as store:
            assert await newest(store) == 1
            assert await contents(store) == {}
            assert await store.leases() == ()


async def test_many_restarts_lose_nothing(engine: Engine) -> None:
    for i in range(8):
        async with engine.open() as store:
            assert await newest(store) == i * 10 + 1
            await asyncio.gather(*(store.put(b"%d/%d" % (i, j)) for j in range(10)))
    async with engine.open() as store:
        assert (await store.range(EVERYTHING)).count == 80


async def test_a_write_whose_caller_gave_up_is_there_whole_or_not_at_all(engine: Engine) -> None:
    async with engine.open() as store:
        writes = []
        for i in range(20):
            txn = Txn(then=(Put(b"a%d" % i), Put(b"b%d" % i)))
            writes.append(asyncio.ensure_future(store.txn(txn)))
            for _ in range(i % 4):
                await asyncio.sleep(0)
            writes[-1].cancel()
        await asyncio.wait(writes)
        seen = set(await contents(store))
    async with engine.open() as store:
        kept = set(await contents(store))
    assert {key[1:] for key in kept if key[:1] == b"a"} == {key[1:] for key in kept if key[:1] == b"b"}
    assert seen <= kept
