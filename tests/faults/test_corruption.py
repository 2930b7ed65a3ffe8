"""Damaged data: a store opens with exactly what was in it, or says what is wrong; it never guesses."""

from __future__ import annotations

import asyncio
import copy
import random
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from quoracy.clock import ManualClock
from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.doctor import examine
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import DataError, DataUnreadable, FormatUnknown
from quoracy.store.model import Delete, KeyRange, LeaseId, Put, Txn
from tests.faults.child import Child
from tests.faults.disks import Disk
from tests.faults.judge import EVERYTHING, KEEP_ALL, Judge, Ledger, read_history
from tests.faults.model import Changes
from tests.faults.scale import rounds
from tests.faults.workload import Options

pytestmark = pytest.mark.faults

_PAGE_BYTES = 4096


class _Contents(msgspec.Struct, frozen=True):
    """All that can be told of a store from outside."""

    revision: int
    compact_revision: int
    digest: str
    history: dict[int, Changes]
    leases: dict[int, tuple[float, tuple[bytes, ...]]]


async def _contents(store: EmbeddedStore) -> _Contents:
    status, state = await store.status(), await store.hash()
    leases = {}
    for lease in await store.leases():
        about = await store.time_to_live(lease, keys=True)
        leases[int(lease)] = (about.ttl_s, about.keys)
    return _Contents(
        revision=status.revision,
        compact_revision=status.compact_revision,
        digest=state.digest,
        history=await read_history(store, after=max(status.compact_revision - 1, 0)),
        leases=leases,
    )


async def _fill(path: Path, rng: random.Random) -> _Contents:
    """A small store with a bit of everything: history, deletions, transactions, leases, free pages."""
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL, clock=ManualClock()) as store:
        for number in range(4):
            await store.grant(100 + number, id=LeaseId(7 + number))
        for number in range(60):
            await store.put(b"old/%d" % (number % 9), rng.randbytes(rng.randrange(400)))
        for number in range(150):
            # Alone in their rows, and no others of their revisions are kept: nobody counts on them.
            await store.put(b"kept/%d" % number, rng.randbytes(60))
            await store.put(b"gone", b"")
        await store.delete(KeyRange.prefix(b"old/1"))
        await store.compact((await store.status()).revision - 5)
        for number in range(40):
            key = b"k/%d" % (number % 11)
            await store.put(key, rng.randbytes(rng.randrange(200)), lease=7 + number % 4)
            await asyncio.gather(*(store.put(b"g/%d" % i, rng.randbytes(9)) for i in range(3)))
            await store.txn(Txn(then=(Put(b"t/b", b"1"), Put(b"t/a", b"2"), Delete(b"k/3"))))
        await store.revoke(10)
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL, clock=ManualClock()) as store:
        return await _contents(store)


async def _judge_damaged(path: Path, right: _Contents) -> str:
    """Open what may be damaged: exactly right, or refused with a remedy."""
    try:
        async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL, clock=ManualClock()) as store:
            found = await _contents(store)
    except (DataUnreadable, FormatUnknown) as error:
        assert str(path) in str(error), f"the message does not name the file: {error}"
        return "refused"
    assert found == right, _difference(found, right)
    return "right"


def _difference(found: _Contents, right: _Contents) -> str:
    wrong = [
        f"{name}: {getattr(found, name)!r:.300}, not {getattr(right, name)!r:.300}"
        for name in ("revision", "compact_revision", "digest", "leases", "history")
        if getattr(found, name) != getattr(right, name)
    ]
    return "opened with wrong contents: " + "; ".join(wrong)


def _remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


@pytest.mark.timeout(900)
async def test_a_flipped_bit_is_found_or_harmless(tmp_path: Path, rng: random.Random) -> None:
    template = tmp_path / "template.db"
    right = await _fill(template, rng)
    sound = template.read_bytes()
    path = tmp_path / "damaged.db"
    verdicts = {"refused": 0, "right": 0}
    for _ in range(rounds(200, 6000)):
        # Half of them where a page says what is on it: there a flip can make whole rows vanish.
        offset = rng.randrange(24 if rng.random() < 0.5 else _PAGE_BYTES)
        at, bit = rng.randrange(len(sound) // _PAGE_BYTES) * _PAGE_BYTES + offset, rng.randrange(8)
        damaged = bytearray(sound)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            verdicts[await _judge_damaged(path, right)] += 1
        except Exception as error:
            error.add_note(f"bit {bit} of byte {at} (page {at // _PAGE_BYTES + 1}, {offset} in it)")
            raise
        _remove(path)
    assert verdicts["refused"] > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["the number of rows on a page", "the description of the tables"])
