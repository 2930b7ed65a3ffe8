"""Work that must be finished even if whoever asked for it is cancelled.

Invariants
    * What was started here runs to its end, or is cancelled by who started it; `settled` waits for all.
    * A caller that is cancelled while it waits goes on at once; the work is finished without it.
    * Each piece of work is bounded by its own time limits: there is none here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Tasks of one Redlock that may outlive the call which started them; its end waits for them."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[object, object, T]) -> T:
        """Do it to the end, whatever happens to the caller."""
        return await asyncio.shield(self.start(work))

    async def settled(self) -> None:
        """Wait until nothing runs here any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)
