"""Stores that stand before another: as far away as a server, and as unreliable as a test wants.

On a `Relay` no write is known to be applied before it is done, and the watch may show it earlier or
later than that: as on any store that is not in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeAlias, Unpack

from quoracy.errors import Indeterminate, NoSpace, Overloaded, Unavailable
from quoracy.store.api import Store, Watch, WatchOptions
from quoracy.store.completion import Completion
from quoracy.store.coroutines import CoroutineStore, PolledWatch
from quoracy.store.model import (
    Delete,
    KeyRange,
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
    TxnResult,
    WaitFirst,
    WatchBatch,
)

__all__ = ["Fate", "Gate", "Relay", "RelayedWatch", "Unreliable"]

# Carries a transaction to the store behind and its answer back, or does something else.
Courier: TypeAlias = Callable[[Txn], Awaitable[TxnResult]]


class Relay(CoroutineStore):
    """Passes everything on.  `courier`, if there is one, is asked to carry each transaction."""

    def __init__(self, behind: Store) -> None:
        self.behind = behind
        self.courier: Courier | None = None
        self.watch_errors: list[BaseException] = []  # each is raised once, by the watch
        self.range_errors: list[BaseException] = []  # likewise, by ranges
        self.watches: list[RelayedWatch] = []
        self.watch_open = _Lock(self.watches)  # clear it, and batches are held back
        self.txns_count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None:
        if isinstance(op, Txn):
            self._start(self._carry_txn(op), completion)
        else:
            self.behind.submit(op, completion)

    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None:
        if isinstance(op, Range) and self.range_errors:
            asyncio.get_running_loop().call_soon(completion.done, None, self.range_errors.pop(0))
        else:
            self.behind.read(op, completion)

    async def _carry_txn(self, txn: Txn) -> TxnResult:
        self.txns_count += 1
        return await (self.behind.txn if self.courier is None else self.courier)(txn)

    def _start(self, work: Coroutine[Any, Any, Any], completion: Completion) -> None:
        task = asyncio.get_running_loop().create_task(_complete(work, completion))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def stop() -> None:
            task.cancel()

        completion.on_abandon = stop

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
            watch.wake()


async def _complete(work: Coroutine[Any, Any, Any], completion: Completion) -> None:
    try:
        result = await work
    except asyncio.CancelledError:
        completion.done(None, Unavailable("it was given up"))
        raise
    except Exception as error:  # noqa: BLE001 (it is passed on)
        completion.done(None, error)
    else:
        completion.done(result, None)


class _Lock:
    """Whether batches are held back; like an `asyncio.Event`."""

    def __init__(self, watches: list[RelayedWatch]) -> None:
        self._watches = watches
        self._is_open = True

    def is_set(self) -> bool:
        return self._is_open

    def clear(self) -> None:
        self._is_open = False

    def set(self) -> None:
        self._is_open = True
        for watch in self._watches:
            watch.wake()


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


# Later than the answer to a write, mostly: a watch of a store elsewhere has a longer way.
_WATCH_TURNS = 4


class RelayedWatch(PolledWatch):
    """A watch of a `Relay`."""

    def __init__(self, relay: Relay, behind: Watch) -> None:
        super().__init__()
        self._relay, self._behind = relay, behind
        self._is_open = False

    @property
    def keys(self) -> KeyRange:
        return self._behind.keys

    @property
    def revision(self) -> Revision:
        return self._behind.revision

    def request_progress(self) -> None:
        self._behind.request_progress()

    def poll(self) -> WatchBatch | None:
        if self._relay.watch_errors:
            raise self._relay.watch_errors.pop(0)
        return self._behind.poll() if self._relay.watch_open.is_set() else None

    def wake(self) -> None:
        self._wake_in(_WATCH_TURNS)

    def _wake_in(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._wake_in, turns - 1)
        elif self._is_open:
            self._wake()

    async def __aenter__(self) -> Self:
        await self._behind.__aenter__()
        self._is_open = True
        self._behind.on_ready(self.wake)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        self._relay.watches.remove(self)
        await self._behind.__aexit__(kind, error, trace)
