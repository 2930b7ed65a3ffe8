"""The head of a queue: removing or claiming its first item, by many consumers at once.

    look: read the first items, a few hundred, without their values
    take: one transaction that takes the first of them that still exists

Consumers that want the same item do not retry against each other: the transaction of each is a chain,
take the first, else the second, else the third, so that the one that comes second gets the next item
with the same request.  The chain has one link as long as there is no other consumer, and grows with
each item that was gone.

A consumer of an empty queue watches it.  An item wakes one task in each process that waits.  A task
that was woken and came too late pauses for a random time and looks before it takes, so that of many
processes few try to take one item.  No consumer depends on another: one that is stopped delays no
other.

Invariants
    * A timeout never loses an item: it ends looking and waiting, not a take that is on its way.
    * What was taken for a task that was cancelled is given back.
    * At most `ahead_max` items are remembered between takes, and none of their values.

`get` of a queue and of a priority queue removes the item that it takes: deleted and returned in one
transaction, so that two consumers can never have it, and so that it is in no store afterwards.  An item
that was removed and cannot be returned to the caller is put back or set aside:
    cancelled     back to the front of its priority
    unreadable    to `name/unreadable/`, for an operator
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from quoracy.client.codec import codec_of
from quoracy.client.context import Context, Deadline
from quoracy.client.in_flight import Outcome
from quoracy.client.queue_items import QueueItems, Window
from quoracy.client.session import Session
from quoracy.errors import Compacted, Indeterminate, TimedOut, ValueUnreadable
from quoracy.store.model import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    KeyValue,
    OpResult,
    Put,
    Txn,
    TxnResult,
    WatchBatch,
)

__all__ = ["Dequeue", "Dequeued", "QueueConsumer", "QueueHead"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

# If that many items are gone at once, what is remembered is old: looking again is cheaper.
_STALE = 4
_PAUSE_S_FIRST = 0.002
_PAUSE_S_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Dequeued:
    """An item that was taken: as it was seen, and the results of the operations that took it."""

    kv: KeyValue
    results: tuple[OpResult, ...]
    revision: int


class Dequeue(Protocol):
    """How an item is taken, and what happens to it if the task was cancelled."""

    def links(self, kvs: Sequence[KeyValue]) -> list[Txn]:
        """The transaction that takes each of these items; they are sent as one chain."""
        ...

    def missed(self) -> None:
        """None of them existed any more."""
        ...

    def abandoned(self, outcome: Outcome, taken: Dequeued | None) -> Outcome | None:
        """The task was cancelled, and this is the result; the write that undoes it, if any."""
        ...


class QueueHead:
    """The head of one queue, as one process sees it; many tasks may take from it.

    look: read the first items.
    watched, wakes: what to watch while there are none, and whether a batch is worth another look.
    deletes: whether deletions are watched too.
    fresh_s: how long a look is relied upon, where items may return to their old place.
    """

    def __init__(
        self,
        context: Context,
        what: str,
        *,
        look: Callable[[], Awaitable[Window]],
        watched: KeyRange,
        wakes: Callable[[WatchBatch], bool],
        deletes: bool = False,
        chain_max: int = 16,
        ahead_max: int = 256,
        fresh_s: float | None = None,
    ) -> None:
        self._context, self._what = context, what
        self.look, self._watched, self._wakes, self._deletes = look, watched, wakes, deletes
        self._chain_max, self._ahead_max, self._fresh_s = chain_max, ahead_max, fresh_s
        self._ahead: deque[KeyValue] = deque()
        self._before: KeyRange | None = None
        self._seen_at = 0.0
        self._look_lock = asyncio.Lock()
        self._in_flight = 0
        self._idle: asyncio.Future[None] | None = None
        self._chain = 1
        self._pause_s = 0.0
        self._rng = random.Random()

    async def take(
        self, dequeue: Dequeue, deadline: Deadline, *, session: Session | None = None
    ) -> Dequeued:
        """Wait for an item and take it.  Raises `TimedOut`; `SessionLost` if a session is given."""
        if deadline.timeout == 0:
            taken = await self.try_take(dequeue)
            if taken is None:
                raise TimedOut(self._what, timeout_s=0)
            return taken
        while True:
            if not self._has_ahead():
                with self._context.wait_scope(self._what, deadline, session):
                    async with self._look_lock:
                        if not self._has_ahead():
                            await self._wait_item()
            taken = await self._take_first(dequeue)
            if taken is not None:
                return taken

    async def try_take(self, dequeue: Dequeue) -> Dequeued | None:
        """Take the first item if there is one."""
        while True:
            if not self._has_ahead():
                window = await self._read_window()
                if not window.kvs:
                    return None
            taken = await self._take_first(dequeue)
            if taken is not None:
                return taken

    def forget(self) -> None:
        """Look again before the next take: an item returned to its place."""
        self._ahead.clear()

    # -- looking and waiting -----------------------------------------------------------------

    def _has_ahead(self) -> bool:
        """Whether there are items ahead that can be relied upon."""
        if self._fresh_s is not None and self._context.clock.now() - self._seen_at > self._fresh_s:
            self._ahead.clear()
        return bool(self._ahead)

    async def _read_window(self) -> Window:
        """Look when no take of ours is in flight.

        Otherwise items that a take removes would be seen, and those that it gives back would not.
        """
        while self._in_flight:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
        window = await self.look()
        self._seen_at = self._context.clock.now()
        if not self._ahead:
            self._ahead.extend(window.kvs[: self._ahead_max])
            self._before = window.before
        return window

    async def _wait_item(self) -> None:
        """Wait until there are items ahead.  Only the first look raises when the store is silent."""
        window = await self._read_window()
        while not self._ahead:
            after = window.revision
            window = await self._context.retry(lambda: self._look_after(after), self._what)  # noqa: B023

    async def _look_after(self, revision: int) -> Window:
        """Wait for a change after a revision, then look."""
        watch = self._context.store.watch(self._watched, after=revision, deletes=self._deletes)
        with contextlib.suppress(Compacted):  # the look shows whether there are items
            async with watch as batches:
                while not self._wakes(await anext(batches)):
                    pass
        if self._pause_s:
            await self._context.clock.sleep(self._rng.uniform(0, self._pause_s))
        return await self._read_window()

    # -- taking ------------------------------------------------------------------------------

    async def _take_first(self, dequeue: Dequeue) -> Dequeued | None:
        """Take the first of a few items that still exists; None: they were gone."""
        attempt = _Attempt(tuple(islice(self._ahead, self._chain)), self._before)
        if not attempt.tried:
            return None
        # Other tasks begin with the next one.
        self._ahead.popleft()
        outcome = self._context.writes.begin(attempt.txn(dequeue))
        self._sent(outcome)
        try:
            result = await outcome.settled()
        except asyncio.CancelledError:
            self._ahead.clear()  # an item that is given back comes before them
            outcome.add_done_callback(lambda done: self._abandoned(dequeue, attempt, done))
            raise
        except BaseException:
            self._ahead.clear()  # the first may still exist, and comes first
            raise
        taken = self._result(result, attempt)
        if taken is None:
            dequeue.missed()
        return taken

    def _sent(self, write: Outcome) -> None:
        self._in_flight += 1
        write.add_done_callback(self._answered)

    def _answered(self, _: object) -> None:
        self._in_flight -= 1
        if not self._in_flight and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _abandoned(self, dequeue: Dequeue, attempt: _Attempt, outcome: Outcome) -> None:
        taken = None
        if outcome.exception() is None:
            taken = self._result(outcome.result(), attempt)
        undoing = dequeue.abandoned(outcome, taken)
        if undoing is not None:
            self._sent(undoing)

    def _result(self, result: TxnResult, attempt: _Attempt) -> Dequeued | None:
        """The item that was taken, if any; those before it are forgotten."""
        link = attempt.first_link(result)
        if link is None:
            self._ahead.clear()
            self._adapt(first=False)
            return None
        tried = attempt.tried
        for rank, kv in enumerate(tried):
            if link.succeeded:
                self._gone(tried[1 : rank + 1])
                self._adapt(first=rank == 0)
                return Dequeued(kv, link.results, result.revision)
            if link.results:
                link = _txn_in(link)
        if len(tried) >= _STALE:
            self._ahead.clear()
        else:
            self._gone(tried[1:])
        self._adapt(first=False)
        return None

    def _gone(self, kvs: tuple[KeyValue, ...]) -> None:
        if kvs:
            gone = {kv.key for kv in kvs}
            self._ahead = deque(kv for kv in self._ahead if kv.key not in gone)

    def _adapt(self, *, first: bool) -> None:
        """Adapt to the number of consumers.  first: the first item that was tried was taken."""
        if first:
            self._chain = max(1, self._chain // 2)
            self._pause_s = self._pause_s / 2 if self._pause_s > _PAUSE_S_FIRST else 0.0
        else:
            self._chain = min(self._chain * 2, self._chain_max)
            self._pause_s = min(max(self._pause_s * 2, _PAUSE_S_FIRST), _PAUSE_S_MAX)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The items that one take tries, in order, and the keys that must not exist before them."""

    tried: tuple[KeyValue, ...]
    before: KeyRange | None

    def txn(self, dequeue: Dequeue) -> Txn:
        chain: tuple[Txn, ...] = ()
        for link in reversed(dequeue.links(self.tried)):
            chain = (Txn(link.compares, link.then, chain),)
        first = chain[0]
        if self.before is None:
            return first
        none_before = Compare.create_revision(self.before, "=", 0)
        if len(self.tried) == 1:
            return Txn((*first.compares, none_before), first.then)
        return Txn((none_before,), chain)

    def first_link(self, result: TxnResult) -> TxnResult | None:
        """The result for the first item; None: another item may have come before it, look again."""
        if self.before is None or (len(self.tried) == 1 and result.succeeded):
            return result
        return _txn_in(result) if result.succeeded else None


