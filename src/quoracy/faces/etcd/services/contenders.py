"""What the Lock and the Election service share: a place in the queue for a name, taken by one call.

A call that fails or is given up leaves no place behind, or nobody could have the name until the lease
ends.  So what is begun is finished whatever happens to the call: cancelled while it joins, it joins and
leaves again; cancelled while it waits, it leaves; and only then it is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from quoracy.errors import QuoracyError
from quoracy.store import contention
from quoracy.store.api import Store
from quoracy.store.contention import Place

__all__ = ["contending", "finished"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# What etcd grants to a caller that brings no lease.  Nobody keeps it alive.
_LEASE_TTL_S = 60


class _Contender:
    """What one call took, as far as it came."""

    def __init__(self, store: Store, name: bytes, lease: int) -> None:
        self._store = store
        self._name = name
        self._lease = lease
        self._is_own_lease = not lease
        self._place: Place | None = None

    async def join(self, value: bytes) -> Place:
        if self._is_own_lease:
            self._lease = (await self._store.grant(_LEASE_TTL_S)).id
        self._place = await contention.join(self._store, self._name, self._lease, value)
        return self._place

    async def leave(self) -> None:
        try:
            if self._place is not None:
                await contention.leave(self._store, self._place)
            if self._is_own_lease and self._lease:
                await self._store.revoke(self._lease)
        except QuoracyError as error:
            # The call has failed already and says why; the end of the lease frees the name.
            logger.warning(
                "a place in the queue for %r stays until lease %x ends: %s",
                self._name,
                self._lease,
                error,
            )


@asynccontextmanager
async def contending(store: Store, name: bytes, lease: int, value: bytes = b"") -> AsyncIterator[Place]:
    """The place in the queue that a lease has or now gets; given up if the block fails.

    Lease 0 is one of its own, for a minute, as etcd grants it.
    """
    contender = _Contender(store, name, lease)
    try:
        yield await finished(contender.join(value))
    except BaseException:
        await finished(contender.leave())
        raise


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Await something to its end; if this task is cancelled meanwhile, it is so only after that."""
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        if not task.cancelled():
            task.exception()  # counts as seen: nobody waits for the outcome any more
        raise asyncio.CancelledError
    return task.result()
