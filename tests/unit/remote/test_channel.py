"""A connection that breaks under a call: whoever waits is told, and whether it may have left."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.remote.dial import Channel, ChannelOptions
from quoracy.remote.errors import CallLost
from quoracy.remote.urls import Address
from tests.unit.wire.http2.peer import ACK, ping, settings


class _Wire(asyncio.Transport):
    """A transport that breaks as uvloop's do: closed, and not yet closing."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.written = b""
        self.written_more = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.broken:
            raise RuntimeError("the handler is closed")
        self.written += data
        self.written_more.set()

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


async def test_call_that_cannot_be_written_is_lost_and_did_not_leave() -> None:
    channel, wire = Channel(Address("h"), ChannelOptions(), secure=False), _Wire()
    channel.connection_made(wire)
    wire.broken = True
    deadline = asyncio.get_running_loop().time() + 60
    with pytest.raises(CallLost, match="the handler is closed") as caught:
        await channel.unary("/a/b", b"", timeout_s=60, deadline=deadline)
    assert (caught.value.left, channel.usable) == (False, False)
    with pytest.raises(CallLost):
        channel.stream("/a/b")


async def test_pings_of_the_server_are_answered_soon() -> None:
    channel, wire = Channel(Address("h"), ChannelOptions(), secure=False), _Wire()
    channel.connection_made(wire)
    channel.data_received(settings() + ping(b"12345678"))
    async with asyncio.timeout(10):
        while not wire.written.endswith(ping(b"12345678", ACK)):
            await wire.written_more.wait()
            wire.written_more.clear()
