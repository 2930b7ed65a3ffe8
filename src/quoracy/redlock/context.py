"""What all locks of one Redlock share: its servers, its clock, and what it has in flight.

Invariants
    * Everything that is held or in flight is known here, and `close` leaves neither behind.
    * After `close` began nothing is acquired: an attempt that was in flight is undone.
    * Work started here runs to its end, or is cancelled by its caller.  Each piece is bounded by time
      limits of its own: there is none here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from quoracy.clock import Clock
from quoracy.errors import Unavailable
from quoracy.redlock.servers import Servers

if TYPE_CHECKING:
    from quoracy.redlock.held import Held

__all__ = ["Context"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Context:
    """Shared by a Redlock, its locks and what they hold."""

    servers: Servers
    clock: Clock
    rng: random.Random
    namespace: str | None
    server_timeout_s: float
    retry_delay_s: float
    drift_factor: float
    held: set[Held] = field(default_factory=set)
    closing: asyncio.Task[None] | None = None
    _tasks: set[asyncio.Task[object]] = field(default_factory=set)

    def key(self, name: str) -> str:
        return name if self.namespace is None else f"{self.namespace}/{name}"

    def pause_s(self) -> float:
        """How long to wait between two attempts: random, so that contenders fall out of step."""
        return self.retry_delay_s * self.rng.uniform(0.5, 1.5)

    def start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start work that may outlive the call which started it; `close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[object, object, T]) -> T:
        """Do work to its end.  A caller that is cancelled goes on at once, and the work without it."""
        return await asyncio.shield(self.start(work))

    def check_open(self) -> None:
        self.servers.check_owner()
        if self.closing is not None:
            raise Unavailable("this Redlock is closed, so nothing was acquired. Make a new one.")

    async def close(self) -> None:
        self.servers.check_owner()
        if self.closing is None:
            self.closing = asyncio.create_task(self._close())
        await asyncio.shield(self.closing)

    async def _close(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for held in list(self.held):
                tasks.create_task(held.release())
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.servers.close()
