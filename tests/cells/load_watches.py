"""Watchers of everything: some from the first revision to the last, some opened again and again.

Whoever opens a watch at a revision of the past must be told what happened since, by whichever node, on
whatever that node stands; whoever holds one must be told everything that happens, whatever happens to
the node.  What each watcher was told is compared with etcd's own history, revision by revision.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from quoracy.engines.etcd.opening import open_etcd
from quoracy.errors import Compacted, Unavailable
from quoracy.remote.store import open_remote
from quoracy.store.api import Store, Watch
from quoracy.store.model import Event, EventKind, KeyRange
from tests.cells.load import Ending, Settings, addresses_of, wait_answering
from tests.checkers.watching import Change

_TIMEOUT_S = 1.0
_PAUSE_S = 0.05
# How long a watch may take to tell what has happened when nothing is broken any more.
_CATCHES_UP_S_MAX = 20.0
_PREFIXES = ("", "r/", "s/")


@dataclass(slots=True)
class Watched:
    """What one watch showed, from its opening to its end."""

    watcher: str
    prefix: str
    began_after: int
    batches: list[tuple[int, tuple[Change, ...]]] = field(default_factory=list)
    reached: int | None = None  # it said so, or was asked to go on until there and did
    compacted: bool = False  # it ended because history was thrown away
    opened: float = 0.0


class _Watcher:
    """One watch at a time on one store."""

    def __init__(self, name: str, store: Store, rng: random.Random) -> None:
        self._name, self._store, self._rng = name, store, rng
        self._newest = 0
        self.watched: list[Watched] = []

    async def steady(self, ending: Ending) -> None:
        """One watch from the first revision on; another only after history was thrown away."""
        after = 0
        while True:
            record = self._begin("", after)
            if await self._follow(record, ending, for_s=None):
                return
            if record.compacted:
                after = await self._oldest_after(ending)

    async def wandering(self, ending: Ending) -> None:
        """Watches of a second or two, each from anywhere in what is known to have happened."""
        while not ending:
            after = max(0, self._newest - int(self._rng.expovariate(1 / 200)))
            record = self._begin(self._rng.choice(_PREFIXES), after)
            await self._follow(record, ending, for_s=self._rng.uniform(0.3, 2.0))

    def _begin(self, prefix: str, after: int) -> Watched:
        record = Watched(f"{self._name}#{len(self.watched)}", prefix, after, opened=time.monotonic())
        self.watched.append(record)
        return record

    async def _follow(self, record: Watched, ending: Ending, *, for_s: float | None) -> bool:
        """Whether it went on until the end."""
        keys = KeyRange.prefix(record.prefix.encode()) if record.prefix else KeyRange.everything()
        try:
            async with self._store.watch(keys, after=record.began_after) as watch:
                reading = asyncio.create_task(self._read(watch, record))
                try:
                    ended = await _within(reading, ending, for_s)
                    if ended and for_s is None:
                        await self._catch_up(record, reading, watch, ending.revision)
                        return True
                finally:
                    reading.cancel()
                    await asyncio.wait([reading])
        except Compacted:
            record.compacted = True
        except Unavailable:
            # A watch is opened by a request, which may be refused; one that is open is not ended so.
            assert not record.batches, f"{record.watcher} ended after {record.batches[-1][0]}"
            await asyncio.sleep(_PAUSE_S)
        return False

    async def _read(self, watch: Watch, record: Watched) -> None:
        async for batch in watch:
            self._newest = max(self._newest, batch.revision)
            if batch.events:
                changes = tuple(_change(event) for event in batch.events)
                record.batches.append((batch.revision, changes))

    async def _catch_up(
        self, record: Watched, reading: asyncio.Task[None], watch: Watch, revision: int
    ) -> None:
        """The end is a change, so a watch of everything sees it."""
        deadline = time.monotonic() + _CATCHES_UP_S_MAX
        while self._newest < revision and time.monotonic() < deadline:
            if reading.done():
                await reading
            await asyncio.sleep(_PAUSE_S)
        record.reached = revision

    async def _oldest_after(self, ending: Ending) -> int:
        """Where a new watch can begin, by a read."""
        while True:
            try:
                return (await self._store.range(b"r/", limit=1)).revision
            except Unavailable:
                await asyncio.sleep(_PAUSE_S)


async def _within(reading: asyncio.Task[None], ending: Ending, for_s: float | None) -> bool:
    """Wait for the end, as long as that; True if it came.  Raises what ended the watch."""
    waiting = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait([reading, waiting], timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            await reading
        return waiting.done()
    finally:
        waiting.cancel()


def _change(event: Event) -> Change:
    # As text, since books are JSON; keys are ours, and all of them are latin.
    key = event.kv.key.decode("latin-1")
    if event.kind is EventKind.DELETE:
        return Change("delete", key)
    return Change("put", key, event.kv.value)


async def main(settings: Settings) -> None:
    ending = Ending()
    async with AsyncExitStack() as stack:
        stores: dict[str, Store] = {}
        for number, addresses in enumerate(settings.stores):
            remote = open_remote(addresses_of(addresses), timeout_s=_TIMEOUT_S)
            stores[f"remote {number}"] = await stack.enter_async_context(remote)
        for number in range(settings.engines):
            engine = open_etcd(addresses_of(settings.members), timeout_s=_TIMEOUT_S)
            stores[f"engine {number}"] = await stack.enter_async_context(engine)
        for store in stores.values():
            await wait_answering(store)
        watchers: list[_Watcher] = []
        settings.tell_ready()
        async with asyncio.TaskGroup() as group:
            for name, store in stores.items():
                rng = random.Random(f"{settings.seed} {name}")
                steady = _Watcher(f"{name} steady", store, rng)
                wandering = _Watcher(f"{name} wandering", store, rng)
                watchers += [steady, wandering]
                group.create_task(steady.steady(ending))
                group.create_task(wandering.wandering(ending))
    for watcher in watchers:
        settings.write("watched", watcher.watched)


if __name__ == "__main__":
    asyncio.run(main(Settings.read()))
