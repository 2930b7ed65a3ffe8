"""A store on a cluster that a test can take away and give back: a `Cluster` around a store in memory.

It keeps the promises of `store.api.Cluster`; what the cluster does is the test's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Unpack

import msgspec

from quoracy.engines.opening import open_embedded
from quoracy.errors import QuoracyError, Unavailable
from quoracy.store.api import Cluster, Store, Watch, WatchOptions
from quoracy.store.completion import Completion
from quoracy.store.coroutines import CoroutineStore
from quoracy.store.model import (
    ClusterHealth,
    Delete,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    MemberHealth,
    Put,
    Range,
    RangeResult,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    TxnResult,
    WaitFirst,
)

__all__ = ["MEMBERS", "ClusterStore", "open_cluster_store"]

MEMBERS = (
    MemberHealth("m1", "10.0.0.1:2379", "3.5.1", is_leader=True, revision=7, size_bytes=20480),
    MemberHealth("m2", "10.0.0.2:2379", "3.5.1", revision=7, size_bytes=20480),
    MemberHealth("m3", "10.0.0.3:2379", "3.5.1", error="no connection within 3 s"),
)
_WELL = ClusterHealth(
    is_serving=True,
    reason="",
    stale_s=0.0,
    revision=Revision(0),
    lag=0,
    leader="m1",
    role="follower",
    members=MEMBERS,
)


class ClusterStore(CoroutineStore):
    """`set_health` changes what it says of itself, and whether it serves."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._health = _WELL
        self._listeners: dict[object, Callable[[bool], None]] = {}
        self.write_error: QuoracyError | None = None  # what the next writes end with

    @property
    def cluster(self) -> Cluster:  # type: ignore[override]
        return self

    def set_health(self, **fields: object) -> None:
        was_serving = self._health.is_serving
        self._health = msgspec.structs.replace(self._health, **fields)
        if self._health.is_serving != was_serving:
            for changed in list(self._listeners.values()):
                changed(self._health.is_serving)

    def lose_cluster(self, reason: str = "no member answers", stale_s: float = 2.5) -> None:
        self.set_health(is_serving=False, reason=reason, stale_s=stale_s, leader="", role="unknown")

    def find_cluster(self) -> None:
        self.set_health(is_serving=True, reason="", stale_s=0.0, leader="m1", role="follower")

    @property
    def listeners_count(self) -> int:
        return len(self._listeners)

    # -- on a cluster

    def health(self) -> ClusterHealth:
        return self._health

    def on_serving(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = changed
        return lambda: self._listeners.pop(key, None) and None

    async def sync(self) -> Revision:
        self._check()
        return (await self._inner.range(b"\0", count_only=True)).revision

    def _check(self) -> None:
        if not self._health.is_serving:
            raise Unavailable(f"the cluster has no leader ({self._health.reason}). Try again later.")

    def _check_write(self) -> None:
        self._check()
        if self.write_error is not None:
            raise self.write_error

    # -- a store

    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None:
        try:
            if isinstance(op, WaitFirst) or not op.serializable:
                self._check()
        except QuoracyError as error:
            completion.done(None, error)
        else:
            self._inner.read(op, _Marked(self, completion))

    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None:
        try:
            if not (isinstance(op, Txn) and _is_serializable(op)):
                self._check_write()
        except QuoracyError as error:
            asyncio.get_running_loop().call_soon(completion.done, None, error)
        else:
            self._inner.submit(op, _Marked(self, completion))

    def marked(self, result: Any) -> Any:
        """The result, saying whether it may be stale."""
        is_stale = not self._health.is_serving
        if isinstance(result, RangeResult):
            return msgspec.structs.replace(result, is_stale=is_stale)
        if isinstance(result, TxnResult):
            return msgspec.structs.replace(result, results=tuple(map(self.marked, result.results)))
        return result

    async def compact(self, at: int) -> None:
        self._check_write()
        await self._inner.compact(at)

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        self._check_write()
        return await self._inner.grant(ttl_s, id=id)

    async def keep_alive(self, lease: int) -> LeaseGrant:
        self._check_write()
        return await self._inner.keep_alive(lease)

    async def revoke(self, lease: int) -> Revision:
        self._check_write()
        return await self._inner.revoke(lease)

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        self._check()
        return await self._inner.time_to_live(lease, keys=keys)

    async def leases(self) -> tuple[LeaseId, ...]:
        self._check()
        return await self._inner.leases()

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> Watch:
        return self._inner.watch(keys, **options)

    async def hash(self, *, at: int | None = None) -> StateHash:
        return await self._inner.hash(at=at)

    async def status(self) -> StoreStatus:
        self._check()
        return msgspec.structs.replace(await self._inner.status(), engine="etcd 3.5.1")


class _Marked(Completion):
    """Passes on the marked result."""

    def __init__(self, store: ClusterStore, completion: Completion) -> None:
        super().__init__()
        self._store, self._completion = store, completion
        completion.on_abandon = self.abandon

    def done(self, result: Any, error: BaseException | None) -> None:
        self._completion.done(self._store.marked(result), error)


def _is_serializable(txn: Txn) -> bool:
    return all(isinstance(op, Range) and op.serializable for op in txn.then + txn.otherwise)


@contextlib.asynccontextmanager
async def open_cluster_store() -> AsyncIterator[ClusterStore]:
    async with open_embedded("memory:") as inner:
        yield ClusterStore(inner)
