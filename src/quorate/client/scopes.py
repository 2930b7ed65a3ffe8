"""A block that somebody else can end: what `asyncio.timeout` is for time, for any reason.

    with Scope() as scope:
        session.on_loss(lambda: scope.end(SessionLost(...)))
        await something()                     # cancelled when the session is lost; then SessionLost
        is raised

Invariants
    * The block is cancelled at most once, and only while it runs; the first reason given counts.
    * Whoever cancels the task from outside, before or meanwhile, is obeyed: their `CancelledError`
      goes on.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

__all__ = ["Scope"]


class Scope:
    """Ends a block with an error of somebody else's choice.  Enter it in a task, end it on its loop."""

    __slots__ = ("_cancelled", "_cancelling", "_inside", "_task", "error")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._inside = self._cancelled = False
        self._cancelling = 0
        self._task: asyncio.Task[object] | None = None

    def end(self, error: BaseException) -> None:
        """Cancel the block, which then raises `error`; nothing happens outside of it."""
        if not self._inside or self.error is not None:
            return
        self.error = error
        if asyncio.current_task() is self._task:
            # Nobody can interrupt what it is doing itself; it is at the next wait.
            asyncio.get_running_loop().call_soon(self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._inside and self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a Scope can only be entered in a task.")
        self._task, self._cancelling, self._inside = task, task.cancelling(), True
        return self

    def left(self, kind: type[BaseException] | None) -> bool:
        """Leave the block; whether what ends it is our own cancellation."""
        self._inside = False
        if not self._cancelled or self._task is None:
            return False
        remaining = self._task.uncancel()
        return (
            remaining <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.left(kind):
            assert self.error is not None
            raise self.error from error
