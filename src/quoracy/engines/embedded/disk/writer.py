"""Writers: the engine's work on the journal, in two queues that do not wait for each other.

    commits         are written to the commit log: encoded here, written and synced by threads that need
                    no interpreter lock; two at a time, completed in their order
    anything else   is done by a worker thread, on the tables, one after the other: copying from the
    log,
                    cleaning, giving space back, checkpoints

The engine submits a job, with a callback that runs on its loop when the job is done.  `JournalWriter`
has a journal.  `InstantWriter` has none, and does its jobs in the next turn of the loop, so that a
store without durability behaves in every other way like one with it.

A commit that would take too long to encode on the loop is written to the tables by the worker, and not
to the log.  A commit for which the log has no room waits until the worker has made some.  In both cases
no other commit is under way.

There are two commits at a time because a disk that is synced from two threads does nearly twice as many
syncs, and while one group waits for the disk the loop prepares the next.  Commits do not go through the
tables because SQLite's own work, a slice of cleaning and checkpoints would delay them, and because a
worker that handled commits would compete with the loop for the interpreter lock (decision 0012).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.embedded.disk.commit_log import changes_in
from quoracy.engines.embedded.disk.file_sync import FileSync, FileSyncs, let_others_go_first
from quoracy.engines.embedded.disk.journal import Cleaned, Journal
from quoracy.engines.embedded.disk.log_rows import FrameRow, FrameRows, VersionName
from quoracy.engines.embedded.disk.sweep import Sweep
from quoracy.store.completion import Reply

__all__ = [
    "Clean",
    "Done",
    "GiveBack",
    "InstantWriter",
    "Job",
    "JournalWriter",
    "Sweep",
    "Writer",
]

# Called when a job has ended: with the error that stopped it, or with what it returned.
Done = Callable[[BaseException | None, object], None]
Work = Callable[[], object]

# New frames are handed over to the worker once there are this many bytes or commits: seldom enough that
# rows are long, and that the worker does not need the interpreter lock all the time.
_FOLD_BYTES = 512 * 1024
_FOLD_COMMITS = 4096
# How many segments of the log are kept free ahead of the one that is being written.
_FREE_SEGMENTS_MIN = 2


class Clean:
    """A slice of cleaning: remove these versions, oldest first, and continue earlier cleaning."""

    __slots__ = ("is_last", "names", "start")

    def __init__(self, names: list[VersionName], start: int, *, is_last: bool) -> None:
        self.names = names
        self.start = start  # the first that is left to do
        self.is_last = is_last  # no other names will follow


class GiveBack:
    """A slice of giving unused space back to the file system."""

    __slots__ = ()


Job = Clean | Sweep | GiveBack  # commits are not jobs: see `Writer.commit`


class Writer(Protocol):
    """Makes commits durable, while there is room, in order; and does other jobs, one after the other.

    sends_replies: whether replies that are given to it are ever sent.
    """

    @property
    def has_room(self) -> bool:
        """Whether a commit may be made."""

    @property
    def is_committing(self) -> bool:
        """Whether a commit is on its way."""

    @property
    def is_at_work(self) -> bool:
        """Whether its worker has something to do, as far as the loop knows."""

    @property
    def sends_replies(self) -> bool: ...

    def commit(self, batch: Batch, done: Done, /) -> None:
        """Make a batch durable."""

    def expect(self) -> None:
        """A hint that a commit will very likely be made in a moment."""

    def attach(self, reply: Reply) -> None:
        """Send a reply when the last commit is durable; or not at all."""

    def catch_up(self) -> None:
        """Complete the commits whose replies a client may have seen."""

    def submit(self, job: Job | Work, done: Done) -> None: ...

    def size(self, done: Done) -> None:
        """The bytes on disk; None without a disk."""

    def close(self, done: Done) -> None:
        """Write the rest to the tables, and close the journal."""

    def stop(self) -> None:
        """End the threads; no job may be left."""


class InstantWriter:
    """A writer without a disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.has_room = True
        self.is_at_work = False
        self.sends_replies = False

    @property
    def is_committing(self) -> bool:
        return not self.has_room

    def commit(self, batch: Batch, done: Done, /) -> None:
        del batch
        self.has_room = False
        self._loop.call_soon(self._committed, done)

    def _committed(self, done: Done) -> None:
        self.has_room = True
        done(None, None)

    def submit(self, job: Job | Work, done: Done) -> None:
        result: object = None
        if isinstance(job, Clean):
            result = Cleaned(len(job.names) - job.start, more=False, took_s=0.0)
        elif isinstance(job, Sweep):
            job.after = job.until
            result = Cleaned(0, more=False, took_s=0.0)
        self._loop.call_soon(done, None, result)

    def expect(self) -> None:
        pass

    def attach(self, reply: Reply) -> None:
        pass

    def catch_up(self) -> None:
        pass

    def size(self, done: Done) -> None:
        self._loop.call_soon(done, None, None)

    def close(self, done: Done) -> None:
        self._loop.call_soon(done, None, None)

    def stop(self) -> None:
        pass


