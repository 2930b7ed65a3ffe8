"""Every limit has a clear error: what was too large, by how much, and which setting raises it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quoracy.errors import InvalidRequest, TooLarge
from quoracy.store.api import Store
from quoracy.store.model import Compare, Delete, KeyRange, Op, Put, Range, Txn
from quoracy.store.rules import Limits
from tests.support.asking import EVERYTHING, contents, newest
from tests.support.engines import Capability, Engine

_LIMITS = Limits(
    request_bytes_max=1000, key_bytes_max=100, txn_ops_max=8, lease_ttl_min_s=5, lease_ttl_max_s=50
)


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    """A store with small limits."""
    async with engine.open(limits=_LIMITS) as store:
        yield store


def _is(error: TooLarge, setting: str, size: int, size_max: int) -> bool:
    names_them = setting in str(error) and f"{size:,}" in str(error) and f"{size_max:,}" in str(error)
    return names_them and (error.setting, error.size, error.size_max) == (setting, size, size_max)


async def test_a_request_may_be_as_large_as_the_limit_and_no_larger(store: Store) -> None:
    await store.put(b"k" * 10, bytes(990))
    with pytest.raises(TooLarge) as caught:
        await store.put(b"k" * 10, bytes(991))
    assert _is(caught.value, "request_bytes_max", 1001, 1000)
    assert await newest(store) == 2


async def test_a_transaction_is_as_large_as_all_it_carries(store: Store) -> None:
    def txn(size: int) -> Txn:
        return Txn(
            (Compare.value(b"c" * 10, "!=", bytes(90)),),
            then=(Put(b"a" * 10, bytes(290)), Txn(then=(Put(b"b" * 10, bytes(290)),))),
            otherwise=(Put(b"d" * 10, bytes(size - 710)),),
        )

    await store.txn(txn(1000))
    with pytest.raises(TooLarge) as caught:
        await store.txn(txn(1001))
    assert _is(caught.value, "request_bytes_max", 1001, 1000)


async def test_a_key_may_be_as_long_as_the_limit_and_no_longer(store: Store) -> None:
    longest, too_long = b"k" * 100, b"k" * 101
    await store.put(longest)
    assert (await store.range(longest)).count == 1
    assert (await store.range(KeyRange.exactly(longest))).count == 1
    for ask in (
        store.put(too_long),
        store.range(too_long),
        store.range(KeyRange.from_key(too_long)),
        store.range(KeyRange(b"a", too_long + b"k")),
        store.delete(too_long),
        store.txn(Txn((Compare.exists(too_long),))),
        store.txn(Txn(then=(Put(too_long),))),
        store.txn(Txn(otherwise=(Txn(then=(Range(too_long),)),))),
        store.txn(Txn(otherwise=(Delete(too_long),))),
    ):
        with pytest.raises(TooLarge) as caught:
            await ask
        assert _is(caught.value, "key_bytes_max", 101, 100)
    assert (await store.delete(longest)).deleted == 1


async def test_a_transaction_may_have_as_many_operations_as_the_limit_and_no_more(
    store: Store,
) -> None:
    compares = tuple(Compare.exists(b"k%d" % i) for i in range(9))
    ops: tuple[Op, ...] = tuple(Put(b"k%d" % i) for i in range(9))
    await store.txn(Txn(compares[:8], ops[:8], ops[:8]))
    for txn in (Txn(compares), Txn(then=ops), Txn(otherwise=ops)):
        with pytest.raises(TooLarge) as caught:
            await store.txn(txn)
        assert _is(caught.value, "txn_ops_max", 9, 8)
    assert len(await contents(store)) == 8


async def test_nested_operations_come_on_top_of_the_level_above(store: Store) -> None:
    def nested(above: int, below: int) -> Txn:
        inner = Txn(then=tuple(Put(b"below%d" % i) for i in range(below)))
        return Txn(then=(inner, *(Put(b"above%d" % i) for i in range(above - 1))))

    await store.txn(nested(3, 5))
    await store.txn(nested(1, 7))
    for above, below in ((3, 6), (8, 1), (1, 8)):
        with pytest.raises(TooLarge) as caught:
            await store.txn(nested(above, below))
        assert _is(caught.value, "txn_ops_max", 9, 8)


async def test_siblings_share_the_level_above_not_each_other(store: Store) -> None:
    def sibling(name: int) -> Txn:
        return Txn(then=tuple(Put(b"%d/%d" % (name, i)) for i in range(6)))

    assert (await store.txn(Txn(then=(sibling(1), sibling(2))))).succeeded
    assert len(await contents(store)) == 12


async def test_lease_times_are_bounded(store: Store) -> None:
    assert (await store.grant(1)).ttl_s == 5
    assert (await store.grant(50)).ttl_s == 50
    with pytest.raises(InvalidRequest):
        await store.grant(51)


async def test_the_default_limits_are_those_of_etcd(engine: Engine) -> None:
    # Ours count keys and values; a real etcd counts the encoded request, and does not tell its quota.
    engine.needs(Capability.LIMITS)
    async with engine.open("default") as store:
        await store.put(b"k", bytes(1_572_863))
        with pytest.raises(TooLarge):
            await store.put(b"k", bytes(1_572_864))
        await store.txn(Txn(then=tuple(Put(b"%d" % i) for i in range(128))))
        with pytest.raises(TooLarge):
            await store.txn(Txn(then=tuple(Put(b"%d" % i) for i in range(129))))
        assert (await store.status()).size_bytes_max == 2 * 1024**3


async def test_answers_larger_than_a_request_may_be_are_fine(store: Store) -> None:
    for i in range(5):
        await store.put(b"%d" % i, bytes(900))
    assert sum(len(kv.value) for kv in (await store.range(EVERYTHING)).kvs) == 4500
