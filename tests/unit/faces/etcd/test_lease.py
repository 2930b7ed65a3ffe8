"""The Lease service: whole seconds, and what is gone is a value rather than an error."""

from __future__ import annotations

import pytest

from quoracy.clock import ManualClock
from quoracy.store.api import Store
from quoracy.wire.etcd.rpc import (
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseLeasesRequest,
    LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
)
from quoracy.wire.grpc import StatusCode

from .conftest import Face

SERVICE = "/etcdserverpb.Lease/Lease"


async def test_grant_chooses_an_id_or_takes_one(face: Face) -> None:
    chosen = await face.call(SERVICE + "Grant", LeaseGrantRequest(TTL=60))
    assert (chosen.TTL, chosen.header.revision, chosen.error) == (60, 1, "")
    assert chosen.ID > 0
    given = await face.call(SERVICE + "Grant", LeaseGrantRequest(TTL=60, ID=-7))
    assert given.ID == -7
    refused = await face.refused(SERVICE + "Grant", LeaseGrantRequest(TTL=60, ID=-7))
    assert refused == (StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists")
    leases = await face.call(SERVICE + "Leases", LeaseLeasesRequest())
    assert {lease.ID for lease in leases.leases} == {chosen.ID, -7}


@pytest.mark.parametrize("ttl", [0, -5, 1, -(2**63)])
async def test_short_ttl_is_raised_to_two_seconds(face: Face, ttl: int) -> None:
    assert (await face.call(SERVICE + "Grant", LeaseGrantRequest(TTL=ttl))).TTL == 2


@pytest.mark.parametrize("ttl", [9_000_000_001, 2**63 - 1])
async def test_ttl_too_large(face: Face, ttl: int) -> None:
    refused = await face.refused(SERVICE + "Grant", LeaseGrantRequest(TTL=ttl))
    assert refused == (StatusCode.OUT_OF_RANGE, "etcdserver: too large lease TTL")
    assert (await face.call(SERVICE + "Grant", LeaseGrantRequest(TTL=9_000_000_000))).ID


async def test_revoke_deletes_the_keys(face: Face, store: Store) -> None:
    lease = await store.grant(60)
    await store.put(b"a", b"1", lease=lease.id)
    response = await face.call(SERVICE + "Revoke", LeaseRevokeRequest(ID=lease.id))
    assert response.header.revision == 3
    assert (await store.range(b"a")).count == 0
    refused = await face.refused(SERVICE + "Revoke", LeaseRevokeRequest(ID=lease.id))
    assert refused == (StatusCode.NOT_FOUND, "etcdserver: requested lease not found")


async def test_time_to_live(timed_face: Face, timed_store: Store, clock: ManualClock) -> None:
    lease = await timed_store.grant(60)
    await timed_store.put(b"b", b"1", lease=lease.id)
    await timed_store.put(b"a", b"1", lease=lease.id)
    await clock.advance(10.5)
    response = await timed_face.call(
        SERVICE + "TimeToLive", LeaseTimeToLiveRequest(ID=lease.id, keys=True)
    )
    assert (response.ID, response.TTL, response.grantedTTL) == (lease.id, 49, 60)
    assert response.keys == [b"a", b"b"]
    response = await timed_face.call(SERVICE + "TimeToLive", LeaseTimeToLiveRequest(ID=lease.id))
    assert response.keys == ()


async def test_time_to_live_of_an_unknown_lease_is_minus_one(face: Face) -> None:
    response = await face.call(SERVICE + "TimeToLive", LeaseTimeToLiveRequest(ID=99, keys=True))
    assert (response.ID, response.TTL, response.grantedTTL) == (99, -1, 0)


async def test_keep_alive_stream(timed_face: Face, timed_store: Store, clock: ManualClock) -> None:
    lease = await timed_store.grant(60)
    async with timed_face.stream(SERVICE + "KeepAlive") as stream:
        await clock.advance(50)
        stream.say(LeaseKeepAliveRequest(ID=lease.id))
        answer = await stream.hear()
        assert (answer.ID, answer.TTL, answer.header.revision) == (lease.id, 60, 1)
        await clock.advance(50)
        assert (await timed_store.time_to_live(lease.id)).remaining_s == 10
        stream.say(LeaseKeepAliveRequest(ID=99))
        answer = await stream.hear()
        assert (answer.ID, answer.TTL) == (99, 0)
        stream.say(LeaseKeepAliveRequest(ID=lease.id))
        assert (await stream.hear()).TTL == 60
        stream.say_no_more()
        assert await stream.ended() == (StatusCode.OK, "")
