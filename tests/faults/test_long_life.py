"""Long life: the log stays bounded, space comes back, and commits go on meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.log_allocation import SEGMENT_BYTES, SEGMENTS_MAX
from quoracy.engines.embedded.disk.writer import Done, GiveBack, Job, JournalWriter, Sweep, Work
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded
from quoracy.errors import NoSpace
from quoracy.store.model import Alarm, Delete, KeyRange, Put, Txn
from quoracy.store.rules import Limits
from tests.faults.judge import EVERYTHING, KEEP_ALL
from tests.faults.scale import rounds

pytestmark = pytest.mark.faults

_MIB = 1024**2


async def _eventually(condition: Callable[[], Awaitable[bool]], every_s: float = 0.02) -> None:
    """Housekeeping has no event of its own: ask until it is done, or time is up."""
    async with asyncio.timeout(60):
        done = await condition()
        while not done:
            await asyncio.sleep(every_s)
            done = await condition()


async def _cleaned(store: EmbeddedStore) -> None:
    async def clean() -> bool:
        return store.statistics().garbage_count == 0

    await _eventually(clean)


async def _at_once(work: Callable[[int], Awaitable[None]], tasks: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(_run(work, number))


async def _run(work: Callable[[int], Awaitable[None]], number: int) -> None:
    await work(number)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("writers", "value_bytes"), [(64, 100), (4, 20_000)])
async def test_the_log_stays_bounded_under_load(writers: int, value_bytes: int, tmp_path: Path) -> None:
    path, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    puts = rounds(30_000, 600_000) if value_bytes < 1000 else rounds(1500, 30_000)
    retention = Retention(revisions_max=1000, age_max_s=None)
    async with open_embedded(f"sqlite:{path}", retention=retention) as store:
        sizes: list[int] = []
        all_sizes: list[int] = []

        async def write(number: int) -> None:
            for turn in range(number, puts, writers):
                await store.put(b"k/%d" % (turn % 500), b"." * value_bytes)

        async def measure() -> None:
            while True:
                size = await store.journal_size()
                assert size is not None
                sizes.append(log.stat().st_size)
                all_sizes.append(size.log_bytes)
                # A reader with a watch is there too: it must not pin the log.
                await store.range(EVERYTHING)
                await asyncio.sleep(0.01)

        async with store.watch(EVERYTHING):
            measuring = asyncio.create_task(measure())
            await _at_once(write, writers)
            measuring.cancel()
        assert max(sizes) <= 32 * _MIB, f"SQLite's log grew to {max(sizes):,} bytes"
        commit_log_max = SEGMENTS_MAX * SEGMENT_BYTES
        assert max(all_sizes) <= commit_log_max + 32 * _MIB, (
            f"both logs grew to {max(all_sizes):,} bytes"
        )

        async def compacted() -> bool:
            return (await store.status()).compact_revision > 0

        await _eventually(compacted)
        await _cleaned(store)
        assert (await store.status()).revision == puts + 1


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the writer was given, in order: commits, and slices of clearing and of giving space back."""
    given: list[str] = []

    class NotingWriter:
        def __init__(self, *args: Any, **options: Any) -> None:
            self._writer = JournalWriter(*args, **options)

        def submit(self, job: Job | Work, done: Done) -> None:
            given.append({Sweep: "sweep", GiveBack: "give_back"}.get(type(job), "other"))
            self._writer.submit(job, done)

        def commit(self, batch: Batch, done: Done) -> None:
            given.append("commit")
            self._writer.commit(batch, done)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._writer, name)

    monkeypatch.setattr("quoracy.engines.opening.JournalWriter", NotingWriter)
    return given


@pytest.mark.timeout(600)
async def test_compaction_gives_space_back_while_commits_go_on(tmp_path: Path, jobs: list[str]) -> None:
    path, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    keys, size = 25_000, 2000  # 50 MB
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:

        async def fill(number: int) -> None:
            for key in range(number, keys, 50):
                await store.put(b"k/%05d" % key, b"." * size)

        async def write_on() -> None:
            while True:
                await store.put(b"meanwhile", b"")

        async def shrunk() -> bool:
            now = await store.journal_size()
            assert now is not None
            sizes.append(log.stat().st_size)
            return max(now.file_bytes, path.stat().st_size) < keys * size // 10

        await _at_once(fill, 50)
        full = await store.journal_size()
        assert full is not None
        assert full.file_bytes + full.log_bytes > keys * size
        await store.delete(KeyRange(b"k/00010", b"k/99999"))
        before = await store.hash()
        writing = asyncio.create_task(write_on())
        sizes: list[int] = []
        jobs.clear()
        await store.compact(before.revision)
        await _eventually(shrunk, every_s=0.001)
        writing.cancel()

        between = _between(jobs, "sweep").count("commit")
        assert between >= 3, "commits waited for the whole of the clearing"
        between = _between(jobs, "give_back").count("commit")
        assert between >= 3, "commits waited until all space was given back"
        slices = jobs.count("give_back")
        assert slices < keys // 20, f"{slices} slices: hardly more than a page in each"
        assert max(sizes) <= 32 * _MIB, f"the log grew to {max(sizes):,} bytes"
        assert (await store.range(KeyRange.prefix(b"k/"))).count == 10
        assert (await store.hash(at=before.revision)).digest == before.digest
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:
        assert (await store.hash(at=before.revision)).digest == before.digest


