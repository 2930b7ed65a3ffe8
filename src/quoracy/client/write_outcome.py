"""What becomes of a write that ends by itself: known to whoever waits, or to nobody any more.

As much of a future as such a write needs: it was a subclass of asyncio's, a function for the store to
call, and a second future for who waits.  No coroutines here, so that this is compiled.

Invariants
    * It is settled once: with a result, an error, or given up with its connection.
    * Callbacks are called in a turn of the loop of their own, in order, and before who waits goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from quoracy.remote.call_errors import NotApplied
from quoracy.store.model import Txn, TxnResult

__all__ = ["Outcome"]


class Outcome:
    """Wait for it with `settled`, which may be cancelled: the write is not.

    again: sends it the long way, for a write that was begun and surely not applied.
    """

    __slots__ = (
        "_again", "_callbacks", "_cancelled", "_error", "_loop", "_result", "_txn", "_waiter",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        txn: Txn | None = None,
        again: Callable[[Txn, Outcome], None] | None = None,
    ) -> None:
        self._loop, self._txn, self._again = loop, txn, again
        self._result: TxnResult | None = None
        self._error: BaseException | None = None
        self._cancelled = False
        self._waiter: asyncio.Future[TxnResult] | None = None
        self._callbacks: list[Callable[[Outcome], object]] | None = None

    # -- for who sent it ----------------------------------------------------------------------

    def settled(self) -> asyncio.Future[TxnResult]:
        """To be awaited at once, by the only one who waits for it at a time."""
        assert self._waiter is None or self._waiter.done()
        waiter: asyncio.Future[TxnResult] = self._loop.create_future()
        self._waiter = waiter
        if self.done():
            self._wake()
        return waiter

    def done(self) -> bool:
        return self._result is not None or self._error is not None or self._cancelled

    def cancelled(self) -> bool:
        """Whether it was given up: it may have happened."""
        return self._cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> TxnResult:
        """Once it is done.  Raises what it failed with."""
        if self._cancelled:
            raise asyncio.CancelledError
        if self._error is not None:
            raise self._error
        assert self._result is not None, "it is still on its way"
        return self._result

    def add_done_callback(self, callback: Callable[[Outcome], object]) -> None:
        if self.done():
            self._loop.call_soon(callback, self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    # -- for who carries it out ---------------------------------------------------------------

    def answered(self, result: Any, error: BaseException | None) -> None:
        """What a store that began it has to say of it."""
        if isinstance(error, NotApplied):
            assert self._again is not None
            assert self._txn is not None
            self._again(self._txn, self)
        elif self.done():
            pass  # the connection was closed meanwhile
        elif error is not None:
            self.fail(error)
        else:
            self.succeed(result)

    def succeed(self, result: TxnResult) -> None:
        self._result = result
        if self._callbacks is not None:
            self._call_back()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._call_back()
        self._wake()

    def give_up(self) -> None:
        self._cancelled = True
        self._call_back()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._cancelled:
            waiter.cancel()
        elif self._error is not None:
            waiter.set_exception(self._error)
        else:
            assert self._result is not None
            waiter.set_result(self._result)

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                self._loop.call_soon(callback, self)
