"""Writers: where the engine's work on the journal is done, off the event loop, one job at a time.

The engine hands over a job and is told, on its loop, when it is done.  `ThreadWriter` owns a thread and
a journal; `InstantWriter` has no journal: its jobs are done in the next turn of the loop, so that a
store without durability behaves in every other way like one with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from quorate.engines.embedded.journal import Batch, Cleaned, Journal, JournalSize
from quorate.engines.embedded.shared_rows import VersionName

__all__ = ["Clean", "GiveBack", "InstantWriter", "ThreadWriter", "Writer"]

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


class _Jobs:
    """A queue for one reader, which sleeps on a pipe.

    Measured there and back with nothing to do: 7 us, with `queue.SimpleQueue` 14 us; an executor takes
    several times that.  Presumably because the reader of a pipe is woken while the writer has let go of
    the interpreter lock, and that of a queue wakes only to wait for it.
    """

    __slots__ = ("_entries", "_reading_end", "_writing_end")

    def __init__(self) -> None:
        self._entries: deque[tuple[Callable[[], object], Done] | None] = deque()
        self._reading_end, self._writing_end = os.pipe()

    def put(self, entry: tuple[Callable[[], object], Done] | None) -> None:
        self._entries.append(entry)
        os.write(self._writing_end, b".")

    def get(self) -> tuple[Callable[[], object], Done] | None:
        os.read(self._reading_end, 1)
        return self._entries.popleft()

    def close(self) -> None:
        os.close(self._reading_end)
        os.close(self._writing_end)


class _News:
    """What the thread tells the loop, which sleeps on another pipe.

    `call_soon_threadsafe` wakes a loop while the thread holds the interpreter lock, for which the loop
    then goes to sleep again; a write to a pipe gives the lock up first.  Measured there and back, with
    a commit of one put on a disk that takes no time: 16 us of processor instead of 21, and one change
    of threads less.
    """

    __slots__ = ("_entries", "_loop", "_reading_end", "_writing_end")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._entries: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._reading_end, self._writing_end = os.pipe()
        try:
            loop.add_reader(self._reading_end, self._arrived)
        except NotImplementedError:  # Windows
            self.close()
        else:
            os.set_blocking(self._reading_end, False)  # the loop must not wait here, whatever happens

    def tell(self, callback: Callable[..., None], *args: object) -> None:
        """Have it called on the loop, after all that was told before."""
        if self._writing_end < 0:
            self._loop.call_soon_threadsafe(callback, *args)
            return
        self._entries.append((callback, args))
        os.write(self._writing_end, b".")

    def _arrived(self) -> None:
        # Each has its byte: if one raises, the loop comes back for the next.
        os.read(self._reading_end, 1)
        callback, args = self._entries.popleft()
        callback(*args)

    def close(self) -> None:
        if self._writing_end < 0:
            return
        with contextlib.suppress(NotImplementedError):
            self._loop.remove_reader(self._reading_end)
        os.close(self._reading_end)
        os.close(self._writing_end)
        self._reading_end = self._writing_end = -1


class ThreadWriter:
    """One thread that owns the journal until it is closed."""

    def __init__(
        self,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        *,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._journal = journal
        self._loop = loop
        self._failed = failed  # told of a failure that belongs to no job
        self._jobs = _Jobs()
        self._news = _News(loop)
        self._worker = threading.Thread(target=self._run, name="quorate-journal", daemon=True)
        self._worker.start()

    def submit(self, job: Job, done: Done) -> None:
        journal = self._journal
        match job:
            case Batch():
                self._jobs.put((lambda: journal.commit(job), done))
            case Clean():
                self._jobs.put((lambda: journal.clean(job.names, job.start), done))
            case GiveBack():
                self._jobs.put((journal.give_back, done))

    async def size(self) -> JournalSize | None:
        return await self._ask(self._journal.size)

    async def close(self) -> None:
        """Finish what was submitted, close the journal, end the thread."""
        try:
            await self._ask(self._journal.close)
        finally:
            self._jobs.put(None)
            self._worker.join()
            self._jobs.close()
            self._news.close()

    async def _ask(self, job: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()

        def done(error: BaseException | None, result: object) -> None:
            if answer.cancelled():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        self._jobs.put((job, done))
        return await answer

    def _run(self) -> None:
        tell = self._news.tell
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            try:
                result = job()
            except Exception as error:  # noqa: BLE001  raised again on the loop
                tell(done, error, None)
                continue
            tell(done, None, result)
            # After the answer, so that only the next job waits for it, never the one that caused it.
            try:
                self._journal.checkpoint_if_due()
            except Exception as error:  # noqa: BLE001  ends the store's writing
                tell(self._failed, error)
