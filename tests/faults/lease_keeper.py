"""A child process that keeps one lease alive and lets another be, and tells which are there.

python -m tests.faults.lease_keeper OPTIONS
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.store.model import LeaseId
from quoracy.store.rules import Limits
from tests.faults.reports import Closed, Closing, Note, Opening, command, report

__all__ = ["Options"]

KEPT, LEFT = LeaseId(1), LeaseId(2)


class Options(msgspec.Struct, frozen=True):
    path: str
    ttl_s: float
    keep_alive_s: float


async def main(options: Options) -> None:
    report(Opening(os.getpid()))
    limits = Limits(lease_ttl_min_s=options.ttl_s)
    async with open_embedded(f"sqlite:{options.path}", limits=limits) as store:
        for lease in (KEPT, LEFT):
            await store.grant(options.ttl_s, id=lease)
            await store.put(b"%d" % lease, b"alive", lease=lease)
        keeping = asyncio.create_task(_keep_alive(store, options.keep_alive_s))
        while (word := await command()) != "close":
            match word:
                case "renew":
                    # The one nobody keeps, so that the test knows how much time it has.
                    await store.keep_alive(LEFT)
                    report(Note("renewed"))
                case "abandon":
                    keeping.cancel()
                    await _told_of_end(store, b"%d" % KEPT)
                    report(Note("ended"))
        keeping.cancel()
        report(Closing())
    report(Closed())


async def _keep_alive(store: EmbeddedStore, every_s: float) -> None:
    while True:
        await store.keep_alive(KEPT)
        there = await store.leases()
        report(Note("there", number=len(there), text=" ".join(str(lease) for lease in there)))
        await asyncio.sleep(every_s)


async def _told_of_end(store: EmbeddedStore, key: bytes) -> None:
    async with store.watch(key, puts=False) as batches:
        await anext(batches)
    assert KEPT not in await store.leases()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Options)))
