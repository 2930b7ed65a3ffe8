"""Once: a step that is done once ever, across processes and restarts; its result is remembered.

    async def migrate() -> int:
        return 7

    async with quoracy.connect("memory:") as q:
        version = await q.once("migrate-7", int).run(migrate)    # everyone gets what the one returned

What it promises
    * A result is recorded once: as soon as there is one, no step is begun any more, and everyone who
      asks, now or in a year, gets that result.
    * Only one runs the step at a time, as far as the store is concerned.  Others who call meanwhile
      wait for its result.
    * A runner that dies lets another try; one whose step raises keeps the error to itself, nothing is
      recorded, and the next may try.

What it does not promise
    * That the step has an effect once.  A runner may die after its step did something and before that
      was recorded, and then the step is done again.  A runner that was stopped may even go on for a
      moment beside the next one: give what it changes the fencing token (`run_fenced`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from quoracy.blocks import Scope
from quoracy.client.codec import codec_of
from quoracy.client.context import Ground, Patience
from quoracy.client.held import Held
from quoracy.client.key_follower import KeyValues, wait_for
from quoracy.client.recipes.lock import Lock
from quoracy.client.session import stop
from quoracy.errors import LeaseLost, QuoracyError
from quoracy.store.model import Delete, DeleteResult, KeyValue, Put, Txn

__all__ = ["Once"]

T = TypeVar("T")


class Once(Generic[T]):
    """A step by name; one object may be shared.

    type: what the step returns; `type(None)` if it returns nothing.
    """

    def __init__(self, ground: Ground, name: str, type: type[T]) -> None:
        self.name = name
        self._ground = ground
        self._key = ground.key(name) + b"/result"
        self._codec = codec_of(type)
        self._lock = Lock(ground, f"{name}/run")

    async def run(self, step: Callable[[], Awaitable[T]], *, timeout: float | None = None) -> T:
        """The result: remembered, or of whoever runs the step now, or of running it here.

        timeout: how long to wait for another who runs it; the step itself may take any time.

        What the step raises is raised here, and nothing is recorded.  Raises `TimedOut`; `LockLost` if
        the session was lost while the step ran: the step is cancelled (a thread's runs to its end), and
        its result does not count; `Indeterminate` if the step was done and it is not known whether its
        result was recorded: ask again.
        """
        return await self._run(lambda _: step(), timeout)

    async def run_fenced(
        self, step: Callable[[int], Awaitable[T]], *, timeout: float | None = None
    ) -> T:
        """`run` for a step that takes the fencing token of its run: larger than of any run before."""
        return await self._run(step, timeout)

    async def is_done(self) -> bool:
        """Whether a result is recorded."""
        return await self._look() is not None

    async def result(self) -> T | None:
        """The result; None: there is none yet."""
        found = await self._look()
        return None if found is None else self._read(found)

    async def forget(self) -> bool:
        """Forget the result, so that the step is done again.  False: there was none."""
        result = await self._ground.write(Txn((), (Delete(self._key),)))
        deleted = result.results[0]
        assert isinstance(deleted, DeleteResult)
        return deleted.deleted > 0

    async def _run(self, step: Callable[[int], Awaitable[T]], timeout: float | None) -> T:
        patience = Patience(self._ground.clock, timeout)
        found = await self._look()
        if found is not None:
            return self._read(found)
        recorded: list[T] = []
        try:
            with Scope() as scope:
                telling = asyncio.create_task(self._tell(scope), name="quoracy-once")
                try:
                    async with self._lock.hold(timeout=patience.left) as held:
                        await stop(telling)  # from here on it is only we who can record anything
                        recorded.append(await self._lead(held, step))
                finally:
                    await stop(telling)
        except _Recorded as told:
            return self._read(told.kv)
        except LeaseLost:
            if not recorded:
                raise
        return recorded[0]

    async def _lead(self, held: Held, step: Callable[[int], Awaitable[T]]) -> T:
        found = await self._look()
        if found is not None:
            return self._read(found)
        data = self._codec.encode(await step(held.token))
        # Everyone gets what can be read back, this caller too; what cannot, is not recorded.
        result = self._codec.decode(self._key, data)
        await held.txn(Put(self._key, data))
        return result

    async def _tell(self, scope: Scope) -> None:
        """End the wait for our turn when another has recorded a result."""
        what = f"the result of {self.name}"
        try:
            kv = await wait_for(self._ground, self._key, self._there, timeout=None, what=what)
        except QuoracyError as error:
            scope.end(error)
        else:
            scope.end(_Recorded(kv))

    def _there(self, kvs: KeyValues) -> KeyValue | None:
        return kvs.get(self._key)

    async def _look(self) -> KeyValue | None:
        self._ground.check()
        kvs = (await self._ground.store.range(self._key)).kvs
        return kvs[0] if kvs else None

    def _read(self, kv: KeyValue) -> T:
        return self._codec.decode(self._key, kv.value)

    def __repr__(self) -> str:
        return f"<Once {self.name}>"


class _Recorded(Exception):
    """Another has recorded the result."""

    def __init__(self, kv: KeyValue) -> None:
        super().__init__()
        self.kv = kv
