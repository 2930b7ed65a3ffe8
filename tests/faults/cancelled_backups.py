"""A child process that begins backups of a busy store and cancels them at random moments.

python -m tests.faults.cancelled_backups OPTIONS
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec

from quoracy.engines.embedded.disk.backup import restore
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.errors import DataError
from tests.faults.busy_store import Steps, busy_store
from tests.faults.reports import Closed, Note, Opening, report

__all__ = ["Options"]


class Options(msgspec.Struct, frozen=True):
    directory: str
    seed: int
    rounds: int


async def _begin_and_cancel(store: EmbeddedStore, path: Path, rng: random.Random) -> bool:
    """Whether it could still be cancelled."""
    steps = Steps(enough=rng.randrange(6) * 1000)
    backup = asyncio.create_task(store.backup(path, progress=steps))
    if steps.enough:
        waiting = asyncio.create_task(steps.reached.wait())
        await asyncio.wait([backup, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    else:
        await asyncio.sleep(rng.random() * 0.005)
    backup.cancel()
    await asyncio.wait([backup])
    if not backup.cancelled():
        backup.result()  # it was done, or failed for a reason of its own
    return backup.cancelled()


async def main(options: Options) -> None:
    report(Opening(os.getpid()))
    directory, rng = Path(options.directory), random.Random(options.seed)
    cancelled = left = 0
    async with busy_store(directory / "store.db", rng) as store:
        for number in range(options.rounds):
            path = directory / f"backup-{number}"
            cancelled += await _begin_and_cancel(store, path, rng)
            # The last step, the naming, cannot be stopped: then the backup is whole.
            left += path.exists() and not _is_whole(path, directory / f"restored-{number}.db")
        await store.put(b"still", b"working")
        # The next one goes well, whatever the others left over.
        taken = await store.backup(directory / "backup-last")
    back = restore(directory / "backup-last", directory / "restored-last.db")
    report(Note("cancelled", cancelled))
    report(Note("left under its name", left))
    report(Note("keys backed up", taken.keys_count))
    report(Note("keys restored", back.keys_count))
    report(Closed())


def _is_whole(backup: Path, data: Path) -> bool:
    try:
        restore(backup, data)
    except DataError:
        return False
    return True


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Options)))
