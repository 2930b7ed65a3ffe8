"""Nothing leaves before it is durable: no answer, no event, no count runs ahead of the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import Indeterminate, StorageFailed
from quoracy.store.model import Compare, LeaseId, Put, Range, Txn
from tests.faults.judge import EVERYTHING, KEEP_ALL
from tests.support.failing_disk import break_disk
from tests.support.held_disk import HeldDisk

pytestmark = pytest.mark.faults


@pytest.fixture
async def disk_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[EmbeddedStore, HeldDisk]]:
    """A store whose disk takes nothing until it is released, with two puts and a grant before it."""
    disk = HeldDisk(monkeypatch)
    async with open_embedded(
        f"sqlite:{tmp_path / 'store.db'}", retention=KEEP_ALL, clock=ManualClock()
    ) as store:
        await store.put(b"a", b"old")
        disk.hold()
        writing = asyncio.gather(
            store.put(b"a", b"new"), store.put(b"b", b"new"), store.grant(10, id=LeaseId(5))
        )
        await asyncio.sleep(0)
        yield store, disk
        disk.release()
        await writing


async def test_reads_show_only_what_is_durable(
    disk_held: tuple[EmbeddedStore, HeldDisk],
) -> None:
    store, _ = disk_held
    found = await store.range(EVERYTHING)
    counted = await store.range(EVERYTHING, count_only=True)
    compared = await store.txn(Txn(then=(Range(EVERYTHING),)))
    state, status = await store.hash(), await store.status()
    assert [(kv.key, kv.value) for kv in found.kvs] == [(b"a", b"old")]
    assert (found.revision, found.count) == (2, 1)
    assert (counted.revision, counted.count) == (2, 1)
    assert compared.results == (found,)
    assert (state.revision, status.revision) == (2, 2)


async def test_the_status_counts_only_what_is_durable(
    disk_held: tuple[EmbeddedStore, HeldDisk],
) -> None:
    store, _ = disk_held
    status = await store.status()
    assert (status.revision, status.keys_count, status.leases_count) == (2, 1, 0)


async def test_what_gives_a_write_away_waits_for_its_disk(
    disk_held: tuple[EmbeddedStore, HeldDisk],
) -> None:
    store, disk = disk_held
    async with store.watch(EVERYTHING) as batches:
        lost_race = Txn((Compare.missing(b"b"),), then=(Put(b"b", b"mine"),))
        racing = asyncio.ensure_future(store.txn(lost_race))
        waiting = [
            asyncio.ensure_future(answer)
            for answer in (
                anext(batches),
                store.leases(),
                store.time_to_live(5),
                store.keep_alive(5),
                store.delete(b"nothing"),
            )
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(answer.done() for answer in (racing, *waiting)), (
            "an answer ran ahead of the disk"
        )
        disk.release()
        await asyncio.gather(*waiting)
        assert not (await racing).succeeded


async def test_two_commits_are_on_their_way_at_once_and_end_in_their_order(
    disk_held: tuple[EmbeddedStore, HeldDisk],
) -> None:
    store, disk = disk_held
    ended: list[int] = []
    writes = []
    for number in range(3):
        write = asyncio.ensure_future(store.put(b"c", b"%d" % number))
        write.add_done_callback(lambda _, number=number: ended.append(number))  # type: ignore[misc]
        writes.append(write)
        for _ in range(5):  # whatever is in this turn's group has left for the disk, if it may
            await asyncio.sleep(0)
    assert len(disk.begun) == 2  # the fixture's writes, and the first of these
    disk.release(last_first=True)
    results = await asyncio.gather(*writes)
    assert ended == [0, 1, 2]
    assert [result.revision for result in results] == [5, 6, 7]


async def test_a_lease_that_did_not_reach_the_disk_is_never_told_of(tmp_path: Path) -> None:
    async with open_embedded(f"sqlite:{tmp_path / 'store.db'}", clock=ManualClock()) as store:
        break_disk(store)
        with pytest.raises(Indeterminate):
            await store.grant(10, id=LeaseId(5))
        # Housekeeping runs into the same disk a moment later.
        store.fail(OSError("the disk is still gone"))
        with pytest.raises(StorageFailed):
            await store.leases()
        with pytest.raises(StorageFailed):
            await store.time_to_live(5)
        with pytest.raises(StorageFailed):
            await store.keep_alive(5)