async def test_damage_to_the_structure_is_found(where: str, tmp_path: Path, rng: random.Random) -> None:
    """Where no row's checksum can tell: rows that are not counted any more, tables with other names."""
    template = tmp_path / "template.db"
    right = await _fill(template, rng)
    sound = template.read_bytes()
    if where == "the number of rows on a page":
        spots = [
            (page + 4, bit) for page in range(_PAGE_BYTES, len(sound), _PAGE_BYTES) for bit in range(8)
        ]
    else:
        spots = [(at, 7) for at in range(_PAGE_BYTES - 800, _PAGE_BYTES, rounds(7, 1))]
    path = tmp_path / "damaged.db"
    for at, bit in spots:
        damaged = bytearray(sound)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            await _judge_damaged(path, right)
        except Exception as error:
            error.add_note(f"bit {bit} of byte {at} (page {at // _PAGE_BYTES + 1})")
            raise
        _remove(path)


@pytest.mark.timeout(900)
async def test_a_damaged_stretch_is_found_or_harmless(tmp_path: Path, rng: random.Random) -> None:
    """Lost sectors: zeros, noise, or another page's contents, where data should be."""
    template = tmp_path / "template.db"
    right = await _fill(template, rng)
    sound = template.read_bytes()
    path = tmp_path / "damaged.db"
    for _ in range(rounds(60, 800)):
        size = rng.choice([16, 512, 4096])
        at = rng.randrange(len(sound) // size) * size
        other = rng.randrange(len(sound) // size) * size
        what = rng.choice([bytes(size), rng.randbytes(size), sound[other : other + size]])
        path.write_bytes(sound[:at] + what + sound[at + size :])
        try:
            await _judge_damaged(path, right)
        except Exception as error:
            error.add_note(f"{size} bytes at {at} replaced with {what[:20]!r}...")
            raise
        _remove(path)


@pytest.mark.timeout(300)
async def test_a_file_cut_short_is_refused(tmp_path: Path, rng: random.Random) -> None:
    template = tmp_path / "template.db"
    right = await _fill(template, rng)
    sound = template.read_bytes()
    lengths = {1, 15, 16, 99, 100, 512, 4095, 4096, 8192, len(sound) - 1, len(sound) - 4096}
    path = tmp_path / "damaged.db"
    for length in sorted({*lengths, *(rng.randrange(1, len(sound)) for _ in range(rounds(10, 100)))}):
        path.write_bytes(sound[:length])
        if len(sound) - length < _PAGE_BYTES:
            # The last page may be one that nobody uses: then nothing is missing.
            await _judge_damaged(path, right)
            _remove(path)
            continue
        with pytest.raises(DataUnreadable, match=r"damaged\.db"):
            async with open_embedded(f"sqlite:{path}"):
                pass
        # Refused is not repaired: the file is left for whoever knows better.
        assert path.read_bytes()[:length] == sound[:length], f"cut to {length}, it was changed too"
        _remove(path)
    assert right.revision > 100


@pytest.mark.parametrize("contents", [b"hello\n", b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 9000])
async def test_a_file_that_is_no_store_is_refused_and_left_alone(
    contents: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(contents)
    with pytest.raises(DataUnreadable, match=r"letter\.txt"):
        async with open_embedded(f"sqlite:{path}"):
            pass
    assert path.read_bytes() == contents
    assert not examine(path).healthy


async def test_a_database_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE meta (name TEXT, value); CREATE TABLE mine (x); PRAGMA user_version=3"
    )
    db.close()
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"theirs\.db"):
        async with open_embedded(f"sqlite:{path}"):
            pass
    assert path.read_bytes() == before


async def test_an_unknown_format_is_refused_not_guessed_at(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store.db"
    await _fill(path, rng)
    journal, batch = Journal.open(path), Batch()
    batch.meta["format"] = 99
    journal.commit(batch)
    journal.close()
    with pytest.raises(FormatUnknown, match="99"):
        async with open_embedded(f"sqlite:{path}"):
            pass
    report = examine(path)
    assert not report.healthy


@pytest.fixture
def crashed(tmp_path: Path, rng: random.Random) -> tuple[Path, Ledger]:
    """A store that was killed, all of its commits in the commit log still, and what it had told."""
    path = tmp_path / "crashed" / "store.db"
    # No compaction, so that every revision can be told, and nothing is put into the tables.
    options = Options(
        str(path),
        seed=rng.getrandbits(32),
        round=1,
        tasks=1,
        operations_max=60,
        revisions_max=10_000,
        compact=False,
    )
    with Child("workload", options) as child:
        child.hear(rng.randint(150, 300))
        child.kill()
        child.check_killed()
    return path, Ledger(child.reports)


@pytest.mark.timeout(900)
def test_a_torn_log_leaves_a_prefix(
    crashed: tuple[Path, Ledger], tmp_path: Path, rng: random.Random
) -> None:
    """Cut or garble the log where a crash may have torn it: the store is as it was at some revision."""
    path, ledger = crashed
    log = Path(f"{path}-log").read_bytes()
    for attempt in range(rounds(24, 600)):
        torn = tmp_path / f"torn-{attempt}" / "store.db"
        shutil.copytree(path.parent, torn.parent)
        Path(f"{torn}-log").write_bytes(_tear(log, rng))
        asyncio.run(_check_prefix(torn, copy.deepcopy(ledger)))
        shutil.rmtree(torn.parent)


def _tear(log: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(log.rstrip(b"\0")))
    match rng.randrange(3):
        case 0:
            return log[:at]
        case 1:
            return log[:at] + bytes(len(log) - at)
        case _:
            return log[:at] + rng.randbytes(len(log) - at)


@pytest.mark.timeout(900)
def test_a_log_that_is_damaged_within_is_refused(
    crashed: tuple[Path, Ledger], tmp_path: Path, rng: random.Random
) -> None:
    """What follows shows that what is damaged was acknowledged: it is not passed over."""
    path, ledger = crashed
    log = Path(f"{path}-log").read_bytes()
    verdicts = {"refused": 0, "prefix": 0}
    for attempt in range(rounds(24, 600)):
        damaged = tmp_path / f"damaged-{attempt}" / "store.db"
        shutil.copytree(path.parent, damaged.parent)
        at = rng.randrange(len(log.rstrip(b"\0")))
        size = rng.choice([1, 16, 512])
        garbled = bytes(byte ^ rng.randint(1, 255) for byte in log[at : at + size])
        Path(f"{damaged}-log").write_bytes(log[:at] + garbled + log[at + size :])
        try:
            asyncio.run(_check_prefix(damaged, copy.deepcopy(ledger)))
        except DataUnreadable as error:
            assert f"{damaged}-log" in str(error)
            assert not examine(damaged).healthy
            verdicts["refused"] += 1
        else:  # it was in the last commit, which may not have been acknowledged
            verdicts["prefix"] += 1
            assert at > len(log.rstrip(b"\0")) - 10_000
        shutil.rmtree(damaged.parent)
    assert verdicts["refused"] > verdicts["prefix"]


async def _check_prefix(path: Path, ledger: Ledger) -> None:
    judge = Judge()
    async with open_embedded(f"sqlite:{path}", retention=KEEP_ALL, clock=ManualClock()) as store:
        revision = (await store.status()).revision
        history = await read_history(store, after=0)
        # Later revisions are gone, and that is all: what is there is what was acknowledged.
        for later in [made for made in ledger.made if made > revision]:
            id = ledger.made.pop(later)
            ledger.open[id] = ledger.operation(id)
        ledger.seen = {at: kvs for at, kvs in ledger.seen.items() if at <= revision}
        ledger.reads = [read for read in ledger.reads if read.revision <= revision]
        judge.advance(ledger, history, await store.status())
        assert (await store.range(EVERYTHING)).kvs == judge.model.live()
        assert (await store.hash()).digest == judge.model.digest()
        for lease in await store.leases():
            keys = (await store.time_to_live(lease, keys=True)).keys
            assert keys == judge.model.keys_of(lease)


async def test_a_read_only_file_system_is_a_clear_error(disk: Disk, rng: random.Random) -> None:
    path = disk.path / "store.db"
    await _fill(path, rng)
    disk.make_read_only()
    with pytest.raises(DataUnreadable, match=r"(?i)read-?only"):
        async with open_embedded(f"sqlite:{path}"):
            pass
    with pytest.raises(DataUnreadable, match=r"(?i)read-?only"):
        async with open_embedded(f"sqlite:{disk.path / 'new.db'}"):
            pass


async def test_a_path_that_cannot_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    for path in (tmp_path / "file" / "store.db", tmp_path / "file" / "deeper" / "store.db", tmp_path):
        with pytest.raises(DataUnreadable, match=str(tmp_path)):
            async with open_embedded(f"sqlite:{path}"):
                pass


async def test_missing_directories_are_made(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "store.db"
    async with open_embedded(f"sqlite:{path}") as store:
        await store.put(b"k", b"v")
    assert path.exists()
