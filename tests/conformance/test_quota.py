"""A full store refuses new data, says so with an alarm, lets room be made, and then recovers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quoracy.errors import NoSpace
from quoracy.store.api import Store
from quoracy.store.model import Alarm, Delete, LeaseId, Put, Range, Txn
from quoracy.store.rules import Limits
from tests.support.asking import EVERYTHING, contents, eventually, newest
from tests.support.engines import KEEP_ALL, Engine

_QUOTA = 1024 * 1024
_VALUE = bytes(32 * 1024)
_LEASE = LeaseId(7)


@pytest.fixture
async def full(engine: Engine) -> AsyncIterator[Store]:
    """A store that was filled, one key each, until it refused."""
    async with engine.open(limits=Limits(storage_bytes_max=_QUOTA), retention=KEEP_ALL) as store:
        await store.grant(60, id=_LEASE)
        await store.put(b"leased", lease=_LEASE)
        with pytest.raises(NoSpace):
            for i in range(2 * _QUOTA // len(_VALUE)):
                await store.put(b"k%02d" % i, _VALUE)
        yield store


async def _recovers(store: Store) -> None:
    async def recovered() -> bool:
        return not (await store.status()).alarms

    await eventually(recovered)
    await store.put(b"again", _VALUE)
    await store.grant(60)


async def test_the_alarm_is_up_and_says_how_full_the_store_is(full: Store) -> None:
    status = await full.status()
    assert status.alarms == {Alarm.NO_SPACE}
    assert status.size_bytes_max == _QUOTA
    assert 0.8 * _QUOTA < status.size_bytes <= _QUOTA


async def test_it_refuses_whatever_brings_data(full: Store) -> None:
    revision = await newest(full)
    for ask in (
        full.put(b"new", _VALUE),
        full.put(b"k00", _VALUE),
        full.put(b"new"),
        full.txn(Txn(then=(Range(b"k00"), Put(b"new", _VALUE)))),
        full.txn(Txn(then=(Txn(then=(Put(b"new", _VALUE),)),))),
        full.grant(60),
    ):
        with pytest.raises(NoSpace) as caught:
            await ask
        assert caught.value.size_max == _QUOTA
    assert await newest(full) == revision


async def test_what_it_holds_can_be_read_and_watched(full: Store) -> None:
    keys = set(await contents(full))
    assert b"k00" in keys
    assert (await full.txn(Txn(then=(Range(EVERYTHING, count_only=True),)))).succeeded
    assert (await full.hash()).digest
    async with full.watch(EVERYTHING, after=1) as stream:
        assert (await anext(stream)).revision == 2


async def test_leases_live_on_and_can_be_ended(full: Store) -> None:
    await full.keep_alive(_LEASE)
    assert (await full.time_to_live(_LEASE, keys=True)).keys == (b"leased",)
    await full.revoke(_LEASE)
    assert b"leased" not in await contents(full)


async def test_deletes_and_compaction_work_and_the_alarm_clears_itself(full: Store) -> None:
    assert (await full.delete(EVERYTHING)).deleted > 10
    await full.compact(await newest(full))
    await _recovers(full)


async def test_a_transaction_that_only_deletes_works(full: Store) -> None:
    result = await full.txn(Txn(then=(Delete(EVERYTHING), Range(EVERYTHING))))
    assert result.succeeded
    assert await contents(full) == {}
    await full.compact(await newest(full))
    await _recovers(full)


async def test_compacting_history_alone_makes_room(engine: Engine) -> None:
    async with engine.open(limits=Limits(storage_bytes_max=_QUOTA), retention=KEEP_ALL) as store:
        with pytest.raises(NoSpace):
            for _ in range(2 * _QUOTA // len(_VALUE)):
                await store.put(b"the same key", _VALUE)
        await store.compact(await newest(store))
        await _recovers(store)


async def test_history_gives_way_to_data_by_itself(engine: Engine) -> None:
    """With the default retention nobody who writes the same keys again and again is ever refused."""
    async with engine.open(limits=Limits(storage_bytes_max=_QUOTA)) as store:
        for _ in range(4 * _QUOTA // len(_VALUE)):
            await store.put(b"the same key", _VALUE)
        status = await store.status()
        assert status.compact_revision > 0
        assert not status.alarms
