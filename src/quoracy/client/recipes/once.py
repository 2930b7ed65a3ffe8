"""Once: a step that is done once, across processes and restarts; its result is remembered.

    async def migrate() -> int:
        return 7

    async with quoracy.connect("memory:") as q:
        version = await q.once("migrate-7", int).run(migrate)    # all callers get its result

What it promises
    * A result is recorded once: as soon as there is one, no step is begun any more, and all callers,
      now or in a year, get that result.
    * One client runs the step at a time, as far as the store is concerned.  Others that call meanwhile
      wait for its result.
    * If a runner dies, another may try.  If a step raises, its caller gets the error, nothing is
      recorded, and the next may try.

What it does not promise
    * That the step has an effect once.  A runner may die after its step did something and before that
      was recorded, and then the step is done again.  A runner that was stopped may even continue for a
      moment beside the next one: pass the fencing token (`run_fenced`) to what it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from quoracy.blocks import Scope
from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import was_deleted
from quoracy.client.context import Context
from quoracy.client.held import Held
from quoracy.client.key_follower import wait_for
from quoracy.client.recipes.lock import Lock
from quoracy.client.session import stop
from quoracy.errors import LeaseLost, QuoracyError
from quoracy.store.model import Delete, KeyValue, Put, Txn

__all__ = ["Once"]

T = TypeVar("T")


class Once(Generic[T]):
    """A step by name; one object may be shared.

    type: the type of its result; `type(None)` if it returns nothing.
    """

    def __init__(self, context: Context, name: str, type: type[T]) -> None:
        self.name = name
        self._context = context
        self._key = context.key(name) + b"/result"
        self._codec = codec_of(type)
        self._lock = Lock(context, f"{name}/run")

    async def run(self, step: Callable[[], Awaitable[T]], *, timeout: float | None = None) -> T:
        """The result: remembered, or of the client that runs the step now, or of running it here.

        timeout: how long to wait for another client that runs it; the step itself is not limited.

        What the step raises is raised here, and nothing is recorded.  Raises `TimedOut`; `LockLost` if
        the session was lost while the step ran: the step is cancelled (in a thread it runs to its end),
        and its result does not count; `Indeterminate` if the step was done and it is not known whether
        its result was recorded: call it again.
        """
        return await self.run_fenced(lambda _: step(), timeout=timeout)

    async def run_fenced(
        self, step: Callable[[int], Awaitable[T]], *, timeout: float | None = None
    ) -> T:
        """`run` for a step that takes the fencing token of its run, which grows with each run."""
        deadline = self._context.deadline(timeout)
        found = await self._context.read_key(self._key)
        if found is not None:
            return self._read(found)
        recorded: list[T] = []
        try:
            with Scope() as scope:
                watching = asyncio.create_task(self._watch_result(scope), name="quoracy-once")
                try:
                    async with self._lock.hold(timeout=deadline.left) as held:
                        await stop(watching)  # from here on only this client can record a result
                        recorded.append(await self._run_held(held, step))
                finally:
                    await stop(watching)
        except _Recorded as recorded_result:
            return self._read(recorded_result.kv)
        except LeaseLost:
            if not recorded:
                raise
        return recorded[0]

    async def is_done(self) -> bool:
        """Whether a result is recorded."""
        return await self._context.read_key(self._key) is not None

    async def result(self) -> T | None:
        """The result; None: there is none yet."""
        found = await self._context.read_key(self._key)
        return None if found is None else self._read(found)

    async def forget(self) -> bool:
        """Delete the result, so that the step is done again.  False: there was none."""
        return was_deleted(await self._context.write(Txn((), (Delete(self._key),))))

    async def _run_held(self, held: Held, step: Callable[[int], Awaitable[T]]) -> T:
        found = await self._context.read_key(self._key)
        if found is not None:
            return self._read(found)
        data = self._codec.encode(await step(held.token))
        # All callers get the result as it is read back; one that cannot be read is not recorded.
        result = self._codec.decode(self._key, data)
        await held.txn(Put(self._key, data))
        return result

    async def _watch_result(self, scope: Scope) -> None:
        """End the wait for the lock when another client has recorded a result."""
        what = f"the result of {self.name}"
        try:
            kv = await wait_for(
                self._context, self._key, lambda kvs: kvs.get(self._key), timeout=None, what=what
            )
        except QuoracyError as error:
            scope.end(error)
        else:
            scope.end(_Recorded(kv))

    def _read(self, kv: KeyValue) -> T:
        return self._codec.decode(self._key, kv.value)

    def __repr__(self) -> str:
        return f"<Once {self.name}>"


class _Recorded(Exception):
    """Another client has recorded the result."""

    def __init__(self, kv: KeyValue) -> None:
        super().__init__()
        self.kv = kv
