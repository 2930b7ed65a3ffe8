"""A real server in this process, for tests: started in milliseconds, on a free port, gone at the end.

It is the server of production (the engine in memory, the faces on sockets) on a loop in a thread of its
own, so it serves while the test blocks or runs a loop itself.  Each connection goes through a link
(`NetworkLink`), whose network the test can break.

    with quoracy.testing.server() as server:
        with quoracy.sync.connect(server.url) as q: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from quoracy.client.connection import Connection
from quoracy.clock import BootClock, SystemClock
from quoracy.connecting import connect
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import LeaseNotFound
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import parse_url
from quoracy.testing.clock import PausableClock, VirtualClock
from quoracy.testing.local_store import ConnectOptions
from quoracy.testing.network_link import Happened, NetworkLink, network_link
from quoracy.threads.loop_thread import LoopThread

if TYPE_CHECKING:
    from quoracy import sync

__all__ = ["Server", "server"]


class Server:
    """A server for the time of a block, `with` or `async with`.  Made by `server`."""

    def __init__(self, *, clock: VirtualClock | None) -> None:
        self._clock = clock
        self._thread: LoopThread | None = None
        self._open = AsyncExitStack()
        self._ends: dict[NetworkLink, AsyncExitStack] = {}
        self._store: EmbeddedStore | None = None
        self._main: NetworkLink | None = None
        self._zookeeper: NetworkLink | None = None

    # -- beginning and end -------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread = LoopThread("quoracy-testing-server")
        try:
            self._thread.start()
            self._thread.call(self._begin)
            self._main = self.link()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    # Both take milliseconds, and need nothing of the loop that waits for them meanwhile.
    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    async def _begin(self) -> None:
        clock = self._clock or SystemClock()
        self._store = await self._open.enter_async_context(open_embedded("memory:", clock=clock))

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        self._main = self._zookeeper = None
        if thread is not None:
            try:
                thread.call(self._close)
            finally:
                thread.stop()

    @property
    def _running(self) -> LoopThread:
        if self._thread is None:
            raise _not_running()
        return self._thread

    @property
    def _main_link(self) -> NetworkLink:
        if self._main is None:
            raise _not_running()
        return self._main

    # -- the ways to it ----------------------------------------------------------------------

    @property
    def url(self) -> str:
        """For `quoracy.connect`, `quoracy.sync.connect` and the code that is tested.

        All who use it share one link: `faults.partition(server.url)` is for all of them.
        """
        return self._main_link.url

    @property
    def address(self) -> str:
        """Host and port, for other clients of etcd: `etcdctl --endpoints`, grpc, aetcd."""
        return self._main_link.address

    @property
    def zookeeper_hosts(self) -> str:
        """Host and port for clients of ZooKeeper, such as kazoo.  The first to ask starts that face."""
        if self._zookeeper is None:
            self._zookeeper = self._running.call(self._zookeeper_link)
        return self._zookeeper.address

    def link(self) -> NetworkLink:
        """Another way to the server, with a URL and a network of its own."""
        return self._running.call(self._etcd_link)

    # -- connections -------------------------------------------------------------------------

    @asynccontextmanager
    async def connect(self, **options: Unpack[ConnectOptions]) -> AsyncIterator[Connection]:
        """`quoracy.connect` through a link of its own, by the clock of the server."""
        with self._link_for_one() as link:
            async with connect(link.url, clock=link.clock, **options) as connection:
                try:
                    yield connection
                finally:
                    link.mend()  # so that its session can be ended

    @contextmanager
    def sync_connect(self, **options: Unpack[ConnectOptions]) -> Iterator[sync.Connection]:
        """`quoracy.sync.connect` through a link of its own, by the clock of the server."""
        from quoracy.sync import connect as sync_connect

        with self._link_for_one() as link:
            with sync_connect(link.url, clock=link.clock, **options) as connection:
                try:
                    yield connection
                finally:
                    link.mend()

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[RemoteStore]:
        """The server's store, through a link of its own."""
        with self._link_for_one() as link:
            async with open_remote(parse_url(link.url), clock=link.clock) as store:
                yield store

    @contextmanager
    def _link_for_one(self) -> Iterator[NetworkLink]:
        link = self.link()
        try:
            yield link
        finally:
            if self._thread is not None:  # or it went with the server
                self._thread.call(lambda: self._drop(link))

    def expire(self, lease: int) -> Happened:
        """End any lease, or any session of ZooKeeper, by its id."""
        self._running.call(lambda: self._revoke(lease))
        return Happened()

    # -- on the loop -------------------------------------------------------------------------

    async def _close(self) -> None:
        ends, self._ends = self._ends, {}
        await asyncio.gather(*(end.aclose() for end in ends.values()))
        await self._open.aclose()

    async def _drop(self, link: NetworkLink) -> None:
        end = self._ends.pop(link, None)
        if end is not None:
            await end.aclose()

    async def _revoke(self, lease: int) -> None:
        assert self._store is not None
        with contextlib.suppress(LeaseNotFound):  # it has ended already
            await self._store.revoke(lease)

    async def _etcd_link(self) -> NetworkLink:
        store = self._store
        assert store is not None
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(_listener())
            face = await stack.enter_async_context(
                serve_etcd(
                    store,
                    listener,
                    host="127.0.0.1",
                    identity=Identity(cluster_id=1, member_id=1),
                    snapshot=store.backup,
                )
            )
            link = await self._link_to(listener, "quoracy", stack)
            link.attend(face)
            return link

    async def _zookeeper_link(self) -> NetworkLink:
        from quoracy.faces.zookeeper.serving.server import serve_zookeeper

        assert self._store is not None
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(_listener())
            await stack.enter_async_context(serve_zookeeper(self._store, listener, clock=self._clock))
            return await self._link_to(listener, "zookeeper", stack)

    async def _link_to(
        self, listener: socket.socket, scheme: str, stack: AsyncExitStack
    ) -> NetworkLink:
        """A link before what listens there; the stack, which ends both, is kept from here on."""
        port: int = listener.getsockname()[1]
        clock = PausableClock(self._clock or BootClock())
        link, proxy = await stack.enter_async_context(
            network_link(self._running, port, clock, scheme=scheme, revoke=self._revoke)
        )
        if self._clock is not None:
            stack.callback(self._clock.follow(lambda: proxy.received_count))
        self._ends[link] = stack.pop_all()
        return link


def server(*, clock: VirtualClock | None = None) -> Server:
    """A server on a free port of this machine, for the time of a block; its data is in memory.

    clock: what its leases live by; by default the time that really passes.

        with quoracy.testing.server() as server:
            subprocess.run(["etcdctl", "--endpoints", server.address, "put", "a", "b"])
    """
    return Server(clock=clock)


def _not_running() -> RuntimeError:
    return RuntimeError("the server is not running. Use it inside its `with` block.")


@contextmanager
def _listener() -> Iterator[socket.socket]:
    # Named as TCP, or asyncio would leave Nagle's algorithm on.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener
