"""Backups taken under load, and the way back: one revision, whole, and old clients can tell."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from quoracy.engines.embedded.disk.backup import restore
from quoracy.engines.embedded.disk.doctor import examine
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, DataError, DataUnreadable
from quoracy.store.model import KeyRange
from tests.faults.after_failure import notes
from tests.faults.busy_store import Steps, busy_store
from tests.faults.cancelled_backups import Options as CancelOptions
from tests.faults.child import Child
from tests.faults.judge import EVERYTHING, KEEP_ALL
from tests.faults.reports import Opened
from tests.faults.scale import rounds
from tests.faults.workload import Options

pytestmark = pytest.mark.faults


@pytest.mark.timeout(600)
async def test_a_backup_under_load_is_one_revision_whole(tmp_path: Path, rng: random.Random) -> None:
    async with busy_store(tmp_path / "store.db", rng) as store:
        for number in range(rounds(2, 20)):
            before = store.statistics().revision
            steps = Steps()
            report = await store.backup(tmp_path / f"backup-{number}", progress=steps)
            then = await store.range(EVERYTHING, at=report.revision)
            assert report.digest == (await store.hash(at=report.revision)).digest
            assert store.statistics().revision > before, "the writers stood still"
            assert steps.last == (report.keys_count, report.keys_count)
            assert report.keys_count == len(then.kvs)
            back = restore(tmp_path / f"backup-{number}", tmp_path / f"restored-{number}.db")
            assert back.backup_revision == report.revision
            await _check_restored(tmp_path / f"restored-{number}.db", then.kvs, report.revision)
            assert examine(tmp_path / f"restored-{number}.db").healthy


async def _check_restored(path: Path, kvs: tuple[object, ...], revision: int) -> None:
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL) as store:
        found = await store.range(EVERYTHING)
        assert found.kvs == kvs
        values = {kv.key: kv.value for kv in found.kvs}
        assert all(values.get(b"a/%d" % n) == values.get(b"b/%d" % n) for n in range(4))
        # Far past anything a client of the old store may remember.
        assert found.revision > revision + 1_000_000
        for remembered in (revision, revision + 5000):
            with pytest.raises(Compacted):
                await store.range(b"k", at=remembered)
            with pytest.raises(Compacted) as refusal:
                async with store.watch(EVERYTHING, after=remembered) as batches:
                    await anext(batches)
            assert refusal.value.oldest == found.revision
        assert await store.leases() == (77,)
        leased = await store.time_to_live(77, keys=True)
        assert (leased.ttl_s, leased.keys) == (1000, (b"leased",))
        async with store.watch(EVERYTHING, after=found.revision) as batches:
            put = await store.put(b"new", b"")
            assert put.revision == found.revision + 1
            assert (await anext(batches)).revision == put.revision
        await store.revoke(77)
        assert (await store.range(b"leased")).count == 0


@pytest.mark.timeout(600)
def test_an_interrupted_backup_leaves_nothing_under_its_name(tmp_path: Path, seed: int) -> None:
    options = CancelOptions(str(tmp_path), seed=seed, rounds=rounds(25, 400))
    # In a process of its own: a thread that still works on what was let go of can take all down.
    with Child("cancelled_backups", options) as child:
        child.end()
    told = notes(child.reports)
    assert told["cancelled"].number >= options.rounds // 4, "most backups were done before"
    assert told["left under its name"].number == 0
    assert told["keys restored"].number == told["keys backed up"].number > 0


async def test_a_damaged_backup_is_refused(tmp_path: Path, rng: random.Random) -> None:
    async with busy_store(tmp_path / "store.db", rng) as store:
        await store.backup(tmp_path / "backup")
    sound = (tmp_path / "backup").read_bytes()
    refused = 0
    for number in range(rounds(40, 400)):
        damaged = bytearray(sound)
        offset = rng.randrange(24 if rng.random() < 0.5 else 4096)
        at, bit = rng.randrange(len(sound) // 4096) * 4096 + offset, rng.randrange(8)
        damaged[at] ^= 1 << bit
        (tmp_path / "damaged").write_bytes(damaged)
        data = tmp_path / f"restored-{number}.db"
        try:
            restore(tmp_path / "damaged", data)
        except DataError as error:
            assert "damaged" in str(error)
            assert not data.exists(), "a failed restore left a store behind"
            refused += 1
        else:
            # Harmless, or it would be another store than the one backed up.
            restored = await _digest(data)
            assert restored == await _digest_of(tmp_path, sound), f"bit {bit} of byte {at}"
    assert refused > 0


async def _digest(data: Path) -> list[tuple[bytes, bytes, int]]:
    async with open_embedded(f"sqlite:{data}") as store:
        return [(kv.key, kv.value, kv.lease) for kv in (await store.range(EVERYTHING)).kvs]


async def _digest_of(directory: Path, backup: bytes) -> list[tuple[bytes, bytes, int]]:
    data = directory / "sound.db"
    if not data.exists():
        (directory / "sound").write_bytes(backup)
        restore(directory / "sound", data)
    return await _digest(data)


@pytest.mark.parametrize("size", [0, 1, 4096, 50_000])
async def test_a_backup_cut_short_is_refused(size: int, tmp_path: Path, rng: random.Random) -> None:
    async with busy_store(tmp_path / "store.db", rng) as store:
        await store.backup(tmp_path / "backup")
    (tmp_path / "short").write_bytes((tmp_path / "backup").read_bytes()[:size])
    with pytest.raises(DataError, match="short"):
        restore(tmp_path / "short", tmp_path / "restored.db")
    assert not (tmp_path / "restored.db").exists()


async def test_a_backup_is_no_store_and_a_store_is_no_backup(
    tmp_path: Path, rng: random.Random
) -> None:
    async with busy_store(tmp_path / "store.db", rng) as store:
        await store.backup(tmp_path / "backup")
        before = (tmp_path / "backup").read_bytes()
        with pytest.raises(DataError, match="exists"):
            await store.backup(tmp_path / "backup")
    with pytest.raises(DataUnreadable, match="restore"):
        async with open_embedded(f"sqlite:{tmp_path / 'backup'}"):
            pass
    with pytest.raises(DataUnreadable, match="backup"):
        restore(tmp_path / "store.db", tmp_path / "restored.db")
    with pytest.raises(DataError, match="exists"):
        restore(tmp_path / "backup", tmp_path / "store.db")
    assert (tmp_path / "backup").read_bytes() == before


def test_what_a_crash_left_beside_the_data_does_not_get_into_a_restore(
    tmp_path: Path, rng: random.Random
) -> None:
    """The data was moved away, its log was forgotten: the log belongs to no other file."""
    path = tmp_path / "store.db"
    options = Options(str(path), seed=rng.getrandbits(32), round=1, tasks=2)
    with Child("workload", options) as child:
        child.wait_for(Opened)
        child.hear(2000)
        child.kill()
    backup = tmp_path / "backup"
    asyncio.run(_make_backup(tmp_path / "other.db", backup))
    path.rename(tmp_path / "moved-away.db")
    assert Path(f"{path}-wal").exists()
    assert Path(f"{path}-log").exists()
    # Refusing is as good as starting clean; mixing the two is not.
    with contextlib.suppress(DataError):
        restore(backup, path)
        found = asyncio.run(_digest(path))
        assert found == [(b"only", b"this", 0)]


async def _make_backup(data: Path, backup: Path) -> None:
    async with open_embedded(f"sqlite:{data}") as store:
        await store.put(b"only", b"this")
        assert (await store.range(KeyRange.prefix(b""))).count == 1
        await store.backup(backup)
