"""Jobs on a journal, one at a time: commits written here and synced elsewhere, the rest by a worker.

    a commit        written into the log here, then synced by a thread that needs no interpreter lock
    anything else   (cleaning, checkpoints, commits that take longer) handed over to a worker

Handing a commit over as a whole meant two threads that wanted the interpreter lock at the same time.  A
loop that was busy got it every time, and the disk idled until there was nothing else to do: with 16
clients that each wait for their write, 15,000 writes/s went through the ZooKeeper face, and 21,000 this
way; with 256 requests in flight 57,000 and 75,000 (decision 0012).  To write one version into the log
takes 23 us of the loop, a hundred 74; what takes longer is not done here (`Batch.is_short`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from quorate.engines.embedded.journal import Batch, Journal
from quorate.engines.embedded.shared_rows import VersionName
from quorate.engines.embedded.syncing import file_sync

__all__ = ["Clean", "Done", "GiveBack", "Job", "JournalJobs"]

# Told about a job that ended: with the error that stopped it, or with what it returned.
Done = Callable[[BaseException | None, object], None]
Work = Callable[[], object]


class Clean:
    """A slice of cleaning: remove these versions from the journal, and go on with what was begun."""

    __slots__ = ("names", "start")

    def __init__(self, names: list[VersionName], start: int) -> None:
        self.names = names
        self.start = start  # the first that is left to do


class GiveBack:
    """A slice of giving unused space back to the file system."""

    __slots__ = ()


Job = Batch | Clean | GiveBack


class JournalJobs:
    """A job has the journal to itself, from its beginning until its `done` is called, on the loop.

    Meanwhile others wait, in order: a commit and a piece of housekeeping at most, as the engine has one
    of each on its way.

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
        self._loop = loop
        self._failed = failed
        self._waiting: deque[tuple[Job | Work, Done]] = deque()
        self._is_busy = False
        self._committed: Done | None = None  # told of the commit that is being synced
        self._sync = file_sync(journal.log, loop, self._synced)
        self._works: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="quorate-journal", daemon=True)
        self._worker.start()

    def submit(self, job: Job | Work, done: Done) -> None:
        if self._is_busy or self._waiting:
            self._waiting.append((job, done))
        else:
            self._begin(job, done)

    def stop(self) -> None:
        """End the threads; no job may be left."""
        self._works.put(None)
        self._worker.join()
        self._sync.close()

    # -- a job from its beginning to its end ---------------------------------------------------

    def _begin(self, job: Job | Work, done: Done) -> None:
        self._is_busy = True
        journal = self._journal
        if isinstance(job, Batch):
            self._commit(job, done)
        elif isinstance(job, Clean):
            self._hand_over(partial(journal.clean, job.names, job.start), partial(self._ended, done))
        elif isinstance(job, GiveBack):
            self._hand_over(journal.give_back, partial(self._ended, done))
        else:
            self._hand_over(job, partial(self._ended, done))

    def _ended(self, done: Done, error: BaseException | None, result: object) -> None:
        self._is_busy = False
        # Before anybody comes back with the next commit: that one waits for it, not the one that made
        # it due.
        if self._journal.checkpoint_due:
            self._begin(self._journal.checkpoint, self._checkpointed)
        try:
            done(error, result)
        finally:
            while self._waiting and not self._is_busy:
                job, told = self._waiting.popleft()
                self._begin(job, told)

    def _checkpointed(self, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._failed(error)

    # -- commits -------------------------------------------------------------------------------

    def _commit(self, batch: Batch, done: Done) -> None:
        self._committed = done
        journal = self._journal
        if not (batch.is_short and journal.is_log_begun):
            self._hand_over(partial(journal.commit, batch), self._logged)
            return
        try:
            journal.commit(batch)
        except Exception as error:  # noqa: BLE001  it is told
            self._loop.call_soon(self._logged, error, None)
        else:
            self._sync.begin()

    def _logged(self, error: BaseException | None, _: object) -> None:
        """A commit is in the log and has to be synced; or it is not."""
        if error is None:
            self._sync.begin()
        else:
            self._commit_ended(error)

    def _synced(self, failure: OSError | None) -> None:
        self._commit_ended(None if failure is None else self._journal.fail(failure))

    def _commit_ended(self, error: BaseException | None) -> None:
        done, self._committed = self._committed, None
        assert done is not None
        self._ended(done, error, None)

    # -- the worker ------------------------------------------------------------------------------

    def _hand_over(self, work: Work, told: Done) -> None:
        self._works.put((work, told))

    def _run(self) -> None:
        tell = self._loop.call_soon_threadsafe
        while (entry := self._works.get()) is not None:
            work, told = entry
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  raised again on the loop
                tell(told, error, None)
            else:
                tell(told, None, result)
