"""Compare-and-swap: changing a key that other clients change too.

    swap = CompareAndSwap(context, "the counter x", timeout)
    while True:
        result = await context.write(swap_txn(key, seen, Put(key, ...)))
        if result.succeeded:
            return ...
        seen = key_now(result)
        await swap.backoff()

Invariants
    * After a conflict the next attempt is made from the value that was found, never from the old one.
    * A timeout does not give up a write that is on its way: its outcome is awaited.
    * One attempt of each round succeeds, so that there is progress; pauses grow, with jitter, so that
      many clients do not go on conflicting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quoracy.client.context import Context
from quoracy.errors import TimedOut
from quoracy.store.model import Compare, DeleteResult, KeyValue, Op, Range, RangeResult, Txn, TxnResult

__all__ = ["CompareAndSwap", "key_at", "key_now", "range_at", "swap_txn", "unchanged", "was_deleted"]

_RETRIES_AT_ONCE = 3
_PAUSE_S_FIRST = 0.001
_PAUSE_S_MAX = 0.1


class CompareAndSwap:
    """The conflicts of one change of a key, and the pauses between its attempts."""

    __slots__ = ("_conflicts", "_context", "_deadline", "_rng", "_what")

    def __init__(self, context: Context, what: str, timeout: float | None) -> None:
        context.check()
        self._context, self._what = context, what
        self._rng: random.Random | None = None
        self._deadline = context.deadline(timeout)
        self._conflicts = 0

    @asynccontextmanager
    async def exclusive(self, mutex: asyncio.Lock) -> AsyncIterator[None]:
        """A block for one task at a time: tasks that share an object need not conflict.

        Raises `TimedOut`: nothing was changed.
        """
        with self._context.wait_scope(self._what, self._deadline):
            await mutex.acquire()
        try:
            yield
        finally:
            mutex.release()

    async def backoff(self) -> None:
        """Pause after a conflict, before the next attempt.  Raises `TimedOut`: nothing was changed."""
        left_s = self._deadline.left
        if left_s is not None and left_s <= 0:
            raise TimedOut(self._what, timeout_s=self._deadline.timeout)
        self._conflicts += 1
        if self._conflicts <= _RETRIES_AT_ONCE:
            await asyncio.sleep(0)
            return
        self._rng = self._rng or random.Random()
        doublings = min(self._conflicts - _RETRIES_AT_ONCE, 20)
        pause_s = self._rng.uniform(0, min(_PAUSE_S_MAX, _PAUSE_S_FIRST * 2**doublings))
        await self._context.clock.sleep(pause_s if left_s is None else min(pause_s, left_s))


def unchanged(key: bytes, seen: KeyValue | None) -> Compare:
    """The condition that the key is as it was seen, or still missing."""
    return Compare.mod_revision(key, "=", 0 if seen is None else seen.mod_revision)


def swap_txn(
    key: bytes,
    seen: KeyValue | None,
    *then: Op,
    also: tuple[Compare, ...] = (),
    read: tuple[bytes, ...] = (),
) -> Txn:
    """Carry out `then` if the key is as it was seen; otherwise read it, and the keys of `read`."""
    return Txn((unchanged(key, seen), *also), then, (Range(key), *(Range(other) for other in read)))


# -- results of transactions -----------------------------------------------------------------


def range_at(result: TxnResult, at: int) -> RangeResult:
    """The result of the read at that position."""
    read = result.results[at]
    assert isinstance(read, RangeResult)
    return read


def key_at(result: TxnResult, at: int) -> KeyValue | None:
    """The key that the read at that position found, if it exists."""
    kvs = range_at(result, at).kvs
    return kvs[0] if kvs else None


def key_now(result: TxnResult) -> KeyValue | None:
    """The key of a swap that failed, as it is now."""
    return key_at(result, 0)


def was_deleted(result: TxnResult) -> bool:
    """Whether the transaction succeeded and its first operation deleted anything."""
    if not result.succeeded:
        return False
    deleted = result.results[0]
    assert isinstance(deleted, DeleteResult)
    return deleted.deleted > 0
