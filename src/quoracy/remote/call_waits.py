"""Calls that are waited for: the coroutines of `calls` and `exchange`, which themselves have none.

(Modules with coroutines are not compiled, and those two are on the way of every request.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from quoracy.remote.calls import StreamCall
    from quoracy.remote.channel import Channel

__all__ = ["close", "receive", "send", "unary", "wait"]


async def unary(
    channel: Channel,
    path: str,
    payload: bytes,
    timeout_s: float,
    deadline: float,
    token: str | None,
) -> bytes:
    call = channel.start(path, payload, timeout_s, deadline, token)
    try:
        return await cast("asyncio.Future[bytes]", call.result)
    except asyncio.CancelledError:
        channel.give_up(call)
        raise


async def wait(channel: Channel, path: str, payload: bytes, token: str | None) -> bytes:
    call = channel.start_wait(path, payload, token)
    try:
        return await cast("asyncio.Future[bytes]", call.result)
    except asyncio.CancelledError:
        channel.give_up(call)
        raise


async def close(channel: Channel, seconds_max: float) -> None:
    closed = channel.say_goodbye()
    if closed is None:
        return
    try:
        await asyncio.wait([closed], timeout=seconds_max)
    finally:
        channel.hang_up()


async def send(call: StreamCall, payload: bytes) -> None:
    while call.is_full:
        await call.wait_drained()
    call.send_now(payload)


async def receive(call: StreamCall) -> bytes:
    while (message := call.take()) is None:
        await call.wait_arrival()
    return message