def _txn_in(result: TxnResult) -> TxnResult:
    inner = result.results[0]
    assert isinstance(inner, TxnResult)
    return inner


class QueueConsumer(Generic[T]):
    """What a queue and a priority queue have in common: everything but `put`.

    kind: the recipe, for messages.
    by_priority: whether its items have priorities.
    """

    def __init__(
        self, context: Context, name: str, type: type[T], *, kind: str, by_priority: bool = False
    ) -> None:
        self.name = name
        self._context, self._codec = context, codec_of(type)
        key = context.key(name)
        self._items = QueueItems(context, key)
        self._unreadable = key + b"/unreadable/"
        self._removal = _Removal(context, self._items)
        self._head = QueueHead(
            context,
            f"an item of the {kind} {name}",
            look=self._items.look_by_priority if by_priority else self._items.look,
            watched=KeyRange.prefix(self._items.prefix),
            wakes=_has_new_items,
        )

    async def get(self, *, timeout: float | None = None) -> T:
        """Remove the first item and return it; wait for one if there is none.

        Raises `TimedOut` (nothing was removed; with `timeout=0`, at once), `Unavailable` (nothing was
        removed), `Indeterminate`: an item may have been removed that no consumer got.  Raises
        `ValueUnreadable` for an item that is not of the queue's type; it is set aside under
        `name/unreadable/`.
        """
        self._context.check()
        deadline = self._context.deadline(timeout)
        with self._explained():
            taken = await self._head.take(self._removal, deadline)
        return await self._item_of(taken)

    async def try_get(self) -> T | None:
        """Remove the first item and return it; None if there is none.  Raises what `get` raises."""
        self._context.check()
        with self._explained():
            taken = await self._head.try_take(self._removal)
        return None if taken is None else await self._item_of(taken)

    async def peek(self) -> T | None:
        """The first item, which stays; None if there is none."""
        self._context.check()
        while True:
            window = await self._head.look()
            if not window.kvs:
                return None
            first = window.kvs[0]
            kv = await self._context.read_key(first.key)
            if kv is not None and kv.create_revision == first.create_revision:
                return self._codec.decode(kv.key, kv.value)

    async def size(self) -> int:
        """The number of items."""
        self._context.check()
        return await self._items.count()

    async def _put(self, items: Sequence[T], prefix: bytes = b"") -> int:
        self._context.check()
        if not items:
            return 0
        return await self._items.put([self._codec.encode(item) for item in items], prefix=prefix)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in `Indeterminate` what it means for the items."""
        try:
            yield
        except Indeterminate as error:
            raise Indeterminate(
                f"the answer to a get from {self.name} was lost: an item may have been removed that "
                f"nobody received ({error}). Get again for the next one; use a work queue where no "
                "item may be lost."
            ) from error

    async def _item_of(self, taken: Dequeued) -> T:
        """The item itself.  An item that cannot be read is set aside."""
        kv = _deleted_item(taken)
        try:
            return self._codec.decode(kv.key, kv.value)
        except ValueUnreadable:
            aside = self._unreadable + self._items.relative(kv.key)
            await self._context.write(Txn(then=(Put(aside, kv.value),)))
            raise

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over the queue: one get after another, without end."""
        return self

    async def __anext__(self) -> T:
        return await self.get()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self._codec.type_name}>"


