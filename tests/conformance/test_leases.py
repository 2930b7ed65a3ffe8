"""Leases: granted, kept alive, asked about, revoked; each takes its keys with it in one revision."""

from __future__ import annotations

import math

import pytest

from quoracy.errors import InvalidRequest, LeaseExists, LeaseNotFound
from quoracy.store.api import Store
from quoracy.store.model import Delete, EventKind, LeaseGrant, LeaseId, Put, Txn
from tests.support.asking import EVERYTHING, contents, newest, told


async def test_a_chosen_id_is_the_one_granted(store: Store) -> None:
    assert await store.grant(60, id=LeaseId(0x1234)) == LeaseGrant(LeaseId(0x1234), 60.0)
    assert await store.leases() == (0x1234,)


async def test_ids_the_store_chooses_differ_and_are_not_zero(store: Store) -> None:
    ids = [(await store.grant(60)).id for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(ids)
    assert await store.leases() == tuple(sorted(ids))


@pytest.mark.parametrize("id", [1, 2**63 - 1, -(2**63)])
async def test_any_64_bit_number_but_zero_can_be_chosen(store: Store, id: int) -> None:
    lease = await store.grant(60, id=LeaseId(id))
    await store.put(b"k", lease=lease.id)
    assert (await store.range(b"k")).kvs[0].lease == id


@pytest.mark.parametrize("id", [0, 2**63, -(2**63) - 1])
async def test_an_id_that_is_no_id_is_refused(store: Store, id: int) -> None:
    with pytest.raises(InvalidRequest):
        await store.grant(60, id=LeaseId(id))
    assert await store.leases() == ()


async def test_a_taken_id_is_refused_and_its_owner_unharmed(store: Store) -> None:
    await store.grant(60, id=LeaseId(7))
    await store.put(b"k", lease=7)
    with pytest.raises(LeaseExists) as caught:
        await store.grant(30, id=LeaseId(7))
    assert caught.value.lease == 7
    status = await store.time_to_live(7, keys=True)
    assert (status.ttl_s, status.keys) == (60.0, (b"k",))


async def test_an_id_is_free_again_after_its_lease_ended(store: Store) -> None:
    await store.grant(60, id=LeaseId(7))
    await store.put(b"k", lease=7)
    await store.revoke(7)
    await store.grant(30, id=LeaseId(7))
    status = await store.time_to_live(7, keys=True)
    assert (status.ttl_s, status.keys) == (30.0, ())


@pytest.mark.parametrize("ttl_s", [1.0, 0.0, -5.0, 1e-9])
async def test_too_short_a_time_is_raised_to_the_least_allowed(store: Store, ttl_s: float) -> None:
    lease = await store.grant(ttl_s)
    assert lease.ttl_s == 2.0
    assert (await store.time_to_live(lease.id)).ttl_s == 2.0


@pytest.mark.parametrize("ttl_s", [9_000_000_001.0, math.inf, math.nan])
async def test_too_long_a_time_is_refused(store: Store, ttl_s: float) -> None:
    with pytest.raises(InvalidRequest):
        await store.grant(ttl_s)
    assert await store.leases() == ()


async def test_keep_alive_answers_with_the_time_granted(store: Store) -> None:
    lease = await store.grant(45)
    assert await store.keep_alive(lease.id) == LeaseGrant(lease.id, 45.0)


async def test_a_lease_that_does_not_exist_is_not_found(store: Store) -> None:
    gone = (await store.grant(60)).id
    await store.revoke(gone)
    for lease in (4711, gone):
        for ask in (
            store.keep_alive(lease),
            store.revoke(lease),
            store.time_to_live(lease),
            store.put(b"k", lease=lease),
        ):
            with pytest.raises(LeaseNotFound) as caught:
                await ask
            assert caught.value.lease == lease


# -- keys -------------------------------------------------------------------------------------


async def test_time_to_live_names_the_keys_in_order_if_asked(store: Store) -> None:
    lease = (await store.grant(60)).id
    for key in (b"c", b"a", b"b"):
        await store.put(key, lease=lease)
    await store.put(b"free")
    assert (await store.time_to_live(lease, keys=True)).keys == (b"a", b"b", b"c")
    assert (await store.time_to_live(lease)).keys == ()


async def test_a_key_put_again_is_attached_once(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"1", lease=lease)
    await store.put(b"k", b"2", lease=lease)
    assert (await store.time_to_live(lease, keys=True)).keys == (b"k",)


async def test_a_key_has_one_lease_the_one_of_its_last_put(store: Store) -> None:
    first, second = (await store.grant(60)).id, (await store.grant(60)).id
    await store.put(b"k", lease=first)
    await store.put(b"k", lease=second)
    assert (await store.time_to_live(first, keys=True)).keys == ()
    assert (await store.time_to_live(second, keys=True)).keys == (b"k",)
    await store.revoke(first)
    assert set(await contents(store)) == {b"k"}
    await store.revoke(second)
    assert await contents(store) == {}


async def test_a_put_without_a_lease_detaches_the_key(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", lease=lease)
    await store.put(b"k")
    await store.revoke(lease)
    assert set(await contents(store)) == {b"k"}


async def test_a_transaction_moves_keys_between_leases(store: Store) -> None:
    first, second = (await store.grant(60)).id, (await store.grant(60)).id
    for key in (b"a", b"b", b"c"):
        await store.put(key, lease=first)
    await store.txn(Txn(then=(Put(b"a", lease=second), Put(b"b"), Delete(b"c"))))
    assert (await store.time_to_live(first, keys=True)).keys == ()
    assert (await store.time_to_live(second, keys=True)).keys == (b"a",)


# -- revoke -----------------------------------------------------------------------------------


async def test_revoke_deletes_all_its_keys_in_one_revision(store: Store) -> None:
    lease = (await store.grant(60)).id
    for key in (b"c", b"a", b"b"):
        await store.put(key, lease=lease)
    await store.put(b"free")
    async with store.watch(EVERYTHING) as stream:
        assert await store.revoke(lease) == 6
        assert told([await anext(stream)]) == [
            (6, [(EventKind.DELETE, key, b"") for key in (b"a", b"b", b"c")])
        ]
    assert set(await contents(store)) == {b"free"}
    assert await newest(store) == 6
    assert await store.leases() == ()


async def test_revoking_a_lease_without_keys_makes_no_revision(store: Store) -> None:
    await store.put(b"k")
    lease = (await store.grant(60)).id
    assert await store.revoke(lease) == 2


async def test_revoking_one_lease_leaves_the_others(store: Store) -> None:
    first, second = (await store.grant(60)).id, (await store.grant(60)).id
    await store.put(b"a", lease=first)
    await store.put(b"b", lease=second)
    await store.revoke(first)
    assert set(await contents(store)) == {b"b"}
    assert await store.leases() == (second,)


async def test_the_past_still_shows_the_keys_of_a_revoked_lease(store: Store) -> None:
    lease = (await store.grant(60)).id
    revision = (await store.put(b"k", b"v", lease=lease)).revision
    await store.revoke(lease)
    assert await contents(store, at=revision) == {b"k": b"v"}


async def test_the_list_is_in_order_of_ids(store: Store) -> None:
    for id in (30, -5, 10, 20):
        await store.grant(60, id=LeaseId(id))
    assert await store.leases() == (-5, 10, 20, 30)
    assert (await store.status()).leases_count == 4
