"""What is held, and what happens when it is not any more.

A `Held` is the state of one acquisition: of a lock, a share of a semaphore, a term of office.  It may
be passed between tasks.  A `Holding` is the block in which something is held: `async with` acquires,
guards the body, releases.

    acquire --> held --(session lost, key deleted, held too long)--> lost: the body is cancelled
                  \\--(release, end of the block)--> released

Invariants
    * A block is entered holding, or it raises: there is no third way.
    * `is_held` is False before anybody else can hold it, also in a process that was stopped and knows
      nothing yet: it looks at the clock.
    * A block that lost what it held never ends quietly: it raises the loss, or what the body raised.
    * However a block ends, its key is deleted: at once, or in the background, or with the session.
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
    from quoracy.client.context import Ground

__all__ = ["Enterable", "Held", "Holding", "wait_taken"]

_log = logging.getLogger(__name__)

# How often to look whether a key is still there while the store cannot be watched.
_LOOK_AGAIN_S = 1.0


class Held:
    """One acquisition: its fencing token, and whether it still is one.

    lost: set when it is not held any more although nobody released it.
    """

    loss_type: type[LeaseLost] = LockLost

    def __init__(
        self,
        ground: Ground,
        session: Session,
        *,
        name: str,
        key: bytes,
        token: int,
        what: str,
        hold_max_s: float | None = None,
        on_gone: Callable[[bytes], None] | None = None,
    ) -> None:
        self.name, self.key, self.token = name, key, token
        self.lost = asyncio.Event()
        self.error: LeaseLost | None = None
        self._ground, self._session, self._what = ground, session, what
        self._released = False
        self._on_gone = on_gone
        self._losing: list[Callable[[LeaseLost], None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._too_long: Timer | None = None
        self._watch_soon = 0
        session.tell_loss(self, self._session_lost)
        if self.error is None:  # a session may be lost by the time it has won something
            self._watch_soon = ground.held_long.add(self._watch, ground.clock.now())
            if hold_max_s is not None:
                too_long = f"held for {hold_max_s:g} s"
                self._too_long = ground.clock.call_later(hold_max_s, lambda: self._lose(too_long))

    # -- whether it is held ------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether it is held for certain, now: nobody is asked, the clock is looked at."""
        return not self._released and self.error is None and not self._session.is_lost

    @property
    def remaining_s(self) -> float:
        """How long it is held for certain if nothing more is heard from the server."""
        return self._session.remaining_s if self.is_held else 0.0

    def check(self) -> None:
        """Raise the loss if it is not held any more: for just before something that counts on it."""
        if self.is_held:
            return
        raise self.error or self.loss_type(f"{self._what} was released, so it is not held any more.")

    def guard(self) -> Compare:
        """A condition for a transaction of your own: that it is still held."""
        return Compare(self.key, CompareTarget.CREATE, Relation.EQUAL, self.token)

    async def txn(self, *then: Op) -> TxnResult:
        """Carry out operations on the store if, and only if, it is still held: decided by the store.

        The one kind of write a stale holder can never get through, whatever its clock says.
        """
        self.check()
        result = await self._ground.write(Txn((self.guard(),), then))
        if not result.succeeded:
            self.found_gone()
            self.check()
        return result

    def found_gone(self) -> None:
        """The store answered that the key is not there any more."""
        self._lose(f"its key {self.key!r} is gone")

    # -- giving it up ------------------------------------------------------------------------

    async def release(self) -> None:
        """Give it up.  Once is enough; a second time does nothing.

        Raises the loss if the store answers that it was gone already: it was not held to the end.
        If the store cannot be told, this raises why, and goes on trying in the background: others may
        have to wait for the end of the session.
        """
        await self._give_back(quietly=False)

    def was_gone(self, released: TxnResult) -> bool:
        """Whether the answer to `releasing` shows that there was nothing left to give up."""
        return not released.succeeded

    def leave(self) -> Coroutine[Any, Any, None]:
        """`release` at the end of a block, where an error would hide what the block has to say."""
        return self._give_back(quietly=True)

    async def _give_back(self, *, quietly: bool) -> None:
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
            # Nobody waits for the answer any more; something is to be done about it all the same.
            outcome.add_done_callback(self._release_answered)
            raise
        else:
            self._gone()
            if self.error is None and self.was_gone(result):
                self._set_lost(f"when it was released, its key {self.key!r} was gone")
                if not quietly:  # or the block raises it, unless it has something else to say
                    self.check()

    def _release_alone(self) -> None:
        """Give it up; nobody waits for that."""
        outcome = self._begin_release()
        if outcome is not None:
            outcome.add_done_callback(self._release_answered)

    def _begin_release(self) -> Outcome | None:
        """Send what gives it up; the caller handles the answer.  None: it is lost."""
        session = self._session
        # Asked first: that looks at the clock, and notes a loss that nobody was told of yet.
        is_lost = session.is_lost
        self._released = True
        if is_lost:
            self._stand_down()
            self._gone()
            return None
        outcome = self._ground.writes.begin(self.releasing())  # first of all: others wait for it
        self._stand_down()
        return outcome

    def _release_answered(self, outcome: Outcome) -> None:
        if isinstance(outcome.exception(), Unavailable | Indeterminate):
            self._ground.tidying.remove(self.key, self._session, done=self._gone)
        else:
            self._gone()

    def releasing(self) -> Txn:
        """The transaction that gives it up."""
        return Txn((self.guard(),), (Delete(self.key),))

    def _gone(self) -> None:
        """Nothing of it is left in the store."""
        if self._on_gone is not None:
            self._on_gone(self.key)
            self._on_gone = None

    def _stand_down(self) -> None:
        self._session.forget(self)
        self._ground.held_long.discard(self._watch_soon)
        if self._too_long is not None:
            self._too_long.cancel()
        if self._watching is not None:
            self._watching.cancel()

    # -- losing it ---------------------------------------------------------------------------

    def on_loss(self, listener: Callable[[LeaseLost], None]) -> None:
        """Call `listener` when it is lost; at once if it is.

        In coroutines that is in the same turn of the loop; with `quoracy.sync`, in a thread for
        listeners.
        """
        if self.error is not None:
            listener(self.error)
        else:
            self._losing.append(listener)

    def _session_lost(self) -> None:
        self._lose(self._session.lost.result())

    def _lose(self, reason: str) -> None:
        if self.error is not None or self._released:
            return
        error = self._set_lost(reason)
        self._stand_down()
        for listener in self._losing:
            listener(error)
        self._losing.clear()

    def _set_lost(self, reason: str) -> LeaseLost:
        self.error = self.loss_type(
            f"{self._what} with token {self.token} is lost: {reason}. Somebody else may hold it; stop, "
            "and acquire it again before you go on."
        )
        self.lost.set()
        return self.error

    def _watch(self) -> None:
        if self._watching is None:
            self._watching = self._ground.spawn(self._wait_deleted(), name="quoracy-held")

    async def _wait_deleted(self) -> None:
        """Notice that the key was deleted by somebody else: an operator, `etcdctl del`."""
        ground = self._ground
        self._lose(await wait_taken(ground.store, self.key, self.token, ground.clock))

    def __repr__(self) -> str:
        # Nothing is looked up here that could change anything: a debugger may ask.
        lost = self.error is not None or self._session.lost.done()
        state = "released" if self._released else "lost" if lost else "held"
        return f"<{self._what} token {self.token} {state}>"


async def wait_taken(store: Store, key: bytes, token: int, clock: Clock) -> str:
    """Wait until the key that was created at revision `token` is gone: why.

    Nothing between that revision and now is missed.
    """
    after: int | None = token
    while True:
        try:
            if after is None:
                found = await store.range(key, keys_only=True)
                if not found.kvs or found.kvs[0].create_revision != token:
                    return _deleted(key)
                after = found.revision
            async with store.watch(key, after=after, puts=False) as batches:
                while not (await anext(batches)).events:
                    pass
            return _deleted(key)
        except Compacted:
            after = None  # read again: that shows where things stand
        except StoreClosed:
            raise
        except (Unavailable, Indeterminate):
            # Whether it is still held is the session's business until the store can be asked again.
            await clock.sleep(_LOOK_AGAIN_S)


def _deleted(key: bytes) -> str:
    return f"its key {key.decode('utf-8', 'backslashreplace')} was deleted"
