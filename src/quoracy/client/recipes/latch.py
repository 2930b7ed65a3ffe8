"""CountDownLatch: wait until a number of things have happened, wherever they happen.

    async with quoracy.connect("memory:") as q:
        latch = q.latch("warmed-up", 2)              # everyone gives the same count
        await latch.count_down(by="cache-1")         # once, however often cache-1 says so
        await latch.count_down(by="cache-2")
        await latch.wait(timeout=60)                 # until two have

What it promises
    * The count is set once, by whoever comes first, and only goes down; at zero it stays.  Whoever
      gives another count is refused.
    * With `by=` one caller counts once: after `Indeterminate` it may be repeated.  Without, every call
      counts, and a call with an unknown outcome may or may not have counted.
    * Whoever waits when it gets to zero goes on, also if it is reset at once.
    * Nothing counts down for a process that died before it did: give `wait` a timeout.
"""

from __future__ import annotations

import asyncio

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import Race, found, found_first, swapping
from quoracy.client.context import Ground
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

    count: how many have to count down.  None: somebody else sets it; until then nobody can count.
    """

    def __init__(self, ground: Ground, name: str, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise InvalidRequest(f"the count of the latch {name} is {count}. Give 1 or more.")
        self.name, self.count = name, count
        self._ground, self._key = ground, ground.key(name)
        self._callers = self._key + b"/by/"
        self._turn = asyncio.Lock()

    async def set(self) -> bool:
        """Set the count now, for those who do not know it.  False: it was set already, to the same."""
        if self.count is None:
            raise self._unset()
        value = _codec.encode(_Count(self.count, self.count))
        result = await self._ground.write(swapping(self._key, None, Put(self._key, value)))
        if not result.succeeded:
            self._read(found_first(result))
        return result.succeeded

    async def count_down(
        self, n: int = 1, *, by: str | None = None, timeout: float | None = None
    ) -> int:
        """Count down; what is left is returned.  At zero nothing happens any more.

        by: who counts.  Each counts once, until the latch is reset; no more names are kept than the
            count.
        timeout: how long to try against others who count at the same moment.
        """
        if n < 1:
            raise InvalidRequest(f"{n} is nothing to count down by. Give 1 or more.")
        if by == "":
            raise InvalidRequest("by is empty. Name who counts, or leave it out.")
        race = Race(self._ground, f"counting down the latch {self.name}", timeout)
        caller = None if by is None else self._callers + by.encode()
        async with race.turn(self._turn):
            return await self._count_down(n, caller, race)

    async def remaining(self) -> int:
        """What is left to count down."""
        return self._read((await self._look(None))[0]).left

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait until it has been counted down to zero; if it is not set yet, until that as well.

        Raises `TimedOut`.
        """
        what = f"the latch {self.name} to get to zero"
        await wait_for(self._ground, self._key, self._is_down, timeout=timeout, what=what)

    async def reset(self) -> None:
        """Forget the count and who has counted: the latch can be used anew.

        Whoever counts down at this moment counts for the old or for the new one.
        """
        await self._ground.write(Txn((), (Delete(self._key), Delete(KeyRange.prefix(self._callers)))))

    async def _count_down(self, n: int, caller: bytes | None, race: Race) -> int:
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
            txn = swapping(self._key, seen, *puts, also=also, read=read)
            result = await self._ground.write(txn)
            if result.succeeded:
                return count.left
            seen = found_first(result)
            has_counted = caller is not None and found(result, 1) is not None
            await race.lost()

    async def _look(self, caller: bytes | None) -> tuple[KeyValue | None, bool]:
        self._ground.check()
        store = self._ground.store
        # The caller first: if it has counted, what is read then is what that left, or less.
        has_counted = caller is not None and bool((await store.range(caller, count_only=True)).count)
        kvs = (await store.range(self._key)).kvs
        return (kvs[0] if kvs else None), has_counted and bool(kvs)

    def _is_down(self, kvs: KeyValues) -> bool | None:
        seen = kvs.get(self._key)
        return True if seen is not None and self._read(seen).left == 0 else None

    def _read(self, seen: KeyValue | None) -> _Count:
        """The count as it was seen; if it was not set, what it will be."""
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
