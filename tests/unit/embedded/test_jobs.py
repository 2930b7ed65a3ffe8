"""Commits on a journal: two at a time, told of in their order; what becomes of both if one fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from quorate.engines.embedded import batch as batches
from quorate.engines.embedded import log_length
from quorate.engines.embedded.batch import Batch
from quorate.engines.embedded.jobs import JournalJobs
from quorate.engines.embedded.journal import Journal
from quorate.engines.embedded.syncing import OnSynced
from quorate.errors import StorageFailed
from quorate.store.model import KeyValue
from quorate.store.replies import Reply

_SOON_S = 10.0
_LOST = OSError(errno.EIO, "lost")


class _Disk:
    """Where every sync ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[_Sync] = []

    def file_sync(self, file: int, loop: asyncio.AbstractEventLoop, on_synced: OnSynced) -> _Sync:
        return _Sync(self, file, on_synced)


class _Sync:
    def __init__(self, disk: _Disk, file: int, on_synced: OnSynced) -> None:
        self._disk, self._file, self._on_synced = disk, file, on_synced
        self.reply: Reply | None = None

    def begin(self, data: bytes, offset: int, /) -> None:
        os.pwrite(self._file, data, offset)
        self._disk.begun.append(self)

    def end(self, failure: OSError | None = None) -> None:
        self._disk.begun.remove(self)
        self._on_synced(failure)

    def expect(self) -> None:
        pass

    def attach(self, reply: Reply) -> None:
        self.reply = reply

    def catch_up(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Commits:
    """What was submitted, and what was told of it: numbers, negative for what failed."""

    def __init__(self, path: Path, disk: _Disk) -> None:
        self.disk = disk
        self.told: list[int] = []
        self.errors: list[BaseException] = []
        self._changed = asyncio.Event()
        self._journal = Journal.open(path)
        self._is_closed = False
        self.jobs = JournalJobs(self._journal, asyncio.get_running_loop(), failed=self.errors.append)

    def submit(self, number: int, *, size: int = 10) -> None:
        batch = Batch()
        batch.changes.append((KeyValue(b"k", b"v" * size, number, number, 1),))
        batch.put_bytes = size
        self.jobs.submit(batch, self._teller(number))

    def _teller(self, number: int) -> Callable[[BaseException | None, object], None]:
        def done(error: BaseException | None, _: object) -> None:
            self.told.append(number if error is None else -number)
            if error is not None:
                self.errors.append(error)
            self._changed.set()

        return done

    def has_room(self) -> bool:
        return self.jobs.has_room

    async def wait_told(self, *numbers: int) -> None:
        async with asyncio.timeout(_SOON_S):
            while len(self.told) < len(numbers):
                self._changed.clear()
                await self._changed.wait()
        assert self.told == list(numbers)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        closed = asyncio.Event()
        self.jobs.close(lambda error, _: closed.set())
        await asyncio.wait_for(closed.wait(), _SOON_S)
        self.jobs.stop()


@pytest.fixture
async def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Commits]:
    disk = _Disk()
    monkeypatch.setattr("quorate.engines.embedded.jobs.file_sync", disk.file_sync)
    monkeypatch.setattr(log_length, "HALF_BYTES", 1000)
    commits = _Commits(tmp_path / "q.db", disk)
    yield commits
    await commits.close()


def _revisions(path: Path) -> list[int]:
    journal = Journal.open(path)
    found = [kv.mod_revision for versions in journal.read() for kv in versions]
    journal.close()
    return found


async def test_two_are_under_way_and_told_of_in_their_order(commits: _Commits) -> None:
    commits.submit(2)
    assert commits.has_room()
    commits.submit(3)
    assert not commits.has_room()
    first, second = commits.disk.begun
    second.end()
    assert commits.told == []  # it is on disk, and what it builds on is not
    assert commits.has_room()
    commits.submit(4)
    first.end()
    assert commits.told == [2, 3]
    commits.disk.begun[0].end()
    assert commits.told == [2, 3, 4]


async def test_a_reply_is_attached_only_where_nothing_is_under_way_before(commits: _Commits) -> None:
    first, second = Reply(-1, b"first"), Reply(-1, b"second")
    commits.submit(2)
    commits.jobs.attach(first)
    commits.submit(3)
    commits.jobs.attach(second)  # it would leave with the sync of a commit that may come to nothing
    assert [sync.reply for sync in commits.disk.begun] == [first, None]
    for sync in list(commits.disk.begun):
        sync.end()


@pytest.mark.parametrize("first_ends_first", [True, False])
@pytest.mark.parametrize("lost", [0, 1])
async def test_when_the_log_fails_nothing_more_is_acknowledged(
    commits: _Commits, lost: int, first_ends_first: bool
) -> None:
    commits.submit(2)
    commits.disk.begun[0].end()
    commits.submit(3)
    commits.submit(4)
    syncs = list(commits.disk.begun)
    order = (0, 1) if first_ends_first else (1, 0)
    for at in order:
        syncs[at].end(_LOST if at == lost else None)
    # The one before the one that is lost may count if its own sync was over before anything was wrong.
    assert commits.told == ([2, 3, -4] if lost == 1 and first_ends_first else [2, -3, -4])
    assert all(isinstance(error, StorageFailed) for error in commits.errors)
    commits.submit(5)
    await commits.wait_told(*commits.told, -5)
    assert commits.disk.begun == []  # it was not even tried


async def test_what_is_too_long_for_the_log_waits_for_those_before_it(
    commits: _Commits, tmp_path: Path
) -> None:
    commits.submit(2)
    commits.submit(3, size=batches._SHORT_BYTES + 1)
    assert not commits.has_room()
    assert len(commits.disk.begun) == 1
    commits.disk.begun[0].end()
    await commits.wait_told(2, 3)
    assert commits.has_room()
    commits.submit(4)
    commits.disk.begun[0].end()
    assert commits.told == [2, 3, 4]
    await commits.close()
    assert _revisions(tmp_path / "q.db") == [2, 3, 4]


async def test_what_finds_no_room_in_the_log_waits_until_there_is_some(
    commits: _Commits, tmp_path: Path
) -> None:
    numbers = range(2, 30)
    for number in numbers:
        commits.submit(number, size=400)  # two in a half
        if commits.has_room():
            continue
        async with asyncio.timeout(_SOON_S):
            while not commits.has_room():
                for sync in reversed(commits.disk.begun):
                    sync.end()
                await asyncio.sleep(0)
    for sync in reversed(commits.disk.begun):
        sync.end()
    assert commits.told == list(numbers)
    await commits.close()
    assert _revisions(tmp_path / "q.db") == list(numbers)
