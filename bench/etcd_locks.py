"""etcd's lock service: how often clients get a lock and give it back, alone or all at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench.fan_out import call, connected
from bench.spending import Cycles, Meter, no_meter
from quoracy.remote.dial import Channel
from quoracy.wire.etcd import lock, rpc

__all__ = ["lock_cycles"]

_NAME = b"bench/lock"
_LEASE_S = 60


async def lock_cycles(
    ports: Sequence[int], *, clients: int, seconds: float, spent: Meter = no_meter
) -> Cycles:
    """Lock and Unlock by all clients together, each with a lease and a connection; servers in turn."""
    async with AsyncExitStack() as stack, asyncio.timeout(60 + seconds):
        holders = [
            await _holder(await connected(stack, ports[at % len(ports)])) for at in range(clients)
        ]
        spent_s, started = spent(), time.perf_counter()
        done = await asyncio.gather(*(_cycles(*each, until=started + seconds) for each in holders))
        spent_s, took_s = spent() - spent_s, time.perf_counter() - started
        for channel, lease in holders:
            revoke = rpc.LeaseRevokeRequest(ID=lease).encode()
            await call(channel, "/etcdserverpb.Lease/LeaseRevoke", revoke)
    return Cycles(rate=sum(done) / took_s, spent_s=spent_s / sum(done))


async def _holder(channel: Channel) -> tuple[Channel, int]:
    request = rpc.LeaseGrantRequest(TTL=_LEASE_S).encode()
    answer = await call(channel, "/etcdserverpb.Lease/LeaseGrant", request)
    return channel, rpc.LeaseGrantResponse.decode(answer).ID


async def _cycles(channel: Channel, lease: int, *, until: float) -> int:
    request = lock.LockRequest(name=_NAME, lease=lease).encode()
    done = 0
    while time.perf_counter() < until:
        held = lock.LockResponse.decode(await call(channel, "/v3lockpb.Lock/Lock", request))
        unlock = lock.UnlockRequest(key=held.key).encode()
        await call(channel, "/v3lockpb.Lock/Unlock", unlock)
        done += 1
    return done
