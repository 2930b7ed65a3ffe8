"""Writes that end by themselves: whoever waits for one may be cancelled, the write is not.

A cancelled wait leaves open whether the write happened only as long as it is on its way; then `outcome`
knows, and whoever was cancelled can have it undone.  Where the store can begin a write without a task,
there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quoracy.client.write_outcome import Outcome
from quoracy.errors import QuoracyError
from quoracy.remote.prepared import Prepares
from quoracy.store.api import Store
from quoracy.store.legacy import Begins
from quoracy.store.model import Txn, TxnResult

__all__ = ["Outcome", "Writes"]


class Writes:
    """The transactions of one connection that are on their way."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin = store.begin if isinstance(store, Begins) else None
        self._prepared = self._delete_maker = None
        if isinstance(store, Prepares):
            self._prepared, self._delete_maker = store.prepared, store.delete_maker
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._again = self._the_long_way

    def prepared(self, txn: Txn) -> Txn:
        """The same transaction, with what can be done for it before it is begun done."""
        return txn if self._prepared is None else self._prepared(txn)

    def delete_maker(self, key: bytes) -> Callable[[int], Txn] | None:
        """Makes, of the revision that created the key, what deletes it if it is still that one.

        None: nothing of that could be done beforehand.
        """
        return None if self._delete_maker is None else self._delete_maker(key)

    def begin(self, txn: Txn) -> Outcome:
        """Send it; the outcome gets the result or the error."""
        outcome = Outcome(self._loop, txn, self._again)
        try:
            begun = self._begin is not None and self._begin(txn, outcome.answered)
        except QuoracyError as error:
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
        task = self._loop.create_task(self._ask(txn, outcome), name="quoracy-write")
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
