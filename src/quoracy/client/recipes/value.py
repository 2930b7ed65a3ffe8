"""Value: one shared typed value: read, set, changed by compare-and-swap, and followed.

    async with quoracy.connect("memory:") as q:
        limit = q.value("limit", int, default=10)
        now = await limit.update(lambda value: value + 1)      # Versioned(value=11, revision=...)
        await limit.wait_until(lambda value: value > 10, timeout=60)

What it promises
    * `update` changes the value from the one its function was called with, or changes nothing.  The
      function may be called several times, so it must have no other effect.
    * `changes` shows every change after a revision, in order, without gaps and without repetition; if
      that is not possible any more it raises `Compacted`.
    * A write whose answer was lost raises `Indeterminate`; it is never sent again by itself.
    * What is read is checked against the type; anything else raises `ValueUnreadable`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import CompareAndSwap, key_now, swap_txn, was_deleted
from quoracy.client.context import RETRY_S, Context
from quoracy.client.key_follower import KeyValues, wait_for
from quoracy.errors import Compacted, Indeterminate, InvalidRequest, StoreClosed, Unavailable
from quoracy.store.model import Compare, Delete, KeyValue, Put, Txn

__all__ = ["Change", "DefaultedValue", "Value", "Versioned"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value and the revision at which it was written; 0: the default, nothing is stored."""

    value: T
    revision: int


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A change of a value at a revision; None: it was deleted (`exists` is False)."""

    value: T | None
    revision: int
    exists: bool


class Value(Generic[T]):
    """A value by name; one object may be shared.

    type: any that does not include None, which stands for "there is no value".
    """

    def __init__(self, context: Context, name: str, type: type[T]) -> None:
        self.name = name
        self._context, self._key = context, context.key(name)
        self._codec = codec_of(type)
        self._what = f"the value {name}"
        self._mutex = asyncio.Lock()

    async def get(self) -> Versioned[T] | None:
        """The value and its revision; None: there is none."""
        return self._versioned(await self._context.read_key(self._key))

    async def set(self, value: T) -> int:
        """Write it unconditionally; returns the revision."""
        data = self._codec.encode(value)
        return (await self._context.write(Txn((), (Put(self._key, data),)))).revision

    async def compare_and_set(self, value: T, *, revision: int) -> int | None:
        """Write it if it has not changed since that revision (0: if there is none).

        Returns the new revision; None: it has changed, and nothing was written.
        """
        put = Put(self._key, self._codec.encode(value))
        unchanged = Compare.mod_revision(self._key, "=", revision)
        result = await self._context.write(Txn((unchanged,), (put,)))
        return result.revision if result.succeeded else None

    async def update(
        self, fn: Callable[[T | None], T], *, timeout: float | None = None
    ) -> Versioned[T]:
        """Replace it by the result of a plain function of it; None: there is none yet.

        fn: called again with the newest value after a conflict.  What it raises ends the update, and
            nothing is written; nothing is written either if the value stays the same.
        timeout: how long to try against others; `TimedOut` means that nothing was written.
        """
        swap = CompareAndSwap(self._context, f"updating {self._what}", timeout)
        async with swap.exclusive(self._mutex):
            return await self._update(fn, swap)

    async def delete(self, *, revision: int | None = None) -> bool:
        """Delete it, if it has not changed since that revision; False: nothing was deleted."""
        unchanged = () if revision is None else (Compare.mod_revision(self._key, "=", revision),)
        return was_deleted(await self._context.write(Txn(unchanged, (Delete(self._key),))))

    async def changes(self, *, after: int | None = None) -> AsyncGenerator[Change[T], None]:
        """Every change, in order; it does not end.

        after: the revision that is known, of a `Versioned`, a `Change` or a read.  None: the current
            value comes first, if there is one.

        Raises `Compacted` if the store no longer has the changes after that revision: read again, and
        continue from there.  Close it when you leave the loop early, as `contextlib.aclosing` and
        `closing` do.
        """
        self._context.check()
        store, key = self._context.store, self._key
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
                    # It has not changed since, so nothing was missed.
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
                await self._context.clock.sleep(RETRY_S)

    async def wait_until(
        self, predicate: Callable[[T | None], bool], *, timeout: float | None = None
    ) -> Versioned[T] | None:
        """Wait for a value for which `predicate` is true (None: there is none), and return it.

        Raises `TimedOut`.
        """

        def judge(kvs: KeyValues) -> tuple[Versioned[T] | None] | None:
            now = self._versioned(kvs.get(self._key))
            return (now,) if predicate(None if now is None else now.value) else None

        return (await wait_for(self._context, self._key, judge, timeout=timeout, what=self._what))[0]

    async def _update(self, fn: Callable[[T | None], T], swap: CompareAndSwap) -> Versioned[T]:
        key, seen = self._key, await self._context.read_key(self._key)
        while True:
            now = self._versioned(seen)
            value = fn(None if now is None else now.value)
            if inspect.iscoroutine(value):
                value.close()
                raise InvalidRequest(f"updating {self._what} takes a plain function, not a coroutine.")
            data = self._codec.encode(value)
            if seen is not None and seen.value == data:
                return Versioned(value, seen.mod_revision)
            result = await self._context.write(swap_txn(key, seen, Put(key, data)))
            if result.succeeded:
                return Versioned(value, result.revision)
            seen = key_now(result)
            await swap.backoff()

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
    """A value that is the default until it is set, and after it was deleted.

    The default belongs to this object: it is not stored, and other clients may have another.
    """

    def __init__(self, context: Context, name: str, type: type[T], default: T) -> None:
        super().__init__(context, name, type)
        self.default = default

    async def get(self) -> Versioned[T]:
        """The value and its revision; the default has revision 0."""
        return self._or_default(await super().get())

    async def update(self, fn: Callable[[T], T], *, timeout: float | None = None) -> Versioned[T]:
        """Replace it by the result of a plain function of it, or of the default: see `Value.update`."""
        return await super().update(
            lambda value: fn(self.default if value is None else value), timeout=timeout
        )

    async def wait_until(
        self, predicate: Callable[[T], bool], *, timeout: float | None = None
    ) -> Versioned[T]:
        """Wait for a value for which `predicate` is true, and return it: see `Value.wait_until`."""
        return self._or_default(
            await super().wait_until(
                lambda value: predicate(self.default if value is None else value), timeout=timeout
            )
        )

    def _or_default(self, found: Versioned[T] | None) -> Versioned[T]:
        return Versioned(self.default, 0) if found is None else found
