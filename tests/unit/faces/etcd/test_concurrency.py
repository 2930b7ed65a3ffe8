"""The Lock and the Election service: one owner at a time, and a call given up leaves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import QuoracyError
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.services.concurrency import finished
from quoracy.store.api import Store
from quoracy.store.model import KeyRange
from quoracy.wire.etcd.election import (
    CampaignRequest,
    LeaderKey,
    LeaderRequest,
    ProclaimRequest,
    ResignRequest,
)
from quoracy.wire.etcd.lock import LockRequest, UnlockRequest
from quoracy.wire.grpc import StatusCode

from .conftest import Face

LOCK, UNLOCK = "/v3lockpb.Lock/Lock", "/v3lockpb.Lock/Unlock"
ELECTION = "/v3electionpb.Election/"
UNKNOWN = StatusCode.UNKNOWN


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def calling(face: Face, path: str, request: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(face.call(path, request))


async def count(store: Store, name: bytes = b"l/") -> int:
    return (await store.range(KeyRange.prefix(name))).count


# -- lock ------------------------------------------------------------------------------------


async def test_lock_key_is_name_and_lease(face: Face, store: Store) -> None:
    lease = (await store.grant(60)).id
    response = await face.call(LOCK, LockRequest(name=b"l", lease=lease))
    assert response.key == b"l/%x" % lease
    kv = (await store.range(response.key)).kvs[0]
    assert (kv.lease, kv.create_revision) == (lease, response.header.revision)


async def test_lock_waits_for_unlock(face: Face, store: Store) -> None:
    first, second = [(await store.grant(60)).id for _ in range(2)]
    held = await face.call(LOCK, LockRequest(name=b"l", lease=first))
    waiting = calling(face, LOCK, LockRequest(name=b"l", lease=second))
    await turns()
    assert not waiting.done()
    unlocked = await face.call(UNLOCK, UnlockRequest(key=held.key))
    assert (await waiting).header.revision >= unlocked.header.revision


async def test_same_lease_locks_twice(face: Face, store: Store) -> None:
    lease = (await store.grant(60)).id
    keys = [(await face.call(LOCK, LockRequest(name=b"l", lease=lease))).key for _ in range(2)]
    assert keys[0] == keys[1]
    assert await count(store) == 1


async def test_lock_without_a_lease_gets_one_for_a_minute(face: Face, store: Store) -> None:
    response = await face.call(LOCK, LockRequest(name=b"l"))
    (lease,) = await store.leases()
    assert response.key == b"l/%x" % lease
    assert (await store.time_to_live(lease)).ttl_s == 60


async def test_lock_with_unknown_lease(face: Face, store: Store) -> None:
    refused = await face.refused(LOCK, LockRequest(name=b"l", lease=99))
    assert refused == (StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
    assert await count(store) == 0


@pytest.mark.parametrize("own_lease", [True, False])
async def test_cancelled_lock_leaves_nothing(face: Face, store: Store, own_lease: bool) -> None:
    holder = (await store.grant(60)).id
    await face.call(LOCK, LockRequest(name=b"l", lease=holder))
    lease = 0 if own_lease else (await store.grant(60)).id
    waiting = calling(face, LOCK, LockRequest(name=b"l", lease=lease))
    await turns()
    assert await count(store) == 2
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await count(store) == 1
    assert len(await store.leases()) == (1 if own_lease else 2)
    assert (await store.status()).watchers_count == 0


async def test_lock_cancelled_again_while_it_leaves_leaves_nothing(face: Face, store: Store) -> None:
    holder = (await store.grant(60)).id
    await face.call(LOCK, LockRequest(name=b"l", lease=holder))
    waiting = calling(face, LOCK, LockRequest(name=b"l"))
    await turns()
    while not waiting.done():
        waiting.cancel()
        await asyncio.sleep(0)
    assert await count(store) == 1
    assert await store.leases() == (holder,)


async def test_lock_cancelled_while_it_joins_leaves_nothing(face: Face, store: Store) -> None:
    lease = (await store.grant(60)).id
    for turns_before in range(6):
        joining = calling(face, LOCK, LockRequest(name=b"l", lease=lease))
        for _ in range(turns_before):
            await asyncio.sleep(0)
        if joining.cancel():
            await asyncio.gather(joining, return_exceptions=True)
        if joining.cancelled():
            assert await count(store) == 0
        else:
            await face.call(UNLOCK, UnlockRequest(key=joining.result().key))


async def test_lock_whose_lease_ends_while_it_waits(
    timed_face: Face, timed_store: Store, clock: ManualClock
) -> None:
    holder, waiter = (await timed_store.grant(60)).id, (await timed_store.grant(5)).id
    held = await timed_face.call(LOCK, LockRequest(name=b"l", lease=holder))
    waiting = calling(timed_face, LOCK, LockRequest(name=b"l", lease=waiter))
    await turns()
    await clock.advance(10)
    await timed_face.call(UNLOCK, UnlockRequest(key=held.key))
    with pytest.raises(QuoracyError) as caught:
        await waiting
    assert status_of(caught.value) == (UNKNOWN, "mutex: session is expired")


async def test_unlock_needs_a_key_and_takes_any(face: Face) -> None:
    refused = await face.refused(UNLOCK, UnlockRequest())
    assert refused[1] == "etcdserver: key is not provided"
    assert (await face.call(UNLOCK, UnlockRequest(key=b"x"))).header.revision == 1


async def test_hundred_contenders_each_get_it_once(face: Face, store: Store) -> None:
    order: list[int] = []

    async def contend(number: int) -> None:
        response = await face.call(LOCK, LockRequest(name=b"l"))
        order.append(number)
        assert (await store.range(response.key)).count == 1
        await face.call(UNLOCK, UnlockRequest(key=response.key))

    await asyncio.gather(*(contend(number) for number in range(100)))
    assert sorted(order) == list(range(100))
    assert await count(store) == 0


async def test_finished_waits_through_every_cancellation() -> None:
    done = asyncio.Event()
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    task = asyncio.create_task(finished(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


# -- election --------------------------------------------------------------------------------


async def test_campaign_then_leader(face: Face, store: Store) -> None:
    lease = (await store.grant(60)).id
    won = await face.call(ELECTION + "Campaign", CampaignRequest(name=b"e", lease=lease, value=b"me"))
    assert won.leader == LeaderKey(name=b"e", key=b"e/%x" % lease, rev=2, lease=lease)
    assert won.header.revision == 2
    leader = await face.call(ELECTION + "Leader", LeaderRequest(name=b"e"))
    assert (leader.kv.key, leader.kv.value) == (won.leader.key, b"me")


async def test_nobody_leads(face: Face) -> None:
    refused = await face.refused(ELECTION + "Leader", LeaderRequest(name=b"e"))
    assert refused == (UNKNOWN, "election: no leader")


async def test_campaign_again_proclaims(face: Face, store: Store) -> None:
    lease = (await store.grant(60)).id
    first = await face.call(ELECTION + "Campaign", CampaignRequest(name=b"e", lease=lease, value=b"1"))
    again = await face.call(ELECTION + "Campaign", CampaignRequest(name=b"e", lease=lease, value=b"2"))
    assert again.leader == first.leader
    kv = (await store.range(first.leader.key)).kvs[0]
    assert (kv.value, kv.create_revision, kv.lease) == (b"2", first.leader.rev, lease)


async def test_proclaim_and_resign(face: Face, store: Store) -> None:
    lease = (await store.grant(60)).id
    won = await face.call(ELECTION + "Campaign", CampaignRequest(name=b"e", lease=lease))
    await face.call(ELECTION + "Proclaim", ProclaimRequest(leader=won.leader, value=b"new"))
    assert (await store.range(won.leader.key)).kvs[0].value == b"new"
    await face.call(ELECTION + "Resign", ResignRequest(leader=won.leader))
    assert (await store.range(won.leader.key)).count == 0
    refused = await face.refused(ELECTION + "Proclaim", ProclaimRequest(leader=won.leader))
    assert refused == (UNKNOWN, "election: not leader")
    await face.call(ELECTION + "Resign", ResignRequest(leader=won.leader))


async def test_leader_field_must_be_given(face: Face) -> None:
    missing = (UNKNOWN, '"leader" field must be provided')
    assert await face.refused(ELECTION + "Proclaim", ProclaimRequest()) == missing
    assert await face.refused(ELECTION + "Resign", ResignRequest()) == missing


async def test_campaign_waits_and_a_given_up_one_leaves_nothing(face: Face, store: Store) -> None:
    leases = [(await store.grant(60)).id for _ in range(3)]
    path = ELECTION + "Campaign"
    first = await face.call(path, CampaignRequest(name=b"e", lease=leases[0]))
    second = calling(face, path, CampaignRequest(name=b"e", lease=leases[1]))
    await turns()
    third = calling(face, path, CampaignRequest(name=b"e", lease=leases[2]))
    await turns()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await face.call(ELECTION + "Resign", ResignRequest(leader=first.leader))
    assert (await third).leader.lease == leases[2]
    assert await count(store, b"e/") == 1


async def test_candidate_that_lost_its_key_does_not_lead(face: Face, store: Store) -> None:
    leases = [(await store.grant(60)).id for _ in range(2)]
    path = ELECTION + "Campaign"
    first = await face.call(path, CampaignRequest(name=b"e", lease=leases[0]))
    second = calling(face, path, CampaignRequest(name=b"e", lease=leases[1]))
    await turns()
    await store.revoke(leases[1])
    await face.call(ELECTION + "Resign", ResignRequest(leader=first.leader))
    with pytest.raises(QuoracyError) as caught:
        await second
    assert status_of(caught.value) == (UNKNOWN, "election: not leader")


async def test_observe_follows_the_leaders(face: Face, store: Store) -> None:
    leases = [(await store.grant(60)).id for _ in range(2)]
    path = ELECTION + "Campaign"
    async with face.stream(ELECTION + "Observe") as stream:
        stream.say(LeaderRequest(name=b"e"))
        assert await stream.hears_nothing()
        first = await face.call(path, CampaignRequest(name=b"e", lease=leases[0], value=b"1"))
        assert (await stream.hear()).kv.value == b"1"
        await face.call(ELECTION + "Proclaim", ProclaimRequest(leader=first.leader, value=b"1b"))
        answer = await stream.hear()
        assert (answer.kv.value, answer.header.cluster_id) == (b"1b", 11)
        second = calling(face, path, CampaignRequest(name=b"e", lease=leases[1], value=b"2"))
        await turns()
        await face.call(ELECTION + "Resign", ResignRequest(leader=first.leader))
        await second
        assert (await stream.hear()).kv.value == b"2"
    assert (await store.status()).watchers_count == 0
