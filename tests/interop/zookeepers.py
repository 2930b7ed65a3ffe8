"""The two servers that ZooKeeper's clients are tried on: a real ZooKeeper, and Quoracy.

A test that passes on both proves the client's promise, and that the test asks for no more than
ZooKeeper itself gives.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from tests.faults.scale import LONG
from tests.interop.programs import WAIT_S_MAX, running_quoracy
from tests.support.tcp_proxy import TcpProxy
from tests.support.zookeeper_server import digest_id, running_zookeeper

__all__ = ["SUPER_PASSWORD", "CutProxy", "ZooKeeper", "running_side", "takes_long"]

SUPER_PASSWORD = "keys-to-everything"

# Sessions may be as short as half a second, so that a test can wait for one to end.  Empty containers
# are looked for often, for the same reason.
_TICK_MS = 250
_TIMEOUT_MS_MAX = 60_000
_CONTAINER_CHECK_MS = 200

_QUORACY_FLAGS = (
    *("--listen-zookeeper", "127.0.0.1:0"),
    *("--zookeeper-tick-time", str(_TICK_MS)),
    *("--zookeeper-max-session-timeout", str(_TIMEOUT_MS_MAX)),
    *("--zookeeper-container-check-interval", str(_CONTAINER_CHECK_MS)),
    *("--zookeeper-max-client-cnxns", "0"),
    *("--zookeeper-4lw-commands-whitelist", "*"),
)


# For tests that wait for sessions to end: on the real one, too, where time is no object.
takes_long = pytest.mark.parametrize(
    "zookeeper", ["real", "quoracy"] if LONG else ["quoracy"], indirect=True
)


@dataclass(frozen=True, slots=True)
class ZooKeeper:
    """A server that speaks ZooKeeper's protocol, and which of the two it is."""

    name: str
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def running_side(name: str, directory: Path) -> Iterator[ZooKeeper]:
    """A new server without any node: "real" or "quoracy"."""
    super_digest = digest_id("super", SUPER_PASSWORD)
    if name == "real":
        with running_zookeeper(
            directory,
            super_digest=super_digest,
            settings={"tickTime": _TICK_MS, "maxSessionTimeout": _TIMEOUT_MS_MAX},
            properties={"znode.container.checkIntervalMs": _CONTAINER_CHECK_MS},
        ) as zookeeper:
            yield ZooKeeper(name, zookeeper.port)
    else:
        with running_quoracy(
            directory, *_QUORACY_FLAGS, environ={"QUORACY_ZOOKEEPER_SUPER_DIGEST": super_digest}
        ) as quoracy:
            yield ZooKeeper(name, quoracy.zookeeper_port)


class CutProxy:
    """A proxy for clients that live in threads: `TcpProxy` on an event loop of its own."""

    def __init__(self, target_port: int) -> None:
        self._proxy: TcpProxy | None = None
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._there.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S_MAX)
        self._loop.close()

    @property
    def port(self) -> int:
        return self._there.port

    def cut(self) -> None:
        """End every connection; whoever dials again is connected again."""
        self._call(self._there.cut)

    def swallow(self) -> None:
        """A network that carries nothing, and tells nobody; until `carry`."""
        self._call(self._there.hold_all)

    def carry(self) -> None:
        self._call(self._there.pass_all)

    @property
    def _there(self) -> TcpProxy:
        assert self._proxy is not None, "the proxy was not entered"
        return self._proxy

    async def _listen(self) -> None:
        self._proxy = TcpProxy(self._target_port)
        await self._proxy.listen()

    def _call(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self._run(call)

    def _run(self, function: Callable[[], Coroutine[object, object, None]]) -> None:
        asyncio.run_coroutine_threadsafe(function(), self._loop).result(WAIT_S_MAX)
