"""One session after the other for one connection, and what state that is in.

    CONNECTED --a renewal is not answered--> SUSPENDED --answered again--> CONNECTED
        \\___________________________________________\\__ too late, or the server says so --> LOST
    LOST --a new session was granted--> CONNECTED

What was held by a session that is lost stays lost: the next one holds nothing.

Invariants
    * Every change is told to every listener, in order, in a turn of the loop of its own: a listener
      that raises or that adds listeners disturbs nobody.
    * While the connection is open there is a session, or one is being asked for; pauses between
      attempts grow to `_PAUSE_S_MAX`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from enum import Enum

from quoracy.client.session import Session, open_session, stop
from quoracy.clock import Clock
from quoracy.errors import QuoracyError, StoreClosed
from quoracy.store.api import Store

__all__ = ["SessionState", "Succession"]

_log = logging.getLogger(__name__)

_PAUSE_S_FIRST = 0.05
_PAUSE_S_MAX = 2.0


class SessionState(Enum):
    """How a connection stands with the server.

    SUSPENDED: the last renewal was not answered; what is held is still held, see `held.remaining_s`.
    LOST: whatever was held is held no more.  A new session is being made.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Succession:
    """The sessions of one connection."""

    def __init__(self, store: Store, clock: Clock, *, ttl_s: float) -> None:
        self._store, self._clock, self._ttl_s = store, clock, ttl_s
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random()
        self._state = SessionState.LOST
        self._listeners: dict[int, Callable[[SessionState], object]] = {}
        self._listener_next = 0
        self._current: Session | None = None
        self._changed: asyncio.Future[None] = self._loop.create_future()
        self._keeping: asyncio.Task[None] | None = None
        self._closed = False

    async def begin(self) -> None:
        """The first session.  Raises what granting a lease raises."""
        self._install(await self._open())
        self._keeping = asyncio.create_task(self._keep(), name="quoracy-sessions")

    async def close(self) -> None:
        """End the session; what it held is free at once, if the server can be told."""
        self._closed = True
        if self._keeping is not None:
            await stop(self._keeping)
        if self._current is not None:
            await self._current.end("the connection was closed")
        self._become(SessionState.LOST)

    # -- what is known -----------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        if self._current is not None and self._current.is_lost:
            return SessionState.LOST
        return self._state

    @property
    def current(self) -> Session | None:
        """The session that lives, if one does."""
        session = self._current
        return None if session is None or session.is_lost else session

    async def live(self) -> Session:
        """The session that lives; if there is none, wait for the next."""
        while True:
            session = self.current
            if session is not None:
                return session
            if self._closed:
                raise StoreClosed
            await asyncio.shield(self._changed)

    async def wait(self, state: SessionState) -> None:
        """Wait until that is the state."""
        while self.state is not state:
            if self._closed:
                raise StoreClosed
            await asyncio.shield(self._changed)

    def on_state(self, listener: Callable[[SessionState], object]) -> Callable[[], None]:
        number = self._listener_next
        self._listener_next += 1
        self._listeners[number] = listener
        return lambda: self._listeners.pop(number, None) and None

    # -- keeping -----------------------------------------------------------------------------

    async def _open(self) -> Session:
        return await open_session(
            self._store, self._clock, ttl_s=self._ttl_s, on_trouble=self._in_trouble
        )

    def _install(self, session: Session) -> None:
        self._current = session
        session.on_loss(lambda: self._become(SessionState.LOST))
        self._become(SessionState.CONNECTED)

    def _in_trouble(self, is_so: bool) -> None:
        self._become(SessionState.SUSPENDED if is_so else SessionState.CONNECTED)

    async def _keep(self) -> None:
        while True:
            session = self._current
            assert session is not None
            reason = await asyncio.shield(session.lost)
            _log.warning("the session was lost: %s. A new one is being made.", reason)
            await session.abandon(reason)
            try:
                self._install(await self._open_next())
            except StoreClosed:  # by whoever opened it: there is nothing left to wait for
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
                # A refusal passes too: a full store takes leases again when there is room.
                _log.warning("no new session yet: %s", error)
            await self._clock.sleep(pause_s * self._rng.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _become(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        self._wake()
        for listener in list(self._listeners.values()):
            self._loop.call_soon(listener, state)

    def _wake(self) -> None:
        """Whoever waits looks again."""
        changed, self._changed = self._changed, self._loop.create_future()
        changed.set_result(None)
