"""A full disk: writing stops with a clear error and an alarm, reading goes on, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from quoracy.engines.opening import open_embedded
from quoracy.errors import DataUnreadable, StorageFailed
from tests.faults.after_failure import check_after_failure
from tests.faults.child import Child
from tests.faults.disks import Disk
from tests.faults.judge import EVERYTHING, Judge
from tests.faults.reports import Closed, Failed, Read
from tests.faults.scale import rounds
from tests.faults.until_failure import Options

pytestmark = pytest.mark.faults


def _options(path: Path, rng: random.Random) -> Options:
    return Options(
        str(path),
        writers=rng.choice([1, 4, 16]),
        value_bytes=rng.choice([2000, 5000, 20_000]),
        keys_count=rng.choice([40, 4000]),
        revisions_max=rng.choice([None, 1000]),
    )


@pytest.mark.timeout(900)
def test_a_full_disk_stops_writing_and_nothing_else(disk: Disk, rng: random.Random) -> None:
    for number in range(rounds(2, 25)):
        disk.resize(size_kib=rng.choice([700, 2000, 5000]))
        path = disk.path / f"store-{number}.db"
        judge = Judge()
        with Child("until_failure", _options(path, rng)) as child:
            child.wait_for_note("asked")
            check_after_failure(child.reports)
            child.tell("close")
            child.wait_for(Closed)
            child.end()
        asyncio.run(_check_reopened_while_full(path, child))
        disk.resize(size_kib=64 * 1024)
        asyncio.run(judge.judge(path, child.reports, rng))
        asyncio.run(_check_writable(path))
        for file in disk.path.iterdir():
            file.unlink()


@pytest.mark.timeout(900)
def test_killed_on_a_full_disk_it_loses_nothing(disk: Disk, rng: random.Random) -> None:
    for number in range(rounds(2, 25)):
        disk.resize(size_kib=rng.choice([700, 2000, 5000]))
        path = disk.path / f"store-{number}.db"
        with Child("until_failure", _options(path, rng)) as child:
            child.wait_for(Failed)
            child.kill()
            child.check_killed()
        disk.resize(size_kib=64 * 1024)
        asyncio.run(Judge().judge(path, child.reports, rng))
        for file in disk.path.iterdir():
            file.unlink()


async def _check_reopened_while_full(path: Path, child: Child) -> None:
    """Without room the store may refuse to open or to close, and says why; it shows nothing wrong."""
    (read,) = [report for report in child.reports if isinstance(report, Read)]
    with contextlib.suppress(StorageFailed, DataUnreadable):
        async with open_embedded(f"sqlite:{path}") as store:
            kvs = (await store.range(EVERYTHING)).kvs
            # Of the writes that failed some may be there: newer versions of the same keys.
            assert {kv.key for kv in read.kvs} <= {kv.key for kv in kvs}


async def _check_writable(path: Path) -> None:
    async with open_embedded(f"sqlite:{path}") as store:
        assert not (await store.status()).alarms
        revision = (await store.put(b"there is", b"room")).revision
        assert (await store.range(b"there is", at=revision)).count == 1
