"""Sessions: leases that are kept alive, and known to be lost before the server can have ended them.

A lease lives on the server's clock, its holder on its own.  The holder therefore counts from the moment
it *sent* the last keep-alive that was answered: the server counted from some moment after that, so
whatever the network did, the server's end is not before ours.

    sent                    renew again             certain_until              the server may
     |---------- ttl / 3 ---------|---- ... ----------------|--- reserve + slack ----| end it

`SessionRenewal` gives a connection one session after another:

    CONNECTED --a renewal is not answered--> SUSPENDED --answered again--> CONNECTED
        \\___________________________________________\\__ too late, or the server says so --> LOST
    LOST --a new session was granted--> CONNECTED

Invariants
    * A session is lost before the server can have given what it holds to another client, with
      `reserve_s` still left; except when it was revoked, which its holder cannot foresee.
    * A session is lost at most once, and stays lost: the next one holds nothing.
    * Every change of state is reported to every listener, in order, in a turn of the loop of its own: a
      listener that raises or that adds listeners does not disturb the others.
    * While a connection is open there is a session, or one is being asked for; pauses between attempts
      grow to `_PAUSE_S_MAX`.
    * Time comes from the clock that is handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from typing import Any, TypeVar

from quoracy.blocks import Scope
from quoracy.clock import Clock
from quoracy.errors import LeaseNotFound, QuoracyError, SessionLost, StoreClosed
from quoracy.store.api import Store
from quoracy.store.model import LeaseGrant, LeaseId

__all__ = [
    "Session",
    "SessionRenewal",
    "SessionState",
    "keep_session",
    "open_session",
    "stop",
    "with_timeout",
]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# The part of a time to live by which two clocks may differ, and that a loss may take to be noticed.
_SLACK = 0.05
_REVOKE_S = 3.0
_PAUSE_S_FIRST = 0.05
_PAUSE_S_MAX = 2.0


class Session:
    """A lease that is renewed three times in its time to live, and lost when it could not be renewed.

    reserve_s: the part of the time to live that is left, at least, when it is given up for no answer.
    on_suspended: called with True when a renewal was not answered, with False when one is again.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        grant: LeaseGrant,
        *,
        sent: float,
        reserve_s: float = 0.0,
        on_suspended: Callable[[bool], None] | None = None,
    ) -> None:
        self.id: LeaseId = grant.id
        # The reason of the loss, once it is lost.
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.revoke_error: Exception | None = None  # why it could not be revoked at the end
        self._store, self._clock, self._reserve_s = store, clock, reserve_s
        self._on_suspended = on_suspended
        self._renewed(sent, grant.ttl_s)
        self._trouble = ""
        self._listeners: dict[object, Callable[[], None]] = {}
        self._expiring = asyncio.ensure_future(self._expire())
        self._renewing = asyncio.ensure_future(self._renew())

    # -- whether it lives --------------------------------------------------------------------

    def _renewed(self, sent: float, ttl_s: float) -> None:
        """The server has answered the renewal that was sent then."""
        self.ttl_s = ttl_s
        # Until this reading of the clock what the session holds is held for certain.
        self.certain_until = sent + ttl_s * (1 - _SLACK) - self._reserve_s

    @property
    def remaining_s(self) -> float:
        """How long it is certain to live if no further answer comes; 0 once it is lost."""
        return 0.0 if self.is_lost else max(0.0, self.certain_until - self._clock.now())

    @property
    def is_lost(self) -> bool:
        """Whether it is lost; read from the clock, so a process that was stopped learns it here."""
        if self.lost.done():
            return True
        if self._clock.now() < self.certain_until:
            return False
        self._lose(self._too_late())
        return True

    def add_loss_listener(self, owner: object, listener: Callable[[], None]) -> None:
        """Call `listener` in the turn in which it is lost; at once if it is lost already.

        It must not raise.  `remove_loss_listener` with the same owner ends that.
        """
        if self.lost.done():
            listener()
        else:
            self._listeners[owner] = listener

    def remove_loss_listener(self, owner: object) -> None:
        self._listeners.pop(owner, None)

    @contextmanager
    def scope(self, what: str) -> Iterator[Scope]:
        """A block that is cancelled, and raises `SessionLost`, when the session is lost."""
        with Scope() as scope:
            self.add_loss_listener(scope, lambda: scope.end(self.loss(what)))
            try:
                yield scope
            finally:
                self.remove_loss_listener(scope)

    def loss(self, what: str) -> SessionLost:
        """The error for a caller that relied on this session, which is lost."""
        return SessionLost(f"{what}: {self.lost.result()}. It holds nothing any more; begin again.")

    # -- its end -----------------------------------------------------------------------------

    def lease_not_found(self) -> None:
        """The store answered that there is no such lease."""
        self._lose(f"lease {self.id:x} ended or was revoked")

    async def end(self, reason: str = "the session was closed") -> None:
        """Stop renewing it, and revoke it, which deletes its keys.

        If it cannot be revoked it ends by itself, within its time to live.  If this is cancelled, the
        revocation continues, so that other clients need not wait.
        """
        await stop(self._expiring, self._renewing)
        self._lose(reason)
        revoking = asyncio.ensure_future(
            with_timeout(_REVOKE_S, self._store.revoke(self.id), self._clock)
        )
        revoking.add_done_callback(_log_revoke_error)
        try:
            with contextlib.suppress(LeaseNotFound):  # it has ended, which is the aim
                await asyncio.shield(revoking)
        except (TimeoutError, QuoracyError) as error:
            self.revoke_error = error

    async def abandon(self, reason: str) -> None:
        """Stop renewing it, and leave its end to the server: it is lost."""
        self._lose(reason)
        await stop(self._expiring, self._renewing)

    def _lose(self, reason: str) -> None:
        if self.lost.done():
            return
        self.lost.set_result(reason)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener()

    def _too_late(self) -> str:
        return f"lease {self.id:x} could not be renewed in time{self._trouble}"

    # -- renewing it -------------------------------------------------------------------------

    async def _expire(self) -> None:
        while (left_s := self.certain_until - self._clock.now()) > 0:
            await self._clock.sleep(left_s)
        self._lose(self._too_late())

    async def _renew(self) -> None:
        pause_s = self.ttl_s / 3
        while not self.lost.done():
            await self._clock.sleep(pause_s)
            if self.is_lost:
                return  # a renewal would only keep other clients waiting
            sent = self._clock.now()
            renewing = self._store.keep_alive(self.id)
            try:
                grant = await with_timeout(self.ttl_s / 3, renewing, self._clock)
            except LeaseNotFound:
                self.lease_not_found()
            except (QuoracyError, TimeoutError) as error:
                self._set_trouble(f": {error}" if str(error) else ": the store did not answer")
                pause_s = self.ttl_s / 10  # sooner, but not at once: it may be overloaded
            else:
                self._renewed(sent, grant.ttl_s)
                self._set_trouble("")
                pause_s = max(0.0, sent + self.ttl_s / 3 - self._clock.now())

    def _set_trouble(self, trouble: str) -> None:
        changed = bool(trouble) != bool(self._trouble)
        self._trouble = trouble
        if changed and self._on_suspended is not None and not self.lost.done():
            self._on_suspended(bool(trouble))

    def __repr__(self) -> str:
        return f"<Session {self.id:x}{' lost' if self.lost.done() else ''}>"


