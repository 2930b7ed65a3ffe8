"""Keeping a mirror up to date in a task, and notifying its subscribers.

Invariants
    * Each subscriber has a buffer: a slow one delays neither the mirror nor another subscriber.
    * A buffer holds at most `SUBSCRIPTION_CHANGES_MAX` changes, or one batch.  Beyond that its batches
      are merged into one summary: only intermediate steps are lost.
    * A mirror that ends gives the reason to every subscriber, waiter and reader.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self, TypeVar
from weakref import WeakSet

from quoracy.client.context import Context
from quoracy.client.mirror import Bounds, Mirror, MirrorBatch, MirrorChange, MirrorEntry
from quoracy.client.session import stop
from quoracy.clock import Timer
from quoracy.errors import InvalidRequest, QuoracyError, StoreClosed, Unavailable
from quoracy.store.model import KeyRange, KeyValue

__all__ = ["SUBSCRIPTION_CHANGES_MAX", "MirrorBlock", "MirrorUpdater", "Subscription"]

_log = logging.getLogger(__name__)

B = TypeVar("B")
E = TypeVar("E", bound=MirrorEntry)

SUBSCRIPTION_CHANGES_MAX = 10_000
# A member of a cluster may answer before it has applied what another member acknowledged.
_PROGRESS_RETRY_S = 0.1


class MirrorUpdater(Generic[E]):
    """A mirror that is kept up to date by a task, until it is stopped.

    on_batch: called with every batch, in the turn in which the mirror changed; it must not raise.
    """

    def __init__(
        self,
        context: Context,
        mirror: Mirror[E],
        *,
        what: str,
        on_batch: Callable[[Mirror[E], MirrorBatch[E]], None],
    ) -> None:
        self.mirror = mirror
        self.error: QuoracyError | None = None
        self._context, self._what, self._on_batch = context, what, on_batch
        self._task: asyncio.Task[None] | None = None
        self._subscriptions: WeakSet[_BatchSubscription[E]] = WeakSet()
        self._waiters = 0
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ask_again: Timer | None = None

    async def start(self) -> None:
        """Read everything, and begin to follow.  Raises what reading raises."""
        self._publish(await self.mirror.load())
        self._task = self._context.spawn(self._run(), name="quoracy-mirror")

    async def stop(self) -> None:
        """Stop; subscriptions come to their end."""
        self._end(None)
        if self._task is not None:
            await stop(self._task)

    def check(self) -> None:
        """Raise the reason why the mirror has ended, if it has."""
        if self.error is not None:
            raise self.error

    async def wait_revision(self, revision: int, timeout: float | None) -> None:
        """Wait until the mirror is at that revision, or past it."""
        self.check()
        if self.mirror.revision >= revision:
            return
        self._waiters += 1
        try:
            with self._context.wait_scope(f"revision {revision} in {self._what}", timeout):
                self.mirror.ask_progress()
                while self.mirror.revision < revision:
                    await asyncio.shield(self._advanced)
                    self.check()
        finally:
            self._waiters -= 1

    def subscribe(self) -> AsyncGenerator[MirrorBatch[E], None]:
        """Every batch with changes from this call on, not from the first step of the iteration."""
        self.check()
        subscription: _BatchSubscription[E] = _BatchSubscription()
        self._subscriptions.add(subscription)
        return subscription.items()

    async def _run(self) -> None:
        try:
            async with aclosing(self.mirror.follow()) as batches:
                async for batch in batches:
                    self._publish(batch)
        except asyncio.CancelledError:
            # Not by `stop`, which has set the reason before: the connection was closed.
            self._end(StoreClosed())
            raise
        except QuoracyError as error:
            _log.warning("%s ends: %s", self._what, error)
            self._end(error)
        except Exception as error:
            self._end(Unavailable(f"{self._what} failed: {error!r}. This is a bug; please report it."))
            raise

    def _publish(self, batch: MirrorBatch[E]) -> None:
        self._on_batch(self.mirror, batch)
        if batch.changes:
            for subscription in list(self._subscriptions):
                subscription.put(batch)
        self._wake()
        if self._waiters and self._ask_again is None:
            self._ask_again = self._context.clock.call_later(_PROGRESS_RETRY_S, self._ask)

    def _ask(self) -> None:
        self._ask_again = None
        if self._waiters:
            self.mirror.ask_progress()

    def _end(self, error: QuoracyError | None) -> None:
        self.error = self.error or error or InvalidRequest(f"{self._what} was left: it is not kept up.")
        if self._ask_again is not None:
            self._ask_again.cancel()
        for subscription in list(self._subscriptions):
            subscription.end(error)
        self._wake()

    def _wake(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.get_running_loop().create_future()
        advanced.set_result(None)


class MirrorBlock(Generic[E]):
    """A recipe that keeps a mirror of the keys under `root` for the time of a block.

    A subclass makes entries of keys (`_entry`), and may look at every batch (`_on_batch`).
    """

    def __init__(
        self, context: Context, root: bytes, *, what: str, bounds: Bounds, stale_after: float
    ) -> None:
        if not stale_after > 0:
            raise InvalidRequest(f"stale_after is {stale_after}. Give a positive number of seconds.")
        self._context, self._root, self._what = context, root, what
        self._bounds, self._stale_after = bounds, stale_after
        self._updater: MirrorUpdater[E] | None = None
        self._entering = False

    def _entry(self, kv: KeyValue) -> E:
        raise NotImplementedError

    def _reset(self) -> None:
        """Called before the mirror is read for a new block."""

    def _on_batch(self, mirror: Mirror[E], batch: MirrorBatch[E]) -> None:
        """Called in the turn in which the mirror changed."""

    async def __aenter__(self) -> Self:
        """Read everything.  Raises `TooLarge`, and `Unavailable` if the store does not answer."""
        self._context.check()
        if self._entering:
            raise InvalidRequest(f"{self._what} is entered already. Share it, or make another.")
        self._entering = True
        keys = KeyRange.prefix(self._root)
        mirror = Mirror(
            self._context, keys, self._entry, bounds=self._bounds, silence_max_s=self._stale_after
        )
        updater = MirrorUpdater(self._context, mirror, what=self._what, on_batch=self._on_batch)
        self._reset()
        try:
            await updater.start()
        except BaseException:
            self._entering = False
            raise
        self._updater = updater
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entering = False
        if self._updater is not None:
            await self._updater.stop()

    @property
    def silence_s(self) -> float:
        """The seconds since the server last confirmed what is here."""
        return self._open.mirror.silence_s

    @property
    def is_stale(self) -> bool:
        """Whether the server was silent for so long that what is here may be out of date."""
        return self._open.error is not None or self.silence_s > self._stale_after

    async def wait_revision(self, revision: int, *, timeout: float | None = None) -> None:
        """Wait until everything up to a revision is here, such as one that a write has returned.

        Raises `TimedOut`.
        """
        await self._open.wait_revision(revision, timeout)

    @property
    def _open(self) -> MirrorUpdater[E]:
        self._context.check()
        if self._updater is None:
            raise InvalidRequest(f"{self._what} is not open. Use it inside `async with`.")
        return self._updater


# -- subscriptions ---------------------------------------------------------------------------


class Subscription(Generic[B]):
    """A buffer of what one subscriber has not read yet.

    size_max: beyond that, the oldest items are dropped.
    """

    def __init__(self, size_max: int | None = None) -> None:
        self._items: deque[B] = deque(maxlen=size_max)
        self._ended = False
        self._error: QuoracyError | None = None
        self._ready = asyncio.Event()

    def put(self, item: B) -> None:
        self._items.append(item)
        self._ready.set()

    def end(self, error: QuoracyError | None = None) -> None:
        """End the iteration after what is buffered, with an error if one is given."""
        if not self._ended:
            self._ended, self._error = True, error
            self._ready.set()

    async def items(self) -> AsyncGenerator[B, None]:
        """What was put, in order, until the end."""
        while True:
            item = self._next()
            if item is not None:
                yield item
            elif self._ended:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._ready.clear()
                await self._ready.wait()

    def _next(self) -> B | None:
        return self._items.popleft() if self._items else None


class _BatchSubscription(Subscription[MirrorBatch[E]]):
    """A buffer of batches, which are merged into a summary when there are too many."""

    def __init__(self) -> None:
        super().__init__()
        self._changes = 0
        self._summary: dict[bytes, MirrorChange[E]] | None = None
        self._revision = 0

    def put(self, item: MirrorBatch[E]) -> None:
        self._revision = item.revision
        self._items.append(item)
        self._changes += len(item.changes)
        is_too_much = len(self._items) > 1 and self._changes > SUBSCRIPTION_CHANGES_MAX
        if self._summary is not None or is_too_much:
            self._summary = {} if self._summary is None else self._summary
            for batch in self._items:
                _merge(self._summary, batch)
            self._items.clear()
            self._changes = 0
        self._ready.set()

    def _next(self) -> MirrorBatch[E] | None:
        if self._summary is not None:
            changes, self._summary = self._summary, None
            if changes:
                in_order = tuple(changes[key] for key in sorted(changes))
                return MirrorBatch(self._revision, in_order, is_summary=True)
        batch = super()._next()
        if batch is not None:
            self._changes -= len(batch.changes)
        return batch


def _merge(summary: dict[bytes, MirrorChange[E]], batch: MirrorBatch[E]) -> None:
    for change in batch.changes:
        before = summary.get(change.key)
        previous = change.previous if before is None else before.previous
        if change.current is None and previous is None:
            summary.pop(change.key, None)
        else:
            summary[change.key] = MirrorChange(change.current, previous)
