"""One put and a thousand watchers: how long until the last of them has the event."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack

from quorate.client.calls import StreamCall
from quorate.client.channel import Channel, ChannelOptions, connect
from quorate.client.urls import Address
from quorate.wire.etcd import rpc

__all__ = ["fan_out_s"]

_CONNECTIONS = 10
_KEY = b"bench/watched"
_TIMEOUT_S = 30.0


async def fan_out_s(port: int, *, watchers: int, puts: int) -> float:
    """The median over so many puts.

    The client only counts messages, each of which is one watcher's event: what it costs is the same for
    every server and as little as can be.
    """
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        writer = await _connect(stack, port)
        streams = [
            await _watch(await _connect(stack, port), watchers // _CONNECTIONS)
            for _ in range(_CONNECTIONS)
        ]
        times = []
        for _ in range(puts):
            started = time.perf_counter()
            await asyncio.gather(
                _put(writer), *(_receive(stream, watchers // _CONNECTIONS) for stream in streams)
            )
            times.append(time.perf_counter() - started)
        return statistics.median(times)


async def _connect(stack: AsyncExitStack, port: int) -> Channel:
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
        await stream.send(create)
    for _ in range(watchers):
        assert rpc.WatchResponse.decode(await stream.receive()).created
    return stream


async def _receive(stream: StreamCall, count: int) -> None:
    for _ in range(count):
        await stream.receive()


async def _put(channel: Channel) -> None:
    loop = asyncio.get_running_loop()
    request = rpc.PutRequest(key=_KEY, value=b"v" * 256).encode()
    await channel.unary(
        "/etcdserverpb.KV/Put", request, timeout_s=_TIMEOUT_S, deadline=loop.time() + _TIMEOUT_S
    )
