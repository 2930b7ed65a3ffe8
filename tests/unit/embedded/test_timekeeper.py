"""An embedded store knows which revision was the newest so long ago, whatever clocks and crashes do."""

from __future__ import annotations

import asyncio
import math
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.embedded.disk.doctor import examine
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.embedded.memory.timeline import SAVE_S
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, DataUnreadable, InvalidRequest, StorageFailed, Unsupported
from tests.support.failing_disk import break_disk

DAY_S = 86_400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@asynccontextmanager
async def opened(path: Path | None, clock: ManualClock) -> AsyncIterator[EmbeddedStore]:
    url = "memory:" if path is None else f"sqlite:{path}"
    async with open_embedded(url, clock=clock, retention=Retention(None, None)) as store:
        yield store


async def settle(store: EmbeddedStore) -> None:
    """Returns when what the last tick handed over is on disk: commits are in order."""
    await store.revoke(await granted(store))


async def granted(store: EmbeddedStore) -> int:
    return (await store.grant(60.0)).id


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_store_knows_how_it_was(kind: str, path: Path) -> None:
    clock = ManualClock()
    async with opened(path if kind == "sqlite" else None, clock) as store:
        for value in (b"one", b"two", b"three"):
            await store.put(b"k", value)
            await clock.advance(60.0)
        found = [await store.revision_at(age_s) for age_s in (0, 1, 59, 61, 119, 121, 179, 180)]
        assert found == [4, 4, 4, 3, 3, 2, 2, 1]
        then = await store.range(b"k", at=await store.revision_at(100.0))
        assert then.kvs[0].value == b"two"


async def test_times_before_the_store_was_are_not_known() -> None:
    clock = ManualClock()
    async with opened(None, clock) as store:
        await clock.advance(90.0)
        with pytest.raises(Unsupported, match=r"3,600 s ago is not known.*for 90 s"):
            await store.revision_at(3_600.0)
        with pytest.raises(Unsupported):
            await store.revision_at(math.inf)
        for age_s in (-1.0, math.nan):
            with pytest.raises(InvalidRequest, match="age_s is"):
                await store.revision_at(age_s)


async def test_times_of_compacted_history_are_compacted() -> None:
    clock = ManualClock()
    async with opened(None, clock) as store:
        for number in range(10):
            await store.put(b"k", b"%d" % number)
            await clock.advance(60.0)
        await store.compact(8)
        await clock.advance(1.0)
        assert await store.revision_at(200.0) == 8
        for age_s in (250.0, 500.0, 601.0):
            with pytest.raises(Compacted) as compacted:
                await store.revision_at(age_s)
            assert compacted.value.oldest == 8
            assert compacted.value.wanted < 8


async def test_times_survive_a_restart(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        await store.put(b"k", b"one")
        await clock.advance(100.0)
        await store.put(b"k", b"two")  # noted by nothing but the closing
    clock.jump(DAY_S)
    clock = ManualClock(now=5.0, wall=clock.wall())  # after a reboot, the monotonic clock is another
    async with opened(path, clock) as store:
        assert await store.revision_at(DAY_S - 1) == 3
        assert await store.revision_at(DAY_S + 1) == 2
        await store.put(b"k", b"three")
        await clock.advance(10.0)
        assert await store.revision_at(1.0) == 4
        assert await store.revision_at(11.0) == 3
        with pytest.raises(Unsupported):
            await store.revision_at(DAY_S + 200)


async def test_a_clock_set_back_makes_nothing_seem_older(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        await store.put(b"k", b"one")
        await clock.advance(100.0)
        clock.set_wall(clock.wall() - DAY_S)
        await store.put(b"k", b"two")
        await clock.advance(100.0)
        assert [await store.revision_at(age_s) for age_s in (50.0, 150.0)] == [3, 2]
    clock.jump(100.0)
    clock.set_wall(clock.wall() - DAY_S)
    async with opened(path, clock) as store:
        # How long it was closed is not known now: as if it had not been.
        assert [await store.revision_at(age_s) for age_s in (0.0, 50.0, 150.0)] == [3, 3, 2]


async def test_a_clock_set_forward_while_the_store_is_open_changes_nothing(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        await store.put(b"k", b"one")
        await clock.advance(100.0)
        clock.set_wall(clock.wall() + DAY_S)
        await store.put(b"k", b"two")
        await clock.advance(100.0)
        assert [await store.revision_at(age_s) for age_s in (50.0, 150.0)] == [3, 2]
    async with opened(path, clock) as store:
        assert [await store.revision_at(age_s) for age_s in (50.0, 150.0)] == [3, 2]


async def test_after_a_crash_nothing_seems_older_than_it_is(path: Path, tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        await store.put(b"k", b"one")
        await clock.advance(SAVE_S + 1)
        await settle(store)
        await store.put(b"k", b"two")
        await clock.advance(1.0)  # noted, and not yet written
        crashed = tmp_path / "crashed.db"
        for suffix in ("", "-wal", "-log"):
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    clock.jump(500.0)
    async with opened(crashed, clock) as store:
        assert await store.revision_at(0.0) == 3
        assert await store.revision_at(100.0) == 2
        await clock.advance(200.0)
        assert await store.revision_at(100.0) == 3
        assert await store.revision_at(300.0) == 2


async def test_times_are_written_every_ten_seconds_at_most_and_not_without_a_change(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:

        async def commits(seconds: float) -> int:
            before = store.statistics().commits_count
            for _ in range(int(seconds * 10)):
                await clock.advance(0.1)
                await asyncio.sleep(0)
            await settle(store)
            return store.statistics().commits_count - before - 2  # those of `settle`

        assert await commits(60.0) == 1
        assert await commits(60.0) == 0
        await store.put(b"k")
        assert await commits(60.0) == 1
        for _ in range(30):
            await store.put(b"k")
            await clock.advance(1.0)
        assert await commits(10.0) == 1


async def test_looking_at_a_store_writes_nothing_into_it(path: Path) -> None:
    async with opened(path, ManualClock()) as store:
        await store.put(b"k")
    before = timeline_row(path)
    async with opened(path, ManualClock(wall=1_800_000_000.0)) as store:
        await store.range(b"k")
    assert timeline_row(path) == before


async def test_a_store_without_times_starts_to_note_them(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        await store.put(b"k")
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM meta WHERE name = 'timeline'")
    db.close()
    async with opened(path, clock) as store:
        await clock.advance(5.0)
        assert await store.revision_at(4.0) == 2
        with pytest.raises(Unsupported):
            await store.revision_at(6.0)


async def test_times_that_cannot_be_written_at_the_end_are_a_failed_disk(
    path: Path,
) -> None:
    with pytest.raises(StorageFailed, match="what it had acknowledged is on disk"):
        async with opened(path, ManualClock()) as store:
            await store.put(b"k")
            break_disk(store)


@pytest.mark.parametrize("change", ["substr(value, 2)", "x'00'", "'text'"])
async def test_damaged_times_are_noticed(path: Path, change: str) -> None:
    async with opened(path, ManualClock()) as store:
        await store.put(b"k")
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE meta SET value = {change} WHERE name = 'timeline'")
    db.close()
    with pytest.raises(DataUnreadable, match="timeline"):
        async with opened(path, ManualClock()):
            pass
    assert ["timeline" in finding.what for finding in examine(path).findings if not finding.ok] == [
        True
    ]


def timeline_row(path: Path) -> object:
    journal = Journal.open(path)
    try:
        return journal.meta("timeline")
    finally:
        journal.close()
