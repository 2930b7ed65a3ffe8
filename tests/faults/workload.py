"""A child process that works a store as hard as it can and tells everything it learns.

Several tasks write, read, lease and compact at once.  Each value is written once only, so every
version names the operation that made it.

    python -m tests.faults.workload OPTIONS
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from collections.abc import Awaitable, Callable

import msgspec

from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded
from quoracy.errors import LeaseNotFound, Rejected
from quoracy.store.model import Delete, DeleteResult, KeyRange, LeaseId, Op, Put, PutResult, Txn
from quoracy.store.rules import Limits
from tests.faults.reports import (
    Acknowledged,
    Asked,
    Closed,
    Closing,
    Compact,
    End,
    Grant,
    Happened,
    Opened,
    Opening,
    Operation,
    Read,
    Refused,
    Remove,
    Write,
    command,
    report,
)

__all__ = ["Options"]

_COMPACT_BEHIND = 60  # never compact what the test may not have heard of yet
_LEASES_KEPT = 6


class Options(msgspec.Struct, frozen=True):
    path: str
    seed: int
    round: int
    revisions_max: int = 300  # small, so that auto-compaction and purging are always under way
    value_bytes_max: int = 200
    tasks: int = 4
    operations_max: int | None = None  # by each task that writes; then it closes
    compact: bool = True
    watch: bool = True
    lengthen_log: bool = True  # False: opening takes fewer system calls, commits take others
    log_segment_bytes: int = log_length.SEGMENT_BYTES  # of a log that is begun


class Workload:
    """The tasks, and what they know together."""

    def __init__(self, store: EmbeddedStore, options: Options, *, newest: int) -> None:
        self._store = store
        self._options = options
        self._newest = newest  # acknowledged
        self._ids = itertools.count(options.round * 1_000_000)
        self._lease_ids = itertools.count(options.round * 1_000 + 1)

    async def run(self) -> None:
        """Until the test says to close, or each task has done its operations."""
        options = self._options
        async with asyncio.TaskGroup() as group:
            numbers = range(options.tasks)
            background = [
                group.create_task(self._repeat(step, number))
                for number in numbers
                for step in ((self._read, self._keep_house) if options.compact else (self._read,))
            ]
            if options.watch:
                background.append(group.create_task(self._watch()))
            working = [
                group.create_task(self._repeat(step, number, options.operations_max))
                for number in numbers
                for step in (self._put, self._twins, self._lease)
            ]
            all_done = group.create_task(_all_done(working))
            told_to_close = group.create_task(_told_to_close())
            await asyncio.wait([all_done, told_to_close], return_when=asyncio.FIRST_COMPLETED)
            for task in [*background, *working, all_done, told_to_close]:
                task.cancel()

    async def _repeat(
        self, step: Callable[[random.Random], Awaitable[None]], number: int, times: int | None = None
    ) -> None:
        rng = random.Random(f"{self._options.seed} {self._options.round} {step.__name__} {number}")
        for _ in itertools.islice(itertools.count(), times):
            await step(rng)
            await asyncio.sleep(0)

    # -- steps -----------------------------------------------------------------------------

    async def _put(self, rng: random.Random) -> None:
        key = b"p/%d" % rng.randrange(20)
        roll = rng.random()
        if roll < 0.75:
            await self._do(Write(((key, self._value(rng)),)))
        elif roll < 0.95:
            await self._do(Write(((key, None),)))
        else:
            await self._do(Remove(b"p/%d" % rng.randrange(3)))

    async def _twins(self, rng: random.Random) -> None:
        """Three keys that are always equal; not in key order, so that their order can be told."""
        stem = b"t/%d/" % rng.randrange(6)
        value = self._value(rng) if rng.random() < 0.8 else None
        names = [b"b", b"a", b"c"]
        rng.shuffle(names)
        await self._do(Write(tuple((stem + name, value) for name in names)))

    async def _lease(self, rng: random.Random) -> None:
        """The whole life of a lease; one that the test cuts short is found by the next child."""
        lease = next(self._lease_ids)
        expires = rng.random() < 0.3
        if not await self._do(Grant(lease, 0.2 if expires else 60.0 + lease % 7, expires=expires)):
            return
        keys = [b"l/%d/%d" % (lease, number) for number in range(rng.randint(0, 3))]
        rng.shuffle(keys)
        if keys:
            await self._do(Write(tuple((key, self._value(rng)) for key in keys), lease))
        await asyncio.sleep(rng.random() * 0.03)
        if not expires:
            await self._do(End(lease), changes=bool(keys))

    async def tidy(self) -> None:
        """End most of the leases that earlier children left."""
        for lease in (await self._store.leases())[:-_LEASES_KEPT]:
            try:
                had_keys = (await self._store.time_to_live(lease, keys=True)).keys
            except LeaseNotFound:
                continue  # one of those that end by themselves
            await self._do(End(lease), changes=bool(had_keys))

    async def _read(self, rng: random.Random) -> None:
        prefix = rng.choice([b"t/%d/" % rng.randrange(6), b"p/%d" % rng.randrange(20), b"l/"])
        least = self._newest
        result = await self._store.range(KeyRange.prefix(prefix))
        report(Read(prefix, least, result.revision, result.kvs))
        await asyncio.sleep(rng.random() * 0.002)

    async def _keep_house(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.random() * 0.2)
        revision = self._newest - _COMPACT_BEHIND - rng.randrange(100)
        if revision > 1:
            await self._do(Compact(revision))

    async def _watch(self) -> None:
        async with self._store.watch(KeyRange.everything()) as batches:
            async for batch in batches:
                report(Happened(batch.revision, tuple(event.kv for event in batch.events)))

    # -- asking ----------------------------------------------------------------------------

    def _value(self, rng: random.Random) -> bytes:
        # The number of the operation that is asked for next makes it unlike any other.
        unique = b"%d" % next(self._ids)
        return unique + b"." * rng.randrange(self._options.value_bytes_max)

    async def _do(self, operation: Operation, *, changes: bool = True) -> bool:
        """Send it and tell what comes of it; the end of a lease without keys changes nothing."""
        id = next(self._ids)
        report(Asked(id, operation))
        try:
            revision = await self._send(operation)
        except Rejected as error:
            report(Refused(id, repr(error)))
            return False
        report(Acknowledged(id, revision if changes else None))
        self._newest = max(self._newest, revision or 0)
        return True

    async def _send(self, operation: Operation) -> int | None:
        store = self._store
        match operation:
            case Write(((key, bytes(value)),), lease):
                return (await store.put(key, value, lease=lease)).revision
            case Write(((key, None),)):
                deleted = await store.delete(key)
                return deleted.revision if deleted.deleted else None
            case Write(parts, lease):
                ops: tuple[Op, ...] = tuple(
                    Delete(key) if value is None else Put(key, value, lease) for key, value in parts
                )
                before = (Delete(b"nothing/here"),)
                result = await store.txn(Txn(then=before + ops))
                changed = any(
                    isinstance(part, PutResult) or (isinstance(part, DeleteResult) and part.deleted)
                    for part in result.results
                )
                return result.revision if changed else None
            case Remove(prefix):
                deleted = await store.delete(KeyRange.prefix(prefix))
                return deleted.revision if deleted.deleted else None
            case Grant(lease, ttl_s):
                await store.grant(ttl_s, id=LeaseId(lease))
            case End(lease):
                return await store.revoke(lease)
            case Compact(revision):
                await store.compact(revision)
        return None


async def _all_done(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


async def _told_to_close() -> None:
    await command()


async def main(options: Options) -> None:
    report(Opening(os.getpid()))
    if not options.lengthen_log:
        log_length.FREE_BYTES_MIN = sys.maxsize
    log_length.SEGMENT_BYTES = options.log_segment_bytes
    async with open_embedded(
        f"sqlite:{options.path}",
        limits=Limits(lease_ttl_min_s=0.1),
        retention=Retention(revisions_max=options.revisions_max, age_max_s=None),
    ) as store:
        state = await store.hash()
        report(Opened(state.revision, state.compact_revision, state.digest))
        workload = Workload(store, options, newest=state.revision)
        await workload.tidy()
        await workload.run()
        report(Closing())
    report(Closed())


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Options)))
