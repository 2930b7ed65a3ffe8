"""Keeps a `Mirror` up in a task of its own, and tells everybody who wants to know.

Invariants
    * Whoever listens has a feed of their own: a slow one holds up neither the mirror nor another.
    * A feed holds at most `FEED_CHANGES_MAX` changes, or one batch.  Beyond, what waits in it is taken
      together into one summary: nothing is lost but the steps in between.  That has one change for each
      key there was or is, however long nobody reads.
    * A mirror that cannot go on says why to everyone: who waits, who listens, who reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar
from weakref import WeakSet

from quoracy.client.context import Ground
from quoracy.client.mirror import Kept, Mirror, MirrorBatch, MirrorChange
from quoracy.client.session import stop
from quoracy.clock import Timer
from quoracy.errors import InvalidRequest, QuoracyError, StoreClosed, Unavailable

__all__ = ["FEED_CHANGES_MAX", "MirrorKeeper"]

_log = logging.getLogger(__name__)

FEED_CHANGES_MAX = 10_000
# A member of a cluster may answer before it has heard of what another one acknowledged.
_PROGRESS_AGAIN_S = 0.1

E = TypeVar("E", bound=Kept)


class MirrorKeeper(Generic[E]):
    """A mirror for the time of a block.

    on_batch: called with every batch, in the turn in which the mirror changed; it must not raise.
    """

    def __init__(
        self,
        ground: Ground,
        mirror: Mirror[E],
        *,
        what: str,
        on_batch: Callable[[MirrorBatch[E]], None] | None = None,
    ) -> None:
        self.mirror = mirror
        self.error: QuoracyError | None = None
        self._ground, self._what, self._on_batch = ground, what, on_batch
        self._task: asyncio.Task[None] | None = None
        self._feeds: WeakSet[_Feed[E]] = WeakSet()
        self._waiters = 0
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ask_again: Timer | None = None

    async def start(self) -> None:
        """Read everything, and begin to follow.  Raises what reading raises."""
        self._tell(await self.mirror.load())
        self._task = self._ground.spawn(self._run(), name="quoracy-mirror")

    async def stop(self) -> None:
        """Stop; those who listen come to the end."""
        self._end(None)
        if self._task is not None:
            await stop(self._task)

    def check(self) -> None:
        """Raise why the mirror does not go on, if it does not."""
        if self.error is not None:
            raise self.error

    async def wait_revision(self, revision: int, timeout: float | None) -> None:
        """Wait until the mirror is at that revision, or past it."""
        self.check()
        if self.mirror.revision >= revision:
            return
        self._waiters += 1
        try:
            with self._ground.waiting(f"revision {revision} in {self._what}", timeout):
                self.mirror.ask_progress()
                while self.mirror.revision < revision:
                    await asyncio.shield(self._advanced)
                    self.check()
        finally:
            self._waiters -= 1

    def feed(self) -> AsyncGenerator[MirrorBatch[E], None]:
        """Every batch with changes from now on: from this call, not from the first step."""
        self.check()
        feed: _Feed[E] = _Feed()
        self._feeds.add(feed)
        return feed.batches()

    async def _run(self) -> None:
        try:
            async with aclosing(self.mirror.follow()) as batches:
                async for batch in batches:
                    self._tell(batch)
        except asyncio.CancelledError:
            # Not by `stop`, which has told everyone before: the connection was closed.
            self._end(StoreClosed())
            raise
        except QuoracyError as error:
            _log.warning("%s ends: %s", self._what, error)
            self._end(error)
        except Exception as error:
            self._end(Unavailable(f"{self._what} failed: {error!r}. This is a bug; please report it."))
            raise

    def _tell(self, batch: MirrorBatch[E]) -> None:
        if self._on_batch is not None:
            self._on_batch(batch)
        if batch.changes:
            for feed in list(self._feeds):
                feed.put(batch)
        self._wake()
        if self._waiters and self._ask_again is None:
            self._ask_again = self._ground.clock.call_later(_PROGRESS_AGAIN_S, self._ask)

    def _ask(self) -> None:
        self._ask_again = None
        if self._waiters:
            self.mirror.ask_progress()

    def _end(self, error: QuoracyError | None) -> None:
        self.error = self.error or error or InvalidRequest(f"{self._what} was left: it is not kept up.")
        if self._ask_again is not None:
            self._ask_again.cancel()
        for feed in list(self._feeds):
            feed.end(error)
        self._wake()

    def _wake(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.get_running_loop().create_future()
        advanced.set_result(None)


class _Feed(Generic[E]):
    """What one listener has not read yet."""

    def __init__(self) -> None:
        self._waiting: deque[MirrorBatch[E]] = deque()
        self._changes = 0
        # Everything that waits, taken together, once it was too much.
        self._summary: dict[bytes, MirrorChange[E]] | None = None
        self._revision = 0
        self._ended = False
        self._error: QuoracyError | None = None
        self._news = asyncio.Event()

    def put(self, batch: MirrorBatch[E]) -> None:
        self._revision = batch.revision
        if self._waiting and self._changes + len(batch.changes) > FEED_CHANGES_MAX:
            self._summary = {}
            for waiting in self._waiting:
                _fold(self._summary, waiting)
            self._waiting.clear()
            self._changes = 0
        if self._summary is not None:
            _fold(self._summary, batch)
        else:
            self._waiting.append(batch)
            self._changes += len(batch.changes)
        self._news.set()

    def end(self, error: QuoracyError | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._news.set()

    async def batches(self) -> AsyncGenerator[MirrorBatch[E], None]:
        while True:
            batch = self._take()
            if batch is not None:
                yield batch
            elif self._ended:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._news.clear()
                await self._news.wait()

    def _take(self) -> MirrorBatch[E] | None:
        if self._summary is not None:
            changes, self._summary = self._summary, None
            if changes:
                in_order = tuple(changes[key] for key in sorted(changes))
                return MirrorBatch(self._revision, in_order, is_summary=True)
        if not self._waiting:
            return None
        batch = self._waiting.popleft()
        self._changes -= len(batch.changes)
        return batch


def _fold(summary: dict[bytes, MirrorChange[E]], batch: MirrorBatch[E]) -> None:
    for change in batch.changes:
        before = summary.get(change.key)
        previous = change.previous if before is None else before.previous
        if change.current is None and previous is None:
            summary.pop(change.key, None)
        else:
            summary[change.key] = MirrorChange(change.current, previous)
