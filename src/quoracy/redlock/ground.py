"""What all locks of one Redlock stand on: its servers, its time, and what it has under way.

Invariants
    * Everything that is held or under way is known here, and `close` leaves neither behind.
    * After `close` began nothing is acquired: an attempt that was under way is undone.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quoracy.clock import Clock
from quoracy.errors import Unavailable
from quoracy.redlock.background import Background
from quoracy.redlock.servers import Servers

if TYPE_CHECKING:
    from quoracy.redlock.holding import Held

__all__ = ["Ground"]


@dataclass(slots=True, eq=False)
class Ground:
    """Shared by a Redlock, its locks and what they hold."""

    servers: Servers
    clock: Clock
    rng: random.Random
    namespace: str | None
    server_timeout_s: float
    retry_delay_s: float
    drift_factor: float
    background: Background = field(default_factory=Background)
    held: set[Held] = field(default_factory=set)
    closing: asyncio.Task[None] | None = None

    def key(self, name: str) -> str:
        return name if self.namespace is None else f"{self.namespace}/{name}"

    def pause_s(self) -> float:
        """How long to wait between two attempts: random, so that contenders fall out of step."""
        return self.retry_delay_s * self.rng.uniform(0.5, 1.5)

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
        await self.background.settled()
        await self.servers.close()
