"""Deadlines that clients give their calls: each call ends at its own, by one timer for all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quoracy.engines.opening import open_embedded
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.remote.dial import Channel, ChannelOptions, connect
from quoracy.remote.urls import Address
from quoracy.wire.etcd.lock import LockRequest
from quoracy.wire.etcd.rpc import LeaseGrantRequest, LeaseGrantResponse
from quoracy.wire.grpc import GrpcError, StatusCode

LOCK = "/v3lockpb.Lock/Lock"
GRANT = "/etcdserverpb.Lease/LeaseGrant"


@asynccontextmanager
async def connected() -> AsyncIterator[Channel]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", listener.getsockname()[1])
        async with (
            open_embedded("memory:") as store,
            serve_etcd(store, listener, host="127.0.0.1", identity=Identity(cluster_id=1, member_id=2)),
        ):
            channel = await connect(
                address, tls=None, server_name=None, timeout_s=10, options=ChannelOptions()
            )
            try:
                yield channel
            finally:
                await channel.close()


async def ask(channel: Channel, path: str, payload: bytes, *, timeout_s: float) -> bytes:
    """The server is told of the timeout; on this side there is none to speak of."""
    deadline = asyncio.get_running_loop().time() + 60
    return await channel.unary(path, payload, timeout_s=timeout_s, deadline=deadline)


async def lock(channel: Channel, *, timeout_s: float) -> float:
    """Ask for a lock that is held; how long that took."""
    answer = await ask(channel, GRANT, LeaseGrantRequest(TTL=60).encode(), timeout_s=30)
    request = LockRequest(name=b"held", lease=LeaseGrantResponse.decode(answer).ID)
    began = asyncio.get_running_loop().time()
    with pytest.raises(GrpcError) as caught:
        await ask(channel, LOCK, request.encode(), timeout_s=timeout_s)
    assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
    return asyncio.get_running_loop().time() - began


async def test_each_call_ends_at_its_own_deadline_in_whatever_order_they_came() -> None:
    async with connected() as channel:
        await ask(channel, LOCK, LockRequest(name=b"held").encode(), timeout_s=30)
        took_s = await asyncio.gather(
            *(lock(channel, timeout_s=timeout_s) for timeout_s in (0.3, 0.1, 0.2))
        )
        assert took_s[1] < took_s[2] < took_s[0]
        assert min(took_s) >= 0.09
        # And the timer is set again for who comes when it has rung for everyone.
        assert await lock(channel, timeout_s=0.1) >= 0.09
