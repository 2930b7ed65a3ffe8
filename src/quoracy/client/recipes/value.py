"""Value: one typed value, shared: read, set, changed by compare-and-swap, and followed.

    async with quoracy.connect("memory:") as q:
        limit = q.value("limit", int, default=10)
        now = await limit.update(lambda value: value + 1)      # Versioned(value=11, revision=...)
        await limit.wait_until(lambda value: value > 10, timeout=60)

What it promises
    * `update` changes what is there, or nothing: between the value its function saw and the value it
      wrote there was no other.  The function may be called several times, so it only computes.
    * `changes` shows every change after a revision, in order, none twice and none left out; if that is
      no longer possible it raises `Compacted`.
    * A write whose answer was lost raises `Indeterminate` and is never sent again behind your back.
    * What is read is checked against the type; anything else raises `ValueUnreadable`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import Race, found_first, swapping
from quoracy.client.context import Ground
from quoracy.client.key_follower import ASK_AGAIN_S, KeyValues, wait_for
from quoracy.errors import Compacted, Indeterminate, InvalidRequest, StoreClosed, Unavailable
from quoracy.store.model import Compare, Delete, DeleteResult, KeyValue, Put, Txn

__all__ = ["Change", "DefaultedValue", "Value", "Versioned"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value and the revision it was written at; 0: it is the default, nothing is stored."""

    value: T
    revision: int


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What a value became at a revision; None: it was deleted (`exists` is False)."""

    value: T | None
    revision: int
    exists: bool


class Value(Generic[T]):
    """A value by name; one object may be shared.

    type: one without None, which stands for "there is no value".
    """

    def __init__(self, ground: Ground, name: str, type: type[T]) -> None:
        self.name = name
        self._ground, self._key = ground, ground.key(name)
        self._codec = codec_of(type)
        self._what = f"the value {name}"
        self._turn = asyncio.Lock()

    async def get(self) -> Versioned[T] | None:
        """The value and its revision; None: there is none."""
        return self._versioned(await self._look())

    async def set(self, value: T) -> int:
        """Write it, whatever is there; the revision is returned."""
        data = self._codec.encode(value)
        return (await self._ground.write(Txn((), (Put(self._key, data),)))).revision

    async def compare_and_set(self, value: T, *, revision: int) -> int | None:
        """Write it if it has not changed since that revision (0: if there is none).

        The new revision; None: it has changed, and nothing was written.
        """
        put = Put(self._key, self._codec.encode(value))
        unchanged = Compare.mod_revision(self._key, "=", revision)
        result = await self._ground.write(Txn((unchanged,), (put,)))
        return result.revision if result.succeeded else None

    async def update(
        self, fn: Callable[[T | None], T], *, timeout: float | None = None
    ) -> Versioned[T]:
        """Replace it by what a plain function makes of it; None: there is none yet.

        fn: called again, with the newest value, whenever another was faster.  What it raises ends the
            update, and nothing is written; nor is anything written if it changes nothing.
        timeout: how long to try against others; `TimedOut` means that nothing was written.
        """
        race = Race(self._ground, f"updating {self._what}", timeout)
        async with race.turn(self._turn):
            return await self._update(fn, race)

    async def delete(self, *, revision: int | None = None) -> bool:
        """Remove it, if it has not changed since that revision; False: there was nothing to remove."""
        unchanged = () if revision is None else (Compare.mod_revision(self._key, "=", revision),)
        result = await self._ground.write(Txn(unchanged, (Delete(self._key),)))
        if not result.succeeded:
            return False
        deleted = result.results[0]
        assert isinstance(deleted, DeleteResult)
        return deleted.deleted > 0

    async def changes(self, *, after: int | None = None) -> AsyncGenerator[Change[T], None]:
        """Every change, for ever, in order.

        after: the revision that is known, of a `Versioned`, a `Change` or a read.  None: the value as
            it is comes first, if there is one.

        Raises `Compacted` if the store no longer has what followed that revision: read again, and go on
        from there.  Close it when you leave the loop early, as `contextlib.aclosing` and
        `closing` do.
        """
        self._ground.check()
        store, key = self._ground.store, self._key
        if after is None:
            read = await store.range(key)
            if read.kvs:
                yield self._change(read.kvs[0])
            after = read.revision
        forgotten: Compacted | None = None
        while True:
            try:
                if forgotten is not None:
                    read = await store.range(key)
                    if not read.kvs or read.kvs[0].mod_revision > after:
                        raise forgotten
                    # It has not changed since: there was nothing to be missed.
                    after, forgotten = read.revision, None
                async with store.watch(key, after=after) as batches:
                    async for batch in batches:
                        after = batch.revision
                        for event in batch.events:
                            yield self._change(event.kv)
            except Compacted as error:
                if forgotten is not None:
                    raise
                forgotten = error
            except StoreClosed:
                raise
            except (Unavailable, Indeterminate):
                # Nothing is missed: the next watch begins where this one ended.
                await self._ground.clock.sleep(ASK_AGAIN_S)

    async def wait_until(
        self, predicate: Callable[[T | None], bool], *, timeout: float | None = None
    ) -> Versioned[T] | None:
        """Wait for a value of which `predicate` is true (None: there is none), and return that.

        Raises `TimedOut`.
        """

        def judge(kvs: KeyValues) -> tuple[Versioned[T] | None] | None:
            now = self._versioned(kvs.get(self._key))
            return (now,) if predicate(None if now is None else now.value) else None

        return (await wait_for(self._ground, self._key, judge, timeout=timeout, what=self._what))[0]

    async def _update(self, fn: Callable[[T | None], T], race: Race) -> Versioned[T]:
        key, seen = self._key, await self._look()
        while True:
            now = self._versioned(seen)
            value = fn(None if now is None else now.value)
            if inspect.iscoroutine(value):
                value.close()
                raise InvalidRequest(f"updating {self._what} takes a plain function, not a coroutine.")
            data = self._codec.encode(value)
            if seen is not None and seen.value == data:
                return Versioned(value, seen.mod_revision)
            result = await self._ground.write(swapping(key, seen, Put(key, data)))
            if result.succeeded:
                return Versioned(value, result.revision)
            seen = found_first(result)
            await race.lost()

    async def _look(self) -> KeyValue | None:
        self._ground.check()
        kvs = (await self._ground.store.range(self._key)).kvs
        return kvs[0] if kvs else None

    def _versioned(self, seen: KeyValue | None) -> Versioned[T] | None:
        if seen is None:
            return None
        return Versioned(self._codec.decode(self._key, seen.value), seen.mod_revision)

    def _change(self, kv: KeyValue) -> Change[T]:
        if not kv.version:
            return Change(None, kv.mod_revision, exists=False)
        return Change(self._codec.decode(self._key, kv.value), kv.mod_revision, exists=True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class DefaultedValue(Value[T]):
    """A value that is never missing: until it is set, and after it was deleted, it is the default.

    The default is this object's own: it is not stored, and others may have another.
    """

    def __init__(self, ground: Ground, name: str, type: type[T], default: T) -> None:
        super().__init__(ground, name, type)
        self.default = default

    async def get(self) -> Versioned[T]:
        """The value and its revision; the default has revision 0."""
        return self._or_default(await super().get())

    async def update(self, fn: Callable[[T], T], *, timeout: float | None = None) -> Versioned[T]:
        """Replace it by what a plain function makes of it, or of the default: see `Value.update`."""
        return await super().update(
            lambda value: fn(self.default if value is None else value), timeout=timeout
        )

    async def wait_until(
        self, predicate: Callable[[T], bool], *, timeout: float | None = None
    ) -> Versioned[T]:
        """Wait for a value of which `predicate` is true, and return that: see `Value.wait_until`."""
        return self._or_default(
            await super().wait_until(
                lambda value: predicate(self.default if value is None else value), timeout=timeout
            )
        )

    def _or_default(self, found: Versioned[T] | None) -> Versioned[T]:
        return Versioned(self.default, 0) if found is None else found
