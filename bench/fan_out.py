"""One put and a thousand watchers: how long until the last of them has the event."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench.spending import Meter, Told, no_meter
from quoracy.remote.calls import StreamCall
from quoracy.remote.dial import Channel, ChannelOptions, connect
from quoracy.remote.urls import Address
from quoracy.wire.etcd import rpc

__all__ = ["call", "connected", "fan_out", "fan_out_s"]

_CONNECTIONS = 10
_KEY = b"bench/watched"
_TIMEOUT_S = 30.0


async def fan_out_s(port: int, *, watchers: int, puts: int) -> float:
    """The median over so many puts.

    The client only counts messages, each of which is one watcher's event: what it costs is the same for
    every server and as little as can be.
    """
    return (await fan_out([port], watchers=watchers, puts=puts)).median_s


async def fan_out(ports: Sequence[int], *, watchers: int, puts: int, spent: Meter = no_meter) -> Told:
    """The same on servers that hold the same keys: the watchers are spread, the first is written to."""
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        writer = await connected(stack, ports[0])
        streams = [
            await _watch(await connected(stack, ports[at % len(ports)]), watchers // _CONNECTIONS)
            for at in range(_CONNECTIONS)
        ]
        times = []
        spent_s = spent()
        for _ in range(puts):
            started = time.perf_counter()
            await asyncio.gather(
                _put(writer), *(_receive(stream, watchers // _CONNECTIONS) for stream in streams)
            )
            times.append(time.perf_counter() - started)
        spent_s = spent() - spent_s
        return Told(statistics.median(times), spent_s / puts)


async def connected(stack: AsyncExitStack, port: int) -> Channel:
    """A channel that the stack closes."""
    channel = await connect(
        Address("127.0.0.1", port),
        tls=None,
        server_name=None,
        timeout_s=_TIMEOUT_S,
        options=ChannelOptions(),
    )
    stack.push_async_callback(channel.close)
    return channel


async def _watch(channel: Channel, watchers: int) -> StreamCall:
    stream = channel.stream("/etcdserverpb.Watch/Watch")
    create = rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=_KEY)).encode()
    for _ in range(watchers):
        stream.send_soon(create)
    for _ in range(watchers):
        assert rpc.WatchResponse.decode(await stream.receive()).created
    return stream


async def _receive(stream: StreamCall, count: int) -> None:
    for _ in range(count):
        await stream.receive()


async def _put(channel: Channel) -> None:
    await call(channel, "/etcdserverpb.KV/Put", rpc.PutRequest(key=_KEY, value=b"v" * 256).encode())


async def call(channel: Channel, path: str, request: bytes) -> bytes:
    """One call with one answer.  Raises what the server says is wrong."""
    loop = asyncio.get_running_loop()
    return await channel.unary(path, request, timeout_s=_TIMEOUT_S, deadline=loop.time() + _TIMEOUT_S)
