"""Commits on a journal: two at a time, told of in their order; what becomes of both if one fails."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from quoracy.engines.embedded.committing import group as batches
from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.embedded.disk.file_sync import OnSynced
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.disk.writer import JournalWriter
from quoracy.errors import StorageFailed
from quoracy.store.completion import Reply
from quoracy.store.model import KeyValue

_SOON_S = 10.0
_LOST = OSError(errno.EIO, "lost")


class _Disk:
    """Where every sync ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[_Sync] = []

    def syncs(self, loop: asyncio.AbstractEventLoop) -> _Syncs:
        return _Syncs(self)


class _Syncs:
    sends_replies = True

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk

    def make(self, file: int, on_synced: OnSynced) -> _Sync:
        return _Sync(self._disk, file, on_synced)


class _Sync:
    def __init__(self, disk: _Disk, file: int, on_synced: OnSynced) -> None:
        self._disk, self._file, self._on_synced = disk, file, on_synced
        self.replies: list[Reply] = []

    def begin(self, data: bytes, offset: int, replies: Sequence[Reply] = (), /) -> None:
        self.replies = list(replies)
        os.pwrite(self._file, data, offset)
        self._disk.begun.append(self)

    def end(self, failure: OSError | None = None) -> None:
        self._disk.begun.remove(self)
        self._on_synced(failure)

    def expect(self) -> None:
        pass

    def attach(self, reply: Reply) -> None:
        self.replies.append(reply)

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
        self.jobs = JournalWriter(self._journal, asyncio.get_running_loop(), failed=self.errors.append)

    def submit(self, number: int, *, size: int = 10, replies: Sequence[Reply] = ()) -> None:
        batch = Batch()
        batch.changes.append((KeyValue(b"k", b"v" * size, number, number, 1),))
        batch.put_bytes = size
        self.jobs.commit(batch, self._teller(number))
        for reply in replies:
            self.jobs.attach(reply)

    def _teller(self, number: int) -> Callable[[BaseException | None, object], None]:
        def done(error: BaseException | None, _: object) -> None:
            self.told.append(number if error is None else -number)
            if error is not None:
                self.errors.append(error)
            self._changed.set()

        return done

    def has_room(self) -> bool:
        return self.jobs.has_room

    def is_worker_busy(self) -> bool:
        return self.jobs.is_at_work

    async def wait_told(self, *numbers: int) -> None:
        async with asyncio.timeout(_SOON_S):
            while len(self.told) < len(numbers):
                self._changed.clear()
                await self._changed.wait()
        assert self.told == list(numbers)

    async def wait_worked(self) -> None:
        """Until the worker has done all it was handed."""
        done = asyncio.Event()
        self.jobs.submit(lambda: None, lambda error, _: done.set())
        await asyncio.wait_for(done.wait(), _SOON_S)

    def revisions_in_tables(self) -> list[int]:
        return [kv.mod_revision for versions in self._journal.read() for kv in versions]

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
    monkeypatch.setattr("quoracy.engines.embedded.disk.writer.FileSyncs", disk.syncs)
    monkeypatch.setattr(log_length, "SEGMENT_BYTES", 1000)
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
    first.end()
    assert commits.told == [2, 3]
    assert commits.has_room()
    commits.submit(4)
    commits.disk.begun[0].end()
    assert commits.told == [2, 3, 4]


async def test_behind_a_slow_one_only_as_many_are_taken_as_there_are_threads(
    commits: _Commits,
) -> None:
    """Not one after the other on the thread that is free: what is unacknowledged is bounded."""
    number = 2
    for _ in range(10):
        taken = 0
        while commits.has_room() and taken < 10:
            commits.submit(number)
            number, taken = number + 1, taken + 1
            for sync in commits.disk.begun[1:]:
                sync.end()
        assert taken == 2
        assert commits.told == list(range(2, number - 2))
        (slow,) = commits.disk.begun
        slow.end()
        assert commits.told == list(range(2, number))