def _between(jobs: list[str], name: str) -> list[str]:
    """From the first slice of a kind to the last."""
    return jobs[jobs.index(name) : len(jobs) - jobs[::-1].index(name)]


@pytest.mark.timeout(600)
async def test_clearing_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:

        async def fill(number: int) -> None:
            for turn in range(number, 10_000, 50):
                await store.put(b"k/%d" % (turn % 100), b"." * 1000)

        await _at_once(fill, 50)
        before = await store.hash()
        await store.compact(before.revision)
        # Closed at once, with nearly everything still to be cleared.
    full_bytes = path.stat().st_size
    assert full_bytes > 9_000 * 1000
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:

        async def shrunk() -> bool:
            now = await store.journal_size()
            return now is not None and now.file_bytes < full_bytes // 5

        await _eventually(shrunk)
        assert (await store.hash()).digest == before.digest


async def test_what_was_deleted_stays_deleted_after_clearing_and_restart(tmp_path: Path) -> None:
    """The deletion goes from disk with what it deleted, or after it; never before."""
    path = tmp_path / "store.db"
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:
        # One commit for all, and only some are deleted later: they share what is on disk.
        await _at_once(lambda number: _put(store, b"k/%02d" % number), 20)
        lease = (await store.grant(100)).id
        await store.put(b"leased", b"", lease=lease)
        await store.delete(b"k/03")
        await store.txn(Txn(then=(Delete(b"k/05"), Put(b"k/06", b"new"))))
        await store.revoke(lease)
        await store.compact((await store.put(b"later", b"")).revision)
        await _cleaned(store)
        right = (await store.range(EVERYTHING)).kvs
    for _ in range(2):
        async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:
            assert (await store.range(EVERYTHING)).kvs == right
            await _cleaned(store)


async def _put(store: EmbeddedStore, key: bytes) -> None:
    await store.put(key, b"old")


@pytest.mark.timeout(300)
async def test_one_change_of_very_many_keys_survives_a_restart(tmp_path: Path) -> None:
    """A range delete and the end of a lease can write thousands of versions in one revision."""
    path = tmp_path / "store.db"
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:
        lease = (await store.grant(100)).id

        async def fill(number: int) -> None:
            for key in range(number, 3000, 50):
                await store.put(b"a/%04d" % key, b"")
                await store.put(b"l/%04d" % key, b"", lease=lease)

        await _at_once(fill, 50)
        deleted = await store.delete(KeyRange.prefix(b"a/"))
        ended = await store.revoke(lease)
        assert deleted.deleted == 3000
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:
        assert (await store.range(EVERYTHING)).count == 0
        assert (await store.range(EVERYTHING, at=deleted.revision)).count == 3000
        async with store.watch(EVERYTHING, after=deleted.revision - 1) as batches:
            for revision in (deleted.revision, ended):
                batch = await anext(batches)
                assert (batch.revision, len(batch.events)) == (revision, 3000)


@pytest.mark.timeout(300)
async def test_the_quota_alarm_comes_and_goes_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    limits = Limits(storage_bytes_max=2 * _MIB)
    async with open_embedded(f"sqlite:{path}", limits=limits, retention=KEEP_ALL) as store:
        with pytest.raises(NoSpace) as refusal:
            for number in itertools.count():
                await store.put(b"k/%d" % number, b"." * 50_000)
        assert "storage_bytes_max" in str(refusal.value)
        assert Alarm.NO_SPACE in (await store.status()).alarms
        with pytest.raises(NoSpace):
            await store.put(b"small", b"")
        with pytest.raises(NoSpace):
            await store.txn(Txn(then=(Put(b"small", b""),)))
        assert (await store.range(b"k/1")).count == 1
        deleted = await store.delete(KeyRange.prefix(b"k/"))
        assert deleted.deleted > 20
        await store.compact(deleted.revision)

        async def clear() -> bool:
            return not (await store.status()).alarms

        await _eventually(clear)
        await store.put(b"k/1", b"again")
    async with open_embedded(f"sqlite:{path}", limits=limits, retention=KEEP_ALL) as store:
        assert [kv.key for kv in (await store.range(EVERYTHING)).kvs] == [b"k/1"]


@pytest.mark.timeout(600)
async def test_overwriting_one_large_key_for_ever_never_fills_the_quota(tmp_path: Path) -> None:
    # Slow enough for the disk to be the limit: history is reviewed every 100 ms, and the quarter of
    # the quota that is kept free for that must not fill in less.
    limits = Limits(storage_bytes_max=8 * _MIB)
    path = tmp_path / "store.db"
    async with open_embedded(f"sqlite:{path}", limits=limits) as store:

        async def overwrite(number: int) -> None:
            for turn in range(rounds(1500, 40_000)):
                await store.put(b"large", b"%d %d" % (number, turn) + b"." * 1000)

        await _at_once(overwrite, 8)
        assert not (await store.status()).alarms
        assert (await store.status()).compact_revision > 0, "the quota was never in danger"
        await _cleaned(store)
        assert (await store.status()).size_bytes < limits.storage_bytes_max
    assert path.stat().st_size < 3 * limits.storage_bytes_max
