"""Clients that work a server of ZooKeeper's protocol and keep book of what it told them.

Each has one session for all its connections, and asks for one thing at a time: what is acknowledged
must be there ever after; what was under way when the connection ended may be there, once.  A session
that ends, an answer that is no answer, a sequence number given twice: each ends the load, and the test.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from tests.faults.zookeeper_client import (
    BAD_VERSION,
    EPHEMERAL,
    PATIENCE_S,
    SEQUENTIAL,
    Lost,
    Refused,
    Session,
    ZkClient,
)

__all__ = ["Ledger", "Load"]

T = TypeVar("T")

CLIENTS_COUNT = 8
_TIMEOUT_MS = 30_000
_DIRECTORIES = ("/seq", "/own", "/twins", "/mine")


class Ledger:
    """What was asked for and what was answered, by the id that each write has."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.acknowledged_count = 0
        self.unsure_count = 0
        self.numbered: dict[str, int] = {}  # the name of a sequential node: which create made it
        self.asked: set[int] = set()  # creates whose answer was lost
        self.deleted: set[str] = set()  # surely
        self.may_be_deleted: set[str] = set()
        # By client: what its own node may hold, the last value acknowledged and those asked for since.
        self.own = {number: {0} for number in range(CLIENTS_COUNT)}
        self.twins: set[int] = set()
        self.steps: set[int] = set()  # values of the shared counter, each acknowledged to one client
        self.steps_unsure_count = 0
        self.ephemerals: dict[str, int] = {}  # and the session

    def next_id(self) -> int:
        return next(self._ids)

    def name(self, name: str, id: int) -> None:
        """A sequential node was seen, or acknowledged: it is that of one create, for ever."""
        assert self.numbered.setdefault(name, id) == id, f"{name} was given twice"

    async def check(self, witness: ZkClient) -> None:
        """Everything that was told, by what the server has; nobody works meanwhile."""
        await self._check_numbered(witness)
        for number, possible in self.own.items():
            value = int(await witness.get(f"/own/{number}"))
            assert value in possible, f"/own/{number} is {value}, and can only be one of {possible}"
        names = set(await witness.children("/twins"))
        for id in self.twins:
            assert {f"{id}-a", f"{id}-b"} <= names, f"the twins {id} were acknowledged"
        for name in names:
            assert f"{name.partition('-')[0]}-{'b' if name.endswith('a') else 'a'}" in names
        data, version = await witness.get_versioned("/shared")
        assert int(data) == version, "the counter was set without a step"
        assert max(self.steps, default=0) <= version
        assert len(self.steps) <= version <= len(self.steps) + self.steps_unsure_count
        mine = {f"/mine/{name}" for name in await witness.children("/mine")}
        assert set(self.ephemerals) <= mine, "an ephemeral node went, its session did not"

    async def _check_numbered(self, witness: ZkClient) -> None:
        names = await witness.children("/seq")
        missing = set(self.numbered) - self.deleted - self.may_be_deleted - set(names)
        assert not missing, f"acknowledged, and not there: {sorted(missing)[:10]}"
        assert not self.deleted & set(names), "deleted, and there again"
        contents = await asyncio.gather(*(witness.get(f"/seq/{name}") for name in names))
        ids = [int(content) for content in contents]
        assert len(set(ids)) == len(ids), "one create made two nodes"
        for name, id in zip(names, ids, strict=True):
            assert name in self.numbered or id in self.asked, f"{name} was made by nobody"
            self.name(name, id)


