"""A cell for clients that other people wrote: three etcd members, three nodes, their etcd faces.

The nodes live on an event loop in a thread of their own, each with its own store and its own listener,
so that tests are plain functions which start programs; what they want of the cluster they `do`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from quoracy.engines.etcd.engine import EtcdStore
from quoracy.engines.etcd.opening import open_etcd
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from tests.interop.programs import WAIT_S_MAX, Done, Etcdctl, Running, until
from tests.support.etcd_cluster import EtcdCluster, etcd_program, running_cluster

__all__ = ["CLUSTER_ID", "CellFaces", "Node", "Spread", "running_cell"]

_T = TypeVar("_T")

CLUSTER_ID = 0x7A11_0000_0000_0001
_START_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Node:
    """One node's face, and the store behind it."""

    port: int
    member_id: int
    store: EtcdStore

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class CellFaces:
    """The cell while it runs; made by `running_cell`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, cluster: EtcdCluster, nodes: list[Node]
    ) -> None:
        self._loop, self.cluster, self.nodes = loop, cluster, nodes

    @property
    def port(self) -> int:
        """The first node's: `Spread` takes it for all of them."""
        return self.nodes[0].port

    @property
    def address(self) -> str:
        return self.nodes[0].address

    @property
    def url(self) -> str:
        return "quoracy://" + ",".join(node.address for node in self.nodes)

    def do(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Have something done where the nodes are."""

        async def run() -> _T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(WAIT_S_MAX)

    def lose_majority(self, *, killed: bool) -> None:
        """Two members go; returns when every node has noticed."""
        if killed:
            self.do(lambda: self.cluster.kill(1, 2))
        else:
            self.cluster.pause(1, 2)
        self._until_all(is_serving=False)

    def restore_majority(self, *, killed: bool) -> None:
        if killed:
            for index in (1, 2):
                self.cluster.spawn(index)
        else:
            self.cluster.resume(1, 2)
        self._until_all(is_serving=True)
        # Who leads they learn a moment later, when they ask how the members are doing.
        until(
            lambda: (
                len({node.store.health().leader for node in self.nodes} - {""}) == 1
                and all(node.store.health().leader for node in self.nodes)
            ),
            "all nodes to know the leader",
        )

    def _until_all(self, *, is_serving: bool) -> None:
        until(
            lambda: all(node.store.health().is_serving is is_serving for node in self.nodes),
            "all nodes to serve" if is_serving else "all nodes to notice",
        )


@contextmanager
def running_cell(directory: Path, *, etcd_version: str = "3.5") -> Iterator[CellFaces]:
    program = etcd_program(etcd_version)
    if program is None:
        pytest.skip(f"etcd {etcd_version} is not installed")
    flags = ("--unsafe-no-fsync",) if etcd_version == "3.5" else ()  # no machine dies here
    ready = threading.Event()
    hosted: list[CellFaces] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def host() -> None:
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(running_cluster(program, directory, flags=flags))
            nodes = [await stack.enter_async_context(_node(cluster, index)) for index in range(3)]
            hosted.append(CellFaces(loop, cluster, nodes))
            ready.set()
            await stop.wait()

    failures: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(host())
        except BaseException as error:  # noqa: BLE001 (raised again below, where it is seen)
            failures.append(error)
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="cell")
    thread.start()
    try:
        assert ready.wait(_START_S_MAX), "the cell did not start"
        if hosted:
            yield hosted[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(_START_S_MAX)
    if failures:
        raise failures[0]


@contextlib.asynccontextmanager
async def _node(cluster: EtcdCluster, index: int) -> AsyncIterator[Node]:
    member_id = CLUSTER_ID + 1 + index
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        identity = Identity(
            CLUSTER_ID, member_id, name=f"n{index}", client_urls=(f"http://127.0.0.1:{port}",)
        )
        async with (
            open_etcd(cluster.target_from(index)) as store,
            serve_etcd(store, listener, host="127.0.0.1", identity=identity),
        ):
            yield Node(port, member_id, store)


@dataclass(frozen=True, slots=True)
class Spread(Etcdctl):
    """An etcdctl that asks another node of the cell each time it is told to ask the cell."""

    ports: tuple[int, ...] = ()
    _turns: Iterator[int] = field(default_factory=itertools.count, compare=False)

    @classmethod
    def over(cls, etcdctl: Etcdctl, cell: CellFaces) -> Spread:
        return cls(etcdctl.program, etcdctl.version, tuple(node.port for node in cell.nodes))

    def __call__(self, port: int, *arguments: str | Path, stdin: str = "") -> Done:
        return Etcdctl.__call__(self, self._one_of(port), *arguments, stdin=stdin)

    def start(self, port: int, *arguments: str) -> Running:
        return Etcdctl.start(self, self._one_of(port), *arguments)

    def _one_of(self, port: int) -> int:
        if port != self.ports[0]:
            return port  # not the cell's
        return self.ports[next(self._turns) % len(self.ports)]
