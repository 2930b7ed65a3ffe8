"""Stores that stand before another: as far away as a server, and as unreliable as a test wants.

A `Relay` offers the contract of `Store` and nothing more, so a replica on it takes the way it takes on
a store that is not in its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import Self, TypeAlias, Unpack

from quoracy.errors import Indeterminate, NoSpace, Overloaded
from quoracy.store.api import PutOptions, RangeOptions, Store, Watch, WatchOptions
from quoracy.store.legacy import LegacyStore, LegacyWatch
from quoracy.store.model import (
    DeleteResult,
    KeyRange,
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
    WatchBatch,
)

__all__ = ["Fate", "Gate", "Relay", "RelayedWatch", "Unreliable"]

# Carries a transaction to the store behind and its answer back, or does something else.
Courier: TypeAlias = Callable[[Txn], Awaitable[TxnResult]]


class Relay(LegacyStore):
    """Passes everything on.  `courier`, if there is one, is asked to carry each transaction."""

    def __init__(self, behind: Store) -> None:
        self.behind = behind
        self.courier: Courier | None = None
        self.watch_errors: list[BaseException] = []  # each is raised once, by the watch
        self.range_errors: list[BaseException] = []  # likewise, by ranges
        self.watch_open = asyncio.Event()  # clear it, and batches are held back
        self.watch_open.set()
        self.watches: list[RelayedWatch] = []
        self.txns_count = 0

    async def txn(self, txn: Txn) -> TxnResult:
        self.txns_count += 1
        if self.courier is not None:
            return await self.courier(txn)
        return await self.behind.txn(txn)

    async def range(self, keys: Keys, **options: Unpack[RangeOptions]) -> RangeResult:
        if self.range_errors:
            raise self.range_errors.pop(0)
        return await self.behind.range(keys, **options)

    async def put(self, key: bytes, value: bytes = b"", **options: Unpack[PutOptions]) -> PutResult:
        return await self.behind.put(key, value, **options)

    async def delete(self, keys: Keys, *, prev_kv: bool = False) -> DeleteResult:
        return await self.behind.delete(keys, prev_kv=prev_kv)

    async def compact(self, at: int) -> None:
        await self.behind.compact(at)

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        return await self.behind.grant(ttl_s, id=id)

    async def keep_alive(self, lease: int) -> LeaseGrant:
        return await self.behind.keep_alive(lease)

    async def revoke(self, lease: int) -> Revision:
        return await self.behind.revoke(lease)

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        return await self.behind.time_to_live(lease, keys=keys)

    async def leases(self) -> tuple[LeaseId, ...]:
        return await self.behind.leases()

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> RelayedWatch:
        watch = RelayedWatch(self, self.behind.watch(keys, **options))
        self.watches.append(watch)
        return watch

    async def hash(self, *, at: int | None = None) -> StateHash:
        return await self.behind.hash(at=at)

    async def status(self) -> StoreStatus:
        return await self.behind.status()

    def fail_watch(self, error: BaseException) -> None:
        """The watch that is open raises this, before anything else."""
        self.watch_errors.append(error)
        for watch in self.watches:
            watch.interrupt()


class Gate:
    """Holds transactions back until they are let through, one by one or all."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._waiting: list[asyncio.Future[None]] = []
        self._arrived = asyncio.Event()
        relay.courier = self._carry

    async def _carry(self, txn: Txn) -> TxnResult:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._arrived.set()
        await turn
        return await self._relay.behind.txn(txn)

    @property
    def held_count(self) -> int:
        return len(self._waiting)

    async def held(self, count: int) -> None:
        """Returns when so many are held back."""
        while len(self._waiting) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def pass_one(self) -> None:
        """Let the first through."""
        self._waiting.pop(0).set_result(None)

    def open(self) -> None:
        """Let them all through, and whatever comes."""
        self._relay.courier = None
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
        self._waiting.clear()

    def fail(self, index: int, error: BaseException) -> None:
        """One of them comes to nothing."""
        self._waiting.pop(index).set_exception(error)


class Fate(Enum):
    """What becomes of a transaction on its way."""

    FINE = "carried out and answered"
    SLOW = "carried out late"
    ANSWERED_LATE = "carried out, and answered long after the watch has shown it"
    OVERLOADED = "refused, because too much is waiting"
    FULL = "refused, because there is no room"
    LOST = "never carried out, and nobody knows"
    UNANSWERED = "carried out, and nobody knows"


_TURNS = 12  # of the event loop: longer than anything here takes


class Unreliable(Relay):
    """Gives one transaction after the other its fate; when there are no more fates, all is fine.

    In `order` they reach the store as they were sent, as on one connection.
    """

    def __init__(self, behind: Store, fates: Sequence[Fate], *, order: bool) -> None:
        super().__init__(behind)
        self.fates = list(fates)
        self._line = asyncio.Lock() if order else None
        self.courier = self._carry

    async def _carry(self, txn: Txn) -> TxnResult:
        fate = self.fates.pop(0) if self.fates else Fate.FINE
        if self._line is None:
            result = await self._reach(txn, fate)
        else:
            async with self._line:
                result = await self._reach(txn, fate)
        if fate is Fate.ANSWERED_LATE:
            await _wait()
        if fate is Fate.UNANSWERED:
            raise Indeterminate("the answer was lost")
        return result

    async def _reach(self, txn: Txn, fate: Fate) -> TxnResult:
        if fate is Fate.OVERLOADED:
            raise Overloaded(pending=2, pending_max=1)
        if fate is Fate.FULL:
            raise NoSpace(size=2, size_max=1)
        if fate is Fate.LOST:
            raise Indeterminate("it was lost on the way")
        if fate is Fate.SLOW:
            await _wait()
        return await self.behind.txn(txn)


async def _wait() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class RelayedWatch(LegacyWatch):
    """A watch of a `Relay`."""

    def __init__(self, relay: Relay, behind: Watch) -> None:
        self._relay, self._behind = relay, behind
        self._interrupted = asyncio.Event()

    @property
    def keys(self) -> KeyRange:
        return self._behind.keys

    @property
    def revision(self) -> Revision:
        return self._behind.revision

    def request_progress(self) -> None:
        self._behind.request_progress()

    def interrupt(self) -> None:
        self._interrupted.set()

    async def __aenter__(self) -> Self:
        await self._behind.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._relay.watches.remove(self)
        await self._behind.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        loop = asyncio.get_running_loop()
        relay = self._relay
        wanted = loop.create_task(self._next())
        stopped = loop.create_task(self._interrupted.wait())
        try:
            await asyncio.wait((wanted, stopped), return_when=asyncio.FIRST_COMPLETED)
            if relay.watch_errors:
                raise relay.watch_errors.pop(0)
            return await wanted
        finally:
            for task in (wanted, stopped):
                task.cancel()
            await asyncio.wait((wanted, stopped))

    async def _next(self) -> WatchBatch:
        batch = await anext(self._behind)
        await self._relay.watch_open.wait()
        return batch
