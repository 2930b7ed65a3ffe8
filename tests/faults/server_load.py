"""Fifty clients of one server, each with a store of its own, that work it and keep book.

They know nothing of when it is killed: a call is answered, or fails with an error that says whether it
was applied, and the client goes on with the next.  Any other error ends the load, and the test.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from quoracy.errors import Indeterminate, Unavailable
from quoracy.opening import open_store
from quoracy.store.api import Store, Watch
from quoracy.store.model import KeyRange, LeaseId, Put, Txn
from quoracy.store.rules import Limits
from tests.faults.server_ledger import Grant, Ledger, Outcome, Watched, Write

__all__ = ["CLIENTS_COUNT", "Load"]

T = TypeVar("T")

CLIENTS_COUNT = 50
_SHARED_KEYS = 20
_TWINS = 6
_LEASES_MAX = 20  # by one client
_SILENCE_S_MAX = 90.0

# What a call may take, by client: less than a restart, about as long, and far longer.  The last watch.
_TIMEOUTS_S = (0.15, 30.0, 1.0, 30.0)

# A client whose watch of everything reads slowly, and has little room for what it did not read.
_LAGGARD = 7
_LAGGARD_EVENTS_MAX = 50


class Load:
    """The clients, and what they know together."""

    def __init__(self, url: str, ledger: Ledger, seed: int) -> None:
        self._url, self._ledger, self._seed = url, ledger, seed
        self._stopping = False
        self._final_revision: int | None = None
        self._streams: list[Watch] = []
        self._working: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._waiting_for: tuple[int, asyncio.Event] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work while the block runs; an error in any client ends both.

        Entered when every client is connected and watches.  Left when every call has ended by itself
        and every watch has shown all there is: the server must be there for that.
        """
        async with AsyncExitStack() as stores, asyncio.TaskGroup() as group:
            for number in range(CLIENTS_COUNT):
                limits = Limits(watch_buffer_events_max=_LAGGARD_EVENTS_MAX)
                store = await stores.enter_async_context(
                    open_store(
                        self._url,
                        timeout_s=_TIMEOUTS_S[number % len(_TIMEOUTS_S)],
                        limits=limits if number == _LAGGARD else None,
                    )
                )
                rng = random.Random(f"{self._seed} client {number}")
                for keys, prev_kv in _watches_of(number):
                    stream = await stores.enter_async_context(store.watch(keys, prev_kv=prev_kv))
                    watched = Watched(stream.keys, stream.revision, prev_kv)
                    self._ledger.watched.append(watched)
                    self._streams.append(stream)
                    lag_s = 0.002 if number == _LAGGARD else 0.0
                    self._watching.append(group.create_task(self._watch(stream, watched, lag_s)))
                client = _Client(number, self._url, store, self._ledger, rng)
                self._working.append(group.create_task(self._work(client)))
            yield
            await self._stop()

    async def acknowledged(self, count: int) -> None:
        """Returns when so many more writes were acknowledged."""
        event = asyncio.Event()
        self._waiting_for = (self._ledger.acknowledged_count + count, event)
        try:
            async with asyncio.timeout(_SILENCE_S_MAX):
                await event.wait()
        except TimeoutError as error:
            raise AssertionError(f"{count} writes were not acknowledged any more") from error

    async def _work(self, client: _Client) -> None:
        while not self._stopping:
            await client.step()
            if self._waiting_for is not None:
                count, event = self._waiting_for
                if self._ledger.acknowledged_count >= count:
                    event.set()
                    self._waiting_for = None

    async def _watch(self, stream: Watch, watched: Watched, lag_s: float) -> None:
        async for batch in stream:
            watched.batches.append(batch)
            self._ledger.newest = max(self._ledger.newest, batch.revision)
            if not batch.events and self._final_revision is not None:
                if batch.revision >= self._final_revision:
                    return
                stream.request_progress()  # this one was asked for earlier
            if lag_s and self._final_revision is None:
                await asyncio.sleep(lag_s)

    async def _stop(self) -> None:
        self._stopping = True
        await asyncio.wait(self._working)
        async with open_store(self._url, timeout_s=30.0) as store:
            self._final_revision = (await store.range(b"load", count_only=True)).revision
        for stream in self._streams:
            stream.request_progress()
        await asyncio.wait(self._watching)


def _watches_of(number: int) -> Iterator[tuple[KeyRange | bytes, bool]]:
    """What a client watches, and whether with previous versions."""
    if number % 2 == 0:
        return  # it has not the patience that entering a watch may take
    for each in (number, (number + 1) % CLIENTS_COUNT):
        yield b"load/own/%d" % each, False
        yield b"load/shared/%d" % (each % _SHARED_KEYS), each % 4 == 0
    if number % 10 == 1:
        yield KeyRange.prefix(b"load/"), number == 1
    if number % 10 == 5:
        yield KeyRange.prefix(b"load/twins/%d/" % (number % _TWINS)), False
    if number == _LAGGARD:
        yield KeyRange.everything(), False


