"""Blocks that can be ended from outside: what `asyncio.timeout` does for time, for any reason.

    with Scope() as scope:
        held.on_loss(scope.end)
        await something()       # cancelled when it is lost; then the loss is raised

A `Holding` is the block in which something is held: `async with` acquires, guards the body, releases.

Invariants
    * The body is cancelled at most once, and only while it runs; the first reason given counts.
    * A cancellation of the task by others, before or meanwhile, counts: its `CancelledError` goes on.
    * A block is entered holding, or it raises: there is no third way.
    * A block that lost what it held never ends quietly: it raises the loss, or what the body raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

__all__ = ["Enterable", "Holdable", "Holding", "Scope", "acting_for", "owner_here"]


class Scope:
    """A block that `end` cancels, with an error.  Enter it in a task, end it on the task's loop."""

    __slots__ = ("_cancelled", "_cancelling", "_inside", "error", "task")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._inside = self._cancelled = False
        self._cancelling = 0
        self.task: asyncio.Task[object] | None = None

    def end(self, error: BaseException) -> None:
        """Cancel the block, which then raises `error`; nothing happens outside of it."""
        if not self._inside or self.error is not None:
            return
        self.error = error
        if asyncio.current_task() is self.task:
            # A task cannot interrupt itself; it is cancelled at its next wait.
            asyncio.get_running_loop().call_soon(self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._inside and self.task is not None and not self._cancelled:
            self._cancelled = True
            self.task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a Scope can only be entered in a task.")
        self.task, self._cancelling, self._inside = task, task.cancelling(), True
        return self

    def left(self, kind: type[BaseException] | None) -> bool:
        """Leave the block.  True: it ends by our own cancellation."""
        self._inside = False
        if not self._cancelled or self.task is None:
            return False
        remaining = self.task.uncancel()
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


@runtime_checkable
class Holdable(Protocol):
    """What can be held for the time of a block.

    error: the loss, once it is lost.
    """

    @property
    def error(self) -> BaseException | None: ...

    # The listener takes any kind of loss.
    def on_loss(self, listener: Callable[[Any], None], /) -> None:
        """Call `listener` in the turn of the loop in which it is lost; at once if it is."""
        ...

    def leave(self) -> Coroutine[Any, Any, None]:
        """Give it up, at the end of a block: a loss that shows only then is in `error`."""
        ...


H = TypeVar("H", bound=Holdable)


class Holding(Generic[H]):
    """A block in which something is held.

    cancel_on_loss: cancel the body when it is lost.  Otherwise only `held.lost` is set; the block still
        raises the loss at its end.
    """

    def __init__(self, acquire: Callable[[], Awaitable[H]], *, cancel_on_loss: bool = True) -> None:
        self._acquire, self._cancel_on_loss = acquire, cancel_on_loss
        self._scope = Scope()
        self._held: H | None = None

    async def __aenter__(self) -> H:
        return self._entered(await self._begin())

    def _begin(self) -> Awaitable[H]:
        """Acquire it; the caller passes the result to `_entered`."""
        # Entered beforehand, to do little while it is held: others wait for it then.  Nothing can end
        # the scope before it was handed out.
        self._scope.__enter__()
        return self._acquire()

    def _entered(self, held: H) -> H:
        self._held = held
        if self._cancel_on_loss:
            held.on_loss(self._scope.end)
        return held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held = self._held
        assert held is not None
        scope = self._scope
        scope._inside = False
        was_ours = scope._cancelled and scope.left(kind)
        await held.leave()
        if was_ours:
            assert self._scope.error is not None
            raise self._scope.error from error
        if kind is None and held.error is not None:
            raise held.error


class Enterable(Generic[H]):
    """Something that is entered directly, as `async with q.lock("x") as held`, by many tasks at once.

    Each entry has a `Holding` of its own; a block is left by the task that entered it.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[asyncio.Task[object] | None, Holding[H]]] = []

    def _holding(self) -> Holding[H]:
        raise NotImplementedError

    async def __aenter__(self) -> H:
        # Not by its `__aenter__`: each further coroutine makes every wake-up slower.
        holding = self._holding()
        held = holding._entered(await holding._begin())
        self._entries.append((holding._scope.task, holding))
        return held

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        # Nearly always the last entry, made by this task.
        entries = self._entries
        task = asyncio.current_task()
        if entries and entries[-1][0] is task:
            return entries.pop()[1].__aexit__(kind, error, trace)
        return self._entry(task).__aexit__(kind, error, trace)

    def _entry(self, task: asyncio.Task[object] | None) -> Holding[H]:
        """The last one of this task; failing that, of a task that is over (as with an exit stack)."""
        order: Sequence[int] = range(len(self._entries) - 1, -1, -1)
        for own in (True, False):
            for at in order:
                entered_by, holding = self._entries[at]
                if entered_by is task if own else entered_by is None or entered_by.done():
                    del self._entries[at]
                    return holding
        raise RuntimeError("this block was entered by another task, which is still running.")


# -- owners ----------------------------------------------------------------------------------

acting_for: ContextVar[object | None] = ContextVar("quoracy_acting_for", default=None)


def owner_here() -> object:
    """The owner of what is acquired here and now, who may enter a reentrant lock again.

    That is the running task, unless it acts for another: a portal runs each call of a thread in a task
    of its own, and the thread is the owner.
    """
    return acting_for.get() or asyncio.current_task()
