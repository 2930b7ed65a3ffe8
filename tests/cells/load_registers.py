"""Clients of the store: registers read, written, compared and swapped; elements added to a set.

Most clients know one host, some know all; some have the engine in this process.  A request has a
second: whoever waits longer for an answer than faults last sees none of them.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack

from quoracy.engines.etcd.opening import open_etcd
from quoracy.errors import Indeterminate, Unavailable
from quoracy.remote.store import open_remote
from quoracy.store.api import Store
from quoracy.store.model import Compare, Put, Range, RangeResult, Txn
from tests.cells.load import Ending, Refused, Settings, addresses_of, epoch, wait_answering
from tests.checkers.acknowledged import Add, Outcome
from tests.checkers.history import Kind, Op

_REGISTERS_COUNT = 4
_TIMEOUT_S = 1.0
# After a refusal: who is told "not now" does not ask again in the same moment.
_PAUSE_S = 0.03


class _Client:
    """One client: one request at a time, and a book."""

    def __init__(self, number: int, store: Store, settings: Settings) -> None:
        self._number, self._store, self._settings = number, store, settings
        self._rng = random.Random(f"{settings.seed} store client {number}")
        self._values = 0
        self._known: dict[str, bytes | None] = {}
        self.ops: list[Op] = []
        self.stale_reads: list[Op] = []
        self.adds: list[Add] = []
        self.refused: list[Refused] = []

    async def run(self, ending: Ending) -> None:
        while not ending:
            key = f"r/{epoch(self._settings.began)}-{self._rng.randrange(_REGISTERS_COUNT)}"
            try:
                await self._step(key)
            except Unavailable:
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(self._rng.expovariate(self._settings.rate))

    def write_book(self) -> None:
        self._settings.write("ops", self.ops)
        self._settings.write("stale", self.stale_reads)
        self._settings.write("adds", self.adds)
        self._settings.write("refused", self.refused)

    async def _step(self, key: str) -> None:
        roll = self._rng.random()
        if roll < 0.35:
            await self._read(key)
        elif roll < 0.45:
            await self._read_stale(key)
        elif roll < 0.60:
            await self._put(key)
        elif roll < 0.63:
            await self._delete(key)
        elif roll < 0.85:
            await self._swap(key)
        else:
            await self._add()

    async def _read(self, key: str) -> None:
        call = time.monotonic()
        result = await self._store.range(key.encode())
        self._note(call, "read", key, _value(result), revision=result.revision)

    async def _read_stale(self, key: str) -> None:
        """What it shows was so once; a client of one host never sees time go back."""
        call = time.monotonic()
        result = await self._store.range(key.encode(), serializable=True)
        self.stale_reads.append(
            Op(
                self._number,
                call,
                time.monotonic(),
                "read",
                key,
                _value(result),
                revision=result.revision,
            )
        )

    async def _put(self, key: str) -> None:
        call, value = time.monotonic(), self._new_value()
        try:
            result = await self._store.put(key.encode(), value)
        except Indeterminate:
            self._note_unknown(call, "write", key, value)
        except Unavailable:
            self.refused.append(Refused(key, value))
            raise
        else:
            self._note(call, "write", key, value, revision=result.revision)

    async def _delete(self, key: str) -> None:
        call = time.monotonic()
        try:
            result = await self._store.delete(key.encode())
        except Indeterminate:
            self._note_unknown(call, "write", key, None)
        else:
            # Without anything to delete it is a read, and the revision is not its own.
            kind: Kind = "write" if result.deleted else "read"
            self._note(call, kind, key, None, revision=result.revision)

    async def _swap(self, key: str) -> None:
        """By the value it saw last, which may be long gone; sometimes by one it has just read."""
        if self._rng.random() < 0.5:
            await self._read(key)
        expected, value = self._known.get(key), self._new_value()
        name, call = key.encode(), time.monotonic()
        compare = Compare.missing(name) if expected is None else Compare.value(name, "=", expected)
        try:
            result = await self._store.txn(Txn((compare,), (Put(name, value),), (Range(name),)))
        except Indeterminate:
            self._note_unknown(call, "cas", key, value, expected)
            return
        except Unavailable:
            self.refused.append(Refused(key, value))
            raise
        self._note(call, "cas", key, value, expected, ok=result.succeeded, revision=result.revision)
        if not result.succeeded:
            found = result.results[0]
            assert isinstance(found, RangeResult)
            self._known[key] = _value(found)

    async def _add(self) -> None:
        self._values += 1
        element = f"s/{self._number}/{self._values}".encode()
        outcome: Outcome = "refused"
        try:
            await self._store.put(element, element)
            outcome = "acknowledged"
        except Indeterminate:
            outcome = "unknown"
        finally:
            self.adds.append(Add("s/", element, outcome))

    def _new_value(self) -> bytes:
        """One that nobody else writes, ever."""
        self._values += 1
        return f"{self._number}.{self._values}".encode()

    def _note(
        self,
        call: float,
        kind: Kind,
        key: str,
        value: bytes | None,
        expected: bytes | None = None,
        *,
        ok: bool = True,
        revision: int,
    ) -> None:
        done = time.monotonic()
        self.ops.append(Op(self._number, call, done, kind, key, value, expected, ok, revision))
        if ok:
            self._known[key] = value

    def _note_unknown(
        self, call: float, kind: Kind, key: str, value: bytes | None, expected: bytes | None = None
    ) -> None:
        self.ops.append(Op(self._number, call, None, kind, key, value, expected))


def _value(result: RangeResult) -> bytes | None:
    return result.kvs[0].value if result.kvs else None


async def main(settings: Settings) -> None:
    ending = Ending()
    async with AsyncExitStack() as stack:
        stores: list[Store] = []
        for addresses in settings.stores:
            remote = open_remote(addresses_of(addresses), timeout_s=_TIMEOUT_S)
            stores.append(await stack.enter_async_context(remote))
        for _ in range(settings.engines):
            engine = open_etcd(addresses_of(settings.members), timeout_s=_TIMEOUT_S)
            stores.append(await stack.enter_async_context(engine))
        for store in stores:
            await wait_answering(store)
        clients = [
            _Client(settings.clients_from + number, store, settings)
            for number, store in enumerate(stores)
        ]
        settings.tell_ready()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(ending))
    for client in clients:
        client.write_book()


if __name__ == "__main__":
    asyncio.run(main(Settings.read()))
