"""A child process on a disk whose syncs take long: who waits for it, and who does not?

python -m tests.faults.slow_disk OPTIONS
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from quoracy.engines.opening import open_embedded
from quoracy.store.model import KeyRange
from tests.faults.reports import Closed, Closing, Note, Opening, report

__all__ = ["Options"]


class Options(msgspec.Struct, frozen=True):
    path: str
    writers: int = 64
    puts_each: int = 5


async def main(options: Options) -> None:
    report(Opening(os.getpid()))
    async with open_embedded(f"sqlite:{options.path}") as store:
        await store.put(b"k", b"before")
        async with store.watch(b"k") as batches:
            event = asyncio.ensure_future(anext(batches))
            put = asyncio.ensure_future(store.put(b"k", b"after"))
            reads = early = 0
            while not put.done():
                (kv,) = (await store.range(b"k")).kvs
                if put.done():
                    break
                reads += 1
                early += kv.value == b"after" or event.done()
                await asyncio.sleep(0.001)
            report(Note("reads while the put waited", reads))
            report(Note("reads or events ahead of the disk", early))
            (kv,) = (await store.range(b"k")).kvs
            report(Note("read after the put", text=kv.value.decode()))
            report(Note("event after the put", text=(await event).events[0].kv.value.decode()))

        before = store.statistics().commits_count

        async def write(number: int) -> None:
            for _ in range(options.puts_each):
                await store.put(b"w/%d" % number, b"v")

        report(Note("writing"))
        await asyncio.gather(*(write(number) for number in range(options.writers)))
        report(Note("commits", store.statistics().commits_count - before))
        found = await store.range(KeyRange.prefix(b"w/"))
        report(Note("keys", found.count))
        report(Closing())
    report(Closed())


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Options)))