class _Removal:
    """A `Dequeue` that deletes the item."""

    def __init__(self, context: Context, items: QueueItems) -> None:
        self._context, self._items = context, items

    def links(self, kvs: Sequence[KeyValue]) -> list[Txn]:
        """Delete an item, if it is still the same one."""
        return [
            Txn(
                (Compare.create_revision(kv.key, "=", kv.create_revision),),
                (Delete(kv.key, prev_kv=True),),
            )
            for kv in kvs
        ]

    def missed(self) -> None:
        pass

    def abandoned(self, outcome: Outcome, taken: Dequeued | None) -> Outcome | None:
        """The task was cancelled: the item that was removed for it is put back."""
        if taken is not None:
            kv = _deleted_item(taken)
            key = self._items.front_key(kv.key)
            back = self._context.writes.begin(Txn((Compare.missing(key),), (Put(key, kv.value),)))
            back.add_done_callback(lambda done: _log_lost_item(done, key))
            return back
        if isinstance(outcome.exception(), Indeterminate):
            _log.error("a cancelled get may have removed an item: %s", outcome.exception())
        return None


def _has_new_items(batch: WatchBatch) -> bool:
    return any(event.kv.version for event in batch.events)


def _deleted_item(taken: Dequeued) -> KeyValue:
    deleted = taken.results[0]
    assert isinstance(deleted, DeleteResult)
    return deleted.prev_kvs[0]


def _log_lost_item(back: Outcome, key: bytes) -> None:
    """An item that could not be put back is lost; with its caller gone, only the log can report it."""
    if back.exception() is not None:
        why = back.exception()
        _log.error("an item removed by a cancelled get may be lost (it was to be %r): %s", key, why)
