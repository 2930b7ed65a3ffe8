"""Contenders for a name: the queue that locks and elections have in common.

The queue is etcd's (`store.contention`): a key under the name, attached to the session's lease.  The
oldest key owns the name; every other contender waits for the one right before it.

Invariants
    * Cancelled, timed out or failed at any await, no place is left in the queue: one that was taken is
      given up, one that may have been taken is looked for until the session ends.
    * A session that is lost while waiting loses its place; the wait goes on in the next one, at the
      end.  What was *held* is never taken again like this.
    * A store that cannot be asked while waiting is asked again, until the time is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from quoracy.client.context import Context, Deadline
from quoracy.client.held import Held
from quoracy.client.in_flight import Outcome
from quoracy.client.session import Session
from quoracy.errors import (
    Indeterminate,
    LeaseNotFound,
    SessionLost,
    TimedOut,
    Unavailable,
)
from quoracy.store import contention
from quoracy.store.contention import Place, joining, joining_if_free, leaving, place_key, place_of
from quoracy.store.coroutines import FutureCompletion, ended
from quoracy.store.model import KeyValue, Revision, SortTarget, Txn, TxnResult, WaitFirst

__all__ = ["Contender", "Contest", "contenders"]

_log = logging.getLogger(__name__)

H = TypeVar("H", bound=Held)


@dataclass(frozen=True, slots=True)
class Contender:
    """One entry of a queue: the first holds what the others wait for.

    identity: what it calls itself; empty for clients of other kinds that give no name.
    token: what its fencing token is, or will be.
    """

    identity: str
    token: int
    lease: int
    key: bytes


async def contenders(context: Context, name: bytes) -> tuple[Contender, ...]:
    """The entries of the queue, in order."""
    context.check()
    found = await context.store.range(contention.queue_of(name), sort_by=SortTarget.CREATE)
    return tuple(_contender(kv) for kv in found.kvs)


class Contest(Generic[H]):
    """The contest for a name, which can be won again and again.

    value: what other clients see of this one.
    hold: makes the `Held`, of the session and the place with which it was won.
    """

    __slots__ = ("_context", "_hold", "_name", "_value", "_what")

    def __init__(
        self,
        context: Context,
        name: bytes,
        value: bytes,
        hold: Callable[[Session, Place], H],
        *,
        what: str,
    ) -> None:
        self._context, self._name, self._value = context, name, value
        self._hold, self._what = hold, what

    async def win(self, *, timeout: float | None = None) -> H:
        """Join the queue and wait to be the first.

        Raises `TimedOut`, `Unavailable`, `Indeterminate`.
        """
        context, what = self._context, self._what
        if timeout == 0:
            held = await self.try_win()
            if held is None:
                raise TimedOut(what, timeout_s=timeout)
            return held
        deadline = context.deadline(timeout)
        while True:
            session = context.current_session()
            if session is None:
                with context.wait_scope(f"a session for {what}", deadline):
                    session = await context.session()
            key = context.reserve_key(place_key(self._name, session.id))
            try:
                # Most locks are free, and to take one if the queue is empty costs less than to join the
                # queue and read it: that is done only if it is not empty.
                with context.wait_scope(what, deadline, session):
                    result = await _send(context, key, session, self._taking(session, key))
                if result.succeeded:
                    return self._won(session, self._place(session, key, result.revision))
                return await self._queue_up(session, key, deadline)
            except (SessionLost, LeaseNotFound) as error:
                _log.warning("%s: waiting again, at the end of the queue: %s", what, error)

    async def try_win(self) -> H | None:
        """Be the first if the queue is empty; it is not joined otherwise.

        Raises `TimedOut` if there is no session at the moment: that is not waited for either.
        """
        context, what = self._context, self._what
        while True:
            with context.wait_scope(f"a session for {what}", 0):
                session = await context.session()
            key = context.reserve_key(place_key(self._name, session.id))
            try:
                result = await _send(context, key, session, self._taking(session, key))
                if not result.succeeded:
                    context.free_key(key)
                    return None
                return self._won(session, self._place(session, key, result.revision))
            except (SessionLost, LeaseNotFound) as error:
                _log.warning("%s: trying again, with the next session: %s", what, error)

    async def _queue_up(self, session: Session, key: bytes, deadline: Deadline) -> H:
        """Take a place behind the others, and wait until it is the first."""
        context, name, value = self._context, self._name, self._value
        with context.wait_scope(self._what, deadline, session):
            result = await _send(context, key, session, joining(name, key, session.id, value))
        place = place_of(result, name, key, session.id, value)
        try:
            if not place.was_first:
                with context.wait_scope(self._what, deadline, session):
                    await _wait_first(context, place)
        except BaseException:
            _give_up(context, place, session)
            raise
        return self._won(session, place)

    def _taking(self, session: Session, key: bytes) -> Txn:
        """The transaction that takes the first place if the queue is empty."""
        return joining_if_free(self._name, key, session.id, self._value)

    def _place(self, session: Session, key: bytes, token: int) -> Place:
        """The place that was taken in an empty queue."""
        return Place(self._name, key, session.id, token, self._value, Revision(token), was_first=True)

    def _won(self, session: Session, place: Place) -> H:
        """What is held; unless the session is lost by now, as in a process that was stopped."""
        if session.is_lost:
            _give_up(self._context, place, session)
            raise session.loss(self._what)
        return self._hold(session, place)


async def _send(context: Context, key: bytes, session: Session, txn: Txn) -> TxnResult:
    """Send what may take a place; if this is cancelled, the place is given up."""
    outcome = context.writes.begin(txn)
    try:
        return await outcome.settled()
    except BaseException as error:
        _not_taken(context, key, session, outcome, error)
        raise


def _not_taken(
    context: Context, key: bytes, session: Session, outcome: Outcome, error: BaseException
) -> None:
    if not outcome.is_over or isinstance(error, asyncio.CancelledError):
        # The caller is gone: cancelled, or closed with its loop or by its program.
        outcome.add_done_callback(lambda done: _abandoned(context, key, session, done))
        return
    match error:
        case LeaseNotFound():
            context.free_key(key)
            session.lease_not_found()
        case Indeterminate():
            _remove(context, key, session, may_appear=True)
        case _:
            context.free_key(key)


def _abandoned(context: Context, key: bytes, session: Session, outcome: Outcome) -> None:
    error = outcome.exception()
    if isinstance(error, Indeterminate):
        _remove(context, key, session, may_appear=True)
    elif error is not None or not outcome.result().succeeded:
        context.free_key(key)
    else:
        _remove(context, key, session)


async def _wait_first(context: Context, place: Place) -> None:
    """Wait until the place is the first of its queue.  Raises `SessionLost` if it is gone."""
    loop, wanted = asyncio.get_running_loop(), WaitFirst(place.name, place.key, place.token)

    def ask() -> Awaitable[Revision | None]:
        waiting = FutureCompletion(loop)
        context.store.read(wanted, waiting)
        return ended(waiting)

    if await context.retry(ask, repr(place.name)) is None:
        # The key was deleted by others: the same as a session that is lost.
        raise SessionLost(f"the place {place.key!r} in the queue is gone. Join again.")


def _give_up(context: Context, place: Place, session: Session) -> None:
    """Leave the queue, and if that fails, in the background."""
    if session.lost.done():
        context.free_key(place.key)
        return
    outcome = context.writes.begin(leaving(place))

    def answered(done: Outcome) -> None:
        if isinstance(done.exception(), Unavailable | Indeterminate):
            _remove(context, place.key, session)
        else:
            context.free_key(place.key)

    outcome.add_done_callback(answered)


def _remove(context: Context, key: bytes, session: Session, *, may_appear: bool = False) -> None:
    context.cleanup.remove(key, session, may_appear=may_appear, done=lambda: context.free_key(key))


def _contender(kv: KeyValue) -> Contender:
    return Contender(kv.value.decode("utf-8", "backslashreplace"), kv.create_revision, kv.lease, kv.key)
