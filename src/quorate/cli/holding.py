"""Holding something with a lease: kept alive, and given up in time when that cannot be confirmed.

A lease lives on the server's clock, its holder on its own.  The holder therefore counts from the moment
it *sent* the last keep-alive that was answered: the server counted from some moment after that, so
whatever the network did, the server's end is not before ours.

    sent                    renew again             certain_until              the server may
     |---------- ttl / 3 ---------|---- ... ----------------|--- grace + slack ------| end it

Invariants
    * `lost` is done before the server can have given what we hold to anybody else, with `reserve_s`
      still to go; unless it was taken from us by force (revoked, deleted), which nobody can foresee.
    * It is done at most once, and nothing makes a lost holding good again.
    * Time comes from the clock that is handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from quorate.clock import Clock
from quorate.errors import Compacted, Indeterminate, LeaseNotFound, QuorateError, Unavailable
from quorate.store.api import Store
from quorate.store.contention import Place
from quorate.store.model import LeaseGrant, LeaseId

__all__ = ["KeptLease", "keep_lease", "stop", "wait_taken"]

_T = TypeVar("_T")

# What may differ between two clocks over one time to live, and what it takes to notice.
_SLACK = 0.05
# How often to look whether a key is still there while the store cannot be watched.
_LOOK_AGAIN_S = 1.0
_REVOKE_S = 3.0


class KeptLease:
    """A lease that is renewed three times in its time to live, and `lost` when that did not work.

    reserve_s: how much of the time to live is left, at least, when it is given up for no answer.
    """

    def __init__(self, store: Store, clock: Clock, grant: LeaseGrant, *, sent: float, reserve_s: float):
        self.id: LeaseId = grant.id
        self.ttl_s = grant.ttl_s
        self._store, self._clock, self._reserve_s = store, clock, reserve_s
        self._confirmed_at = sent
        self._trouble = ""
        self.left_behind: Exception | None = None  # why it could not be revoked at the end
        self.tasks = (asyncio.ensure_future(self._renew()), asyncio.ensure_future(self._guard()))
        self.lost: asyncio.Task[str] = asyncio.ensure_future(self._run())

    @property
    def certain_until(self) -> float:
        """Until this reading of the clock what the lease holds is held for certain."""
        return self._confirmed_at + self.ttl_s * (1 - _SLACK) - self._reserve_s

    async def _run(self) -> str:
        """Why it was lost, once it is."""
        await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
        # Whoever holds something learns it now; a request that hangs is cleared away by `keep_lease`.
        return next(task for task in self.tasks if task.done()).result()

    async def _guard(self) -> str:
        while (left_s := self.certain_until - self._clock.now()) > 0:
            await self._clock.sleep(left_s)
        return f"lease {self.id:x} could not be renewed in time{self._trouble}"

    async def _renew(self) -> str:
        pause_s = self.ttl_s / 3
        while True:
            await self._clock.sleep(pause_s)
            sent = self._clock.now()
            try:
                grant = await _within(self.ttl_s / 3, self._store.keep_alive(self.id), self._clock)
            except LeaseNotFound:
                return f"lease {self.id:x} ended or was revoked"
            except (Unavailable, Indeterminate, TimeoutError) as error:
                self._trouble = f": {error}" if str(error) else ": the store did not answer"
                pause_s = self.ttl_s / 10  # sooner, but not at once: it may be overloaded
            else:
                self._confirmed_at, self.ttl_s, self._trouble = sent, grant.ttl_s, ""
                pause_s = max(0.0, sent + self.ttl_s / 3 - self._clock.now())


@asynccontextmanager
async def keep_lease(
    store: Store, clock: Clock, *, ttl_s: float, reserve_s: float = 0.0
) -> AsyncIterator[KeptLease]:
    """Grant a lease and keep it; at the end it is revoked, and what it held goes with it.

    If it cannot be revoked it ends by itself, within its time to live.
    """
    sent = clock.now()
    grant = await store.grant(ttl_s)
    lease = KeptLease(store, clock, grant, sent=sent, reserve_s=reserve_s)
    try:
        yield lease
    finally:
        await stop(lease.lost, *lease.tasks)
        revoking = asyncio.ensure_future(_within(_REVOKE_S, store.revoke(grant.id), clock))
        try:
            # Shielded: whoever interrupts us a second time does not keep others waiting for nothing.
            with contextlib.suppress(LeaseNotFound):  # it is gone, which is what we want
                await asyncio.shield(revoking)
        except (TimeoutError, QuorateError) as error:
            lease.left_behind = error


async def wait_taken(store: Store, place: Place, clock: Clock) -> str:
    """Wait until the place in the queue is gone although its lease may live: why."""
    while True:
        try:
            found = await store.range(place.key, keys_only=True)
            if not found.kvs or found.kvs[0].create_revision != place.token:
                return f"its key {place.key.decode('utf-8', 'backslashreplace')} was deleted"
            async with store.watch(place.key, after=found.revision, puts=False) as batches:
                while not (await anext(batches)).events:
                    pass
        except Compacted:
            continue  # read again: that shows where things stand
        except (Unavailable, Indeterminate):
            # Whether we still hold it is the lease's business until the store can be asked again.
            await clock.sleep(_LOOK_AGAIN_S)


async def stop(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they are gone; what they made of it does not matter any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _within(seconds: float, work: Coroutine[Any, Any, _T], clock: Clock) -> _T:
    """Like asyncio.timeout, on the clock that is handed in."""
    attempt, bell = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({attempt, bell}, return_when=asyncio.FIRST_COMPLETED)
        if attempt.done():
            return attempt.result()
        raise TimeoutError(f"no answer within {seconds:g} s")
    finally:
        await stop(attempt, bell)
