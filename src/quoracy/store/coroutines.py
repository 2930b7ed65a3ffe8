"""The coroutines of a `Store` and of a `Watch`, on top of what an engine implements.

An engine that inherits from `CoroutineStore` implements `submit` and `read`; a watch that inherits from
`PolledWatch` implements `poll`.  What is awaited here is the same for every engine.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Self, Unpack

from quoracy.errors import InvalidRequest, Unavailable, Unsupported
from quoracy.store.api import Cluster, PutOptions, RangeOptions
from quoracy.store.completion import Completion, FutureCompletion
from quoracy.store.model import (
    Delete,
    DeleteResult,
    Keys,
    Put,
    PutResult,
    Range,
    RangeResult,
    Revision,
    Txn,
    TxnResult,
    WaitFirst,
    WatchBatch,
)

__all__ = ["CoroutineStore", "FutureCompletion", "PolledWatch", "complete_by_task", "ended"]


async def ended(completion: FutureCompletion) -> Any:
    """The result of an operation.  Cancelling the task that awaits it abandons the operation."""
    if completion.is_done:
        if completion.error is not None:
            raise completion.error
        return completion.result
    try:
        return await completion.future
    except asyncio.CancelledError:
        completion.abandon()
        raise


def complete_by_task(work: Coroutine[Any, Any, Any], completion: Completion) -> asyncio.Task[Any]:
    """Complete an operation with what a coroutine returns or raises; abandoning it cancels that."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)

    def over(task: asyncio.Task[Any]) -> None:
        _tasks.discard(task)
        completion.on_abandon = None
        if task.cancelled():
            completion.done(None, Unavailable("the operation was given up."))
        elif (error := task.exception()) is not None:
            completion.done(None, error)
        else:
            completion.done(task.result(), None)

    def abandon() -> None:
        task.cancel()

    completion.on_abandon = abandon
    task.add_done_callback(over)
    return task


_tasks: set[asyncio.Task[Any]] = set()  # the loop itself keeps no task alive


class CoroutineStore:
    """The part of `Store` that is awaited."""

    cluster: Cluster | None = None

    @property
    def head_revision(self) -> int | None:
        return None

    @abstractmethod
    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None: ...

    @abstractmethod
    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None: ...

    def catch_up(self) -> None:
        """See `Store.catch_up`: nothing to do where no answer leaves before `done` is called."""

    async def range(self, keys: Keys, **options: Unpack[RangeOptions]) -> RangeResult:
        result: RangeResult = await self._read(Range(keys, **options))
        return result

    async def put(self, key: bytes, value: bytes = b"", **options: Unpack[PutOptions]) -> PutResult:
        result: PutResult = await self._submit(Put(key, value, **options))
        return result

    async def delete(self, keys: Keys, *, prev_kv: bool = False) -> DeleteResult:
        result: DeleteResult = await self._submit(Delete(keys, prev_kv))
        return result

    async def txn(self, txn: Txn) -> TxnResult:
        result: TxnResult = await self._submit(txn)
        return result

    async def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        result: Revision | None = await self._read(WaitFirst(name, key, token))
        return result

    async def revision_at(self, age_s: float) -> Revision:
        raise Unsupported(
            f"the revision of {age_s} s ago: this store does not note when revisions were made"
        )

    def _submit(self, op: Put | Delete | Txn) -> Coroutine[Any, Any, Any]:
        completion = FutureCompletion(asyncio.get_running_loop())
        self.submit(op, completion)
        return ended(completion)

    def _read(self, op: Range | WaitFirst) -> Coroutine[Any, Any, Any]:
        completion = FutureCompletion(asyncio.get_running_loop())
        self.read(op, completion)
        return ended(completion)


class PolledWatch:
    """The part of `Watch` that is iterated over.

    The engine calls `_wake` when `poll` may have something again.
    """

    def __init__(self) -> None:
        self._ready: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    @abstractmethod
    def poll(self) -> WatchBatch | None: ...

    def on_ready(self, call: Callable[[], None]) -> None:
        self._ready = call

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        if self._waiter is not None:
            raise InvalidRequest("another task waits on this watch. Give each task a watch of its own.")
        while (batch := self.poll()) is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return batch

    def _wake(self) -> None:
        """`poll` may have something."""
        if self._ready is not None:
            self._ready()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
