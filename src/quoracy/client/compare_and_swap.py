"""Changing a key that others change too: compare, swap, and again with what the winner wrote.

    race = Race(ground, "the counter x", timeout)
    while True:
        result = await ground.write(swapping(key, seen, Put(key, ...)))
        if result.succeeded:
            return ...
        seen = found_first(result)
        await race.lost()

Invariants
    * What lost is sent again only with what was found instead, never unchanged.
    * A write that is on its way is never given up for a timeout: its outcome is waited for.
    * Somebody wins each round, so that all together make progress; pauses grow, with jitter, so that
      many do not go on meeting each other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quoracy.client.context import Ground, Patience
from quoracy.errors import TimedOut
from quoracy.store.model import Compare, KeyValue, Op, Range, RangeResult, Txn, TxnResult

__all__ = ["Race", "found", "found_first", "swapping", "unchanged"]

_AT_ONCE = 3
_PAUSE_S_FIRST = 0.001
_PAUSE_S_MAX = 0.1


class Race:
    """How often one change of a key lost against others, and what that means for the next attempt."""

    __slots__ = ("_ground", "_losses", "_patience", "_rng", "_what")

    def __init__(
        self,
        ground: Ground,
        what: str,
        timeout: float | None,
        *,
        rng: random.Random | None = None,
    ) -> None:
        ground.check()
        self._ground, self._what, self._rng = ground, what, rng
        self._patience = Patience(ground.clock, timeout)
        self._losses = 0

    @asynccontextmanager
    async def turn(self, lock: asyncio.Lock) -> AsyncIterator[None]:
        """A block for one task at a time: those of one object need not race each other.

        Raises `TimedOut`: nothing was changed.
        """
        with self._ground.waiting(self._what, self._patience):
            await lock.acquire()
        try:
            yield
        finally:
            lock.release()

    async def lost(self) -> None:
        """Another was faster: pause before the next attempt.

        Raises `TimedOut`: nothing was changed.
        """
        left_s = self._patience.left
        if left_s is not None and left_s <= 0:
            raise TimedOut(self._what, timeout_s=self._patience.timeout)
        self._losses += 1
        if self._losses <= _AT_ONCE:
            await asyncio.sleep(0)
            return
        self._rng = self._rng or random.Random()
        longest_s = min(_PAUSE_S_MAX, _PAUSE_S_FIRST * 2 ** min(self._losses - _AT_ONCE, 20))
        pause_s = self._rng.uniform(0, longest_s)
        await self._ground.clock.sleep(pause_s if left_s is None else min(pause_s, left_s))


def unchanged(key: bytes, seen: KeyValue | None) -> Compare:
    """That the key is as it was seen, or still missing."""
    return Compare.mod_revision(key, "=", 0 if seen is None else seen.mod_revision)


def swapping(
    key: bytes,
    seen: KeyValue | None,
    *then: Op,
    also: tuple[Compare, ...] = (),
    read: tuple[bytes, ...] = (),
) -> Txn:
    """Carry out `then` if the key is as it was seen; otherwise read it, and the keys of `read`."""
    return Txn((unchanged(key, seen), *also), then, (Range(key), *(Range(other) for other in read)))


def found(result: TxnResult, at: int) -> KeyValue | None:
    """The key that the operation at that position read, if it is there."""
    read = result.results[at]
    assert isinstance(read, RangeResult)
    return read.kvs[0] if read.kvs else None


def found_first(result: TxnResult) -> KeyValue | None:
    """The key of a swap that lost, as it is now."""
    return found(result, 0)
