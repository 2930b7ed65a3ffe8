"""Cleanup: deleting keys that an attempt left behind, until its session ends.

The key of a waiter that was cancelled, or of a release that was not answered, would keep other clients
waiting for as long as this process lives.  So it is deleted in the background, again and again until
the store confirms it.  The end of the session is the last resort: every such key is attached to its
lease.

Invariants
    * Only keys of this client are deleted: each belongs to one attempt of one session.
    * A key whose creation has an unknown outcome is watched until the session ends: the creation may
      still arrive after a deletion that found nothing.
    * At most `KEYS_MAX` keys at a time; beyond that a key stays until the session ends, with a warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from quoracy.client.session import Session, stop
from quoracy.clock import Clock
from quoracy.errors import Compacted, Indeterminate, SessionLost, StoreClosed, Unavailable
from quoracy.store.api import Store

__all__ = ["KEYS_MAX", "Cleanup"]

_log = logging.getLogger(__name__)

KEYS_MAX = 10_000
_PAUSE_S = 0.2


class Cleanup:
    """The keys of one connection that are being deleted."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """The number of keys that are being deleted."""
        return len(self._tasks)

    def remove(
        self,
        key: bytes,
        session: Session,
        *,
        may_appear: bool = False,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Delete a key of the session in the background, then call `done`.

        may_appear: the creation of the key may still be on its way.
        """
        if len(self._tasks) >= KEYS_MAX:
            _log.warning("%r stays until session %x ends: too many keys to delete", key, session.id)
            return
        task = asyncio.create_task(self._remove(key, session, may_appear, done), name="quoracy-cleanup")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop: the session ends now, which deletes the keys that are left."""
        await stop(*self._tasks)

    async def _remove(
        self, key: bytes, session: Session, may_appear: bool, done: Callable[[], None] | None
    ) -> None:
        while not session.is_lost:
            try:
                result = await self._store.delete(key)
                if not may_appear or result.deleted:
                    break
                await self._wait_put(key, session, result.revision)
            except StoreClosed:
                return
            except (Unavailable, Indeterminate) as error:
                _log.info("%r is not deleted yet: %s", key, error)
                await self._clock.sleep(_PAUSE_S)
        if done is not None:
            done()

    async def _wait_put(self, key: bytes, session: Session, after: int) -> None:
        try:
            with session.scope(f"watching {key!r}"):
                async with self._store.watch(key, after=after, deletes=False) as batches:
                    while not (await anext(batches)).events:
                        pass
        except (Compacted, SessionLost):
            return  # the next deletion shows whether it exists; a lost session deletes it
