"""A TCP proxy on loopback whose network a test breaks: cut, silent, refusing, one way only.

It lives on the loop it was made on; `quoracy.testing.server` puts one before each link of its server.
What it holds is bounded: while it does not pass data on, it does not read any.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["TcpProxy", "tcp_proxy"]


class TcpProxy:
    """Passes bytes on in both directions, as long as the test lets it."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.connections_count = 0
        self.received_count = 0  # reads that gave something, from either side
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._to_server, self._to_client = asyncio.Event(), asyncio.Event()
        self._to_server.set()
        self._to_client.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.answers_held = asyncio.Event()

    async def listen(self) -> None:
        """Accept connections; again, on the same port, after `refuse`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """End every connection, and accept none."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """End every connection, as a crash of the other side does."""
        for writer in self._writers:
            writer.transport.abort()

    def hold_answers(self) -> None:
        """Hold what the server sends, until `pass_all`."""
        self.answers_held.clear()
        self._to_client.clear()

    def hold_all(self) -> None:
        """Hold everything in both directions; neither side notices."""
        self._to_server.clear()
        self._to_client.clear()

    def pass_all(self) -> None:
        self._to_server.set()
        self._to_client.set()

    async def close(self) -> None:
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_count += 1
        self._writers.add(writer)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(there[1])
        if writer.transport.is_closing():  # it was cut meanwhile
            there[1].transport.abort()
        for pump in (
            self._pump(reader, there[1], self._to_server, None),
            self._pump(there[0], writer, self._to_client, self.answers_held),
        ):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event,
        held: asyncio.Event | None,
    ) -> None:
        try:
            while data := await reader.read(65_536):
                self.received_count += 1
                if not gate.is_set():
                    if held is not None:
                        held.set()
                    await gate.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # one side is closed, so the other is
        finally:
            writer.transport.abort()
            self._writers.discard(writer)


@asynccontextmanager
async def tcp_proxy(target_port: int) -> AsyncIterator[TcpProxy]:
    """A proxy for a port of this machine, for the time of a block."""
    proxy = TcpProxy(target_port)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
