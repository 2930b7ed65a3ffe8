"""What is done on a journal, on two ways that do not wait for each other.

    commits         into the commit log: encoded here, written and synced by a thread that needs no
                    interpreter lock; one at a time
    anything else   by a worker, on the tables, one after the other: folding what is in the log into
                    them, cleaning, giving space back, checkpoints

A commit that is too long to be encoded while others wait goes to the worker, together with what is in
the log before it.

To commit on the tables themselves was what everybody waited for: SQLite's own work (23 us of the loop
for one version), a slice of cleaning that was under way, a checkpoint (up to 11 ms).  And a worker that
has to do with commits fights with the loop for the interpreter lock (decisions 0012, 0013).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import partial

from quorate.engines.embedded.batch import Batch
from quorate.engines.embedded.journal import Journal
from quorate.engines.embedded.shared_rows import VersionName
from quorate.engines.embedded.sweeping import Sweep
from quorate.engines.embedded.syncing import file_sync

__all__ = ["Clean", "Done", "GiveBack", "Job", "JournalJobs", "Sweep"]

# Told about a job that ended: with the error that stopped it, or with what it returned.
Done = Callable[[BaseException | None, object], None]
Work = Callable[[], object]

# Folded when so many bytes or commits are in the log: often enough that a fold takes little of the
# interpreter's time in one go (it needs the lock to encode), seldom enough that rows are long.
_FOLD_BYTES = 128 * 1024
_FOLD_COMMITS = 4096


class Clean:
    """A slice of cleaning: remove these versions, oldest first, and go on with what was begun."""

    __slots__ = ("is_last", "names", "start")

    def __init__(self, names: list[VersionName], start: int, *, is_last: bool) -> None:
        self.names = names
        self.start = start  # the first that is left to do
        self.is_last = is_last  # there are no others to follow


class GiveBack:
    """A slice of giving unused space back to the file system."""

    __slots__ = ()


Job = Batch | Clean | Sweep | GiveBack


class JournalJobs:
    """Commits come one at a time, as the engine makes them; other jobs wait for each other, in order.

    failed: told of a failure that belongs to no job.
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
        self._committing: Batch | None = None
        self._committed: Done | None = None  # told of the commit that is under way
        self._frame = b""  # which that one waits with until there is room in the log
        self._unfolded = Batch()  # what is in the log and was not handed over yet
        self._unfolded_bytes = self._unfolded_commits = 0
        self._unfolded_until = self._log.sequence  # the number of the last commit that was synced
        self._handed_revision = 0  # the newest whose changes were handed over
        self._sync = file_sync(self._log.file, loop, self._synced)
        self._works: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="quorate-journal", daemon=True)
        self._worker.start()

    def submit(self, job: Job | Work, done: Done) -> None:
        journal = self._journal
        if isinstance(job, Batch):
            self._commit(job, done)
        elif isinstance(job, Clean):
            self._fold_until(job.names[-1][0] if job.names else 0)
            self._hand_over(partial(journal.clean, job.names, job.start, is_last=job.is_last), done)
        elif isinstance(job, Sweep):
            self._fold_until(job.until)
            self._hand_over(partial(journal.sweep, job), done)
        elif isinstance(job, GiveBack):
            self._hand_over(journal.give_back, done)
        else:
            self._hand_over(job, done)

    def close(self, done: Done) -> None:
        """Fold what is left, and close the journal."""
        if self._unfolded_commits:
            self._fold(self._folded)
        self._hand_over(self._journal.close, done)

    def stop(self) -> None:
        """End the threads; no job may be left."""
        self._works.put(None)
        self._worker.join()
        self._sync.close()

    # -- commits -------------------------------------------------------------------------------

    def _commit(self, batch: Batch, done: Done) -> None:
        assert self._committing is None
        self._committing, self._committed = batch, done
        failure = self._journal.failure
        if failure is not None:
            self._loop.call_soon(self._ended, self._journal.fail(failure))
            return
        if batch.is_short:
            frame = self._log.frame(batch)
            if self._log.fits(len(frame)):
                self._write(frame)
                return
        self._unfolded.absorb(batch)
        self._fold(self._long_ended, sync=True)

    def _write(self, frame: bytes) -> None:
        offset = self._log.place(len(frame))
        if offset < 0:
            # The other half is not in the tables yet; when it is, this is called again.
            self._frame = frame
            self._fold(self._folded, sync=True)
            return
        self._unfolded_bytes += len(frame)
        self._sync.begin(frame, offset)

    def _synced(self, failure: OSError | None) -> None:
        if failure is not None:
            self._ended(self._journal.fail(failure))
            return
        batch = self._committing
        assert batch is not None
        self._unfolded.absorb(batch)
        self._unfolded_commits += 1
        self._unfolded_until = self._log.sequence
        if self._unfolded_bytes >= _FOLD_BYTES or self._unfolded_commits >= _FOLD_COMMITS:
            self._fold(self._folded)
        self._ended(None)

    def _ended(self, error: BaseException | None) -> None:
        done, self._committed, self._committing = self._committed, None, None
        assert done is not None
        done(error, None)

    # -- from the log into the tables --------------------------------------------------------------

    def _fold(self, told: Done, *, sync: bool = False) -> None:
        """Hand over what is not in the tables."""
        batch, self._unfolded = self._unfolded, Batch()
        self._unfolded_bytes = self._unfolded_commits = 0
        if batch.changes:
            self._handed_revision = batch.changes[-1][-1].mod_revision
        commit = partial(self._journal.commit, batch, sequence=self._unfolded_until, sync=sync)
        self._hand_over(commit, told)

    def _fold_until(self, revision: int) -> None:
        """What is to be cleaned must be in the tables."""
        if self._unfolded_commits and revision > self._handed_revision:
            self._fold(self._folded)

    def _long_ended(self, error: BaseException | None, _: object) -> None:
        """A commit that did not go through the log is in the tables."""
        self._log.folded(self._journal.safe_sequence)
        self._ended(error)

    def _folded(self, error: BaseException | None, _: object) -> None:
        self._log.folded(self._journal.safe_sequence)
        if error is not None:
            self._failed(error)
            if self._frame:
                self._frame = b""
                self._ended(error)
        elif self._frame:
            frame, self._frame = self._frame, b""
            self._write(frame)

    # -- the worker ------------------------------------------------------------------------------

    def _hand_over(self, work: Work, told: Done) -> None:
        self._works.put((work, told))

    def _run(self) -> None:
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
            except Exception as error:  # noqa: BLE001  told on the loop
                tell(self._failed, error)
