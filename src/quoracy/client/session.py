"""A session: a lease that is kept alive, and known to be lost before the server can have ended it.

A lease lives on the server's clock, its holder on its own.  The holder therefore counts from the moment
it *sent* the last keep-alive that was answered: the server counted from some moment after that, so
whatever the network did, the server's end is not before ours.

    sent                    renew again             certain_until              the server may
     |---------- ttl / 3 ---------|---- ... ----------------|--- reserve + slack ----| end it

Invariants
    * It is lost before the server can have given what we hold to anybody else, with `reserve_s` still
      to go; unless it was taken from us by force (revoked), which nobody can foresee.
    * It is lost at most once, and nothing makes a lost session good again.
    * Time comes from the clock that is handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from quoracy.blocks import Scope
from quoracy.clock import Clock
from quoracy.errors import LeaseNotFound, QuoracyError, SessionLost
from quoracy.store.api import Store
from quoracy.store.model import LeaseGrant, LeaseId

__all__ = ["Session", "keep_session", "open_session", "stop", "within"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# What may differ between two clocks over one time to live, and what it takes to notice.
_SLACK = 0.05
_REVOKE_S = 3.0


class Session:
    """A lease that is renewed three times in its time to live, and lost when that did not work.

    reserve_s: how much of the time to live is left, at least, when it is given up for no answer.
    on_trouble: told True when a renewal was not answered, False when one is again.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        grant: LeaseGrant,
        *,
        sent: float,
        reserve_s: float = 0.0,
        on_trouble: Callable[[bool], None] | None = None,
    ) -> None:
        self.id: LeaseId = grant.id
        # Why it was lost, once it is.
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.left_behind: Exception | None = None  # why it could not be revoked at the end
        self._store, self._clock, self._reserve_s = store, clock, reserve_s
        self._on_trouble = on_trouble
        self._confirmed(sent, grant.ttl_s)
        self._trouble = ""
        self._listeners: dict[object, Callable[[], None]] = {}
        self._guarding = asyncio.ensure_future(self._guard())
        self._renewing = asyncio.ensure_future(self._renew())

    # -- what is known -----------------------------------------------------------------------

    def _confirmed(self, sent: float, ttl_s: float) -> None:
        """The server has answered what was sent then: it gives us so long again."""
        self.ttl_s = ttl_s
        # Until this reading of the clock what the session holds is held for certain.
        self.certain_until = sent + ttl_s * (1 - _SLACK) - self._reserve_s

    @property
    def remaining_s(self) -> float:
        """How long it is certain to live if nothing more is heard from the server; 0 once it is
        lost.
        """
        return 0.0 if self.is_lost else max(0.0, self.certain_until - self._clock.now())

    @property
    def is_lost(self) -> bool:
        """Whether it was given up, or should have been by now: a stopped process learns it here
        first.
        """
        if self.lost.done():
            return True
        if self._clock.now() < self.certain_until:
            return False
        self._lose(self._too_late())
        return True

    def on_loss(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` in the turn in which it is lost; what is returned ends that.

        It must not raise.  On a session that is lost it is called at once.
        """
        whom = object()
        self.tell_loss(whom, listener)
        return lambda: self.forget(whom)

    def tell_loss(self, whom: object, listener: Callable[[], None]) -> None:
        """`on_loss` until `forget` is called for the same one."""
        if self.lost.done():
            listener()
        else:
            self._listeners[whom] = listener

    def forget(self, whom: object) -> None:
        """Whoever that is, it is not told of the loss."""
        self._listeners.pop(whom, None)

    @contextmanager
    def scope(self, what: str) -> Iterator[Scope]:
        """A block that is cancelled, and raises `SessionLost`, when the session is lost."""
        with Scope() as scope:
            remove = self.on_loss(lambda: scope.end(self.loss(what)))
            try:
                yield scope
            finally:
                remove()

    def loss(self, what: str) -> SessionLost:
        """The error for whoever counted on this session, which is lost."""
        return SessionLost(f"{what}: {self.lost.result()}. It holds nothing any more; begin again.")

    # -- its end -----------------------------------------------------------------------------

    def found_gone(self) -> None:
        """The store answered that there is no such lease."""
        self._lose(f"lease {self.id:x} ended or was revoked")

    async def end(self, reason: str = "the session was closed") -> None:
        """Stop keeping it, and revoke it: what it held goes with it.

        If it cannot be revoked it ends by itself, within its time to live.  A second cancellation does
        not keep others waiting: the revocation goes on.
        """
        await stop(self._guarding, self._renewing)
        self._lose(reason)
        revoking = asyncio.ensure_future(within(_REVOKE_S, self._store.revoke(self.id), self._clock))
        revoking.add_done_callback(_look_at)
        try:
            with contextlib.suppress(LeaseNotFound):  # it is gone, which is what we want
                await asyncio.shield(revoking)
        except (TimeoutError, QuoracyError) as error:
            self.left_behind = error

    async def abandon(self, reason: str) -> None:
        """Stop keeping it and say nothing to the server: it is lost."""
        self._lose(reason)
        await stop(self._guarding, self._renewing)

    def _lose(self, reason: str) -> None:
        if self.lost.done():
            return
        self.lost.set_result(reason)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener()

    def _too_late(self) -> str:
        return f"lease {self.id:x} could not be renewed in time{self._trouble}"

    # -- keeping it --------------------------------------------------------------------------

    async def _guard(self) -> None:
        while (left_s := self.certain_until - self._clock.now()) > 0:
            await self._clock.sleep(left_s)
        self._lose(self._too_late())

    async def _renew(self) -> None:
        pause_s = self.ttl_s / 3
        while not self.lost.done():
            await self._clock.sleep(pause_s)
            if self.is_lost:
                return  # given up by now: a renewal would only keep others waiting
            sent = self._clock.now()
            try:
                grant = await within(self.ttl_s / 3, self._store.keep_alive(self.id), self._clock)
            except LeaseNotFound:
                self.found_gone()
            except (QuoracyError, TimeoutError) as error:
                self._in_trouble(f": {error}" if str(error) else ": the store did not answer")
                pause_s = self.ttl_s / 10  # sooner, but not at once: it may be overloaded
            else:
                self._confirmed(sent, grant.ttl_s)
                self._in_trouble("")
                pause_s = max(0.0, sent + self.ttl_s / 3 - self._clock.now())

    def _in_trouble(self, trouble: str) -> None:
        changed = bool(trouble) != bool(self._trouble)
        self._trouble = trouble
        if changed and self._on_trouble is not None and not self.lost.done():
            self._on_trouble(bool(trouble))

    def __repr__(self) -> str:
        return f"<Session {self.id:x}{' lost' if self.lost.done() else ''}>"


async def open_session(
    store: Store,
    clock: Clock,
    *,
    ttl_s: float,
    reserve_s: float = 0.0,
    on_trouble: Callable[[bool], None] | None = None,
) -> Session:
    """Grant a lease and begin to keep it; whoever opens a session ends it."""
    sent = clock.now()
    grant = await store.grant(ttl_s)
    return Session(store, clock, grant, sent=sent, reserve_s=reserve_s, on_trouble=on_trouble)


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


async def stop(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they are gone; what they made of it does not matter any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def within(seconds: float, work: Coroutine[Any, Any, _T], clock: Clock) -> _T:
    """Like asyncio.timeout, on the clock that is handed in."""
    with Scope() as scope:
        late = TimeoutError(f"no answer within {seconds:g} s")
        bell = clock.call_later(seconds, lambda: scope.end(late))
        try:
            return await work
        finally:
            bell.cancel()


def _look_at(revoking: asyncio.Future[Any]) -> None:
    """So that the error of a revocation nobody waits for any more is not reported as forgotten."""
    if not revoking.cancelled() and (error := revoking.exception()) is not None:
        _log.debug("a session could not be revoked and ends by itself: %s", error)
