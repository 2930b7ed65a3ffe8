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

from quoracy.store.api import Store, Watch, WatchOptions
from quoracy.store.completion import Completion
from quoracy.store.coroutines import CoroutineStore
from quoracy.store.model import (
    Delete,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    Put,
    Range,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    WaitFirst,
)

__all__ = ["SpreadStore"]


class SpreadStore(CoroutineStore):
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

    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None:
        self._writer().submit(op, completion)

    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None:
        node = self._wrote if isinstance(op, Range) and op.serializable else self._next()
        node.read(op, completion)

    def catch_up(self) -> None:
        for node in self._nodes:
            node.catch_up()

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
