"""Jobs: items of a work queue that a worker has claimed.

    claimed --ack--> done: item and claim are deleted in one transaction
       \\\\--release, an exception--> back in the queue, at its place; after too many attempts, a dead
        \\                          letter
         \\--the session is lost--> back in the queue at once: the claim was attached to the lease

Invariants
    * The claim is a key of its own for each attempt of each session, so that the cleanup of one attempt
      cannot delete the key of another.
    * A job ends in one transaction on the condition that the claim still exists: a worker that lost its
      claim can neither acknowledge the job nor take it away from the next worker.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import msgspec

from quoracy.client.context import Context
from quoracy.client.held import Held, Holding
from quoracy.client.in_flight import Outcome
from quoracy.client.queue_head import Dequeued
from quoracy.client.queue_items import QueueItems
from quoracy.client.session import Session
from quoracy.errors import Indeterminate, Unavailable
from quoracy.store.model import (
    Compare,
    Delete,
    KeyRange,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)

__all__ = ["Claim", "ClaimAttempt", "ClaimBlock", "DeadLetterReason", "Job", "WorkQueueKeys"]

T = TypeVar("T")


class DeadLetterReason(msgspec.Struct, frozen=True):
    """The reason why an item became a dead letter, as it is stored."""

    attempts: int
    reason: str


class WorkQueueKeys:
    """The keys of one work queue besides its items."""

    def __init__(self, key: bytes) -> None:
        self.claims, self.letters = key + b"/claims/", key + b"/letters/"
        self.reasons = key + b"/reasons/"

    def dead_letter_ops(self, claim: Claim, attempts: int, reason: str) -> tuple[Op, ...]:
        """The puts that make a dead letter; the caller deletes the item itself."""
        why = msgspec.json.encode(DeadLetterReason(attempts, reason))
        return Put(self.letters + claim.relative, claim.data), Put(self.reasons + claim.relative, why)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it was made.

    relative: the key of the item without the prefix of all items, `bucket/id`.
    """

    session: Session
    item_key: bytes
    relative: bytes
    key: bytes
    token: int
    data: bytes
    attempts: int


class Job(Held, Generic[T]):
    """A claimed item.  `token` grows with each claim in the queue: pass it to what the job writes to.

    item: what was put.
    attempts: the number of claims of the item, this one included.
    """

    def __init__(
        self,
        context: Context,
        claim: Claim,
        item: T,
        *,
        name: str,
        keys: WorkQueueKeys,
        attempts_max: int | None,
        hold_max_s: float | None,
        on_return: Callable[[], None],
    ) -> None:
        super().__init__(
            context,
            claim.session,
            name=name,
            key=claim.key,
            token=claim.token,
            what=f"the claim of a job of {name}",
            hold_max_s=hold_max_s,
            on_deleted=context.free_key,
        )
        self.item, self.attempts = item, claim.attempts
        self._claim, self._keys, self._attempts_max = claim, keys, attempts_max
        self._on_return = on_return
        self._reason: str | None = None
        self._acknowledged = False

    @property
    def is_acknowledged(self) -> bool:
        """Whether the store has confirmed the acknowledgement."""
        return self._acknowledged

    async def ack(self) -> None:
        """Acknowledge that the job is done: its item is deleted.  A second call does nothing.

        Raises `LockLost` if the claim was lost: another worker has the job, or will have it.
        `Unavailable` if the store did not take it: the claim is still held, acknowledge again.
        `Indeterminate` if the answer was lost: the claim is released, and an item that was not deleted
        is done once more.
        """
        if self._acknowledged:
            return
        self.check()
        # From here on a deletion of the claim is our own, not a loss.
        self._released = True
        done = (Delete(self.key), Delete(self._claim.item_key))
        outcome = self._context.writes.begin(Txn((self.guard(),), done))
        try:
            result = await outcome.settled()
        except asyncio.CancelledError:
            outcome.add_done_callback(self._ack_abandoned)
            raise
        except Indeterminate as error:
            self._release_in_background()
            raise Indeterminate(
                f"the answer to the acknowledgement of a job of {self.name} was lost ({error}). If it "
                "was not removed it is in the queue again, and will be done once more."
            ) from error
        except BaseException:
            self._take_back_release()
            raise
        self._acked(result)
        if self.error is not None:
            raise self.error

    async def fail(self, reason: str) -> None:
        """Return the job as failed; after `attempts_max` claims it becomes a dead letter."""
        self._set_reason(reason)
        await self.release()

    def _set_reason(self, reason: str) -> None:
        """Set the reason of a failure, for the release that follows."""
        self._reason = reason

    def release_txn(self) -> Txn:
        """Return it to the queue, or to the dead letters."""
        claim, attempts, reason = self._claim, self.attempts, self._reason
        ops: tuple[Op, ...] = (Delete(self.key),)
        if reason is not None and self._attempts_max is not None and attempts >= self._attempts_max:
            ops += (Delete(claim.item_key), *self._keys.dead_letter_ops(claim, attempts, reason))
        return Txn((self.guard(),), ops)

    def _deleted(self) -> None:
        super()._deleted()
        if not self._acknowledged:
            self._on_return()

    def _acked(self, result: TxnResult) -> None:
        if result.succeeded:
            self._acknowledged = True
            self._stop_watching()
            self._deleted()
        else:
            self._released = False
            self.key_not_found()

    def _ack_abandoned(self, outcome: Outcome) -> None:
        """The caller was cancelled: if it was not acknowledged, it is released."""
        if outcome.exception() is not None:
            self._release_in_background()
        else:
            self._acked(outcome.result())

    def _take_back_release(self) -> None:
        self._released = False
        if self._session.lost.done():
            self._session_lost()


