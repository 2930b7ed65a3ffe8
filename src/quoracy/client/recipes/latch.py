"""CountDownLatch: wait until a number of things have happened, in any process.

    async with quoracy.connect("memory:") as q:
        latch = q.latch("warmed-up", 2)              # all clients give the same count
        await latch.count_down(by="cache-1")         # counts once, however often it is repeated
        await latch.count_down(by="cache-2")
        await latch.wait(timeout=60)                 # until both have

What it promises
    * The count is set once, by the first client, and only goes down; at zero it stays.  A client that
      gives another count is refused.
    * With `by=` a caller counts once: after `Indeterminate` it may be repeated.  Without, every call
      counts, and a call with an unknown outcome may or may not have counted.
    * A waiter at the moment when it gets to zero continues, even if it is reset at once.
    * A process that dies before it counted down leaves the count: give `wait` a timeout.
"""

from __future__ import annotations

import asyncio

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import CompareAndSwap, key_at, key_now, swap_txn
from quoracy.client.context import Context
from quoracy.client.key_follower import KeyValues, wait_for
from quoracy.errors import InvalidRequest
from quoracy.store.model import Compare, Delete, KeyRange, KeyValue, Put, Txn

__all__ = ["CountDownLatch"]


class _Count(msgspec.Struct, frozen=True):
    left: int
    total: int


_codec = codec_of(_Count)


class CountDownLatch:
    """A latch by name; one object may be shared.

    count: the number to count down from.  None: another client sets it; until then none can count.
    """

    def __init__(self, context: Context, name: str, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise InvalidRequest(f"the count of the latch {name} is {count}. Give 1 or more.")
        self.name, self.count = name, count
        self._context, self._key = context, context.key(name)
        self._callers = self._key + b"/by/"
        self._mutex = asyncio.Lock()

    async def set(self) -> bool:
        """Set the count now, for clients that do not know it.  False: it was set to the same before."""
        if self.count is None:
            raise self._unset()
        value = _codec.encode(_Count(self.count, self.count))
        result = await self._context.write(swap_txn(self._key, None, Put(self._key, value)))
        if not result.succeeded:
            self._read(key_now(result))
        return result.succeeded

    async def count_down(
        self, n: int = 1, *, by: str | None = None, timeout: float | None = None
    ) -> int:
        """Count down; returns what is left.  At zero it does nothing.

        by: a name that counts once, until the latch is reset.  No more names are kept than the count.
        timeout: how long to try against others that count at the same moment.
        """
        if n < 1:
            raise InvalidRequest(f"{n} is nothing to count down by. Give 1 or more.")
        if by == "":
            raise InvalidRequest("by is empty. Name who counts, or leave it out.")
        swap = CompareAndSwap(self._context, f"counting down the latch {self.name}", timeout)
        caller = None if by is None else self._callers + by.encode()
        async with swap.exclusive(self._mutex):
            return await self._count_down(n, caller, swap)

    async def remaining(self) -> int:
        """What is left to count down."""
        return self._read((await self._look(None))[0]).left

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait until it is set and has been counted down to zero.  Raises `TimedOut`."""
        what = f"the latch {self.name} to get to zero"
        await wait_for(self._context, self._key, self._is_down, timeout=timeout, what=what)

    async def reset(self) -> None:
        """Delete the count and the names that have counted: the latch can be used anew.

        A client that counts down at this moment counts for the old or for the new one.
        """
        await self._context.write(Txn((), (Delete(self._key), Delete(KeyRange.prefix(self._callers)))))

    async def _count_down(self, n: int, caller: bytes | None, swap: CompareAndSwap) -> int:
        seen, has_counted = await self._look(caller)
        while True:
            count = self._read(seen)
            if has_counted or count.left == 0:
                return count.left
            count = _Count(max(0, count.left - n), count.total)
            puts = [Put(self._key, _codec.encode(count))]
            if caller is not None:
                puts.append(Put(caller))
            also = () if caller is None else (Compare.missing(caller),)
            read = () if caller is None else (caller,)
            txn = swap_txn(self._key, seen, *puts, also=also, read=read)
            result = await self._context.write(txn)
            if result.succeeded:
                return count.left
            seen = key_now(result)
            has_counted = caller is not None and key_at(result, 1) is not None
            await swap.backoff()

    async def _look(self, caller: bytes | None) -> tuple[KeyValue | None, bool]:
        self._context.check()
        store = self._context.store
        # The caller first: if it has counted, the count that is read then is that result, or less.
        has_counted = caller is not None and bool((await store.range(caller, count_only=True)).count)
        seen = await self._context.read_key(self._key)
        return seen, has_counted and seen is not None

    def _is_down(self, kvs: KeyValues) -> bool | None:
        seen = kvs.get(self._key)
        return True if seen is not None and self._read(seen).left == 0 else None

    def _read(self, seen: KeyValue | None) -> _Count:
        """The count as it was seen; if it was not set, the one that was given."""
        if seen is None:
            if self.count is None:
                raise self._unset()
            return _Count(self.count, self.count)
        count = _codec.decode(self._key, seen.value)
        if self.count not in (None, count.total):
            raise InvalidRequest(
                f"the latch {self.name} was set to count {count.total}, not {self.count}. "
                "Everyone has to give the same count; reset it to change it."
            )
        return count

    def _unset(self) -> InvalidRequest:
        return InvalidRequest(f"the count of the latch {self.name} is not known. Give it, or set it.")

    def __repr__(self) -> str:
        return f"<CountDownLatch {self.name}>"
