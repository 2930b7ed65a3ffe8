"""Writes in flight: a task that waits for one may be cancelled, the write is not.

A cancelled wait leaves open whether the write happened only as long as it is in flight; then `Outcome`
knows, and the task that was cancelled can have it undone.

Invariants
    * An outcome is settled once, with a result or an error.
    * Callbacks are called in a turn of the loop of their own, in order, and before the task that waits
      goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from quoracy.store.api import Store
from quoracy.store.completion import Completion
from quoracy.store.model import Txn, TxnResult

__all__ = ["Outcome", "Writes"]


class Writes:
    """The transactions of one connection that are in flight."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._in_flight: set[Outcome] = set()
        self._closed: asyncio.Future[None] | None = None

    def begin(self, txn: Txn) -> Outcome:
        """Send it; the outcome gets the result or the error."""
        outcome = Outcome(self._loop, self)
        self._in_flight.add(outcome)
        self._store.submit(txn, outcome)
        return outcome

    def note_over(self, outcome: Outcome) -> None:
        self._in_flight.discard(outcome)
        if self._closed is not None and not self._in_flight and not self._closed.done():
            self._closed.set_result(None)

    def close(self) -> asyncio.Future[None]:
        """Done when nothing is in flight; the store's own deadlines bound that."""
        self._closed = closed = self._loop.create_future()
        if not self._in_flight:
            closed.set_result(None)
        return closed


class Outcome(Completion):
    """What becomes of a write.

    Wait for it with `settled`: that may be cancelled, the write is not.
    """

    __slots__ = ("_callbacks", "_error", "_loop", "_result", "_waiter", "_writes")

    def __init__(self, loop: asyncio.AbstractEventLoop, writes: Writes | None = None) -> None:
        super().__init__()
        self._loop, self._writes = loop, writes
        self._result: TxnResult | None = None
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[TxnResult] | None = None
        self._callbacks: list[Callable[[Outcome], object]] | None = None

    def settled(self) -> asyncio.Future[TxnResult]:
        """To be awaited at once; one task at a time may wait for it."""
        assert self._waiter is None or self._waiter.done()
        waiter: asyncio.Future[TxnResult] = self._loop.create_future()
        self._waiter = waiter
        if self.is_over:
            self._wake()
        return waiter

    @property
    def is_over(self) -> bool:
        return self._result is not None or self._error is not None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> TxnResult:
        """Once it is over.  Raises what it failed with."""
        if self._error is not None:
            raise self._error
        assert self._result is not None, "it is still in flight"
        return self._result

    def add_done_callback(self, callback: Callable[[Outcome], object]) -> None:
        if self.is_over:
            self._loop.call_soon(callback, self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def done(self, result: Any, error: BaseException | None) -> None:
        """See `Completion.done`."""
        self._result, self._error = result, error
        if self._writes is not None:
            self._writes.note_over(self)
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                self._loop.call_soon(callback, self)
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._error is not None:
            waiter.set_exception(self._error)
        else:
            assert self._result is not None
            waiter.set_result(self._result)
