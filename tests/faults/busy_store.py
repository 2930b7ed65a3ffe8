"""A store with some thousand keys and writers that never rest, to take backups of."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.store.model import LeaseId, Put, Txn
from tests.faults.judge import KEEP_ALL

__all__ = ["Steps", "busy_store"]

_KEYS = 5000


class Steps:
    """Hears of a backup's progress, and says when enough is done."""

    def __init__(self, enough: int = 0) -> None:
        self.enough = enough
        self.reached = asyncio.Event()
        self.last = (0, 0)

    def __call__(self, done: int, total: int) -> None:
        self.last = (done, total)
        if done >= self.enough:
            self.reached.set()


@contextlib.asynccontextmanager
async def busy_store(path: Path, rng: random.Random) -> AsyncIterator[EmbeddedStore]:
    """A store with some thousand keys and four writers that never rest."""
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:
        lease = (await store.grant(1000, id=LeaseId(77))).id
        await asyncio.gather(
            *(store.put(b"k/%04d" % number, rng.randbytes(50)) for number in range(_KEYS))
        )
        await store.put(b"leased", b"", lease=lease)

        async def write(number: int) -> None:
            own = random.Random(number)
            while True:
                key = own.randrange(_KEYS)
                if own.random() < 0.2:
                    await store.delete(b"k/%04d" % key)
                else:
                    # Two keys that are always equal: a backup must not fall between them.
                    value = own.randbytes(20)
                    await store.txn(
                        Txn(then=(Put(b"b/%d" % number, value), Put(b"a/%d" % number, value)))
                    )
                    await store.put(b"k/%04d" % key, own.randbytes(30))

        writers = [asyncio.create_task(write(number)) for number in range(4)]
        try:
            yield store
        finally:
            for writer in writers:
                writer.cancel()
            ended = await asyncio.gather(*writers, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
