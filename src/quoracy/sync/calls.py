"""One call from a thread: a coroutine on the loop, and a thread that waits for it.

While it waits, the thread runs errands: functions of the caller that the coroutine needs a result of.

    thread   --begin-->  loop      coroutine starts
             <--errand--           "what is the new value?"
             --reply-->
             <--done---
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from quoracy.errors import StoreClosed
from quoracy.sync import background

__all__ = ["CLEAN_UP_S", "Call", "Errand"]

R = TypeVar("R")

# How long somebody who was interrupted waits for what that undoes.
CLEAN_UP_S = 5.0


class Errand(Generic[R]):
    """A function that a coroutine wants run in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], R]) -> None:
        self._loop, self._function = loop, function
        self._reply: asyncio.Future[R] = loop.create_future()

    def run(self) -> None:
        """Run it, in this thread.  What is no `Exception` goes on here, and cancels the other side."""
        try:
            result = self._function()
        except Exception as error:  # noqa: BLE001 (it is the answer)
            answer = _not_an_end(error) if isinstance(error, StopIteration) else error
            self._answer(lambda: self._reply.set_exception(answer))
        except BaseException:
            self.refuse()
            raise
        else:
            self._answer(lambda: self._reply.set_result(result))

    def refuse(self) -> None:
        """It will not be run."""
        self._answer(self._reply.cancel)

    async def done(self) -> R:
        """Wait for it.  Cancelled, this ends when it has returned: nobody can stop a thread."""
        try:
            return await asyncio.shield(self._reply)
        except asyncio.CancelledError:
            if not self._reply.done():
                await asyncio.wait([self._reply])
            if not self._reply.cancelled():
                self._reply.exception()
            raise

    def _answer(self, answer: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(answer)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The connection was closed under it: nobody waits for the answer.


class Call(Generic[R]):
    """A coroutine on the loop that one thread waits for.

    begin: called on the loop, in the task; its awaitable is the work.
    undo: gets a result that came too late for the thread to take.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[], Awaitable[R]],
        undo: Callable[[R], Awaitable[object]] | None,
        *,
        on_begun: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self._loop, self._begin, self._undo, self._on_begun = loop, begin, undo, on_begun
        # An errand to run, or None: done.
        self._inbox: SimpleQueue[Errand[Any] | None] = SimpleQueue()
        self._task: asyncio.Task[R] | None = None
        self._is_over = False
        self._given_up = False
        # Made by a thread that gives up, before the loop is told: few do, and one takes 3 us.
        self._cleaned: threading.Event | None = None

    # -- the thread's side -------------------------------------------------------------------

    def wait(self, context: Context) -> R:
        """Begin, run errands, return or raise what it ends with."""
        try:
            self._loop.call_soon_threadsafe(self._start, context)
        except RuntimeError:
            if self._loop.is_closed():
                raise StoreClosed from None
            raise
        try:
            while (errand := self._inbox.get()) is not None:
                errand.run()
        except BaseException:
            self._give_up()
            raise
        task, self._task = self._task, None  # the error, the frames and the call would hold each other
        if task is None or not task.done():
            raise StoreClosed
        return task.result()

    def end(self) -> None:
        """Wait no longer: the connection is closed, whatever becomes of this."""
        self._inbox.put(None)

    def _give_up(self) -> None:
        """Interrupted: cancel it, and wait until it has cleaned up behind itself."""
        cleaned = self._cleaned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
        else:
            cleaned.wait(CLEAN_UP_S)

    # -- the loop's side ---------------------------------------------------------------------

    def take(self, errand: Errand[Any]) -> bool:
        """Have the thread run it; False if it does not wait here any more."""
        if self._is_over:
            return False
        if self._given_up:
            errand.refuse()
        else:
            self._inbox.put(errand)
        return True

    def _start(self, context: Context) -> None:
        if self._given_up:
            self._is_clean()
            return
        self._task = self._loop.create_task(self._work(), context=context)
        self._task.add_done_callback(self._finished)
        self._on_begun(self._task)

    async def _work(self) -> R:
        return await self._begin()

    def _finished(self, task: asyncio.Task[R]) -> None:
        self._is_over = True
        if self._given_up:
            self._undone(task)
        elif not background.is_exiting():
            self._inbox.put(None)
        # Otherwise a daemon thread stays where it is: the program ends, and an error would be printed.

    def _cancel(self) -> None:
        self._given_up = True
        while not self._inbox.empty():
            errand = self._inbox.get()
            if errand is not None:
                errand.refuse()
        task = self._task
        if task is None:
            self._is_clean()
        elif task.done():
            self._undone(task)
        else:
            task.cancel()

    def _undone(self, task: asyncio.Task[R]) -> None:
        """It is over, and nobody takes what came of it."""
        if task.cancelled() or task.exception() is not None or self._undo is None:
            self._is_clean()
            return
        undoing = asyncio.ensure_future(self._undo(task.result()))
        self._on_begun(undoing)
        undoing.add_done_callback(lambda _: self._is_clean())

    def _is_clean(self) -> None:
        assert self._cleaned is not None
        self._cleaned.set()


def _not_an_end(error: StopIteration) -> RuntimeError:
    """As PEP 479: a StopIteration that crosses a coroutine would end somebody else's loop."""
    wrapped = RuntimeError("the function raised StopIteration")
    wrapped.__cause__ = error
    return wrapped