class _Client:
    """One store, one call at a time, and what became of each."""

    def __init__(self, number: int, url: str, store: Store, ledger: Ledger, rng: random.Random) -> None:
        self._number, self._url, self._store = number, url, store
        self._ledger, self._rng = ledger, rng
        self._lease_ids = itertools.count(number * 10_000 + 1)
        self._leases: list[int] = []
        self._once: list[bytes] = []  # keys of our own that are there, and can be deleted

    async def step(self) -> None:
        rng = self._rng
        roll = rng.random()
        if roll < 0.45:
            await self._put(rng.choice([b"load/own/%d" % self._number, self._shared_key()]))
        elif roll < 0.65:
            await self._twins()
        elif roll < 0.72:
            await self._put_once()
        elif roll < 0.78 and self._once:
            await self._delete()
        elif roll < 0.82 and len(self._leases) < _LEASES_MAX:
            await self._grant()
        elif roll < 0.86 and self._leases:
            await self._keep_alive(rng.choice(self._leases))
        elif roll < 0.88:
            await self._hang_up()
        else:
            await self._read()
        # So that at any time some clients ask, some wait and some think.
        await asyncio.sleep(rng.random() * 0.04)

    # -- steps ---------------------------------------------------------------------------------

    async def _put(self, key: bytes) -> None:
        id, value = self._value()
        lease = self._rng.choice(self._leases) if self._leases and self._rng.random() < 0.2 else 0
        write = self._ledger.ask(id, (key, value), lease=lease)
        put = self._store.put(key, value, lease=lease)
        if self._rng.random() < 0.03:
            # Given up by the caller: whether it was applied is open.
            write.outcome, write.given_up = Outcome.UNSURE, True
            try:
                async with asyncio.timeout(self._rng.random() * 0.01):
                    result = await put
            except (TimeoutError, Unavailable, Indeterminate):
                return
        else:
            done = await self._settle(write, put)
            if done is None:
                return
            result = done
        self._ledger.acknowledge(write, result.revision)

    async def _twins(self) -> None:
        """Three keys that are always equal; not in key order, so that their order can be told."""
        id, value = self._value()
        stem = b"load/twins/%d/" % self._rng.randrange(_TWINS)
        keys = [stem + name for name in (b"b", b"a", b"c")]
        self._rng.shuffle(keys)
        write = self._ledger.ask(id, *((key, value) for key in keys))
        result = await self._settle(
            write, self._store.txn(Txn(then=tuple(Put(key, value) for key in keys)))
        )
        if result is not None:
            self._ledger.acknowledge(write, result.revision)

    async def _put_once(self) -> None:
        id, value = self._value()
        key = b"load/once/%d" % id
        write = self._ledger.ask(id, (key, value))
        result = await self._settle(write, self._store.put(key, value))
        if result is not None:
            self._ledger.acknowledge(write, result.revision)
            self._once.append(key)

    async def _delete(self) -> None:
        key = self._once.pop(self._rng.randrange(len(self._once)))
        write = self._ledger.ask(self._ledger.next_id(), (key, None))
        result = await self._settle(write, self._store.delete(key))
        if result is not None:
            assert result.deleted == 1, f"{key!r} was acknowledged, and there was nothing to delete"
            self._ledger.acknowledge(write, result.revision)

    async def _grant(self) -> None:
        lease = next(self._lease_ids)
        grant = self._ledger.grants[lease] = Grant(lease, 3600.0 + lease)
        if await self._settle(grant, self._store.grant(grant.ttl_s, id=LeaseId(lease))) is not None:
            grant.outcome = Outcome.DONE
            self._leases.append(lease)

    async def _keep_alive(self, lease: int) -> None:
        # LeaseNotFound would end the load: these have an hour and more.
        try:
            kept = await self._store.keep_alive(lease)
        except (Unavailable, Indeterminate):
            return
        assert kept.ttl_s == self._ledger.grants[lease].ttl_s

    async def _hang_up(self) -> None:
        """Close a store while calls of it are under way."""
        async with asyncio.TaskGroup() as calls, open_store(self._url, timeout_s=1.0) as store:
            try:
                await store.range(b"load")  # so that it is connected
            except Unavailable:
                return
            for _ in range(3):
                calls.create_task(self._put_with(store))
            await asyncio.sleep(self._rng.choice([0.0, self._rng.random() * 0.003]))

    async def _put_with(self, store: Store) -> None:
        id, value = self._value()
        key = b"load/once/%d" % id
        write = self._ledger.ask(id, (key, value))
        write.given_up = True
        result = await self._settle(write, store.put(key, value))
        if result is not None:
            self._ledger.acknowledge(write, result.revision)

    async def _read(self) -> None:
        keys = self._rng.choice(
            [
                KeyRange.exactly(self._shared_key()),
                KeyRange.exactly(b"load/own/%d" % self._number),
                KeyRange.prefix(b"load/twins/%d/" % self._rng.randrange(_TWINS)),
            ]
        )
        least = self._ledger.newest
        try:
            result = await self._store.range(keys)
        except Unavailable:
            return
        self._ledger.newest = max(self._ledger.newest, result.revision)
        self._ledger.reads.append((keys, least, result))

    # -- asking --------------------------------------------------------------------------------

    def _shared_key(self) -> bytes:
        return b"load/shared/%d" % self._rng.randrange(_SHARED_KEYS)

    def _value(self) -> tuple[int, bytes]:
        """One that is written by one request only; now and then too large for one packet."""
        id = self._ledger.next_id()
        sizes = ((0, 200), (200, 3000), (100_000, 300_000))
        smallest, largest = self._rng.choices(sizes, weights=(90, 9, 1))[0]
        return id, b"%d:" % id + b"." * self._rng.randint(smallest, largest)

    async def _settle(self, asked: Write | Grant, call: Awaitable[T]) -> T | None:
        """The answer, or None and the outcome that the error stands for."""
        try:
            return await call
        except Unavailable as error:
            asked.outcome = Outcome.NOT_DONE
            asked.error = str(error)
        except Indeterminate as error:
            asked.outcome = Outcome.UNSURE
            asked.error = str(error)
        return None
