"""A real store with somebody in between: who notes what is watched, and makes trouble on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Unpack, cast

from quoracy.errors import Indeterminate, Unavailable
from quoracy.store.api import Store, Watch, WatchOptions
from quoracy.store.completion import Completion
from quoracy.store.contention import wait_by_watching
from quoracy.store.coroutines import complete_by_task
from quoracy.store.model import Delete, Keys, Put, Revision, Txn, TxnResult

__all__ = ["Recording", "Trouble", "writes_to"]


class Trouble(Enum):
    """What happens to a transaction."""

    REFUSED = "not applied, and that is said"
    ANSWER_LOST = "applied, and nobody is told"
    LATE = "nobody is told; it is applied when the test says so"
    OVERTAKEN = "applied; history up to then is forgotten before the answer is there"


class Recording:
    """Everything goes on to `store`; the keys of each watch are noted in `watched`.

    It waits for the front of a queue with watches, so that every transaction and every watch comes
    through here.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._planned: list[tuple[Trouble, Callable[[Txn], bool]]] = []
        self._before: list[tuple[Callable[[], Awaitable[None]], Callable[[Txn], bool]]] = []
        self._late: list[Txn] = []
        self.watched: list[Keys] = []
        self.met = asyncio.Event()

    def plan(self, trouble: Trouble, when: Callable[[Txn], bool]) -> None:
        """Trouble for the first transaction for which `when` is true; `met` is set then."""
        self._planned.append((trouble, when))
        self.met.clear()

    def interleave(self, what: Callable[[], Awaitable[None]], when: Callable[[Txn], bool]) -> None:
        """Let something happen right before the first transaction for which `when` is true."""
        self._before.append((what, when))

    async def arrive(self) -> None:
        """Apply what is late."""
        while self._late:
            await self._store.txn(self._late.pop(0))

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> Watch:
        self.watched.append(keys)
        return self._store.watch(keys, **options)

    def submit(self, op: Put | Delete | Txn, completion: Completion) -> None:
        if not isinstance(op, Txn):
            self._store.submit(op, completion)
            return
        complete_by_task(self.txn(op), completion)

    async def txn(self, txn: Txn) -> TxnResult:
        before = next((each for each in self._before if each[1](txn)), None)
        if before is not None:
            self._before.remove(before)
            await before[0]()
        trouble = next((each for each in self._planned if each[1](txn)), None)
        if trouble is None:
            return await self._store.txn(txn)
        self._planned.remove(trouble)
        self.met.set()
        if trouble[0] is Trouble.REFUSED:
            raise Unavailable("refused for the test")
        if trouble[0] is Trouble.LATE:
            self._late.append(txn)
            raise Indeterminate("late, for the test")
        result = await self._store.txn(txn)
        if trouble[0] is Trouble.ANSWER_LOST:
            raise Indeterminate("the answer was lost for the test")
        for _ in range(2):  # the revision after that of the answer is gone as well
            revision = (await self._store.put(b"\0overtaking")).revision
        await self._store.compact(revision)
        return result

    async def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        return await wait_by_watching(cast("Store", self), name, key, token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def writes_to(part: bytes, *, deletes: bool = False) -> Callable[[Txn], bool]:
    """Whether a transaction would put (or else delete) a key whose name has that in it."""

    def does(txn: Txn) -> bool:
        for op in txn.then:
            if isinstance(op, Put) and not deletes and part in op.key:
                return True
            if isinstance(op, Delete) and deletes and isinstance(op.keys, bytes) and part in op.keys:
                return True
        return False

    return does
