"""Writers: where the engine's work on the journal is done, one job at a time.

The engine hands over a job and is told, on its loop, when it is done.  `JournalWriter` has a journal
and two threads; `InstantWriter` has none of them: its jobs are done in the next turn of the loop, so
that a store without durability behaves in every other way like one with it.

    a commit        written into the log here, then synced by a thread that needs no interpreter lock
    anything else   (cleaning, checkpoints, commits that take longer) handed over to a worker

Handing a commit over as a whole meant two threads that wanted the interpreter lock at the same time.  A
loop that was busy got it every time, and the disk idled until there was nothing else to do: with 16
clients that each wait for their write, 15,000 writes/s went through the ZooKeeper face, and 21,000 this
way; with 256 requests in flight 57,000 and 75,000.  To write a commit of a few pages into the log takes
some 30 us of the loop; what takes longer is not done here (`Batch.is_short`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from quorate.engines.embedded.journal import Batch, Cleaned, Journal, JournalSize
from quorate.engines.embedded.shared_rows import VersionName
from quorate.engines.embedded.syncing import file_sync

__all__ = ["Clean", "GiveBack", "InstantWriter", "JournalWriter", "Writer"]

T = TypeVar("T")

# Told about a job that ended: with the error that stopped it, or with what it returned.
Done = Callable[[BaseException | None, object], None]


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


class Writer(Protocol):
    """One job at a time, in order; `done` is called on the loop."""

    def submit(self, job: Job, done: Done) -> None: ...

    async def size(self) -> JournalSize | None: ...

    async def close(self) -> None: ...


class InstantWriter:
    """Nothing to write to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, job: Job, done: Done) -> None:
        result: object = None
        if isinstance(job, Clean):
            result = Cleaned(len(job.names) - job.start, more=False, took_s=0.0)
        self._loop.call_soon(done, None, result)

    async def size(self) -> JournalSize | None:
        return None

    async def close(self) -> None:
        pass


_Work = Callable[[], object]


class JournalWriter:
    """Owns a journal until it is closed.

    A job has the journal to itself, from its beginning until `done` is called.  Meanwhile others wait,
    in order: a commit and a piece of housekeeping at most, as the engine has one of each on its way.

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
        self._waiting: deque[tuple[Job | _Work, Done]] = deque()
        self._is_busy = False
        self._committed: Done | None = None  # told of the commit that is being synced
        self._sync = file_sync(journal.log, loop, self._synced)
        self._works: queue.SimpleQueue[tuple[_Work, Done] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="quorate-journal", daemon=True)
        self._worker.start()

    def submit(self, job: Job | _Work, done: Done) -> None:
        if self._is_busy or self._waiting:
            self._waiting.append((job, done))
        else:
            self._begin(job, done)

    async def size(self) -> JournalSize | None:
        return await self._ask(self._journal.size)

    async def close(self) -> None:
        """Finish what was submitted, close the journal, end the threads."""
        try:
            await self._ask(self._journal.close)
        finally:
            self._works.put(None)
            self._worker.join()
            self._sync.close()

    async def _ask(self, work: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()

        def done(error: BaseException | None, result: object) -> None:
            if answer.cancelled():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        self.submit(work, done)
        return await answer

    # -- a job from its beginning to its end ---------------------------------------------------

    def _begin(self, job: Job | _Work, done: Done) -> None:
        self._is_busy = True
        journal = self._journal
        match job:
            case Batch():
                self._commit(job, done)
            case Clean():
                self._hand_over(lambda: journal.clean(job.names, job.start), done)
            case GiveBack():
                self._hand_over(journal.give_back, done)
            case _:
                self._hand_over(job, done)

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
                self._begin(*self._waiting.popleft())

    def _checkpointed(self, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._failed(error)

    # -- commits -------------------------------------------------------------------------------

    def _commit(self, batch: Batch, done: Done) -> None:
        self._committed = done
        if not (batch.is_short and self._journal.is_log_begun):
            self._hand_over(lambda: self._journal.commit(batch), self._logged, is_ended=False)
            return
        error: Exception | None = None
        try:
            self._journal.commit(batch)
        except Exception as failure:  # noqa: BLE001  it is told
            error = failure
        if error is None:
            self._sync.begin()
        else:
            self._loop.call_soon(self._logged, error, None)

    def _logged(self, error: BaseException | None, _: object) -> None:
        """A commit is in the log and has to be synced; or it is not."""
        if error is None:
            self._sync.begin()
            return
        done, self._committed = self._committed, None
        assert done is not None
        self._ended(done, error, None)

    def _synced(self, failure: OSError | None) -> None:
        done, self._committed = self._committed, None
        assert done is not None
        self._ended(done, None if failure is None else self._journal.fail(failure), None)

    # -- the worker ------------------------------------------------------------------------------

    def _hand_over(self, work: _Work, done: Done, *, is_ended: bool = True) -> None:
        """Have the worker do it.  `is_ended`: that is the end of the job."""
        self._works.put((work, partial(self._ended, done) if is_ended else done))

    def _run(self) -> None:
        tell = self._loop.call_soon_threadsafe
        while (entry := self._works.get()) is not None:
            work, done = entry
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  raised again on the loop
                tell(done, error, None)
            else:
                tell(done, None, result)
