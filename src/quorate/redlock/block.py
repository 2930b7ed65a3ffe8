"""The block in which a lock is held: `async with` acquires, guards the body, releases.

Invariants
    * A block is entered holding, or it raises: there is no third way.
    * A block that lost its lock never ends quietly: it raises the loss, or what the body raised.
    * The body is cancelled at most once, and only while it runs.  Whoever else cancels the task, before
      or meanwhile, is obeyed: their `CancelledError` goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from quorate.errors import LockLost
from quorate.redlock.holding import Held

__all__ = ["Holding"]


class Holding:
    """A block in which a lock is held, once.  Made by `Lock.hold()` and `async with lock`.

    cancel_on_loss: cancel the body when the lock is lost.  Otherwise only `held.lost` is set; the block
        still raises the loss at its end.
    """

    def __init__(self, acquire: Callable[[], Awaitable[Held]], *, cancel_on_loss: bool) -> None:
        self._acquire, self._cancel_on_loss = acquire, cancel_on_loss
        self._held: Held | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0  # by others, when it was entered
        self._inside = self._cancelled = False

    async def __aenter__(self) -> Held:
        held = self._held = await self._acquire()
        task = self._task = asyncio.current_task()
        assert task is not None, "a coroutine that awaited redis runs in a task"
        self._cancelling, self._inside = task.cancelling(), True
        if self._cancel_on_loss:
            held.on_loss(self._lost)
        return held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release, and raise the loss if there was one and the body has nothing else to say."""
        held = self._held
        assert held is not None
        was_ours = self._left(kind)
        await held.release()
        if held.error is not None and (was_ours or kind is None):
            raise held.error from error

    def _lost(self, _loss: LockLost) -> None:
        if asyncio.current_task() is self._task:
            # Nobody can interrupt what it is doing itself; it is at its next wait.
            asyncio.get_running_loop().call_soon(self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._inside and self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def _left(self, kind: type[BaseException] | None) -> bool:
        """Whether what ends the block is our own cancellation."""
        self._inside = False
        if not self._cancelled or self._task is None:
            return False
        others_remain = self._task.uncancel() > self._cancelling
        return not others_remain and kind is not None and issubclass(kind, asyncio.CancelledError)