class ClaimBlock(Holding[Job[T]]):
    """A block for a job: acknowledged at its normal end, returned after an exception."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        job = self._held
        assert job is not None
        if kind is None and job.is_held:
            self._scope.left(None)
            try:
                await job.ack()
            except Unavailable:
                await job.leave()
                raise
            return
        if isinstance(error, Exception):
            job._set_reason(f"{type(error).__name__}: {error}")
        await super().__aexit__(kind, error, trace)


class ClaimAttempt:
    """A `Dequeue` that claims an item, with one session: the claims it sends, and their end."""

    def __init__(
        self, context: Context, items: QueueItems, keys: WorkQueueKeys, session: Session
    ) -> None:
        self._context, self._items, self._session = context, items, session
        self._claims = keys.claims
        # The claims that are on their way, by item.
        self._keys: dict[bytes, bytes] = {}

    def links(self, kvs: Sequence[KeyValue]) -> list[Txn]:
        return [self._link(kv) for kv in kvs]

    def _link(self, kv: KeyValue) -> Txn:
        claims = self._claims + self._items.relative(kv.key) + b"/"
        key = self._context.reserve_key(b"%b%x" % (claims, self._session.id))
        self._keys[kv.key] = key
        compares = (
            Compare.create_revision(kv.key, "=", kv.create_revision),
            Compare.create_revision(KeyRange.prefix(claims), "=", 0),
        )
        # Put with the value it has: the version counts the claims, and its place, which is its
        # create_revision, stays.
        counted = Put(kv.key, ignore_value=True)
        claimed = Put(key, self._context.identity.encode(), self._session.id)
        return Txn(compares, (counted, claimed, Range(kv.key)))

    def claim_of(self, taken: Dequeued) -> Claim:
        """The claim that was made; the keys of the others are freed."""
        key = self._keys.pop(taken.kv.key)
        self.free()
        self._keys[taken.kv.key] = key
        result = taken.results[2]
        assert isinstance(result, RangeResult)
        kv = result.kvs[0]
        return Claim(
            session=self._session,
            item_key=kv.key,
            relative=self._items.relative(kv.key),
            key=key,
            token=taken.revision,
            data=kv.value,
            attempts=kv.version - 1,
        )

    def missed(self) -> None:
        self.free()

    def abandoned(self, outcome: Outcome, taken: Dequeued | None) -> Outcome | None:
        """The task was cancelled: the claim that was made for it is released."""
        if taken is None:
            if isinstance(outcome.exception(), Indeterminate):
                self.remove(may_appear=True)
            else:
                self.free()
            return None
        claim = self.claim_of(taken)
        undoing = self._context.writes.begin(Txn(then=(Delete(claim.key),)))

        def undone(done: Outcome) -> None:
            if done.exception() is not None:
                self.remove(may_appear=False)
            else:
                self.free()

        undoing.add_done_callback(undone)
        return undoing

    def free(self) -> None:
        """None of its claims is in the store."""
        for key in self._keys.values():
            self._context.free_key(key)
        self._keys.clear()

    def remove(self, *, may_appear: bool) -> None:
        """Delete the claims that were made, or may have been."""
        free, keys = self._context.free_key, list(self._keys.values())
        self._keys.clear()
        for key in keys:
            done = functools.partial(free, key)
            self._context.cleanup.remove(key, self._session, may_appear=may_appear, done=done)
