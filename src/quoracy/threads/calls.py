"""One call from a thread, a coroutine on the loop; and one block, a task on the loop.

While it waits, the thread runs errands: functions of the caller whose results the coroutine needs.

    thread   --begin-->  loop      coroutine starts
             <--errand--           "what is the new value?"
             --reply-->
             <--done---

Some operations need the result of a function in the middle of a turn of the loop, where nothing can
wait for another thread: those go through `Answers`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from quoracy.errors import StoreClosed, TimedOut
from quoracy.threads.loop_thread import is_exiting

__all__ = ["CLEAN_UP_S", "Answers", "BlockTask", "Call", "Errand", "Leaving"]

A = TypeVar("A")
R = TypeVar("R")

Leaving = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
# How long an interrupted caller waits for the clean-up of its coroutine.
CLEAN_UP_S = 5.0


class Errand(Generic[R]):
    """A function that a coroutine wants run in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], R]) -> None:
        self._loop, self._function = loop, function
        self._reply: asyncio.Future[R] = loop.create_future()

    def run(self) -> None:
        """Run it in this thread.  What is no `Exception` is raised here, and cancels the other side."""
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
            # The connection was closed meanwhile: nothing waits for the answer.


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
        # Made by a thread that gives up, before the loop learns of that: few calls need one.
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
        elif not is_exiting():
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
        """It is over, and its result is not taken."""
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
    """As PEP 479: a StopIteration that crosses a coroutine would end a loop of the caller."""
    wrapped = RuntimeError("the function raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


# -- blocks ----------------------------------------------------------------------------------


class BlockTask(Generic[R]):
    """An `async with` block in a task of its own, which others enter and leave.  On the loop."""

    def __init__(self, block: AbstractAsyncContextManager[R], *, name: str) -> None:
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[R] = loop.create_future()
        self._leaving: asyncio.Future[Leaving] = loop.create_future()
        self.task = loop.create_task(self._hold(block), name=name)
        self.task.add_done_callback(self._over)
        self._is_over: threading.Event | None = None  # few need one

    async def entered(self) -> R:
        """Wait for what it gives when it is entered.  Cancelled, this ends when the block has ended."""
        try:
            return await self._entered
        except asyncio.CancelledError:
            self._entered.cancel()
            self.task.cancel()
            await asyncio.wait([self.task])
            raise

    def leave(self, leaving: Leaving = (None, None, None)) -> None:
        """Have it left, with what its body raised; the task ends with it."""
        if not self._leaving.done():
            self._leaving.set_result(leaving)

    async def ended(self) -> None:
        """Wait for its end.  Cancelled, this does not end it."""
        if not self.task.done():
            # Not with `asyncio.wait`, which takes several times as long.
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
            await ended

    def wait_over(self) -> None:
        """Wait for its end in a thread, for `CLEAN_UP_S` at most."""
        is_over = self._is_over = threading.Event()
        if not self.task.done():  # or the loop may have looked for the event before it was there
            is_over.wait(CLEAN_UP_S)

    def _over(self, task: asyncio.Task[bool | None]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: asyncio would log that of a block that is never left
        if self._is_over is not None:
            self._is_over.set()

    async def _hold(self, block: AbstractAsyncContextManager[R]) -> bool | None:
        try:
            value = await block.__aenter__()
        except asyncio.CancelledError:
            self._entered.cancel()
            raise
        except Exception as error:
            if self._entered.done():
                raise
            self._entered.set_exception(error)
            return None
        if self._entered.done():  # the wait for it was given up
            return await block.__aexit__(None, None, None)
        self._entered.set_result(value)
        try:
            leaving = await self._leaving
        except asyncio.CancelledError as cancelled:
            # What is held was lost, or the connection is closed.
            leaving = (type(cancelled), cancelled, cancelled.__traceback__)
        return await block.__aexit__(*leaving)


# -- answers that are wanted at once ---------------------------------------------------------


class _Asked(BaseException):
    """A question without an answer yet, for `Answers` to catch."""

    def __init__(self, question: object) -> None:
        super().__init__()
        self.question = question


class Answers(Generic[A]):
    """The answers of one function during one operation that calls it in the middle of a turn.

    A question without an answer ends the operation, as any error of the function would; the answer is
    found out; and the operation is begun again.  If it asks the same, the answer is there.
    """

    def __init__(self, find_out: Callable[[Any], Awaitable[A]]) -> None:
        self._find_out = find_out
        # A value that comes and goes is not asked about again; there is no need to remember more.
        self._known: deque[tuple[object, A]] = deque(maxlen=8)

    async def give(
        self,
        begin: Callable[[Callable[[Any], A], float | None], Awaitable[R]],
        timeout: float | None,
    ) -> R:
        """Begin the operation as often as it has something new to ask, within the time."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        left = timeout
        while True:
            try:
                return await begin(self._answer, left)
            except _Asked as asked:
                question = asked.question
            except TimedOut as late:
                if timeout is None or left == timeout:
                    raise
                raise TimedOut(late.what, timeout_s=timeout) from None
            self._known.append((_form(question), await self._find_out(question)))
            if deadline is not None:
                left = max(0.0, deadline - loop.time())

    def _answer(self, question: object) -> A:
        form = _form(question)
        for known, answer in self._known:
            if known == form:
                return answer
        raise _Asked(question)


def _form(question: object) -> object:
    """How the question is stored, which shows whether two are the same: their own `==` may leave
    something out, or may not know itself (NaN).
    """
    try:
        return msgspec.json.encode(question)
    except TypeError:
        return question
