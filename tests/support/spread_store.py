"""One store made of several nodes of a cell: each request goes to the next node.

What a node promises, the cell must: a linearizable read anywhere sees every acknowledged write, a lease
is the same lease everywhere, a watch is the same history everywhere.  Only a serializable read is tied
to a node, so it goes to the one that wrote last; and so does the question for the status, for a node
cannot know of a compaction to revision 1 by another (it takes nothing away).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Unpack

import msgspec

from quoracy.store.api import PutOptions, RangeOptions, Store, Watch, WatchOptions
from quoracy.store.legacy import LegacyStore
from quoracy.store.model import (
    DeleteResult,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    PutResult,
    RangeResult,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    TxnResult,
)

__all__ = ["SpreadStore"]


class SpreadStore(LegacyStore):
    """A `Store` whose requests go round the nodes."""

    def __init__(self, nodes: Sequence[Store]) -> None:
        self._round = itertools.cycle(nodes)
        self._wrote = nodes[0]
        self._nodes = tuple(nodes)

    def _next(self) -> Store:
        return next(self._round)

    def _writer(self) -> Store:
        self._wrote = next(self._round)
        return self._wrote

    async def range(self, keys: Keys, **options: Unpack[RangeOptions]) -> RangeResult:
        node = self._wrote if options.get("serializable") else self._next()
        return await node.range(keys, **options)

    async def put(self, key: bytes, value: bytes = b"", **options: Unpack[PutOptions]) -> PutResult:
        return await self._writer().put(key, value, **options)

    async def delete(self, keys: Keys, *, prev_kv: bool = False) -> DeleteResult:
        return await self._writer().delete(keys, prev_kv=prev_kv)

    async def txn(self, txn: Txn) -> TxnResult:
        return await self._writer().txn(txn)

    async def compact(self, at: int) -> None:
        await self._writer().compact(at)

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        return await self._next().grant(ttl_s, id=id)

    async def keep_alive(self, lease: int) -> LeaseGrant:
        return await self._next().keep_alive(lease)

    async def revoke(self, lease: int) -> Revision:
        return await self._writer().revoke(lease)

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        return await self._next().time_to_live(lease, keys=keys)

    async def leases(self) -> tuple[LeaseId, ...]:
        return await self._next().leases()

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> Watch:
        return self._next().watch(keys, **options)

    async def hash(self, *, at: int | None = None) -> StateHash:
        return await self._next().hash(at=at)

    async def status(self) -> StoreStatus:
        status = await self._wrote.status()
        others = [await node.status() for node in self._nodes if node is not self._wrote]
        watchers_count = status.watchers_count + sum(other.watchers_count for other in others)
        return msgspec.structs.replace(status, watchers_count=watchers_count)
