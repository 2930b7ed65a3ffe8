"""Cancelling a coroutine at every one of its awaits, one after the other.

    async for attempt in cancelled_everywhere(lambda: use(lock)):
        assert await nobody_waits_for(lock)    # after each cancellation, and after the run without

The coroutine is stepped by hand inside a task: each time it suspends is one await point.  At the n-th
it is cancelled, for n = 1, 2, ... until it comes to its end without being cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

__all__ = ["Attempt", "cancelled_everywhere"]

_POINTS_MAX = 500


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one run ended: cancelled at this await (counted from 1), or completed."""

    point: int
    completed: bool
    swallowed: bool  # it was cancelled, and came to its end nevertheless


class _Stepped(Awaitable[Any]):
    """Passes every suspension on, and cancels the task at the n-th."""

    def __init__(self, work: Coroutine[Any, Any, Any], point: int) -> None:
        self._work, self._point = work, point
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited = steps.throw(error) if error is not None else steps.send(sent)
            except StopIteration as end:
                return end.value
            sent = error = None
            self.suspensions += 1
            if self.suspensions == self._point:
                task = asyncio.current_task()
                assert task is not None
                # As somebody else would, while it waits.
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                sent = yield waited
            except BaseException as thrown:  # noqa: BLE001 (it is thrown into the coroutine)
                error = thrown


async def cancelled_everywhere(make: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncIterator[Attempt]:
    """Run what `make` makes again and again, cancelled at a later await each time."""
    for point in range(1, _POINTS_MAX):
        stepped = _Stepped(make(), point)

        async def run(stepped: _Stepped = stepped) -> None:
            await stepped

        task = asyncio.create_task(run())
        try:
            await asyncio.wait_for(asyncio.shield(task), 30)
            cancelled = False
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            cancelled = True
        reached = stepped.suspensions >= point
        yield Attempt(
            point, completed=not cancelled and not reached, swallowed=reached and not cancelled
        )
        if not reached:
            return
    raise AssertionError(f"it still waits after {_POINTS_MAX} awaits")
