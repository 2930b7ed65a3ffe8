"""Acquisitions: what is held, and what happens when it is lost.

A `Held` is the state of one acquisition: of a lock, a share of a semaphore, a term of office.  It may
be passed between tasks.  A `Holding` is the block in which something is held: `async with` acquires,
guards the body, releases.

    acquire --> held --(session lost, key deleted, held too long)--> lost: the body is cancelled
                  \\--(release, end of the block)--> released

Invariants
    * A block is entered holding, or it raises.
    * `is_held` is False before another client can hold it, also in a process that was stopped and has
      not noticed yet: it looks at the clock.
    * A block that lost what it held never ends quietly: it raises the loss, or what the body raised.
    * However a block ends, its key is deleted: at once, in the background, or with the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from quoracy.blocks import Enterable, Holding
from quoracy.client.in_flight import Outcome
from quoracy.client.session import Session
from quoracy.clock import Clock, Timer
from quoracy.errors import (
    Compacted,
    Indeterminate,
    LeaseLost,
    LockLost,
    QuoracyError,
    StoreClosed,
    Unavailable,
)
from quoracy.store.api import Store
from quoracy.store.model import Compare, CompareTarget, Delete, Op, Relation, Txn, TxnResult

if TYPE_CHECKING:
    from quoracy.client.context import Context

__all__ = ["Enterable", "Held", "Holding", "wait_deleted"]

_log = logging.getLogger(__name__)

# The pause before a store that could not be watched is asked whether a key still exists.
_RETRY_S = 1.0


class Held:
    """One acquisition: its fencing token, and whether it is still held.

    lost: set when it is not held any more although it was not released.
    """

    loss_type: type[LeaseLost] = LockLost

    def __init__(
        self,
        context: Context,
        session: Session,
        *,
        name: str,
        key: bytes,
        token: int,
        what: str,
        hold_max_s: float | None = None,
        on_deleted: Callable[[bytes], None] | None = None,
    ) -> None:
        self.name, self.key, self.token = name, key, token
        self.lost = asyncio.Event()
        self.error: LeaseLost | None = None
        self._context, self._session, self._what = context, session, what
        self._released = False
        self._on_deleted = on_deleted
        self._loss_listeners: list[Callable[[LeaseLost], None]] = []
        self._watch_task: asyncio.Task[None] | None = None
        self._hold_timer: Timer | None = None
        self._watch_timer = 0
        session.add_loss_listener(self, self._session_lost)
        if self.error is None:  # the session may be lost by now
            self._watch_timer = context.hold_timers.add(self._watch)
            if hold_max_s is not None:
                too_long = f"held for {hold_max_s:g} s"
                self._hold_timer = context.clock.call_later(hold_max_s, lambda: self._lose(too_long))

    # -- whether it is held ------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether it is certainly held now: known from the clock, without asking the store."""
        return not self._released and self.error is None and not self._session.is_lost

    @property
    def remaining_s(self) -> float:
        """How long it is certainly held if no further answer comes from the server."""
        return self._session.remaining_s if self.is_held else 0.0

    def check(self) -> None:
        """Raise the loss if it is not held any more: for just before an action that relies on it."""
        if self.is_held:
            return
        raise self.error or self.loss_type(f"{self._what} was released, so it is not held any more.")

    def guard(self) -> Compare:
        """A condition for a transaction: that it is still held."""
        return Compare(self.key, CompareTarget.CREATE, Relation.EQUAL, self.token)

    async def txn(self, *then: Op) -> TxnResult:
        """Carry out operations on the store if, and only if, it is still held: the store decides.

        This is the one kind of write that a stale holder can never make, whatever its clock says.
        """
        self.check()
        result = await self._context.write(Txn((self.guard(),), then))
        if not result.succeeded:
            self.key_not_found()
            self.check()
        return result

    def key_not_found(self) -> None:
        """The store answered that the key does not exist any more."""
        self._lose(f"its key {self.key!r} is gone")

    # -- releasing it ------------------------------------------------------------------------

    async def release(self) -> None:
        """Release it.  A second call does nothing.

        Raises the loss if the store answers that it was lost already: it was not held to the end.
        If the store does not answer, this raises the reason, and the release is tried again in the
        background; others may have to wait for the end of the session.
        """
        await self._release(quietly=False)

    def _was_lost(self, released: TxnResult) -> bool:
        """Whether the answer to `release_txn` shows that it was not held any more."""
        return not released.succeeded

    def leave(self) -> Coroutine[Any, Any, None]:
        """`release` at the end of a block, where an error must not hide the error of the block."""
        return self._release(quietly=True)

    async def _release(self, *, quietly: bool) -> None:
        if self._released:
            return
        outcome = self._begin_release()
        if outcome is None:
            return
        try:
            result = await outcome.settled()
        except QuoracyError as error:
            self._release_answered(outcome)
            if self.error is not None:
                _log.info("%s is lost and was not released: %s", self._what, error)
            elif quietly and not isinstance(error, LeaseLost):
                _log.warning("%s is released later, or with its session: %s", self._what, error)
            else:
                raise
        except BaseException:
            # The caller does not wait for the answer any more; a failure is handled all the same.
            outcome.add_done_callback(self._release_answered)
            raise
        else:
            self._deleted()
            if self.error is None and self._was_lost(result):
                self._set_lost(f"when it was released, its key {self.key!r} was gone")
                if not quietly:  # otherwise the block raises it, unless its body raised
                    self.check()

    def _release_in_background(self) -> None:
        """Release it without waiting for the answer."""
        outcome = self._begin_release()
        if outcome is not None:
            outcome.add_done_callback(self._release_answered)

    def _begin_release(self) -> Outcome | None:
        """Send the release; the caller handles the answer.  None: it is lost."""
        session = self._session
        # Asked first: it looks at the clock, and reports a loss that was not noticed yet.
        is_lost = session.is_lost
        self._released = True
        if is_lost:
            self._stop_watching()
            self._deleted()
            return None
        outcome = self._context.writes.begin(self.release_txn())  # first: other clients wait for it
        self._stop_watching()
        return outcome

    def _release_answered(self, outcome: Outcome) -> None:
        if isinstance(outcome.exception(), Unavailable | Indeterminate):
            self._context.cleanup.remove(self.key, self._session, done=self._deleted)
        else:
            self._deleted()

    def release_txn(self) -> Txn:
        """The transaction that releases it."""
        return Txn((self.guard(),), (Delete(self.key),))

    def _deleted(self) -> None:
        """Its key is not in the store any more."""
        if self._on_deleted is not None:
            self._on_deleted(self.key)
            self._on_deleted = None

    def _stop_watching(self) -> None:
        self._session.remove_loss_listener(self)
        self._context.hold_timers.discard(self._watch_timer)
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        if self._watch_task is not None:
            self._watch_task.cancel()

    # -- losing it ---------------------------------------------------------------------------

    def on_loss(self, listener: Callable[[LeaseLost], None]) -> None:
        """Call `listener` when it is lost; at once if it is lost already.

        In coroutines that is in the same turn of the loop; with `quoracy.sync`, in a thread for
        listeners.
        """
        if self.error is not None:
            listener(self.error)
        else:
            self._loss_listeners.append(listener)

    def _session_lost(self) -> None:
        self._lose(self._session.lost.result())

    def _lose(self, reason: str) -> None:
        if self.error is not None or self._released:
            return
        error = self._set_lost(reason)
        self._stop_watching()
        for listener in self._loss_listeners:
            listener(error)
        self._loss_listeners.clear()

    def _set_lost(self, reason: str) -> LeaseLost:
        self.error = self.loss_type(
            f"{self._what} with token {self.token} is lost: {reason}. Somebody else may hold it; stop, "
            "and acquire it again before you go on."
        )
        self.lost.set()
        return self.error

    def _watch(self) -> None:
        if self._watch_task is None:
            self._watch_task = self._context.spawn(self._wait_deleted(), name="quoracy-held")

    async def _wait_deleted(self) -> None:
        """Notice that the key was deleted by others: by an operator, with `etcdctl del`."""
        context = self._context
        self._lose(await wait_deleted(context.store, self.key, self.token, context.clock))

    def __repr__(self) -> str:
        # It must not change the state, as `is_lost` may: a debugger may call it.
        lost = self.error is not None or self._session.lost.done()
        state = "released" if self._released else "lost" if lost else "held"
        return f"<{self._what} token {self.token} {state}>"


async def wait_deleted(store: Store, key: bytes, token: int, clock: Clock) -> str:
    """Wait until the key that was created at revision `token` is deleted; the reason, as text.

    A deletion between that revision and now is not missed.
    """
    after: int | None = token
    while True:
        try:
            if after is None:
                found = await store.range(key, keys_only=True)
                if not found.kvs or found.kvs[0].create_revision != token:
                    return _deletion(key)
                after = found.revision
            async with store.watch(key, after=after, puts=False) as batches:
                while not (await anext(batches)).events:
                    pass
            return _deletion(key)
        except Compacted:
            after = None  # read again
        except StoreClosed:
            raise
        except (Unavailable, Indeterminate):
            # Until the store answers again, the session alone decides whether it is held.
            await clock.sleep(_RETRY_S)


def _deletion(key: bytes) -> str:
    return f"its key {key.decode('utf-8', 'backslashreplace')} was deleted"
