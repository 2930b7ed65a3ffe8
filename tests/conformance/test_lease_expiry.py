"""A lease never ends early, whatever happens to the process or its clock; and it does end in time."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import LeaseNotFound
from quoracy.store.api import Store
from quoracy.store.model import EventKind, LeaseGrant
from quoracy.store.rules import Limits
from tests.support.asking import EVERYTHING, decided, newest, told
from tests.support.engines import Capability, Engine

# How late a lease may end when the store is not held up: a few of its ticks.
_LATE_MAX_S = 0.3


async def _held(store: Store, ttl_s: float, *keys: bytes) -> LeaseGrant:
    lease = await store.grant(ttl_s)
    for key in keys:
        await store.put(key, lease=lease.id)
    return lease


async def test_it_lives_its_time_and_not_much_longer(timed_store: Store, clock: ManualClock) -> None:
    lease = await _held(timed_store, 10, b"k")
    await clock.advance(9.95)
    assert set(await decided(timed_store)) == {b"k"}
    assert await timed_store.leases() == (lease.id,)
    await clock.advance(0.05 + _LATE_MAX_S)
    assert await decided(timed_store) == {}
    assert await timed_store.leases() == ()
    with pytest.raises(LeaseNotFound):
        await timed_store.keep_alive(lease.id)
    with pytest.raises(LeaseNotFound):
        await timed_store.put(b"k", lease=lease.id)


async def test_expiry_deletes_all_its_keys_in_one_revision(
    timed_store: Store, clock: ManualClock
) -> None:
    await timed_store.put(b"free")
    await _held(timed_store, 5, b"c", b"a", b"b")
    async with timed_store.watch(EVERYTHING) as stream:
        await clock.advance(5 + _LATE_MAX_S)
        assert told([await anext(stream)]) == [
            (6, [(EventKind.DELETE, key, b"") for key in (b"a", b"b", b"c")])
        ]
    assert await newest(timed_store) == 6


async def test_each_expired_lease_has_a_revision_of_its_own(
    timed_store: Store, clock: ManualClock
) -> None:
    await _held(timed_store, 5, b"a1", b"a2")
    await _held(timed_store, 5, b"b1", b"b2")
    async with timed_store.watch(EVERYTHING) as stream:
        await clock.advance(5 + _LATE_MAX_S)
        batches = [await anext(stream), await anext(stream)]
    assert [batch.revision for batch in batches] == [6, 7]
    gone = [[event.kv.key for event in batch.events] for batch in batches]
    assert sorted(gone) == [[b"a1", b"a2"], [b"b1", b"b2"]]


async def test_an_expired_lease_without_keys_makes_no_revision(
    timed_store: Store, clock: ManualClock
) -> None:
    await timed_store.grant(5)
    await clock.advance(5 + _LATE_MAX_S)
    assert await timed_store.leases() == ()
    assert await newest(timed_store) == 1


async def test_keep_alive_gives_the_full_time_again(timed_store: Store, clock: ManualClock) -> None:
    lease = await _held(timed_store, 4, b"k")
    for _ in range(5):
        await clock.advance(3.5)
        await timed_store.keep_alive(lease.id)
    await clock.advance(3.9)
    assert set(await decided(timed_store)) == {b"k"}
    await clock.advance(0.1 + _LATE_MAX_S)
    assert await decided(timed_store) == {}


async def test_a_put_is_not_a_keep_alive(timed_store: Store, clock: ManualClock) -> None:
    lease = await _held(timed_store, 4, b"k")
    await clock.advance(3)
    await timed_store.put(b"k", b"again", lease=lease.id)
    await clock.advance(1 + _LATE_MAX_S)
    assert await decided(timed_store) == {}


async def test_leases_end_by_their_own_time_not_in_order_of_grant(
    timed_store: Store, clock: ManualClock
) -> None:
    await _held(timed_store, 60, b"long")
    await _held(timed_store, 3, b"short")
    kept = await _held(timed_store, 3, b"kept")
    await clock.advance(2)
    await timed_store.keep_alive(kept.id)
    await clock.advance(1 + _LATE_MAX_S)
    assert set(await decided(timed_store)) == {b"long", b"kept"}
    await clock.advance(2)
    assert set(await decided(timed_store)) == {b"long"}


async def test_time_to_live_counts_down_and_up_again(timed_store: Store, clock: ManualClock) -> None:
    lease = await timed_store.grant(10)
    assert (await timed_store.time_to_live(lease.id)).remaining_s == pytest.approx(10, abs=0.01)
    await clock.advance(4)
    status = await timed_store.time_to_live(lease.id)
    assert status.ttl_s == 10
    assert status.remaining_s == pytest.approx(6, abs=_LATE_MAX_S)
    await timed_store.keep_alive(lease.id)
    assert (await timed_store.time_to_live(lease.id)).remaining_s == pytest.approx(10, abs=0.01)


async def test_a_moved_key_outlives_the_lease_it_left(timed_store: Store, clock: ManualClock) -> None:
    await _held(timed_store, 3, b"moved", b"freed", b"stays")
    long = await timed_store.grant(60)
    await timed_store.put(b"moved", lease=long.id)
    await timed_store.put(b"freed")
    await clock.advance(3 + _LATE_MAX_S)
    assert set(await decided(timed_store)) == {b"moved", b"freed"}


async def test_a_revoked_lease_does_not_end_again(timed_store: Store, clock: ManualClock) -> None:
    lease = await _held(timed_store, 3, b"k")
    await timed_store.revoke(lease.id)
    await timed_store.put(b"k", b"free")
    await clock.advance(3 + _LATE_MAX_S)
    assert await decided(timed_store) == {b"k": b"free"}


async def test_an_id_granted_anew_lives_its_own_time(timed_store: Store, clock: ManualClock) -> None:
    lease = await timed_store.grant(3)
    await clock.advance(2)
    await timed_store.revoke(lease.id)
    await timed_store.grant(10, id=lease.id)
    await timed_store.put(b"k", lease=lease.id)
    await clock.advance(9.9)
    assert set(await decided(timed_store)) == {b"k"}
    await clock.advance(0.1 + _LATE_MAX_S)
    assert await decided(timed_store) == {}


async def test_many_leases_end_each_at_its_time(timed_store: Store, clock: ManualClock) -> None:
    for ttl_s in (7, 3, 9, 5, 3, 7):
        lease = await timed_store.grant(ttl_s)
        await timed_store.put(b"%d/%d" % (ttl_s, lease.id), lease=lease.id)
    alive = []
    for _ in range(5):
        await clock.advance(2)
        alive.append(sorted(int(key[:1]) for key in await decided(timed_store)))
    assert alive == [[3, 3, 5, 7, 7, 9], [5, 7, 7, 9], [7, 7, 9], [9], []]


# -- time that does not count -----------------------------------------------------------------


async def test_a_stalled_process_ends_no_lease(timed_store: Store, clock: ManualClock) -> None:
    lease = await _held(timed_store, 10, b"k")
    clock.jump(3600)
    await clock.advance(0)
    assert set(await decided(timed_store)) == {b"k"}
    # Whatever part of the stall counts, the owner has ample time to be heard again.
    assert (await timed_store.time_to_live(lease.id)).remaining_s >= 9
    await clock.advance(5)
    await timed_store.keep_alive(lease.id)
    await clock.advance(9.9)
    assert set(await decided(timed_store)) == {b"k"}


async def test_a_keep_alive_that_waited_out_a_stall_is_heard(
    timed_store: Store, clock: ManualClock
) -> None:
    lease = await _held(timed_store, 2, b"k")
    clock.jump(3600)
    assert await timed_store.keep_alive(lease.id) == lease
    await clock.advance(1.9)
    assert set(await decided(timed_store)) == {b"k"}


async def test_many_short_stalls_end_no_lease_early(timed_store: Store, clock: ManualClock) -> None:
    await _held(timed_store, 10, b"k")
    for _ in range(8):
        clock.jump(5)
        await clock.advance(0.2)
    assert set(await decided(timed_store)) == {b"k"}


async def test_a_lease_still_ends_after_a_stall(timed_store: Store, clock: ManualClock) -> None:
    await _held(timed_store, 10, b"k")
    clock.jump(3600)
    await clock.advance(10 + _LATE_MAX_S)
    assert await decided(timed_store) == {}


# -- restart ----------------------------------------------------------------------------------


async def test_after_a_restart_every_lease_has_its_full_time_again(
    engine: Engine, clock: ManualClock
) -> None:
    engine.needs(Capability.REOPEN)
    async with engine.open(clock=clock) as store:
        short, long = await _held(store, 5, b"short"), await _held(store, 20, b"long")
        await clock.advance(4)
    clock.jump(3600)
    async with engine.open(clock=clock) as store:
        assert await store.leases() == tuple(sorted((short.id, long.id)))
        status = await store.time_to_live(short.id, keys=True)
        assert (status.ttl_s, status.keys) == (5.0, (b"short",))
        assert status.remaining_s == pytest.approx(5, abs=0.01)
        await clock.advance(4.9)
        assert set(await decided(store)) == {b"short", b"long"}
        await clock.advance(0.1 + _LATE_MAX_S)
        assert set(await decided(store)) == {b"long"}
        await clock.advance(14.5)
        assert set(await decided(store)) == {b"long"}
        await clock.advance(0.5 + _LATE_MAX_S)
        assert await decided(store) == {}


async def test_what_expired_or_was_revoked_stays_so_after_a_restart(
    engine: Engine, clock: ManualClock
) -> None:
    engine.needs(Capability.REOPEN)
    async with engine.open(clock=clock) as store:
        await _held(store, 5, b"expired")
        revoked = await _held(store, 60, b"revoked")
        kept = await _held(store, 60, b"kept")
        await store.revoke(revoked.id)
        await clock.advance(5 + _LATE_MAX_S)
        assert set(await decided(store)) == {b"kept"}
        revision = await newest(store)
    async with engine.open(clock=clock) as store:
        assert await newest(store) == revision
        assert await store.leases() == (kept.id,)
        assert set(await decided(store)) == {b"kept"}


# -- the machine's own clock ------------------------------------------------------------------


async def test_on_the_machines_clock_a_lease_ends_in_its_time(engine: Engine) -> None:
    async with engine.open(limits=Limits(lease_ttl_min_s=0.3)) as store:
        loop = asyncio.get_running_loop()
        async with store.watch(EVERYTHING) as stream:
            granted_at = loop.time()
            await _held(store, 0.3, b"k")
            assert (await anext(stream)).events[0].kind is EventKind.PUT
            assert (await anext(stream)).events[0].kind is EventKind.DELETE
            assert loop.time() - granted_at >= 0.3
