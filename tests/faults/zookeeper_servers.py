"""Servers of ZooKeeper's protocol that are killed, stopped, started again: a real one, and Quoracy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.faults.server_process import ServerProcess
from tests.support.ports import free_port
from tests.support.zookeeper_server import ZooKeeperProcess

__all__ = ["TICK_MS", "Server", "running_server"]

# The shortest session is two ticks.
TICK_MS = 250
_TIMEOUT_MS_MAX = 60_000
_CONNECTIONS_MAX = 8_000


class Server(Protocol):
    """A server whose port and data outlive it."""

    @property
    def port(self) -> int: ...

    @property
    def is_real(self) -> bool:
        """Whether it is ZooKeeper itself."""

    async def start(self) -> None:
        """Returns when it takes clients."""

    async def kill(self) -> None:
        """kill -9."""

    async def restart(self) -> None:
        """End it as an operator does, and start it."""

    def signal(self, number: signal.Signals) -> None: ...

    def check(self) -> None:
        """Nothing in its log may look like an error."""


class _Quoracy:
    is_real = False

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.process = ServerProcess(
            directory,
            flags=(
                *("--listen-etcd", "off"),
                *("--listen-zookeeper", f"127.0.0.1:{self.port}"),
                *("--zookeeper-tick-time", str(TICK_MS)),
                *("--zookeeper-max-session-timeout", str(_TIMEOUT_MS_MAX)),
                *("--zookeeper-max-client-cnxns", "0"),
                *("--zookeeper-max-cnxns", str(_CONNECTIONS_MAX)),
            ),
        )

    async def start(self) -> None:
        self.process.start()
        await self.process.wait_ready()

    async def kill(self) -> None:
        await self.process.kill()

    async def restart(self) -> None:
        await self.process.stop()
        await self.start()

    def signal(self, number: signal.Signals) -> None:
        self.process.signal(number)

    def check(self) -> None:
        self.process.check_log()


class _Real:
    is_real = True

    def __init__(self, directory: Path) -> None:
        self.process = ZooKeeperProcess(
            directory, settings={"tickTime": TICK_MS, "maxSessionTimeout": _TIMEOUT_MS_MAX}
        )
        # One that no client gets for itself while the server is down: it would be connected to itself.
        self.process.port = free_port()

    @property
    def port(self) -> int:
        return self.process.port

    async def start(self) -> None:
        await asyncio.to_thread(self.process.start)

    async def kill(self) -> None:
        await asyncio.to_thread(self.process.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.process.stop)
        await self.start()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def check(self) -> None:
        """What it logs is its own affair."""


@contextmanager
def running_server(name: str, directory: Path) -> Iterator[Server]:
    """ "real" or "quoracy", with an empty tree; the block is left with it gone and its log checked."""
    if name == "real":
        real = _Real(directory)
        try:
            real.process.start()
            yield real
        finally:
            real.process.kill()
        return
    quoracy = _Quoracy(directory)
    with quoracy.process:
        quoracy.process.start()
        quoracy.process.wait_greeting()
        yield quoracy
        quoracy.check()