class Load:
    """The clients; they work while `running` is entered and not paused."""

    def __init__(
        self, port: int, ledger: Ledger, seed: int, *, greeting_s_max: float = PATIENCE_S
    ) -> None:
        """`greeting_s_max` is how long a server may leave a connection without a session."""
        self._port, self._ledger, self._seed = port, ledger, seed
        self._greeting_s_max = greeting_s_max
        self._may_work = asyncio.Event()
        self._idle = [asyncio.Event() for _ in range(CLIENTS_COUNT)]
        self._waiting_for: tuple[int, asyncio.Event] | None = None
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """An error in any client ends the block."""
        first = await ZkClient.connect(self._port)
        for path in _DIRECTORIES:
            await first.create(path)
        await first.create("/shared", b"0")
        for number in range(CLIENTS_COUNT):
            await first.create(f"/own/{number}", b"0")
        await first.close()
        self._may_work.set()
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS_COUNT):
                rng = random.Random(f"{self._seed} client {number}")
                worker = _Worker(number, self._port, self._ledger, rng, self._greeting_s_max)
                group.create_task(self._work(worker, self._idle[number]))
            yield
            self._stopping = True
            self._may_work.set()

    async def acknowledged(self, count: int) -> None:
        """Returns when so many more requests were acknowledged."""
        event = asyncio.Event()
        self._waiting_for = (self._ledger.acknowledged_count + count, event)
        async with asyncio.timeout(PATIENCE_S):
            await event.wait()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Every client is connected, and nothing is under way."""
        self._may_work.clear()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(idle.wait() for idle in self._idle))
        yield
        self._may_work.set()

    async def _work(self, worker: _Worker, idle: asyncio.Event) -> None:
        await worker.connect()
        while not self._stopping:
            if not self._may_work.is_set():
                idle.set()
                await self._may_work.wait()
                idle.clear()
                continue
            await worker.step()
            if self._waiting_for is not None:
                count, event = self._waiting_for
                if self._ledger.acknowledged_count >= count:
                    event.set()
                    self._waiting_for = None
        await worker.close()


class _Worker:
    """One client: one session, one request at a time."""

    def __init__(
        self, number: int, port: int, ledger: Ledger, rng: random.Random, greeting_s_max: float
    ) -> None:
        self._number, self._port, self._ledger, self._rng = number, port, ledger, rng
        self._greeting_s_max = greeting_s_max
        self._client: ZkClient | None = None
        self._session: Session | None = None
        self._zxid = 0
        self._numbered: list[str] = []

    async def connect(self) -> None:
        """As long as it takes; that the session ended would end the load."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    client = await ZkClient.connect(
                        self._port,
                        timeout_ms=_TIMEOUT_MS,
                        session=self._session,
                        zxid=self._zxid,
                        patience_s=self._greeting_s_max,
                    )
                except (OSError, Lost):  # a TimeoutError is an OSError
                    await asyncio.sleep(0.02)  # there is nobody to tell when the server is back
                    continue
                self._client, self._session = client, client.session
                return

    async def close(self) -> None:
        assert self._client is not None
        self._ledger.ephemerals = {
            path: owner
            for path, owner in self._ledger.ephemerals.items()
            if owner != self._client.session.id
        }
        await self._client.close()

    async def step(self) -> None:
        assert self._client is not None
        client, roll = self._client, self._rng.random()
        if roll < 0.3:
            await self._create(client)
        elif roll < 0.4 and self._numbered:
            await self._delete(client)
        elif roll < 0.6:
            await self._set_own(client)
        elif roll < 0.8:
            await self._count(client)
        elif roll < 0.95:
            await self._create_twins(client)
        else:
            await self._create_ephemeral(client)
        if client.closed.is_set():
            self._zxid = client.zxid
            await client.aborted()
            await self.connect()

    async def _create(self, client: ZkClient) -> None:
        id = self._ledger.next_id()
        self._ledger.asked.add(id)
        path = await self._told(client.create("/seq/n-", b"%d" % id, SEQUENTIAL))
        if path is not None:
            name = path.removeprefix("/seq/")
            self._ledger.name(name, id)
            self._ledger.asked.discard(id)
            self._numbered.append(name)

    async def _delete(self, client: ZkClient) -> None:
        name = self._numbered.pop(self._rng.randrange(len(self._numbered)))
        self._ledger.may_be_deleted.add(name)
        done = await self._told(_done(client.delete(f"/seq/{name}")))
        if done is not None:
            self._ledger.may_be_deleted.discard(name)
            self._ledger.deleted.add(name)

    async def _set_own(self, client: ZkClient) -> None:
        value, possible = self._ledger.next_id(), self._ledger.own[self._number]
        possible.add(value)
        if await self._told(_done(client.set(f"/own/{self._number}", b"%d" % value))) is not None:
            possible.clear()
            possible.add(value)

    async def _count(self, client: ZkClient) -> None:
        """Add one to a number that everybody adds to, if nobody else was faster."""
        read = await self._told(client.get_versioned("/shared"))
        if read is None:
            return
        value, version = int(read[0]) + 1, read[1]
        try:
            done = await self._told(_done(client.set("/shared", b"%d" % value, version)))
        except Refused as refusal:
            assert refusal.code == BAD_VERSION, refusal
            return
        if done is None:
            self._ledger.steps_unsure_count += 1
            return
        assert value not in self._ledger.steps, f"two clients counted up to {value}"
        self._ledger.steps.add(value)

    async def _create_twins(self, client: ZkClient) -> None:
        id = self._ledger.next_id()
        if await self._told(_done(client.create_all(f"/twins/{id}-a", f"/twins/{id}-b"))) is not None:
            self._ledger.twins.add(id)

    async def _create_ephemeral(self, client: ZkClient) -> None:
        path = await self._told(client.create("/mine/e-", b"", EPHEMERAL | SEQUENTIAL))
        if path is not None:
            assert path not in self._ledger.ephemerals, f"{path} was given twice"
            self._ledger.ephemerals[path] = client.session.id

    async def _told(self, asked: Awaitable[T]) -> T | None:
        """The answer; None if the connection ended instead."""
        try:
            answer = await asked
        except Lost:
            self._ledger.unsure_count += 1
            return None
        self._ledger.acknowledged_count += 1
        return answer


async def _done(call: Awaitable[None]) -> bool:
    await call
    return True
