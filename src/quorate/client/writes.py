"""Writes that end by themselves: whoever waits for one may be cancelled, the write is not.

A cancelled wait leaves open whether the write happened only as long as it is on its way; then `outcome`
knows, and whoever was cancelled can have it undone.  Where the store can begin a write without a task,
there is none.
"""

from __future__ import annotations

import asyncio
from typing import Any

from quorate.client.beginning import NotApplied
from quorate.errors import QuorateError
from quorate.store.api import Begins, Store
from quorate.store.model import Txn, TxnResult

__all__ = ["Writes"]


class Writes:
    """The transactions of one connection that are on their way."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin = store.begin if isinstance(store, Begins) else None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, txn: Txn) -> asyncio.Future[TxnResult]:
        """Send it; the future gets the result or the error, and must not be cancelled: shield it."""
        outcome: asyncio.Future[TxnResult] = self._loop.create_future()
        # Whoever waited for it may be gone, and has arranged for what follows.
        outcome.add_done_callback(_retrieved)

        def answered(result: Any, error: BaseException | None) -> None:
            if isinstance(error, NotApplied):
                self._the_long_way(txn, outcome)
            elif outcome.done():
                pass  # the connection was closed meanwhile
            elif error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        try:
            begun = self._begin is not None and self._begin(txn, answered)
        except QuorateError as error:
            outcome.set_exception(error)
            return outcome
        if not begun:
            self._the_long_way(txn, outcome)
        return outcome

    async def write(self, txn: Txn) -> TxnResult:
        """Send it and wait for the result."""
        return await asyncio.shield(self.begin(txn))

    async def close(self) -> None:
        """Wait for what is on its way; the store's own deadlines bound that."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _the_long_way(self, txn: Txn, outcome: asyncio.Future[TxnResult]) -> None:
        task = self._loop.create_task(self._ask(txn, outcome), name="quorate-write")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, txn: Txn, outcome: asyncio.Future[TxnResult]) -> None:
        try:
            result = await self._store.txn(txn)
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        except BaseException as error:
            outcome.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            outcome.set_result(result)


def _retrieved(outcome: asyncio.Future[TxnResult]) -> None:
    if not outcome.cancelled():
        outcome.exception()
