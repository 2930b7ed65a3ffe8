"""An event loop in a thread of its own, for callers that have none.

Invariants
    * What a caller asks for is done on the loop, and the caller waits for the outcome: also when it is
      interrupted (Ctrl-C), so that nothing is left half done, and nothing that nobody knows of is held.
    * Any number of threads may call at the same time.  A forked child may not: it has no such thread.
    * `close` ends the thread, and whoever still waits gets `Unavailable`.  Without it the thread does
      not keep the interpreter from ending.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Generic, TypeVar

from quoracy.errors import Forked, Unavailable

__all__ = ["Portal"]

T = TypeVar("T")


class Portal:
    """Runs coroutines for threads."""

    def __init__(self, name: str) -> None:
        self._owner = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[object]] = set()  # touched on the loop only
        self._opening = threading.Lock()  # of `_is_closed`, and of handing work to a loop that runs
        self._is_closed = False
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()

    def run(
        self,
        make: Callable[[], Coroutine[object, object, T]],
        *,
        undo: Callable[[T], Coroutine[object, object, object]] | None = None,
    ) -> T:
        """The outcome of a coroutine.

        A caller that is interrupted cancels it and waits for its end.  If it succeeds all the same it
        is undone: nobody is there any more to take what it gives.
        """
        self.check_owner()
        work = _Work(make)
        try:
            self._hand_over(lambda: work.start(self._tasks))
            return work.outcome.result()
        except BaseException:
            # The outcome itself, which is done by now, or an interruption of this thread: perhaps even
            # before it had handed the work over.
            if not work.outcome.done():
                self._hand_over(work.cancel)
            if work.outcome.exception() is None and undo is not None:
                self.run(lambda: undo(work.outcome.result()))
            raise

    @property
    def is_closed(self) -> bool:
        self.check_owner()
        return self._is_closed

    def check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise Forked(owner=self._owner, here=os.getpid())

    def close(self) -> None:
        """End the thread.  Once is enough."""
        self.check_owner()
        with self._opening:
            if self._is_closed:
                return
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _hand_over(self, callback: Callable[[], object]) -> None:
        with self._opening:
            if self._is_closed:
                raise Unavailable("this Redlock is closed, so nothing was done. Make a new one.")
            self._loop.call_soon_threadsafe(callback)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class _Work(Generic[T]):
    """A coroutine that a thread waits for."""

    def __init__(self, make: Callable[[], Coroutine[object, object, T]]) -> None:
        self._make = make
        self._task: asyncio.Task[T] | None = None  # both touched on the loop only
        self._is_abandoned = False
        self.outcome: Future[T] = Future()

    def start(self, tasks: set[asyncio.Task[object]]) -> None:
        if self._is_abandoned:
            return
        self._task = asyncio.get_running_loop().create_task(self._make())
        tasks.add(self._task)
        self._task.add_done_callback(tasks.discard)
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._is_abandoned = True
            self.outcome.set_exception(Unavailable("interrupted before it began, so nothing was done."))

    def _done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.outcome.set_exception(
                Unavailable("this Redlock was closed in the middle of it. Make a new one.")
            )
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())
