"""A store in this process, and any number of connections to it, each through a link of its own.

There is no thread and no socket: everything happens on the loop of the test, in the same order each
time.

    async with quoracy.testing.memory(clock=clock) as place:
        async with place.connect() as one, place.connect() as two: ...
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from quoracy.client.connection import Connection
from quoracy.clock import Clock, SystemClock
from quoracy.connecting import connect
from quoracy.engines.opening import open_embedded
from quoracy.errors import LeaseNotFound
from quoracy.remote.store import TIMEOUT_S
from quoracy.store.api import Store
from quoracy.testing.clock import PausableClock, VirtualClock
from quoracy.testing.memory_link import LinkedStore, MemoryLink

if TYPE_CHECKING:
    from quoracy import sync

__all__ = ["Connect", "ConnectOptions", "Memory", "SyncConnect", "memory"]


class ConnectOptions(TypedDict, total=False):
    """Options of `quoracy.connect` that tests may give, with its defaults."""

    session_ttl: float
    identity: str | None
    namespace: str | None
    request_timeout: float | None


class Connect(Protocol):
    """Opens a connection through a link of its own; the type of the fixture `quoracy_connect`."""

    def __call__(
        self, **options: Unpack[ConnectOptions]
    ) -> AbstractAsyncContextManager[Connection]: ...


class SyncConnect(Protocol):
    """The same with `quoracy.sync`; the type of the fixture `quoracy_sync_connect`."""

    def __call__(
        self, **options: Unpack[ConnectOptions]
    ) -> AbstractContextManager[sync.Connection]: ...


class Memory:
    """A store, and connections to it.  Made by `memory`; lives on the loop it was made on.

    store: the store itself, which no fault touches.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self._clock = clock

    @asynccontextmanager
    async def connect(self, **options: Unpack[ConnectOptions]) -> AsyncIterator[Connection]:
        """`quoracy.connect` through a link of its own, by the clock of the store."""
        link = MemoryLink(
            PausableClock(self._clock),
            expire=self.expire,
            request_timeout=options.pop("request_timeout", None) or TIMEOUT_S,
        )
        with contextlib.ExitStack() as ends:
            if isinstance(self._clock, VirtualClock):
                ends.callback(self._clock.follow(lambda: link.carried_count))
            store = LinkedStore(self.store, link)
            async with connect(store, clock=link.clock, **options) as connection:
                try:
                    yield connection
                finally:
                    link.mend()  # so that its session can be ended

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[Store]:
        """The store itself."""
        yield self.store

    def expire(self, lease: int) -> Awaitable[None]:
        """End any lease; await it, or leave it to the next turn of the loop."""
        return asyncio.ensure_future(self._revoke(lease))

    async def _revoke(self, lease: int) -> None:
        with contextlib.suppress(LeaseNotFound):  # it has ended already
            await self.store.revoke(lease)


@asynccontextmanager
async def memory(*, clock: VirtualClock | None = None) -> AsyncIterator[Memory]:
    """A store in memory, for the time of a block.

    clock: what its leases and the sessions of its connections live by; by default the time that really
        passes.
    """
    used = clock or SystemClock()
    async with open_embedded("memory:", clock=used) as store:
        yield Memory(store, used)
