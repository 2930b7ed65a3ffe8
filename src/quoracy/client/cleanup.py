"""Removing what a recipe left behind and could not remove itself, until the session ends.

A waiter that is cancelled, a release that was not answered: the key that is left would keep others
waiting for as long as this process lives.  So it is deleted in the background, again and again until
the store says it is gone.  The end of the session is the last resort: every such key is attached to
its lease.

Invariants
    * Only keys of our own are touched: each belongs to one attempt of one session.
    * A key whose creation has an unknown outcome is watched until the session ends: the creation may
      still arrive after a deletion that found nothing.
    * No more than `KEYS_MAX` at a time; beyond that a key is left to the end of the session, with a
      warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from quoracy.client.session import Session, stop
from quoracy.clock import Clock
from quoracy.errors import Compacted, Indeterminate, SessionLost, StoreClosed, Unavailable
from quoracy.store.api import Store

__all__ = ["KEYS_MAX", "Tidying"]

_log = logging.getLogger(__name__)

KEYS_MAX = 10_000
_PAUSE_S = 0.2


class Tidying:
    """The keys of one connection that are being removed."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """How many keys are being removed."""
        return len(self._tasks)

    def remove(
        self,
        key: bytes,
        session: Session,
        *,
        may_appear: bool = False,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Delete a key of the session's, in the background; `done` is called when it is gone for good.

        may_appear: its creation may still be on its way.
        """
        if len(self._tasks) >= KEYS_MAX:
            _log.warning("%r stays until session %x ends: too much to tidy up", key, session.id)
            return
        task = asyncio.create_task(self._remove(key, session, may_appear, done), name="quoracy-tidy")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop: the session ends now, and takes what is left with it."""
        await stop(*self._tasks)

    async def _remove(
        self, key: bytes, session: Session, may_appear: bool, done: Callable[[], None] | None
    ) -> None:
        while not session.is_lost:
            try:
                result = await self._store.delete(key)
                if not may_appear or result.deleted:
                    break
                await self._until_put(key, session, result.revision)
            except StoreClosed:
                return
            except (Unavailable, Indeterminate) as error:
                _log.info("%r is not removed yet: %s", key, error)
                await self._clock.sleep(_PAUSE_S)
        if done is not None:
            done()

    async def _until_put(self, key: bytes, session: Session, after: int) -> None:
        try:
            with session.scope(f"watching {key!r}"):
                async with self._store.watch(key, after=after, deletes=False) as batches:
                    while not (await anext(batches)).events:
                        pass
        except (Compacted, SessionLost):
            return  # whether it is there, the next deletion tells; a lost session takes it away
