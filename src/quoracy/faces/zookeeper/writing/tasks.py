"""What writes wait for, besides the store's answer: coroutines, which `commits` itself has none of.

(Modules with coroutines are not compiled, and `commits` is where a server under load spends its time.)

Invariants
    * Whoever starts an errand is told what came of it in the very turn in which it ended, once; or
      never, if it was stopped before.
    * An error that is not one of those it may end with is logged, and told to nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from quoracy.errors import LeaseNotFound, QuoracyError
from quoracy.store.api import Store

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.tree.replica import Replica

__all__ = ["Errands"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Errands:
    """Tasks of one replica's writes."""

    def __init__(self, replica: Replica, store: Store) -> None:
        self._replica = replica
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    def start(
        self,
        work: Callable[[], Awaitable[T]],
        then: Callable[[T | None, Exception | None], None],
        *,
        may_raise: type[Exception] = QuoracyError,
    ) -> None:
        task = self._loop.create_task(_told(work, then, may_raise))
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._is_over:
            _log.error("work for a write failed in a way it never should", exc_info=error)

    async def seen(self, revision: int, *, pause_s: float) -> None:
        """Done when the tree shows a revision, after a pause."""
        if pause_s:
            await asyncio.sleep(pause_s)
        await self._replica.caught_up(revision)

    async def end_session(self, session_id: int) -> None:
        """Done when the tree shows a session no more."""
        try:
            revision = await self._store.revoke(session_id)
        except LeaseNotFound:
            return  # it ended before
        await self._replica.caught_up(revision)

    async def stop(self) -> None:
        self._is_over = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _told(
    work: Callable[[], Awaitable[T]],
    then: Callable[[T | None, Exception | None], None],
    may_raise: type[Exception],
) -> None:
    try:
        result = await work()
    except may_raise as error:
        then(None, error)
    else:
        then(result, None)
