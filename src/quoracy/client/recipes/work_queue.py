"""WorkQueue: work that is done at least once, even if a worker dies in the middle of it.

    async with quoracy.connect("memory:") as q:
        mails = q.work_queue("mails", str)
        await mails.put("ann@example.org")
        async with mails.claim(timeout=5) as job:
            await send(job.item, fence=job.token)

A worker claims an item and has it for itself; the item stays in the store until it is acknowledged.
A block that ends normally acknowledges it; an exception, or a cancellation, returns it.

What it promises
    * An item whose `put` returned is done at least once: it is deleted only after an acknowledgement,
      or becomes a dead letter.
    * One worker has it at a time.  If that worker's session is lost the item is free at once, at its
      old place; the body of the block is cancelled and `LockLost` raised, before another can have it.
    * An acknowledgement is fenced: the store refuses that of a worker that lost its claim.  The token
      of a job grows with each claim; pass it to what the job writes to.
    * Items are claimed in the order of commits, and one that was returned comes before all younger
      ones, except that another process relies for up to 20 ms on what it saw.
    * After `attempts_max` claims an item is set aside as a dead letter, with the reason, to be examined
      and put back.  Every claim counts, however it ended.
What it does not
    * Exactly once: a worker may do the work, and die before it acknowledges it.  Make the work
      idempotent, or check `job.token` where it writes.
    * With several workers the order is that of claims, not of completion.
    * An item that was returned is tried again at once: there is no delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import msgspec

from quoracy.client.codec import Codec, codec_of
from quoracy.client.compare_and_swap import range_at
from quoracy.client.context import Context, Deadline
from quoracy.client.job import Claim, ClaimAttempt, ClaimBlock, DeadLetterReason, Job, WorkQueueKeys
from quoracy.client.queue_head import QueueHead
from quoracy.client.queue_items import QueueItems, Window
from quoracy.client.session import Session
from quoracy.errors import Indeterminate, InvalidRequest, LeaseNotFound, SessionLost, ValueUnreadable
from quoracy.store.model import (
    Compare,
    Delete,
    KeyRange,
    KeyValue,
    Put,
    Range,
    Txn,
    TxnResult,
    WatchBatch,
)

__all__ = ["DeadLetter", "WorkQueue", "WorkStats"]

T = TypeVar("T")

_CHAIN_MAX = 8
_AHEAD_MAX = 16
_FRESH_S = 0.02


@dataclass(frozen=True, slots=True)
class WorkStats:
    """The numbers of items that wait, that are claimed, and of dead letters, at one revision."""

    waiting: int
    claimed: int
    dead: int
    revision: int


@dataclass(frozen=True, slots=True)
class DeadLetter(Generic[T]):
    """An item that was claimed too often, or could not be read.

    data: as it is stored; `item` decodes it.
    attempts: the number of its claims.
    reason: that of the last attempt.
    """

    id: str
    data: bytes
    attempts: int
    reason: str
    revision: int
    _codec: Codec[T] = field(repr=False)

    @property
    def item(self) -> T:
        """What was put.  Raises `ValueUnreadable` if it is not of the queue's type."""
        return self._codec.decode(self.id.encode(), self.data)