async def test_replies_go_with_the_sync_of_their_own_commit(commits: _Commits) -> None:
    replies = [Reply(-1, b"%d" % number) for number in range(5)]
    commits.submit(2, replies=replies[:3])
    commits.submit(3, replies=replies[3:])
    first, second = commits.disk.begun
    assert first.replies == replies[:3]
    assert second.replies == replies[3:]
    first.end()
    second.end()


async def test_what_waits_for_room_in_the_log_leaves_its_replies_to_the_loop(
    commits: _Commits,
) -> None:
    answered: list[int] = []
    waited: list[int] = []
    for number in range(2, 12):
        reply = Reply(-1, b"%d" % number)
        commits.submit(number, size=400, replies=[reply])  # two in a half
        (waited if not commits.disk.begun else answered).append(number)
        async with asyncio.timeout(_SOON_S):
            while not commits.disk.begun:  # noqa: ASYNC110 (the worker does not tell us)
                await asyncio.sleep(0.001)
        (sync,) = commits.disk.begun
        assert sync.replies == ([reply] if number in answered else [])
        sync.end()
        await commits.wait_told(*range(2, number + 1))
    assert answered
    assert waited


async def test_a_commit_that_is_not_tried_takes_no_reply_with_it(commits: _Commits) -> None:
    commits.submit(2)
    commits.disk.begun[0].end(_LOST)
    commits.submit(3, replies=[Reply(-1, b"lost")])
    assert commits.disk.begun == []
    await commits.wait_told(-2, -3)


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


async def test_the_worker_is_at_work_from_when_it_is_handed_something_until_nothing_is_left(
    commits: _Commits,
) -> None:
    go_on = threading.Event()
    ended = asyncio.Event()

    def work() -> None:
        assert go_on.wait(_SOON_S)

    assert not commits.is_worker_busy()
    commits.submit(2)
    assert not commits.is_worker_busy()  # a commit is nothing to it
    commits.disk.begun[0].end()
    commits.jobs.submit(work, lambda error, _: None)
    commits.jobs.submit(work, lambda error, _: ended.set())
    assert commits.is_worker_busy()
    go_on.set()
    await asyncio.wait_for(ended.wait(), _SOON_S)
    await commits.close()
    assert not commits.is_worker_busy()


async def _submit_all(commits: _Commits, numbers: Sequence[int]) -> None:
    """Commits of 400 bytes, two of which fill a segment, each ended before the next one."""
    for number in numbers:
        commits.submit(number, size=400)
        async with asyncio.timeout(_SOON_S):
            while number not in commits.told:
                for sync in list(commits.disk.begun):
                    sync.end()
                await asyncio.sleep(0)


async def test_the_log_grows_as_long_as_all_of_it_is_needed(commits: _Commits, tmp_path: Path) -> None:
    log = tmp_path / "q.db-log"
    assert log.stat().st_size == 2 * 1000
    numbers = range(2, 100)
    await _submit_all(commits, numbers)
    await commits.wait_worked()
    assert log.stat().st_size == log_length.SEGMENTS_MAX * 1000
    await commits.close()
    assert _revisions(tmp_path / "q.db") == list(numbers)


async def test_on_a_disk_with_little_room_the_log_stays_as_it_is(
    commits: _Commits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_length, "FREE_BYTES_MIN", 1 << 62)
    numbers = range(2, 30)
    await _submit_all(commits, numbers)
    await commits.wait_worked()
    assert (tmp_path / "q.db-log").stat().st_size == 2 * 1000
    await commits.close()
    assert _revisions(tmp_path / "q.db") == list(numbers)


async def test_what_is_too_long_goes_past_what_is_held(
    commits: _Commits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _submit_all(commits, [2, 3])
    monkeypatch.setattr(batches, "_SHORT_BYTES", 100)
    await _submit_all(commits, [4])
    monkeypatch.undo()
    monkeypatch.setattr(log_length, "SEGMENT_BYTES", 1000)
    await commits.wait_worked()
    assert commits.revisions_in_tables() == [4]
    await _submit_all(commits, [5])
    await commits.close()
    assert _revisions(tmp_path / "q.db") == [2, 3, 4, 5]