class _Commit:
    """A commit that is under way."""

    __slots__ = ("batch", "done", "error", "frame", "is_synced", "sequence")

    def __init__(self, batch: Batch, done: Done) -> None:
        self.batch, self.done = batch, done
        self.frame = b""  # unless it is too long for the log
        self.sequence = 0  # of its frame
        self.is_synced = False
        self.error: BaseException | None = None


class _Slot:
    """A thread that writes and syncs one frame at a time, and the commit it works on."""

    __slots__ = ("commit", "sync")

    def __init__(self) -> None:
        self.sync: FileSync
        self.commit: _Commit | None = None


class JournalWriter:
    """Owns a journal until it is closed.

    failed: called with a failure that belongs to no job.
    """

    def __init__(
        self,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        *,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._journal = journal
        self._log = journal.log
        self._loop = loop
        self._failed = failed
        self._commits: deque[_Commit] = deque()  # under way, in their order
        self._next: _Commit | None = None  # has to be alone, and waits for those before it
        self._alone: _Commit | None = None  # is alone, and waits for the worker
        self._lost: OSError | None = None  # the error with which writing the log failed
        self._unfolded_rows = FrameRows()  # changes in the log that were not handed over yet
        self._unfolded = Batch()  # the same for everything but changes
        self._unfolded_bytes = self._unfolded_commits = 0
        self._unfolded_until = self._log.sequence  # the number of the last commit that was synced
        self._handed_revision = 0  # the newest that was handed over
        self._may_lengthen = True  # the log; False once the disk had no room
        self._idle: list[_Slot] = []
        syncs = FileSyncs(loop)
        self.sends_replies = syncs.sends_replies
        for file in self._log.files:
            slot = _Slot()
            slot.sync = syncs.make(file, partial(self._synced, slot))
            self._idle.append(slot)
        self._slots = tuple(self._idle)
        self.is_at_work = False  # whether the worker is, or will be
        self._works: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="quoracy-journal", daemon=True)
        self._worker.start()

    def submit(self, job: Job | Work, done: Done) -> None:
        journal = self._journal
        if isinstance(job, Clean):
            self._fold_until(job.names[-1][0] if job.names else 0)
            self._hand_over(partial(journal.clean, job.names, job.start, is_last=job.is_last), done)
        elif isinstance(job, Sweep):
            self._fold_until(job.until)
            self._hand_over(partial(journal.sweep, job), partial(self._swept, done))
        elif isinstance(job, GiveBack):
            self._hand_over(journal.give_back, done)
        else:
            self._hand_over(job, done)

    def size(self, done: Done) -> None:
        self._hand_over(self._journal.size, done)

    def close(self, done: Done) -> None:
        if self._journal.failure is None:
            self._fold_and_sync(self._folded)
        self._hand_over(self._journal.close, done)

    def stop(self) -> None:
        self._works.put(None)
        self._worker.join()
        for slot in self._slots:
            slot.sync.close()

    # -- commits -------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        # A commit that is synced stays under way until all before it have ended.  So behind a slow one
        # there are at most as many as there are threads.
        return self._next is None and self._alone is None and len(self._commits) < len(self._slots)

    @property
    def is_committing(self) -> bool:
        return bool(self._commits)

    def commit(self, batch: Batch, done: Done) -> None:
        assert self.has_room
        commit = _Commit(batch, done)
        self._commits.append(commit)
        failure = self._journal.failure
        if failure is not None:
            commit.error = self._journal.fail(failure)
            self._loop.call_soon(self._end_in_order)
            return
        if batch.is_short:
            frame = self._log.frame(batch)
            if self._log.fits(len(frame)):
                commit.frame = frame
                if self._write(commit):
                    return
        self._next = commit
        self._go_on()

    def _write(self, commit: _Commit) -> bool:
        """Write a commit to the log; False if it has no room, because all of it is still needed."""
        log = self._log
        segment = log.segment
        offset = log.place(len(commit.frame))
        if offset < 0:
            return False
        commit.sequence = log.sequence
        if log.segment != segment and log.free_count < _FREE_SEGMENTS_MIN:
            self._make_room()
        slot = self._idle.pop()
        slot.commit = commit
        slot.sync.begin(commit.frame, offset)
        return True

    def expect(self) -> None:
        if self._idle:
            self._idle[-1].sync.expect()

    def attach(self, reply: Reply) -> None:
        commit = self._commits[-1]
        for slot in self._slots:
            if slot.commit is commit:
                slot.sync.attach(reply)

    def catch_up(self) -> None:
        for slot in self._slots:
            slot.sync.catch_up()

    def _go_on(self) -> None:
        """Start the worker on the commit that has to be alone, once none is under way before it."""
        commit = self._next
        if commit is None or self._commits[0] is not commit:
            return
        self._next, self._alone = None, commit
        if commit.frame:
            self._settle(1)  # then there is room, and `_folded` writes it
            return
        changes = commit.batch.changes
        if commit.batch.only_changes:
            if self._unfolded_commits:
                self._fold()
            self._hand_over(partial(self._journal.commit_beside, commit.batch), self._long_ended)
        else:
            self._unfolded.absorb(commit.batch)
            self._fold_and_sync(self._long_ended)
        if changes:
            self._handed_revision = changes[-1][-1].mod_revision

    def _synced(self, slot: _Slot, failure: OSError | None) -> None:
        commit, slot.commit = slot.commit, None
        assert commit is not None
        self._idle.append(slot)
        commit.is_synced = True
        if failure is not None and self._lost is None:
            self._lost = failure
        self._end_in_order()

    def _end_in_order(self) -> None:
        commits = self._commits
        while commits and (commits[0].is_synced or commits[0].error is not None):
            commit = commits.popleft()
            if self._lost is not None:
                # Even if its own sync succeeded: no frame behind a lost one counts, and a commit before
                # the lost frame may be reported as failed, since that means an unknown outcome.
                commit.error = self._journal.fail(self._lost)
            if commit.error is None:
                self._note_unfolded(commit)
                self._unfolded_bytes += len(commit.frame)
                self._unfolded_commits += 1
                self._unfolded_until = self._log.acknowledged = commit.sequence
                if self._unfolded_bytes >= _FOLD_BYTES or self._unfolded_commits >= _FOLD_COMMITS:
                    self._fold()
            commit.done(commit.error, None)
        self._go_on()

    def _ended_alone(self, error: BaseException | None) -> None:
        commit, self._alone = self._alone, None
        assert commit is not None
        self._commits.remove(commit)
        commit.done(error, None)

    # -- from the log to the worker, and into the tables ------------------------------------------

    def _note_unfolded(self, commit: _Commit) -> None:
        batch = commit.batch
        if batch.changes:
            first, last = batch.changes[0][0].mod_revision, batch.changes[-1][-1].mod_revision
            changes = changes_in(commit.frame, batch)
            self._unfolded_rows.add(commit.sequence, changes, first, last, batch.versions_count)
        if not batch.only_changes:
            self._unfolded.absorb_rest(batch)

    def _fold(self) -> None:
        """Hand the new frames over to the worker, as rows, which the journal holds for now."""
        batch, rows = self._take_unfolded()
        self._hand_over(partial(self._journal.hold, batch, rows, self._unfolded_until), self._held)

    def _fold_and_sync(self, told: Done) -> None:
        """Have the worker write the new frames, and everything held before, to the tables."""
        batch, rows = self._take_unfolded()
        commit = partial(self._journal.commit, batch, rows=rows, sequence=self._unfolded_until)
        self._hand_over(commit, told)

    def _take_unfolded(self) -> tuple[Batch, list[FrameRow]]:
        batch, self._unfolded = self._unfolded, Batch()
        rows = self._unfolded_rows.take()
        self._unfolded_bytes = self._unfolded_commits = 0
        if rows:
            self._handed_revision = rows[-1].last
        return batch, rows

    def _make_room(self) -> None:
        """Have the worker free more segments, or add some, before the one just begun is full."""
        log = self._log
        wanted = _FREE_SEGMENTS_MIN - log.free_count
        count = min(log.segments_count + wanted, log_length.SEGMENTS_MAX)
        if self._may_lengthen and count > log.segments_count:
            lengthen = partial(self._journal.lengthen_log, count)
            self._hand_over(lengthen, partial(self._lengthened, count))
        else:
            self._settle(wanted)

    def _lengthened(self, count: int, error: BaseException | None, is_longer: object) -> None:
        if error is not None:
            self._failed(error)
        elif is_longer:
            self._log.lengthened(count)
        else:
            self._may_lengthen = False
            self._make_room()

    def _settle(self, segments_count: int) -> None:
        """Have the worker write the frames in the oldest segments to the tables, to free these."""
        if self._unfolded_commits:
            self._fold()
        until = self._log.last_of_oldest(segments_count)
        self._hand_over(partial(self._journal.settle, until), self._folded)

    def _fold_until(self, revision: int) -> None:
        """Hand over new frames up to a revision at least, as everything to be cleaned must be."""
        if self._unfolded_commits and revision > self._handed_revision:
            self._fold()

    def _held(self, error: BaseException | None, _: object) -> None:
        self._log.folded(self._journal.safe_sequence)
        if error is not None:
            self._failed(error)

    def _swept(self, done: Done, error: BaseException | None, result: object) -> None:
        self._log.folded(self._journal.safe_sequence)
        done(error, result)

    def _long_ended(self, error: BaseException | None, _: object) -> None:
        """A commit that did not go through the log is in the tables, or has failed."""
        self._log.folded(self._journal.safe_sequence)
        self._ended_alone(error)

    def _folded(self, error: BaseException | None, _: object) -> None:
        self._log.folded(self._journal.safe_sequence)
        if error is not None:
            self._failed(error)
        waiting = self._alone
        if waiting is None or not waiting.frame:
            return
        if error is not None:
            self._ended_alone(error)
        elif self._write(waiting):
            self._alone = None
        else:
            self._settle(1)

    # -- the worker ------------------------------------------------------------------------------

    def _hand_over(self, work: Work, told: Done) -> None:
        self.is_at_work = True
        self._works.put((work, told))

    def _run(self) -> None:
        # The worker copies pages for milliseconds.  Clients, the loop and threads that sync were seen
        # to wait behind it on its processor while another was idle.
        let_others_go_first()
        tell = self._loop.call_soon_threadsafe
        journal = self._journal
        while (entry := self._works.get()) is not None:
            work, told = entry
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  raised again on the loop
                tell(told, error, None)
            else:
                tell(told, None, result)
            try:
                if journal.checkpoint_due:
                    journal.checkpoint()
                elif journal.sync_due:
                    journal.sync()
            except Exception as error:  # noqa: BLE001  `_failed` gets it, on the loop
                tell(self._failed, error)
            self.is_at_work = not self._works.empty()
        self.is_at_work = False
