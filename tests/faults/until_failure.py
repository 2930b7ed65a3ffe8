"""A child process that writes until its disk fails, then tells how the store behaves after that.

python -m tests.faults.until_failure OPTIONS
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

import msgspec

from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded
from quoracy.errors import Indeterminate, QuoracyError, Unavailable
from quoracy.store.model import Alarm, KeyRange, LeaseId
from quoracy.store.rules import Limits
from tests.faults.reports import (
    Acknowledged,
    Asked,
    Closed,
    Closing,
    Failed,
    Grant,
    Happened,
    Note,
    Opened,
    Opening,
    Read,
    Write,
    command,
    report,
)

__all__ = ["Options"]

KEPT, LEFT = LeaseId(1), LeaseId(2)
TTL_S = 2.0  # more than a slow disk, looked at through strace, takes for a grant


class Options(msgspec.Struct, frozen=True):
    path: str
    writers: int = 8
    keys_count: int = 40
    value_bytes: int = 1000
    revisions_max: int | None = None
    puts_max: int = 100_000
    lengthen_log: bool = True  # False: opening takes fewer system calls, commits take others
    log_segment_bytes: int = log_length.SEGMENT_BYTES  # of a log that is begun


class Script:
    """Writers, a keeper of a lease, a watcher; then questions."""

    def __init__(self, store: EmbeddedStore, options: Options) -> None:
        self._store = store
        self._options = options
        self._ids = itertools.count(1)
        self._puts_left = options.puts_max
        self._failed = asyncio.Event()

    async def run(self) -> None:
        store = self._store
        for lease in (KEPT, LEFT):
            await self._grant(lease)
            await self._put(b"l/%d" % lease, lease)
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(self._keep_alive()), group.create_task(self._watch())]
            await asyncio.gather(*(self._write(number) for number in range(self._options.writers)))
            # Longer than the lease that nobody keeps any more: it may not end, nor its key, for
            # nothing can be written.
            await asyncio.sleep(1.5 * TTL_S)
            await self._ask_questions()
            for task in background:
                task.cancel()
        status = await store.status()
        report(Note("failed alarm", number=int(Alarm.STORAGE_FAILED in status.alarms)))

    async def _write(self, number: int) -> None:
        """Put until it fails; after that, no put may get through."""
        while self._puts_left and not self._failed.is_set():
            self._puts_left -= 1
            await self._put(b"w/%d" % (next(self._ids) % self._options.keys_count))
        if self._failed.is_set():
            for _ in range(3):
                await self._put(b"late/%d" % number)

    async def _put(self, key: bytes, lease: int = 0) -> None:
        id = next(self._ids)
        value = b"%d" % id + b"." * self._options.value_bytes
        report(Asked(id, Write(((key, value),), lease)))
        try:
            result = await self._store.put(key, value, lease=lease)
        except (Indeterminate, Unavailable) as error:
            # Told before anybody else's: the test reads from it which writes came after the failure.
            report(Failed(id, type(error).__name__, str(error)))
            self._failed.set()
        else:
            report(Acknowledged(id, result.revision))

    async def _grant(self, lease: LeaseId) -> None:
        id = next(self._ids)
        report(Asked(id, Grant(lease, TTL_S, expires=lease == LEFT)))
        await self._store.grant(TTL_S, id=lease)
        report(Acknowledged(id))

    async def _keep_alive(self) -> None:
        while True:
            await self._store.keep_alive(KEPT)
            if not self._failed.is_set():
                await self._store.keep_alive(LEFT)
            await asyncio.sleep(TTL_S / 6)

    async def _watch(self) -> None:
        async with self._store.watch(KeyRange.everything()) as batches:
            async for batch in batches:
                report(Happened(batch.revision, tuple(event.kv for event in batch.events)))

    async def _ask_questions(self) -> None:
        store = self._store
        result = await store.range(KeyRange.everything())
        report(Read(b"", 0, result.revision, result.kvs))
        state = await store.hash()
        report(Note("digest", number=state.revision, text=state.digest))
        report(Note("kept lease", number=(await store.time_to_live(KEPT)).remaining_s))
        for name, attempt in {
            "delete": store.delete(b"w/1"),
            "compact": store.compact(2),
            "grant": store.grant(10),
            "revoke": store.revoke(KEPT),
        }.items():
            try:
                await attempt
            except QuoracyError as error:
                report(Note(name, text=type(error).__name__))
            else:
                report(Note(name, text="done"))


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
        await Script(store, options).run()
        report(Note("asked"))
        await command()
        report(Closing())
    report(Closed())


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Options)))