async def open_session(
    store: Store,
    clock: Clock,
    *,
    ttl_s: float,
    reserve_s: float = 0.0,
    on_suspended: Callable[[bool], None] | None = None,
) -> Session:
    """Grant a lease and begin to renew it; the caller ends the session."""
    sent = clock.now()
    grant = await store.grant(ttl_s)
    return Session(store, clock, grant, sent=sent, reserve_s=reserve_s, on_suspended=on_suspended)


@asynccontextmanager
async def keep_session(
    store: Store, clock: Clock, *, ttl_s: float, reserve_s: float = 0.0
) -> AsyncIterator[Session]:
    """A session for the time of a block."""
    session = await open_session(store, clock, ttl_s=ttl_s, reserve_s=reserve_s)
    try:
        yield session
    finally:
        await session.end()


# -- one session after another ---------------------------------------------------------------


class SessionState(Enum):
    """The state of a connection's session.

    SUSPENDED: the last renewal was not answered; what is held is still held, see `held.remaining_s`.
    LOST: nothing is held any more.  A new session is being made.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class SessionRenewal:
    """The sessions of one connection: a session that is lost is followed by a new one."""

    def __init__(self, store: Store, clock: Clock, *, ttl_s: float) -> None:
        self._store, self._clock, self._ttl_s = store, clock, ttl_s
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random()
        self._state = SessionState.LOST
        self._listeners: dict[object, Callable[[SessionState], object]] = {}
        self._current: Session | None = None
        self._changed: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Open the first session.  Raises what granting a lease raises."""
        self._install(await self._open())
        self._task = asyncio.create_task(self._replace_lost(), name="quoracy-sessions")

    async def close(self) -> None:
        """End the session; what it held is free at once if the server can be reached."""
        self._closed = True
        if self._task is not None:
            await stop(self._task)
        if self._current is not None:
            await self._current.end("the connection was closed")
        self._set_state(SessionState.LOST)

    @property
    def state(self) -> SessionState:
        if self._current is not None and self._current.is_lost:
            return SessionState.LOST
        return self._state

    @property
    def current(self) -> Session | None:
        """The live session, if there is one."""
        session = self._current
        return None if session is None or session.is_lost else session

    async def wait_session(self) -> Session:
        """The live session; if there is none, wait for the next."""
        while True:
            session = self.current
            if session is not None:
                return session
            await self._wait_changed()

    async def wait_state(self, state: SessionState) -> None:
        """Wait until that is the state."""
        while self.state is not state:
            await self._wait_changed()

    async def _wait_changed(self) -> None:
        if self._closed:
            raise StoreClosed
        await asyncio.shield(self._changed)

    def on_state(self, listener: Callable[[SessionState], object]) -> Callable[[], None]:
        """Call `listener` with each new state; the function that is returned ends that."""
        owner = object()
        self._listeners[owner] = listener
        return lambda: self._listeners.pop(owner, None) and None

    async def _open(self) -> Session:
        return await open_session(
            self._store, self._clock, ttl_s=self._ttl_s, on_suspended=self._suspended
        )

    def _install(self, session: Session) -> None:
        self._current = session
        session.add_loss_listener(self, lambda: self._set_state(SessionState.LOST))
        self._set_state(SessionState.CONNECTED)

    def _suspended(self, is_suspended: bool) -> None:
        self._set_state(SessionState.SUSPENDED if is_suspended else SessionState.CONNECTED)

    async def _replace_lost(self) -> None:
        while True:
            session = self._current
            assert session is not None
            reason = await asyncio.shield(session.lost)
            _log.warning("the session was lost: %s. A new one is being made.", reason)
            await session.abandon(reason)
            try:
                self._install(await self._open_next())
            except StoreClosed:  # by the program that opened it: there will be no session
                self._closed = True
                self._wake()
                return

    async def _open_next(self) -> Session:
        pause_s = _PAUSE_S_FIRST
        while True:
            try:
                return await self._open()
            except StoreClosed:
                raise
            except QuoracyError as error:
                # A refusal passes too: a full store grants leases again when there is room.
                _log.warning("no new session yet: %s", error)
            await self._clock.sleep(pause_s * self._rng.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _set_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        self._wake()
        for listener in list(self._listeners.values()):
            self._loop.call_soon(listener, state)

    def _wake(self) -> None:
        """Callers that wait look again."""
        changed, self._changed = self._changed, self._loop.create_future()
        changed.set_result(None)


# -- tasks -----------------------------------------------------------------------------------


async def stop(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for their end; their results are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def with_timeout(seconds: float, work: Coroutine[Any, Any, _T], clock: Clock) -> _T:
    """Like `asyncio.timeout`, on the clock that is handed in."""
    with Scope() as scope:
        late = TimeoutError(f"no answer within {seconds:g} s")
        timer = clock.call_later(seconds, lambda: scope.end(late))
        try:
            return await work
        finally:
            timer.cancel()


def _log_revoke_error(revoking: asyncio.Future[Any]) -> None:
    """Look at the error of a revocation that is not awaited, so that asyncio does not report it."""
    if not revoking.cancelled() and (error := revoking.exception()) is not None:
        _log.debug("a session could not be revoked and ends by itself: %s", error)
