"""From a thread onto the shared loop and back: what every method of a proxy goes through.

    result = portal.run(lambda: lock.acquire(timeout=5))      # a coroutine, waited for
    state = portal.call(lambda: connection.state)             # a plain call, made on the loop

A portal belongs to one connection.  The thread that calls is the one that waits, and meanwhile it does
what the coroutine asks of it: functions of the caller run in the caller's own thread, never on the
loop, and may use the connection themselves.  Listeners, which no call waits for, have a thread of their
own.

Invariants
    * Nothing of the connection is touched outside of the loop's thread.
    * A caller that is interrupted (KeyboardInterrupt) has its coroutine cancelled and waits for its
      clean-up, for `CLEAN_UP_S` at most; what it acquired in the same moment is released.
    * Once closed, every call raises `StoreClosed`; in a forked child, `Forked`; on a thread that runs
      an event loop, `RuntimeError`.  None of them waits.
    * A reentrant lock belongs to the thread that called.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

from quoracy.blocks import Holdable, acting_for
from quoracy.errors import Forked, StoreClosed
from quoracy.threads.calls import Answers, BlockTask, Call, Errand
from quoracy.threads.listeners import Listeners
from quoracy.threads.loop_thread import is_exiting, leave_shared, use_shared

__all__ = ["CLOSE_S", "Portal"]

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

CLOSE_S = 5.0
_calling: ContextVar[Call[Any] | None] = ContextVar("quoracy_sync_call", default=None)
# Of the time to close: for calls in other threads to end, and for what did not end in time.
_CALLS_END_S = 0.5
_GIVE_UP_S = 0.5


class Portal:
    """The way of one connection onto the loop.  Made and closed in any thread, used by all."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._closing: concurrent.futures.Future[None] | None = None
        # Whether it is closed, or about to be: set before anything on the loop learns of it.
        self.is_closing = False
        self._closed = False
        self._close_s = CLOSE_S
        self._waiting: set[Call[Any]] = set()
        # Touched on the loop only.
        self._ongoing: set[asyncio.Task[Any]] = set()
        self._blocks: set[asyncio.Task[Any]] = set()
        self._connection: BlockTask[Any] | None = None
        self._listeners = Listeners(lambda: self.is_closing)
        self._refuse_loop()
        self._shared = use_shared(self)
        self.loop = self._shared.loop

    # -- calls -------------------------------------------------------------------------------

    def run(
        self,
        begin: Callable[[], Awaitable[R]],
        *,
        undo: Callable[[R], Awaitable[object]] | None = None,
    ) -> R:
        """Wait for what `begin` begins on the loop.

        undo: what to do with a result that comes too late to be taken; by default, what is held is
            released.
        """
        self.check()
        return self._run(begin, undo or _release)

    def call(self, what: Callable[[], R]) -> R:
        """Call something on the loop."""

        async def calling() -> R:
            return what()

        self.check()
        return self._run(calling, None)

    def check(self) -> None:
        """Raise if this is no place, or no time, to use the connection."""
        self.check_process()
        self._refuse_loop()
        if is_exiting():
            # A daemon thread while the program ends: it is about to be stopped where it stands, and an
            # error would only be printed.
            threading.Event().wait()
        if self.is_closing:
            raise StoreClosed

    def check_process(self) -> None:
        """Raise in a child that inherited the connection."""
        if os.getpid() != self._owner:
            raise Forked(owner=self._owner, here=os.getpid())

    def _run(
        self, begin: Callable[[], Awaitable[R]], undo: Callable[[R], Awaitable[object]] | None
    ) -> R:
        context = copy_context()
        context.run(acting_for.set, threading.current_thread())
        call = Call(self.loop, begin, undo, on_begun=self._begun)
        context.run(_calling.set, call)
        with self._lock:
            self._waiting.add(call)
        try:
            return call.wait(context)
        except asyncio.CancelledError:
            if self.is_closing:
                raise StoreClosed from None
            raise
        finally:
            with self._lock:
                self._waiting.discard(call)

    def _begun(self, task: asyncio.Task[Any]) -> None:
        self.track(task)
        if self.is_closing:
            task.cancel()

    def track(self, task: asyncio.Task[Any]) -> None:
        """Cancel the task when the connection is closed.  On the loop."""
        self._ongoing.add(task)
        task.add_done_callback(self._ongoing.discard)

    def track_block(self, task: asyncio.Task[Any]) -> None:
        """The same for one that holds something: it learns from the session first.  On the loop."""
        self._blocks.add(task)
        task.add_done_callback(self._blocks.discard)

    def _refuse_loop(self) -> None:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                "this would block the event loop that runs in this thread. In coroutines, use "
                "quoracy.connect or quoracy.redlock.Redlock; from a coroutine to blocking code, "
                "asyncio.to_thread."
            )

    # -- functions of the user ---------------------------------------------------------------

    def listener(self, function: Callable[P, object]) -> Callable[P, None]:
        """A function for the loop that has `function` called in the thread of listeners."""
        return self._listeners.off_loop(function)

    def errand(
        self, function: Callable[..., R], *wraps: Callable[[Any], object]
    ) -> Callable[..., Coroutine[Any, Any, R]]:
        """A coroutine function for the loop that has `function` run in the thread of the caller.

        Where no caller waits any more, it runs in a thread of its own.  A function cannot be cancelled:
        to cancel the wait for it is to wait until it has returned.

        wraps: one for each argument, applied to it first.
        """

        def wrapped(values: tuple[object, ...]) -> tuple[object, ...]:
            return tuple(wrap(value) for wrap, value in zip(wraps, values, strict=False)) or values

        @functools.wraps(function)
        async def run_there(*args: object) -> R:
            errand = Errand(self.loop, lambda: function(*wrapped(args)))
            call = _calling.get()
            if call is None or not call.take(errand):
                threading.Thread(target=errand.run, name="quoracy-sync-errand", daemon=True).start()
            return await errand.done()

        return run_there

    def asking(
        self,
        begin: Callable[[Callable[[Any], A], float | None], Awaitable[R]],
        function: Callable[[Any], A],
        timeout: float | None,
    ) -> R:
        """Wait for an operation that needs the result of a plain function at once, on the loop.

        The loop cannot wait for the caller's thread: see `Answers`.  The function is called any number
        of times, so it must depend on its argument only, as that of a compare-and-swap does.
        """
        return self.run(lambda: Answers(self.errand(function)).give(begin, timeout))

    # -- functions of the loop ---------------------------------------------------------------

    def ending(self, end: Callable[[], object]) -> Callable[[], None]:
        """A function that calls `end` on the loop, from any thread; after `close` it does nothing."""

        def end_it() -> None:
            with contextlib.suppress(StoreClosed):
                self.call(end)

        return end_it

    def running(self, function: Callable[[], Awaitable[R]]) -> Callable[[], R]:
        """A coroutine function, to be called in any thread."""

        @functools.wraps(function)
        def run() -> R:
            return self.run(function)

        return run

    # -- beginning and end -------------------------------------------------------------------

    def open(self, what: Callable[[], AbstractAsyncContextManager[R]], close_s: float) -> R:
        """Enter the connection; it is left by `close`, in the task that entered it."""
        self._close_s = close_s
        try:
            return self._run(lambda: self._enter(what()), None)
        except BaseException:
            # Also what was opened in the moment of an interruption.
            with contextlib.suppress(Exception):
                self.close()
            raise

    def close(self) -> None:
        """End everything; from any thread, any number of times, in about `close_s` at most."""
        if os.getpid() != self._owner:
            return  # it is the parent's
        self._refuse_loop()
        begun = self.begin_close()
        if begun is None:
            return
        try:
            # Beyond this time it is abandoned, and ends with the loop.
            begun.result(self._close_s + _CALLS_END_S + 2 * _GIVE_UP_S)
        except concurrent.futures.TimeoutError:
            if begun.done():
                raise  # of the connection, not of this wait
        finally:
            with self._lock:
                is_first, self._closed = not self._closed, True
            if is_first:
                self._listeners.stop()
                leave_shared(self._shared, self)
                self._wake_all()

    def _wake_all(self) -> None:
        """End the waits for a loop that does not run any more, or not for this connection."""
        with self._lock:
            waiting = list(self._waiting)
        for call in waiting:
            call.end()

    def begin_close(self) -> concurrent.futures.Future[None] | None:
        """Begin to close; the future is done when everything is closed.  None: it is closed."""
        with self._lock:
            if self._closed:
                return None
            if self._closing is None:
                self.is_closing = True
                self._closing = asyncio.run_coroutine_threadsafe(self._end(), self.loop)
            return self._closing

    def _enter(self, connection: AbstractAsyncContextManager[R]) -> Awaitable[R]:
        block = BlockTask(connection, name="quoracy-sync")
        self._connection = block
        return block.entered()

    async def _end(self) -> None:
        """Cancel what other threads wait for, close the connection, then cancel what is left."""
        deadline = self.loop.time() + self._close_s
        await _cancelled(self._ongoing, _CALLS_END_S)
        connection = self._connection
        if connection is None:
            return
        connection.leave()
        await asyncio.wait([connection.task], timeout=max(0.0, deadline - self.loop.time()))
        await _cancelled({connection.task, *self._blocks}, _GIVE_UP_S)
        if connection.task.done() and not connection.task.cancelled():
            connection.task.result()


async def _cancelled(tasks: set[asyncio.Task[Any]], seconds: float) -> None:
    """Cancel tasks and wait for them; their results are for those that wait for the tasks."""
    tasks = {task for task in tasks if not task.done()}
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=seconds)
        for task in done:
            if not task.cancelled():
                task.exception()  # looked at


async def _release(result: object) -> None:
    if isinstance(result, Holdable):
        await result.leave()
