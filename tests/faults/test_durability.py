"""Nothing leaves before it is durable: no answer, no event, no count runs ahead of the disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorate.clock import ManualClock
from quorate.engines.embedded.engine import EmbeddedStore
from quorate.engines.embedded.journal import Journal
from quorate.engines.opening import open_store
from quorate.errors import Indeterminate, StorageFailed
from quorate.store.model import Compare, LeaseId, Put, Range, Txn
from tests.faults.judge import EVERYTHING, KEEP_ALL

pytestmark = pytest.mark.faults


@contextlib.asynccontextmanager
async def _held_disk(path: Path) -> AsyncIterator[tuple[EmbeddedStore, asyncio.Task[object]]]:
    """A store with one put on its way to a disk that takes its time, and nothing else under way."""
    async with open_store(f"sqlite:{path}", retention=KEEP_ALL, clock=ManualClock()) as store:
        await store.put(b"a", b"old")

        async def write() -> object:
            return await asyncio.gather(
                store.put(b"a", b"new"), store.put(b"b", b"new"), store.grant(10, id=LeaseId(5))
            )

        writing = asyncio.create_task(write())
        # One turn takes the requests in; the answer needs a thread, a disk and at least one more.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert store.statistics().durable_revision < store.statistics().revision
        yield store, writing
        await writing


async def test_reads_show_only_what_is_durable(tmp_path: Path) -> None:
    async with _held_disk(tmp_path / "store.db") as (store, writing):
        found = await store.range(EVERYTHING)
        counted = await store.range(EVERYTHING, count_only=True)
        compared = await store.txn(Txn(then=(Range(EVERYTHING),)))
        state, status = await store.hash(), await store.status()
        assert not writing.done(), "the disk was too quick for this test"
        assert [(kv.key, kv.value) for kv in found.kvs] == [(b"a", b"old")]
        assert (found.revision, found.count) == (2, 1)
        assert (counted.revision, counted.count) == (2, 1)
        assert compared.results == (found,)
        assert (state.revision, status.revision) == (2, 2)


async def test_the_status_counts_only_what_is_durable(tmp_path: Path) -> None:
    async with _held_disk(tmp_path / "store.db") as (store, writing):
        status = await store.status()
        assert not writing.done(), "the disk was too quick for this test"
        assert (status.revision, status.keys_count, status.leases_count) == (2, 1, 0)


async def test_answers_about_leases_wait_for_the_disk(tmp_path: Path) -> None:
    async with _held_disk(tmp_path / "store.db") as (store, writing):
        asking = [
            asyncio.ensure_future(question)
            for question in (store.leases(), store.time_to_live(5), store.keep_alive(5))
        ]
        for question in asking:
            await question
            assert writing.done() or store.statistics().durable_revision == 4


async def test_a_lost_race_is_told_only_when_the_winner_is_durable(tmp_path: Path) -> None:
    async with _held_disk(tmp_path / "store.db") as (store, _):
        # It loses against a put that is not on disk yet: the answer gives that put away.
        result = await store.txn(Txn((Compare.missing(b"b"),), then=(Put(b"b", b"mine"),)))
        assert not result.succeeded
        assert store.statistics().durable_revision == result.revision == 4


async def test_a_lease_that_did_not_reach_the_disk_is_never_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(f"sqlite:{tmp_path / 'store.db'}", clock=ManualClock()) as store:

        def fail(journal: Journal, batch: object) -> None:
            raise StorageFailed(str(journal.path), OSError("the disk is gone"))

        monkeypatch.setattr(Journal, "commit", fail)
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
