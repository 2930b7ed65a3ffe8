"""A store in this process, and any number of connections to it, each through a link of its own.

No thread, no socket: everything happens on the loop of the test, in the same order every time.

    async with quoracy.testing.memory(clock=clock) as place:
        async with place.connect() as one, place.connect() as two: ...
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from quoracy.client.connection import Connection
from quoracy.clock import Clock, SystemClock
from quoracy.connecting import connect
from quoracy.engines.opening import open_embedded
from quoracy.errors import LeaseNotFound
from quoracy.remote.store import TIMEOUT_S
from quoracy.store.api import Store
from quoracy.testing.clock import PausableClock, VirtualClock
from quoracy.testing.linked_store import LinkedStore, StoreLink

__all__ = ["Memory", "MemoryLink", "memory"]


class MemoryLink(StoreLink):
    """What lies between one connection and the store, and can be broken."""

    def __init__(self, place: Memory, clock: PausableClock, *, request_timeout: float) -> None:
        super().__init__(clock, request_timeout=request_timeout)
        self._place = place

    def expire(self, lease: int) -> Awaitable[None]:
        """The server ends this lease; await it, or leave it to the next turn of the loop."""
        return self._place.expire(lease)


class Memory:
    """A store, and connections to it.  Made by `memory`; lives on the loop it was made on.

    store: the store itself, which no fault touches.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self._clock = clock

    @asynccontextmanager
    async def connect(
        self,
        *,
        session_ttl: float = 10.0,
        identity: str | None = None,
        namespace: str | None = None,
        request_timeout: float | None = None,
    ) -> AsyncIterator[Connection]:
        """`quoracy.connect` through a link of its own, by the clock of the store."""
        link = MemoryLink(
            self, PausableClock(self._clock), request_timeout=request_timeout or TIMEOUT_S
        )
        with contextlib.ExitStack() as ends:
            if isinstance(self._clock, VirtualClock):
                ends.callback(self._clock.follow(lambda: link.carried_count))
            async with connect(
                LinkedStore(self.store, link),
                session_ttl=session_ttl,
                identity=identity,
                namespace=namespace,
                clock=link.clock,
            ) as connection:
                try:
                    yield connection
                finally:
                    # So that it can say goodbye, however the test left its network.
                    link.lose_answers(0)
                    link.heal()
                    link.resume()

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[Store]:
        """The store itself."""
        yield self.store

    def expire(self, lease: int) -> Awaitable[None]:
        """End a lease, of whoever it is; await it, or leave it to the next turn of the loop."""
        return asyncio.ensure_future(self._revoke(lease))

    async def _revoke(self, lease: int) -> None:
        with contextlib.suppress(LeaseNotFound):  # it is gone, which is what is wanted
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
