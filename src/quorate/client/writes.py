"""Writes that end by themselves: whoever waits for one may be cancelled, the write is not.

A cancelled wait leaves open whether the write happened only as long as it is on its way; then `outcome`
knows, and whoever was cancelled can have it undone.  Where the store can begin a write without a task,
there is none.
"""

from __future__ import annotations

import asyncio
from typing import Any

from quorate.client.losses import NotApplied
from quorate.client.prepared import Prepares
from quorate.errors import QuorateError
from quorate.store.api import Begins, Store
from quorate.store.model import Txn, TxnResult

__all__ = ["Outcome", "Writes"]


class Outcome(asyncio.Future[TxnResult]):
    """What becomes of a write.  Wait for it with `settled`, which may be cancelled: the write is not.

    (`asyncio.shield` does the same with a turn of the loop more for each write.)
    """

    _waiter: asyncio.Future[TxnResult] | None = None

    def settled(self) -> asyncio.Future[TxnResult]:
        """To be awaited at once, by the only one who waits for it."""
        if self.done():
            return self
        assert self._waiter is None or self._waiter.done()
        waiter: asyncio.Future[TxnResult] = self.get_loop().create_future()
        self._waiter = waiter
        return waiter

    def succeed(self, result: TxnResult) -> None:
        self.set_result(result)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    def fail(self, error: BaseException) -> None:
        self.set_exception(error)
        self.exception()  # whoever waited for it may be gone, and has arranged for what follows
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def give_up(self) -> None:
        self.cancel()
        if self._waiter is not None:
            self._waiter.cancel()


class Writes:
    """The transactions of one connection that are on their way."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin = store.begin if isinstance(store, Begins) else None
        self._prepared = store.prepared if isinstance(store, Prepares) else None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def prepared(self, txn: Txn) -> Txn:
        """The same transaction, with what can be done for it before it is begun done."""
        return txn if self._prepared is None else self._prepared(txn)

    def begin(self, txn: Txn) -> Outcome:
        """Send it; the future gets the result or the error, and must not be cancelled."""
        outcome = Outcome(loop=self._loop)

        def answered(result: Any, error: BaseException | None) -> None:
            if isinstance(error, NotApplied):
                self._the_long_way(txn, outcome)
            elif outcome.done():
                pass  # the connection was closed meanwhile
            elif error is not None:
                outcome.fail(error)
            else:
                outcome.succeed(result)

        try:
            begun = self._begin is not None and self._begin(txn, answered)
        except QuorateError as error:
            outcome.fail(error)
            return outcome
        if not begun:
            self._the_long_way(txn, outcome)
        return outcome

    async def write(self, txn: Txn) -> TxnResult:
        """Send it and wait for the result."""
        return await self.begin(txn).settled()

    async def close(self) -> None:
        """Wait for what is on its way; the store's own deadlines bound that."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _the_long_way(self, txn: Txn, outcome: Outcome) -> None:
        task = self._loop.create_task(self._ask(txn, outcome), name="quorate-write")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, txn: Txn, outcome: Outcome) -> None:
        try:
            result = await self._store.txn(txn)
        except asyncio.CancelledError:
            outcome.give_up()
            raise
        except BaseException as error:
            outcome.fail(error)
            if not isinstance(error, Exception):
                raise
        else:
            outcome.succeed(result)
