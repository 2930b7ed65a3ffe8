"""Writers: where the engine's work on the journal is done, one job at a time.

The engine hands over a job and is told, on its loop, when it is done.  `JournalWriter` has a journal
and two threads (see `jobs`); `InstantWriter` has none of them: its jobs are done in the next turn of
the loop, so that a store without durability behaves in every other way like one with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.journal import Cleaned, Journal, JournalSize
from quoracy.engines.embedded.disk.journal_jobs import Clean, Done, GiveBack, Job, JournalJobs, Sweep
from quoracy.store.completion import Reply

__all__ = ["Clean", "GiveBack", "InstantWriter", "JournalWriter", "Sweep", "Writer"]

T = TypeVar("T")


class Writer(Protocol):
    """Jobs are done in order, those that are commits and the others; `done` is called on the loop."""

    @property
    def has_room(self) -> bool:
        """Whether a commit may be submitted."""

    @property
    def is_committing(self) -> bool:
        """Whether a commit is on its way."""

    @property
    def is_at_work(self) -> bool:
        """Whether a thread of it has something to do that nobody waits for, as far as is known here."""

    def expect(self) -> None:
        """A commit is submitted in a moment, very likely."""

    @property
    def sends_replies(self) -> bool:
        """Whether replies are of any use here."""

    def attach(self, reply: Reply) -> None:
        """Have it sent when the commit that was submitted last is durable; or not at all."""

    def catch_up(self) -> None:
        """Tell now of commits whose replies may have been seen."""

    @property
    def submit(self) -> Callable[[Job, Done], None]: ...

    def commit(self, batch: Batch, done: Done, replies: list[Reply], /) -> None:
        """Make it durable; the replies may leave in the moment in which it is."""

    async def size(self) -> JournalSize | None: ...

    async def close(self) -> None: ...


class InstantWriter:
    """Nothing to write to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.has_room = True
        self.is_at_work = False
        self.sends_replies = False

    @property
    def is_committing(self) -> bool:
        return not self.has_room

    def commit(self, batch: Batch, done: Done, replies: list[Reply], /) -> None:
        del batch, replies
        self.has_room = False
        self._loop.call_soon(self._committed, done)

    def submit(self, job: Job, done: Done) -> None:
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

    def _committed(self, done: Done) -> None:
        self.has_room = True
        done(None, None)

    async def size(self) -> JournalSize | None:
        return None

    async def close(self) -> None:
        pass


class JournalWriter:
    """Owns a journal until it is closed.  failed: told of a failure that belongs to no job."""

    def __init__(
        self,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        *,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._journal = journal
        self._loop = loop
        self._jobs = JournalJobs(journal, loop, failed=failed)
        self.submit, self.commit = self._jobs.submit, self._jobs.commit
        self.sends_replies = self._jobs.sends_replies
        self.expect = self._jobs.expect
        self.attach = self._jobs.attach
        self.catch_up = self._jobs.catch_up

    @property
    def has_room(self) -> bool:
        return self._jobs.has_room

    @property
    def is_committing(self) -> bool:
        return self._jobs.is_committing

    @property
    def is_at_work(self) -> bool:
        return self._jobs.is_at_work

    async def size(self) -> JournalSize | None:
        return await self._ask(self._journal.size)

    async def close(self) -> None:
        """Finish what was submitted, close the journal, end the threads."""
        try:
            await self._told(self._jobs.close)
        finally:
            self._jobs.stop()

    async def _ask(self, work: Callable[[], T]) -> T:
        result: T = await self._told(lambda done: self._jobs.submit(work, done))  # type: ignore[assignment]
        return result

    async def _told(self, begin: Callable[[Done], None]) -> object:
        answer: asyncio.Future[object] = self._loop.create_future()

        def done(error: BaseException | None, result: object) -> None:
            if answer.cancelled():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        begin(done)
        return await answer
