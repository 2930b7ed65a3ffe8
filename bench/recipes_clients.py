"""Every library's own lock in the same few lines, so that all of them run the same measurements.

A `Library` is one on a certain server.  Its `open_async` or `open_sync` connects one client, with a
connection and a session (or what the library has instead) of its own, and gives its lock, to be entered
with `async with` or `with` again and again.  Libraries are used as they come; all that is set is that a
lock is free again 30 seconds after its holder died, and that waiting has no end.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any, TypeAlias

import quoracy
from quoracy.store.api import Store

__all__ = ["LIBRARIES", "AsyncLock", "Library", "SyncLock", "Where"]

_NAME = "bench/lock"
_TTL_S = 30

# The address of a server, or the store that all clients of this process share.
Where: TypeAlias = str | Store
AsyncLock: TypeAlias = AbstractAsyncContextManager[object]
SyncLock: TypeAlias = AbstractContextManager[object]


@dataclass(frozen=True, slots=True)
class Library:
    """A library on a certain server.

    server: which one; None: the data is in the process of its clients, all of them in one.
    needs: modules it takes beyond what is always there.
    """

    server: str | None
    open_async: Callable[[Where], AbstractAsyncContextManager[AsyncLock]] | None = None
    open_sync: Callable[[Where], AbstractContextManager[SyncLock]] | None = None
    needs: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        return all(importlib.util.find_spec(module) is not None for module in self.needs)


# -- Quoracy's own


@asynccontextmanager
async def _quoracy(where: Where) -> AsyncIterator[AsyncLock]:
    to = f"quoracy://{where}" if isinstance(where, str) else where
    async with quoracy.connect(to, session_ttl=_TTL_S) as connection:
        yield connection.lock(_NAME)


@asynccontextmanager
async def _quoracy_on_etcd(where: Where) -> AsyncIterator[AsyncLock]:
    async with quoracy.connect(f"etcd://{where}", session_ttl=_TTL_S) as connection:
        yield connection.lock(_NAME)


@contextmanager
def _quoracy_sync(where: Where) -> Iterator[SyncLock]:
    from quoracy import sync

    with sync.connect(f"quoracy://{where}", session_ttl=_TTL_S) as connection:
        yield connection.lock(_NAME)


# -- the others


@contextmanager
def _kazoo(where: Where) -> Iterator[SyncLock]:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=where, timeout=_TTL_S)
    client.start()
    try:
        yield client.Lock(f"/{_NAME}")
    finally:
        client.stop()
        client.close()


class _Aetcd:
    """aetcd's lock; entered with its own `async with` it would give up after ten seconds, and the
    block would run without the lock."""

    def __init__(self, lock: Any) -> None:  # which has no types of its own
        self._lock = lock

    async def __aenter__(self) -> None:
        await self._lock.acquire(timeout=None)

    async def __aexit__(self, *_: object) -> None:
        await self._lock.release()


@asynccontextmanager
async def _aetcd(where: Where) -> AsyncIterator[AsyncLock]:
    import aetcd  # type: ignore[import-untyped]

    host, _, port = str(where).partition(":")
    async with aetcd.Client(host=host, port=int(port)) as client:
        yield _Aetcd(client.lock(_NAME.encode(), ttl=_TTL_S))


@asynccontextmanager
async def _redis_asyncio(where: Where) -> AsyncIterator[AsyncLock]:
    from redis.asyncio import Redis

    client = Redis.from_url(f"redis://{where}")
    try:
        yield client.lock(_NAME, timeout=_TTL_S)
    finally:
        await client.aclose()


@contextmanager
def _redis(where: Where) -> Iterator[SyncLock]:
    from redis import Redis

    client = Redis.from_url(f"redis://{where}")
    try:
        yield client.lock(_NAME, timeout=_TTL_S)
    finally:
        client.close()


def _tooz(scheme: str) -> Callable[[Where], AbstractContextManager[SyncLock]]:
    @contextmanager
    def client(where: Where) -> Iterator[SyncLock]:
        import uuid

        from tooz import coordination

        url = f"{scheme}://{where}?timeout={_TTL_S}"
        coordinator = coordination.get_coordinator(url, uuid.uuid4().hex.encode())
        coordinator.start()
        try:
            yield coordinator.get_lock(_NAME.encode())
        finally:
            coordinator.stop()

    return client


LIBRARIES: dict[str, Library] = {
    "Quoracy, asyncio": Library("Quoracy", open_async=_quoracy),
    "Quoracy, threads": Library("Quoracy", open_sync=_quoracy_sync),
    "Quoracy's library on etcd": Library("etcd", open_async=_quoracy_on_etcd),
    "Quoracy in process, SQLite": Library(None, open_async=_quoracy),
    "kazoo on ZooKeeper": Library("ZooKeeper", open_sync=_kazoo),
    "aetcd on etcd": Library("etcd", open_async=_aetcd),
    "redis-py on Redis, threads": Library("Redis", open_sync=_redis),
    "redis-py on Redis, asyncio": Library("Redis", open_async=_redis_asyncio),
    "tooz on ZooKeeper (kazoo)": Library("ZooKeeper", open_sync=_tooz("kazoo"), needs=("tooz",)),
    "tooz on Redis (redis-py)": Library("Redis", open_sync=_tooz("redis"), needs=("tooz",)),
    "tooz on etcd (etcd3gw)": Library("etcd", open_sync=_tooz("etcd3+http"), needs=("tooz", "etcd3gw")),
}