class WorkQueue(Generic[T]):
    """A work queue by name; one object may be shared, each claim is its own `Job`.

    type: of the items: bytes, str, or anything msgspec can write as JSON.
    attempts_max: the most claims of an item; None: no limit.  The same for all workers.
    cancel_on_loss: when a claim is lost, cancel the body and raise `LockLost`; in coroutines only.
        False: only `job.lost` is set, and the block raises at its end.
    hold_max: the claim counts as lost after this many seconds.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        type: type[T],
        *,
        attempts_max: int | None = 5,
        cancel_on_loss: bool = True,
        hold_max: float | None = None,
    ) -> None:
        if attempts_max is not None and attempts_max < 1:
            raise InvalidRequest(f"attempts_max is {attempts_max}. Give 1 or more, or None: no limit.")
        self.name = name
        key = context.key(name)
        self._context, self._codec, self._keys = context, codec_of(type), WorkQueueKeys(key)
        self._attempts_max, self._hold_max = attempts_max, hold_max
        self._cancel_on_loss = cancel_on_loss
        self._items = QueueItems(context, key, marks=self._keys.claims)
        self._what = f"a job of {name}"
        self._head = QueueHead(
            context,
            self._what,
            look=self._look,
            # From the first claim to the last item; there are no other keys between.
            watched=KeyRange(self._keys.claims, KeyRange.prefix(self._items.prefix).end),
            wakes=self._wakes,
            deletes=True,
            chain_max=_CHAIN_MAX,
            ahead_max=_AHEAD_MAX,
            fresh_s=_FRESH_S,
        )

    async def put(self, item: T) -> int:
        """Put an item at the end; returns the revision of the store at which it is there.

        Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been; put again, it may be
        done twice.
        """
        return await self.put_many((item,))

    async def put_many(self, items: Sequence[T]) -> int:
        """Put items at the end, all or none; at most 127.

        Without items it does not ask the store, and returns 0.
        """
        self._context.check()
        if not items:
            return 0
        return await self._items.put([self._codec.encode(item) for item in items])

    # -- claiming ----------------------------------------------------------------------------

    def claim(self, *, timeout: float | None = None) -> ClaimBlock[T]:
        """A block in which an item is claimed: `work.claim(timeout=5)`.

        At its normal end it acknowledges the job, unless that was done or it was released; after an
        exception or a cancellation it returns it.  A block whose claim is lost raises `LockLost`; in
        coroutines its body is cancelled first.  Raises `TimedOut` if there is no item.
        """
        return ClaimBlock(lambda: self.take(timeout=timeout), cancel_on_loss=self._cancel_on_loss)

    async def take(self, *, timeout: float | None = None) -> Job[T]:
        """Claim an item without a block: the caller calls `ack`, `fail` or `release`.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store did not answer, and then
        nothing is claimed (but an attempt may have been counted).
        """
        self._context.check()
        deadline = self._context.deadline(timeout)
        while True:
            with self._context.wait_scope(f"a session for {self._what}", deadline):
                session = await self._context.session()
            job = await self._take_with(session, deadline)
            if job is not None:
                return job

    async def _take_with(self, session: Session, deadline: Deadline) -> Job[T] | None:
        """A job; None: the session was lost, or the item was set aside, so try again."""
        attempt = ClaimAttempt(self._context, self._items, self._keys, session)
        try:
            taken = await self._head.take(attempt, deadline, session=session)
        except (LeaseNotFound, SessionLost):
            attempt.free()
            session.lease_not_found()
            return None
        except Indeterminate:
            attempt.remove(may_appear=True)
            raise
        except asyncio.CancelledError:
            raise  # `abandoned` handles the answer
        except BaseException:
            attempt.free()
            raise
        claim = attempt.claim_of(taken)
        if session.is_lost:
            attempt.free()
            return None
        if self._attempts_max is not None and claim.attempts > self._attempts_max:
            reason = f"claimed {self._attempts_max} times and never acknowledged"
            await self._set_aside(claim, self._attempts_max, reason)
            return None
        try:
            item = self._codec.decode(claim.item_key, claim.data)
        except ValueUnreadable as error:
            await self._set_aside(claim, claim.attempts, str(error))
            return None
        return Job(
            self._context,
            claim,
            item,
            name=self.name,
            keys=self._keys,
            attempts_max=self._attempts_max,
            hold_max_s=self._hold_max,
            on_return=self._head.forget,
        )

    async def _set_aside(self, claim: Claim, attempts: int, reason: str) -> None:
        """Make a dead letter of an item that we claimed."""
        letter = self._keys.dead_letter_ops(claim, attempts, reason)
        ops = (Delete(claim.key), Delete(claim.item_key), *letter)
        guard = Compare.create_revision(claim.key, "=", claim.token)
        context = self._context
        try:
            await context.write(Txn((guard,), ops))
        except BaseException:
            context.cleanup.remove(claim.key, claim.session, done=lambda: context.free_key(claim.key))
            raise
        context.free_key(claim.key)

    async def _look(self) -> Window:
        """The first items that are not claimed."""
        first = window = await self._items.look()
        while True:
            relative, marked = self._items.relative, window.marked
            free = tuple(kv for kv in window.kvs if relative(kv.key) not in marked)
            if free or window.next_start is None:
                # A change in the first window while the others are read must be seen too.
                return replace(window, kvs=free, revision=first.revision)
            window = await self._items.look(window.next_start)

    def _wakes(self, batch: WatchBatch) -> bool:
        """Whether an item is new, or returned: its claim is deleted, and the item is not."""
        items = self._items.prefix
        returned: set[bytes] = set()
        deleted: set[bytes] = set()
        for event in batch.events:
            kv = event.kv
            if kv.key.startswith(items):
                if event.is_create:
                    return True
                if not kv.version:
                    deleted.add(self._items.relative(kv.key))
            elif not kv.version:
                returned.add(kv.key[len(self._keys.claims) :].rpartition(b"/")[0])
        return not returned <= deleted

    # -- statistics and dead letters ---------------------------------------------------------

    async def stats(self) -> WorkStats:
        """The numbers of items that wait, that are claimed, and of dead letters."""
        self._context.check()
        prefixes = (self._items.prefix, self._keys.claims, self._keys.letters)
        counting = tuple(Range(KeyRange.prefix(prefix), count_only=True) for prefix in prefixes)
        result = await self._context.store.txn(Txn(then=counting))
        items, claims, letters = (range_at(result, at).count for at in range(3))
        return WorkStats(items - claims, claims, letters, result.revision)

    async def dead_letters(
        self, *, limit: int = 100, after: DeadLetter[T] | None = None
    ) -> tuple[DeadLetter[T], ...]:
        """Dead letters, the oldest items first; `after` the last one is the next page."""
        self._context.check()
        begin = b"" if after is None else after.id.encode() + b"\0"
        letters, reasons = self._keys.letters, self._keys.reasons
        pages = tuple(
            Range(KeyRange(prefix + begin, KeyRange.prefix(prefix).end), limit=limit)
            for prefix in (letters, reasons)
        )
        result = await self._context.store.txn(Txn(then=pages))
        why = {kv.key[len(reasons) :]: kv.value for kv in range_at(result, 1).kvs}
        return tuple(self._letter(kv, why) for kv in range_at(result, 0).kvs)

    async def requeue(self, letter: DeadLetter[T]) -> bool:
        """Put a dead letter back, at the end, like a new item; False: it does not exist any more."""
        self._context.check()
        relative = letter.id.encode()
        id = relative.rpartition(b"/")[2]

        def moving(bucket: bytes) -> tuple[Txn]:
            item = Put(b"%b%b/%b" % (self._items.prefix, bucket, id), letter.data)
            return (Txn(self._is_there(letter), (*self._removing(relative), item)),)

        result = await self._items.commit(1, moving)
        moved = result.results[-1]
        assert isinstance(moved, TxnResult)
        return moved.succeeded

    async def discard(self, letter: DeadLetter[T]) -> bool:
        """Delete a dead letter; False: it did not exist any more."""
        self._context.check()
        removing = self._removing(letter.id.encode())
        return (await self._context.write(Txn(self._is_there(letter), removing))).succeeded

    def _is_there(self, letter: DeadLetter[T]) -> tuple[Compare]:
        key = self._keys.letters + letter.id.encode()
        return (Compare.create_revision(key, "=", letter.revision),)

    def _removing(self, relative: bytes) -> tuple[Delete, Delete]:
        return Delete(self._keys.letters + relative), Delete(self._keys.reasons + relative)

    def _letter(self, kv: KeyValue, why: dict[bytes, bytes]) -> DeadLetter[T]:
        relative = kv.key[len(self._keys.letters) :]
        said = why.get(relative)
        record = (
            DeadLetterReason(0, "unknown")
            if said is None
            else msgspec.json.decode(said, type=DeadLetterReason)
        )
        return DeadLetter(
            relative.decode(), kv.value, record.attempts, record.reason, kv.create_revision, self._codec
        )

    def __repr__(self) -> str:
        return f"<WorkQueue {self.name} of {self._codec.type_name}>"
