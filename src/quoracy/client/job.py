"""A job: an item of a work queue that one worker has claimed.

    claimed --ack--> done: item and claim are deleted in one transaction
       \\\\--release, an exception--> back in the queue, where it was; with its attempts used up, a dead
        \\                          letter
         \\--the session is lost--> back in the queue at once: the claim was attached to the lease

Invariants
    * The claim is a key of its own for each attempt of each session, so that nothing that tidies up
      after one attempt can touch another's.
    * Whatever ends a job is one transaction on the condition that the claim is still there: who lost it
      can neither acknowledge the job nor take it away from whoever has it now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import msgspec

from quoracy.client.context import Ground
from quoracy.client.held import Held, Holding
from quoracy.client.in_flight import Outcome
from quoracy.client.session import Session
from quoracy.errors import Indeterminate, Unavailable
from quoracy.store.model import Delete, Op, Put, Txn, TxnResult

__all__ = ["Burial", "Claim", "Claiming", "Job", "Layout"]

T = TypeVar("T")


class Burial(msgspec.Struct, frozen=True):
    """Why an item became a dead letter, as it is stored."""

    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one work queue besides its items; `relative` is `bucket/id`."""

    key: bytes

    @property
    def claims(self) -> bytes:
        return self.key + b"/claims/"

    @property
    def letters(self) -> bytes:
        return self.key + b"/letters/"

    @property
    def reasons(self) -> bytes:
        return self.key + b"/reasons/"

    def burying(self, relative: bytes, data: bytes, *, attempts: int, reason: str) -> tuple[Op, ...]:
        """Make a dead letter; the item itself is for the caller to delete."""
        why = msgspec.json.encode(Burial(attempts, reason))
        return Put(self.letters + relative, data), Put(self.reasons + relative, why)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it was made: which item, with which key, of which session."""

    session: Session
    item_key: bytes
    relative: bytes
    key: bytes
    token: int
    data: bytes
    attempts: int


class Job(Held, Generic[T]):
    """A claimed item.  `token` grows with each claim in the queue: give it to whatever the job writes.

    item: what was put.
    attempts: how often it was claimed, this time included.
    """

    def __init__(
        self,
        ground: Ground,
        claim: Claim,
        item: T,
        *,
        name: str,
        layout: Layout,
        attempts_max: int | None,
        hold_max_s: float | None,
        on_return: Callable[[], None],
    ) -> None:
        super().__init__(
            ground,
            claim.session,
            name=name,
            key=claim.key,
            token=claim.token,
            what=f"the claim of a job of {name}",
            hold_max_s=hold_max_s,
            on_gone=ground.free_key,
        )
        self.item, self.attempts = item, claim.attempts
        self._claim, self._layout, self._attempts_max = claim, layout, attempts_max
        self._on_return = on_return
        self._reason: str | None = None
        self._acknowledged = False

    @property
    def is_acknowledged(self) -> bool:
        """Whether it is done for good, and the store has said so."""
        return self._acknowledged

    async def ack(self) -> None:
        """The job is done: remove it.  Once is enough; a second time does nothing.

        Raises `LockLost` if the claim was lost: the job is somebody else's, or will be.  `Unavailable`
        if the store could not be told: the claim is still held, acknowledge again.  `Indeterminate` if
        the answer was lost: the claim is given up, and a job that was not removed is done once more.
        """
        if self._acknowledged:
            return
        self.check()
        # From here on the deletion of the claim is our own, not a loss.
        self._released = True
        done = (Delete(self.key), Delete(self._claim.item_key))
        outcome = self._ground.writes.begin(Txn((self.guard(),), done))
        try:
            result = await outcome.settled()
        except asyncio.CancelledError:
            outcome.add_done_callback(self._ack_abandoned)
            raise
        except Indeterminate as error:
            self._release_alone()
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
        """Return the job as failed; with its attempts used up it is a dead letter, with this reason."""
        self.blame(reason)
        await self.release()

    def blame(self, reason: str) -> None:
        """Say why it failed, for the release that follows: what an exception in the block does."""
        self._reason = reason

    def releasing(self) -> Txn:
        """Back into the queue, or to the dead letters."""
        claim = self._claim
        ops: tuple[Op, ...] = (Delete(self.key),)
        if (
            self._reason is not None
            and self._attempts_max is not None
            and self.attempts >= self._attempts_max
        ):
            layout = self._layout
            ops += (Delete(claim.item_key),)
            ops += layout.burying(
                claim.relative, claim.data, attempts=self.attempts, reason=self._reason
            )
        return Txn((self.guard(),), ops)

    def _gone(self) -> None:
        super()._gone()
        if not self._acknowledged:
            self._on_return()

    def _acked(self, result: TxnResult) -> None:
        if result.succeeded:
            self._acknowledged = True
            self._stand_down()
            self._gone()
        else:
            self._released = False
            self.found_gone()

    def _ack_abandoned(self, outcome: Outcome) -> None:
        """Nobody waits for it any more: what was not acknowledged goes back."""
        if outcome.exception() is not None:
            self._release_alone()
        else:
            self._acked(outcome.result())

    def _take_back_release(self) -> None:
        self._released = False
        if self._session.lost.done():
            self._session_lost()


class Claiming(Holding[Job[T]]):
    """The block in which a job is done: left normally it is acknowledged, by an exception returned."""

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
            job.blame(f"{type(error).__name__}: {error}")
        await super().__aexit__(kind, error, trace)
