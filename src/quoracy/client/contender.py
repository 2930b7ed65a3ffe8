"""Getting to the front of a queue: what locks and elections have in common.

The queue is etcd's (`store.contention`): a key under the name, attached to the session's lease;
whoever's is the oldest owns the name, everyone else waits for the one right before.

Invariants
    * Cancelled, timed out or failed at any await, no place is left in the queue: one that was taken is
      given up, one that may have been taken is looked for until the session ends.
    * A session that is lost while waiting loses its place; the wait goes on in the next one, at the
      end. What was *held* is never taken again like this.
    * A store that cannot be asked while waiting is asked again, until the time is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from quoracy.client.context import Ground, Patience
from quoracy.client.held import Held
from quoracy.client.queue_entry import ASK_AGAIN_S
from quoracy.client.session import Session
from quoracy.client.write_outcome import Outcome
from quoracy.clock import Timer
from quoracy.errors import (
    Indeterminate,
    LeaseLost,
    LeaseNotFound,
    SessionLost,
    StoreClosed,
    TimedOut,
    Unavailable,
)
from quoracy.remote.queue_waits import Told, told_first
from quoracy.store import contention
from quoracy.store.contention import Place, joining, joining_if_free, leaving, place_key, place_of
from quoracy.store.model import KeyValue, Revision, SortTarget, Txn, TxnResult

__all__ = ["Contender", "Contest", "contenders"]

_log = logging.getLogger(__name__)

H = TypeVar("H", bound=Held)


@dataclass(frozen=True, slots=True)
class Contender:
    """Somebody in a queue: the first holds what the others wait for.

    identity: what it calls itself; empty for clients of other kinds that give no name.
    token: what its fencing token is, or will be.
    """

    identity: str
    token: int
    lease: int
    key: bytes


async def contenders(ground: Ground, name: bytes) -> tuple[Contender, ...]:
    """Everyone in the queue, in order."""
    ground.check()
    found = await ground.store.range(contention.queue_of(name), sort_by=SortTarget.CREATE)
    return tuple(_contender(kv) for kv in found.kvs)


class Contest(Generic[H]):
    """What can be won again and again: a name, the value to show, and what is held then.

    hold: makes what may be held soon (`Held`, not begun), of the session and the place it was won with.
    """

    __slots__ = ("_ground", "_hold", "_name", "_taking", "_value", "_what")

    def __init__(
        self,
        ground: Ground,
        name: bytes,
        value: bytes,
        hold: Callable[[Session, Place], H],
        *,
        what: str,
    ) -> None:
        self._ground, self._name, self._value = ground, name, value
        self._hold, self._what = hold, what
        self._taking: _Taking | None = None

    async def win(self, *, timeout: float | None = None) -> H:
        """Join the queue and wait to be the first.

        Raises `TimedOut`, `Unavailable`, `Indeterminate`.
        """
        ground, what = self._ground, self._what
        if timeout == 0:
            held = await self.try_win()
            if held is None:
                raise TimedOut(what, timeout_s=timeout)
            return held
        patience = None if timeout is None else Patience(ground.clock, timeout)
        while True:
            session = ground.session_now()
            if session is None:
                with ground.waiting(f"a session for {what}", patience):
                    session = await ground.session()
            # Most locks are free, and to say "if nobody is there" costs everyone on the way a third
            # less than to ask who is: who finds somebody asks that as well.
            taking = self._taking_with(session)
            try:
                if patience is None:
                    # `_send`, without a coroutine of its own; and what may be held soon is made while
                    # the answer is on its way, not when it is here.
                    outcome = ground.writes.begin(taking.txn)
                    try:
                        held = self._may_hold(session, taking)
                        result = await outcome.settled()
                    except BaseException as error:
                        _not_taken(ground, taking.key, session, outcome, error)
                        raise
                else:
                    with ground.waiting(what, patience, session):
                        result = await _send(ground, taking.key, session, taking.txn)
                    held = self._may_hold(session, taking)
                if result.succeeded:
                    return self._won(session, held, result.revision)
                return await self._queue_up(session, taking, patience)
            except (SessionLost, LeaseNotFound) as error:
                _log.warning("%s: waiting again, at the end of the queue: %s", what, error)

    async def try_win(self) -> H | None:
        """Be the first if nobody is in the queue; it is not joined otherwise.

        Raises `TimedOut` if there is no session at the moment: that is not waited for either.
        """
        ground, what = self._ground, self._what
        while True:
            with ground.waiting(f"a session for {what}", 0):
                session = await ground.session()
            taking = self._taking_with(session)
            try:
                result = await _send(ground, taking.key, session, taking.txn)
                if not result.succeeded:
                    ground.free_key(taking.key)
                    return None
                return self._won(session, self._may_hold(session, taking), result.revision)
            except (SessionLost, LeaseNotFound) as error:
                _log.warning("%s: trying again, with the next session: %s", what, error)

    async def _queue_up(self, session: Session, taking: _Taking, patience: Patience | None) -> H:
        """Take a place behind the others, and wait until it is the first."""
        ground, name, key, value = self._ground, self._name, taking.key, self._value
        with ground.waiting(self._what, patience, session):
            result = await _send(ground, key, session, joining(name, key, session.id, value))
        place = place_of(result, name, key, session.id, value)
        told: Told | None = None
        bell: Timer | None = None
        try:
            # What it takes to hold it, and to give it up, is made while somebody else has it: a
            # process that has waited is slow at first, and the time from one holder to the next counts.
            held = self._hold(session, place)
            held.release_maker = taking.release_maker
            if not place.was_first:
                held.prepare_release()
                told = told_first(ground.store, place)
                if told is not None:
                    bell = self._end_in_time(told, session, held, patience)
                if told is None or not await told:
                    session.forget(held)
                    with ground.waiting(self._what, patience, session):
                        await _wait_first(ground, place)
        except BaseException:
            if told is not None:
                session.forget(held)
            _give_up(ground, place, session)
            raise
        finally:
            if bell is not None:
                bell.cancel()
        return self._won(session, held, place.token)

    def _end_in_time(
        self, told: Told, session: Session, held: H, patience: Patience | None
    ) -> Timer | None:
        """What `Ground.waiting` does, for a wait that can be told itself: no block to leave once it is
        over, and the session, which is told of `held` here, need not be told again to forget that.
        """
        session.tell_loss(held, lambda: told.end(session.loss(self._what)))
        left_s = None if patience is None else patience.left
        if patience is None or left_s is None:
            return None
        late = TimedOut(self._what, timeout_s=patience.timeout)
        return self._ground.clock.call_later(left_s, lambda: told.end(late))

    def _taking_with(self, session: Session) -> _Taking:
        """How to take it if nobody is there: mostly as the last time."""
        ground, taking = self._ground, self._taking
        if taking is not None and taking.lease == session.id and ground.retake_key(taking.key):
            return taking
        first_choice = place_key(self._name, session.id)
        key = ground.take_key(first_choice)
        txn = joining_if_free(self._name, key, session.id, self._value)
        nowhere = Place(self._name, key, session.id, 0, self._value, Revision(0), was_first=True)
        writes = ground.writes
        taking = _Taking(session.id, nowhere, writes.prepared(txn), writes.delete_maker(key))
        if key == first_choice:  # others are for one attempt
            self._taking = taking
        return taking

    def _may_hold(self, session: Session, taking: _Taking) -> H:
        """What is held if the place is taken where nobody was."""
        held = self._hold(session, taking.nowhere)
        held.release_maker = taking.release_maker
        return held

    def _won(self, session: Session, held: H, token: int) -> H:
        """It is ours; unless the session is over by now, as a process finds that was stopped."""
        now = self._ground.clock.now()
        if session.is_lost_at(now):
            place = Place(
                self._name, held.key, session.id, token, self._value, Revision(token), was_first=True
            )
            _give_up(self._ground, place, session)
            raise session.loss(self._what)
        held.begin_hold(token, now)
        return held


class _Taking:
    """A transaction that takes a place where nobody is, for a lease, with a key; and what undoes it.

    nowhere: the place, but for the token, which the answer tells.
    """

    __slots__ = ("key", "lease", "nowhere", "release_maker", "txn")

    def __init__(
        self, lease: int, nowhere: Place, txn: Txn, release_maker: Callable[[int], Txn] | None
    ) -> None:
        self.lease, self.nowhere, self.key = lease, nowhere, nowhere.key
        self.txn, self.release_maker = txn, release_maker


async def _send(ground: Ground, key: bytes, session: Session, txn: Txn) -> TxnResult:
    """Send what may take a place; should we not be there for the answer, the place is given up."""
    outcome = ground.writes.begin(txn)
    try:
        return await outcome.settled()
    except BaseException as error:
        _not_taken(ground, key, session, outcome, error)
        raise


def _not_taken(
    ground: Ground, key: bytes, session: Session, outcome: Outcome, error: BaseException
) -> None:
    if not outcome.done() or isinstance(error, asyncio.CancelledError):
        # Nobody is there for the answer: cancelled, or closed with its loop or by its program.
        outcome.add_done_callback(lambda done: _abandoned(ground, key, session, done))
        return
    match error:
        case LeaseNotFound():
            ground.free_key(key)
            session.found_gone()
        case Indeterminate():
            _remove(ground, key, session, may_appear=True)
        case _:
            ground.free_key(key)


def _abandoned(ground: Ground, key: bytes, session: Session, outcome: Outcome) -> None:
    error = None if outcome.cancelled() else outcome.exception()
    if outcome.cancelled() or isinstance(error, Indeterminate):
        _remove(ground, key, session, may_appear=True)
    elif error is not None or not outcome.result().succeeded:
        ground.free_key(key)
    else:
        _remove(ground, key, session)


async def _wait_first(ground: Ground, place: Place) -> None:
    while True:
        try:
            await contention.wait_first(ground.store, place)
            return
        except StoreClosed:
            raise
        except (Unavailable, Indeterminate) as error:
            _log.info("waiting for %r goes on: %s", place.name, error)
            await ground.clock.sleep(ASK_AGAIN_S)
        except LeaseLost as error:
            # Somebody deleted the key: as good as a session that is lost.
            raise SessionLost(str(error)) from error


def _give_up(ground: Ground, place: Place, session: Session) -> None:
    """Leave the queue: in the call if the store takes it so, and in the background where it fails."""
    if session.lost.done():
        ground.free_key(place.key)
        return
    outcome = ground.writes.begin(leaving(place))

    def answered(done: Outcome) -> None:
        if done.cancelled() or isinstance(done.exception(), Unavailable | Indeterminate):
            _remove(ground, place.key, session)
        else:
            ground.free_key(place.key)

    outcome.add_done_callback(answered)


def _remove(ground: Ground, key: bytes, session: Session, *, may_appear: bool = False) -> None:
    ground.tidying.remove(key, session, may_appear=may_appear, done=lambda: ground.free_key(key))


def _contender(kv: KeyValue) -> Contender:
    return Contender(kv.value.decode("utf-8", "backslashreplace"), kv.create_revision, kv.lease, kv.key)
