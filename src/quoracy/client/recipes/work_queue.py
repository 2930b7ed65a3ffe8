"""WorkQueue: work that is done at least once, whoever dies in the middle.

    async with quoracy.connect("memory:") as q:
        mails = q.work_queue("mails", str)
        await mails.put("ann@example.org")
        async with mails.claim(timeout=5) as job:
            await send(job.item, fence=job.token)

A worker claims an item and has it for itself; the item stays in the store until it is acknowledged.
Leaving the block normally acknowledges it; an exception, or a cancellation, returns it.

What it promises
    * An item whose `put` returned is done at least once: it is gone only after an acknowledgement, or
      it is a dead letter.
    * One worker has it at a time.  If that one's session is lost the item is free at once, at its old
      place; the body of the block is cancelled and `LockLost` raised, before another can have it.
    * An acknowledgement is fenced: the store refuses that of a worker that lost its claim.  The token
      of a job grows with each claim; give it to whatever the job writes.
    * Items are claimed in the order of commits, and one that was returned comes before all younger
      ones, except that another process relies for up to 20 ms on what it saw.
    * After `attempts_max` claims an item is set aside as a dead letter, with the reason, to be looked
      at and put back.  A claim counts, however it ended.
What it does not
    * Exactly once: a worker may do the work, and die before it can say so.  Make the work idempotent,
      or check `job.token` where it writes.
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
from quoracy.client.context import Ground, Patience
from quoracy.client.in_flight import Outcome
from quoracy.client.job import Burial, Claim, Claiming, Job, Layout
from quoracy.client.queue_head import Taken, Taker
from quoracy.client.queue_items import Backlog, Window
from quoracy.client.session import Session
from quoracy.errors import (
    Indeterminate,
    InvalidRequest,
    LeaseNotFound,
    SessionLost,
    ValueUnreadable,
)
from quoracy.store.model import (
    Compare,
    Delete,
    KeyRange,
    KeyValue,
    Put,
    Range,
    RangeResult,
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
    """How many items wait, are claimed and are dead letters, at one revision."""

    waiting: int
    claimed: int
    dead: int
    revision: int


@dataclass(frozen=True, slots=True)
class DeadLetter(Generic[T]):
    """An item that was claimed too often, or could not be read.

    data: as it is stored; `item` reads it.
    attempts: how often it was claimed.
    reason: what the last attempt said.
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
    attempts_max: how often an item is claimed at most; None: without end.  The same for all workers.
    cancel_on_loss: when a claim is lost, cancel the body and raise `LockLost`; in coroutines only.
        False: only `job.lost` is set, and the block raises at its end.
    hold_max: give a claim up as lost after this many seconds, session or not.
    """

    def __init__(
        self,
        ground: Ground,
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
        key = ground.key(name)
        self._ground, self._codec, self._layout = ground, codec_of(type), Layout(key)
        self._attempts_max, self._hold_max = attempts_max, hold_max
        self._cancel_on_loss = cancel_on_loss
        self._backlog = Backlog(ground, key, marks=self._layout.claims)
        self._what = f"a job of {name}"
        self._taker = Taker(
            ground,
            self._what,
            look=self._look,
            # From the first claim to the last item; nothing else lies between.
            watched=KeyRange(self._layout.claims, KeyRange.prefix(self._backlog.items).end),
            wakes=self._wakes,
            deletes=True,
            chain_max=_CHAIN_MAX,
            ahead_max=_AHEAD_MAX,
            fresh_s=_FRESH_S,
        )

    async def put(self, item: T) -> int:
        """Put an item at the end; returns the store's revision at which it is there.

        Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been; put again, it may be
        done twice.
        """
        return await self.put_many((item,))

    async def put_many(self, items: Sequence[T]) -> int:
        """Put items at the end, all or none; at most 127.  With none it asks nobody, and returns 0."""
        self._ground.check()
        if not items:
            return 0
        return await self._backlog.put([self._codec.encode(item) for item in items])

    # -- claiming ----------------------------------------------------------------------------

    def claim(self, *, timeout: float | None = None) -> Claiming[T]:
        """A block in which an item is claimed: `work.claim(timeout=5)`.

        Left normally it acknowledges the job, unless that was done or it was released; left by an
        exception or a cancellation it returns it.  A block whose claim is lost raises `LockLost`; in
        coroutines its body is cancelled first.  Raises `TimedOut` if there is nothing to do.
        """
        return Claiming(lambda: self.take(timeout=timeout), cancel_on_loss=self._cancel_on_loss)

    async def take(self, *, timeout: float | None = None) -> Job[T]:
        """Claim an item without a block: whoever takes it so calls `ack`, `fail` or `release`.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store could not be asked, and then
        nothing is claimed (but an attempt may have been counted).
        """
        self._ground.check()
        patience = Patience(self._ground.clock, timeout)
        while True:
            with self._ground.waiting(f"a session for {self._what}", patience):
                session = await self._ground.session()
            job = await self._take_with(session, patience)
            if job is not None:
                return job

    async def _take_with(self, session: Session, patience: Patience) -> Job[T] | None:
        """None: the session was lost, or the item was one to set aside; try again."""
        attempt = _Attempt(self._ground, self._backlog, self._layout, session)
        try:
            taken = await self._taker.take_within(attempt, patience, session=session)
        except LeaseNotFound:
            attempt.free()
            session.found_gone()
            return None
        except SessionLost:
            attempt.free()
            return None
        except Indeterminate:
            attempt.remove(may_appear=True)
            raise
        except asyncio.CancelledError:
            raise  # what was on its way is seen to when the answer is there
        except BaseException:
            attempt.free()
            raise
        claim = attempt.claim_of(taken)
        if session.is_lost:
            attempt.free()
            return None
        if self._attempts_max is not None and claim.attempts > self._attempts_max:
            reason = f"claimed {self._attempts_max} times and never acknowledged"
            await self._bury(claim, attempts=self._attempts_max, reason=reason)
            return None
        try:
            item = self._codec.decode(claim.item_key, claim.data)
        except ValueUnreadable as error:
            await self._bury(claim, attempts=claim.attempts, reason=str(error))
            return None
        return Job(
            self._ground,
            claim,
            item,
            name=self.name,
            layout=self._layout,
            attempts_max=self._attempts_max,
            hold_max_s=self._hold_max,
            on_return=self._taker.forget,
        )

    async def _bury(self, claim: Claim, *, attempts: int, reason: str) -> None:
        """Make a dead letter of an item that we claimed and nobody should have."""
        ops = (
            Delete(claim.key),
            Delete(claim.item_key),
            *self._layout.burying(claim.relative, claim.data, attempts=attempts, reason=reason),
        )
        guard = Compare.create_revision(claim.key, "=", claim.token)
        ground = self._ground
        try:
            await ground.write(Txn((guard,), ops))
        except BaseException:
            ground.tidying.remove(claim.key, claim.session, done=lambda: ground.free_key(claim.key))
            raise
        ground.free_key(claim.key)

    async def _look(self) -> Window:
        """The first items that nobody has claimed."""
        first = window = await self._backlog.look()
        while True:
            relative, marked = self._backlog.relative, window.marked
            free = tuple(kv for kv in window.kvs if relative(kv.key) not in marked)
            if free or window.next_start is None:
                # What changes behind the first window while the others are read is to be seen too.
                return replace(window, kvs=free, revision=first.revision)
            window = await self._backlog.look(window.next_start)

    def _wakes(self, batch: WatchBatch) -> bool:
        """Whether an item is new, or returned: its claim is deleted, and not the item with it."""
        items = self._backlog.items
        returned: set[bytes] = set()
        deleted: set[bytes] = set()
        for event in batch.events:
            kv = event.kv
            if kv.key.startswith(items):
                if event.is_create:
                    return True
                if not kv.version:
                    deleted.add(self._backlog.relative(kv.key))
            elif not kv.version:
                returned.add(kv.key[len(self._layout.claims) :].rpartition(b"/")[0])
        return not returned <= deleted

    # -- looking after it --------------------------------------------------------------------

    async def stats(self) -> WorkStats:
        """How many items wait, are claimed, are dead letters."""
        self._ground.check()
        prefixes = (self._backlog.items, self._layout.claims, self._layout.letters)
        counting = tuple(Range(KeyRange.prefix(prefix), count_only=True) for prefix in prefixes)
        result = await self._ground.store.txn(Txn(then=counting))
        items, claims, letters = (_found(result, at).count for at in range(3))
        return WorkStats(items - claims, claims, letters, result.revision)

    async def dead_letters(
        self, *, limit: int = 100, after: DeadLetter[T] | None = None
    ) -> tuple[DeadLetter[T], ...]:
        """Dead letters, the oldest items first; `after` the last one shows the next page."""
        self._ground.check()
        begin = b"" if after is None else after.id.encode() + b"\0"
        letters, reasons = self._layout.letters, self._layout.reasons
        pages = tuple(
            Range(KeyRange(prefix + begin, KeyRange.prefix(prefix).end), limit=limit)
            for prefix in (letters, reasons)
        )
        result = await self._ground.store.txn(Txn(then=pages))
        why = {kv.key[len(reasons) :]: kv.value for kv in _found(result, 1).kvs}
        return tuple(self._letter(kv, why) for kv in _found(result, 0).kvs)

    async def requeue(self, letter: DeadLetter[T]) -> bool:
        """Put a dead letter back, at the end, as if it were new; False: it is gone."""
        self._ground.check()
        relative = letter.id.encode()
        id = relative.rpartition(b"/")[2]

        def moving(bucket: bytes) -> tuple[Txn]:
            item = Put(b"%b%b/%b" % (self._backlog.items, bucket, id), letter.data)
            return (Txn(self._is_there(letter), (*self._removing(relative), item)),)

        result = await self._backlog.commit(1, moving)
        moved = result.results[-1]
        assert isinstance(moved, TxnResult)
        return moved.succeeded

    async def discard(self, letter: DeadLetter[T]) -> bool:
        """Delete a dead letter for good; False: it was gone."""
        self._ground.check()
        removing = self._removing(letter.id.encode())
        return (await self._ground.write(Txn(self._is_there(letter), removing))).succeeded

    def _is_there(self, letter: DeadLetter[T]) -> tuple[Compare]:
        key = self._layout.letters + letter.id.encode()
        return (Compare.create_revision(key, "=", letter.revision),)

    def _removing(self, relative: bytes) -> tuple[Delete, Delete]:
        return Delete(self._layout.letters + relative), Delete(self._layout.reasons + relative)

    def _letter(self, kv: KeyValue, why: dict[bytes, bytes]) -> DeadLetter[T]:
        relative = kv.key[len(self._layout.letters) :]
        said = why.get(relative)
        burial = Burial(0, "unknown") if said is None else msgspec.json.decode(said, type=Burial)
        return DeadLetter(
            relative.decode(), kv.value, burial.attempts, burial.reason, kv.create_revision, self._codec
        )

    def __repr__(self) -> str:
        return f"<WorkQueue {self.name} of {self._codec.type_name}>"


class _Attempt:
    """One attempt to claim an item, with one session: the claims it sends, and their end."""

    def __init__(self, ground: Ground, backlog: Backlog, layout: Layout, session: Session) -> None:
        self._ground, self._backlog, self._layout, self._session = ground, backlog, layout, session
        # The claims that are on their way, by item.
        self._keys: dict[bytes, bytes] = {}

    def links(self, kvs: Sequence[KeyValue]) -> list[Txn]:
        return [self._link(kv) for kv in kvs]

    def _link(self, kv: KeyValue) -> Txn:
        claims = self._layout.claims + self._backlog.relative(kv.key) + b"/"
        key = self._ground.take_key(b"%b%x" % (claims, self._session.id))
        self._keys[kv.key] = key
        compares = (
            Compare.create_revision(kv.key, "=", kv.create_revision),
            Compare.create_revision(KeyRange.prefix(claims), "=", 0),
        )
        # Put again with the value it has: its version counts the claims, and its place, which is its
        # create_revision, stays.
        counted = Put(kv.key, ignore_value=True)
        claimed = Put(key, self._ground.identity.encode(), self._session.id)
        return Txn(compares, (counted, claimed, Range(kv.key)))

    def claim_of(self, taken: Taken) -> Claim:
        """What was claimed; the other keys are free again."""
        key = self._keys.pop(taken.kv.key)
        self.free()
        self._keys[taken.kv.key] = key
        found = taken.results[2]
        assert isinstance(found, RangeResult)
        kv = found.kvs[0]
        return Claim(
            session=self._session,
            item_key=kv.key,
            relative=self._backlog.relative(kv.key),
            key=key,
            token=taken.revision,
            data=kv.value,
            attempts=kv.version - 1,
        )

    def missed(self) -> None:
        self.free()

    def abandoned(self, outcome: Outcome, taken: Taken | None) -> Outcome | None:
        """The task was cancelled: what was claimed for it is given back."""
        if taken is None:
            if isinstance(outcome.exception(), Indeterminate):
                self.remove(may_appear=True)
            else:
                self.free()
            return None
        claim = self.claim_of(taken)
        undoing = self._ground.writes.begin(Txn(then=(Delete(claim.key),)))

        def undone(done: Outcome) -> None:
            if done.exception() is not None:
                self.remove(may_appear=False)
            else:
                self.free()

        undoing.add_done_callback(undone)
        return undoing

    def free(self) -> None:
        """Nothing of it is in the store."""
        for key in self._keys.values():
            self._ground.free_key(key)
        self._keys.clear()

    def remove(self, *, may_appear: bool) -> None:
        """Have the claims removed that were made, or may have been."""
        ground, keys = self._ground, list(self._keys.values())
        self._keys.clear()
        for key in keys:

            def gone(key: bytes = key) -> None:
                ground.free_key(key)

            ground.tidying.remove(key, self._session, may_appear=may_appear, done=gone)


def _found(result: TxnResult, at: int) -> RangeResult:
    found = result.results[at]
    assert isinstance(found, RangeResult)
    return found
