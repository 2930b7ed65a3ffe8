"""Blocks, iterators and events of the loop, for a thread: what is longer than one call.

Each lives in one task of its own from beginning to end, as it would in a coroutine, and is told by
calls from the thread when to go on.

Invariants
    * A block that lost what it held never ends quietly.  A thread cannot be cancelled, so its body goes
      on until it looks at `held.lost` or `held.check()`, or ends: then the block raises the loss,
      unless the body raised something itself.
    * An iterator asks for nothing before it is asked, and loses nothing when a wait for the next item
      is interrupted or times out.
    * An iterator that is closed, dropped, or whose connection is closed has closed its source.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from quoracy.errors import Forked, StoreClosed, TimedOut
from quoracy.sync.calls import CLEAN_UP_S
from quoracy.sync.portal import Portal

__all__ = ["Block", "Event", "Stream", "or_stop", "same"]

R = TypeVar("R")
V = TypeVar("V")

_Leaving = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


@contextlib.contextmanager
def or_stop() -> Iterator[None]:
    """The end of an asynchronous iteration, as the end of a plain one."""
    try:
        yield
    except StopAsyncIteration:
        stopped = True
    else:
        stopped = False
    if stopped:
        raise StopIteration


def same(value: V) -> V:
    """What needs no synchronous face: a plain value."""
    return value


class Block(Generic[R]):
    """A block in which something is held: `with` acquires and releases.  For one use.

    When what is held is lost, the body goes on (nobody can stop a thread): look at `held.lost` or call
    `held.check()` before what counts on it.  The block raises the loss at its end.
    """

    def __init__(
        self, portal: Portal, block: AbstractAsyncContextManager[Any], wrap: Callable[[Any], R]
    ) -> None:
        self._portal, self._block, self._wrap = portal, block, wrap
        self._task: asyncio.Task[bool | None] | None = None
        self._leaving: asyncio.Future[_Leaving] | None = None
        self._is_over: threading.Event | None = None  # made by who waits for it

    def __enter__(self) -> R:
        if self._task is not None:
            raise RuntimeError("this block was entered before. Make another one.")
        return self._wrap(self._portal.run(self._enter, undo=self._undo))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._task is not None
        try:
            self._portal.check_process()
            if not self._task.done() and not self._portal.is_closing:
                self._portal.run(lambda: self._leave((kind, error, trace)))
        except Forked:
            if kind is None:
                raise
            return None  # the body has more to say
        except StoreClosed:
            assert self._portal.is_closing
        if self._portal.is_closing:
            # Whoever closed the connection ends the block; it says what became of it.
            self._wait_over(self._task)
        return self._outcome(self._task, kind, error)

    def _wait_over(self, task: asyncio.Task[bool | None]) -> None:
        is_over = self._is_over = threading.Event()
        if not task.done():  # or the loop may have looked for the event before it was there
            is_over.wait(CLEAN_UP_S)

    # -- on the loop -------------------------------------------------------------------------

    async def _enter(self) -> Any:
        entered: asyncio.Future[Any] = self._portal.loop.create_future()
        self._leaving = self._portal.loop.create_future()
        task = self._task = asyncio.create_task(self._hold(entered), name="quoracy-sync-block")
        task.add_done_callback(self._over)
        self._portal.track_block(task)
        try:
            return await entered
        except asyncio.CancelledError:
            entered.cancel()
            task.cancel()
            await asyncio.wait([task])
            raise

    def _over(self, task: asyncio.Task[bool | None]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: a block that nobody leaves is no news
        if self._is_over is not None:
            self._is_over.set()

    async def _hold(self, entered: asyncio.Future[Any]) -> bool | None:
        assert self._leaving is not None
        try:
            value = await self._block.__aenter__()
        except asyncio.CancelledError:
            entered.cancel()
            raise
        except Exception as error:
            if entered.done():
                raise
            entered.set_exception(error)
            return None
        if entered.done():  # nobody waits for it any more
            return await self._block.__aexit__(None, None, None)
        entered.set_result(value)
        try:
            leaving = await self._leaving
        except asyncio.CancelledError as cancelled:
            # What is held was lost, or the connection is closed.
            leaving = (type(cancelled), cancelled, cancelled.__traceback__)
        return await self._block.__aexit__(*leaving)

    async def _leave(self, leaving: _Leaving) -> None:
        assert self._task is not None
        assert self._leaving is not None
        if not self._leaving.done():
            self._leaving.set_result(leaving)
        if not self._task.done():
            # Not for the task itself, which goes on if this wait is cancelled; and not with
            # `asyncio.wait`, which does the same for any number and takes several times as long.
            ended: asyncio.Future[None] = self._portal.loop.create_future()
            self._task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
            await ended

    async def _undo(self, _: Any) -> None:
        await self._leave((None, None, None))

    def _outcome(
        self,
        task: asyncio.Task[bool | None],
        kind: type[BaseException] | None,
        error: BaseException | None,
    ) -> bool | None:
        if not task.done() or task.cancelled():
            if kind is None:
                raise StoreClosed
            return None
        raised = task.exception()
        if raised is None:
            return task.result()
        was_cancelled = isinstance(raised.__cause__, asyncio.CancelledError)
        if kind is not None and (raised is error or was_cancelled):
            return None  # the body raised something itself, and that counts
        raise raised


class Stream(Generic[R]):
    """An iterator over what happens, for any thread; several take turns.

        for leader in election.observe():
            if leader.value == "me":
                break                     # the iterator is dropped, and with that closed

    Where something else refers to it, close it: `with election.observe() as leaders` does, and so does
    `contextlib.closing`.  Closing it from another thread ends the iteration.
    """

    def __init__(self, portal: Portal, source: AsyncIterator[V], wrap: Callable[[V], R]) -> None:
        self._portal, self._wrap = portal, wrap
        self._owner = os.getpid()
        self._pump: _Pump[V] = _Pump(portal, source)

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        return self.next()

    def next(self, *, timeout: float | None = None) -> R:
        """The next item.  Raises `TimedOut`, and the item comes next time; StopIteration at the end."""
        pump, wrap = self._pump, self._wrap
        if pump.is_closed and not self._portal.is_closing:
            raise StopIteration
        try:
            return wrap(self._portal.run(lambda: pump.next(timeout)))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End it; a second time does nothing."""
        pump = self._pump
        if not pump.is_closed and not self._portal.is_closing:
            self._portal.run(pump.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(StoreClosed):
            self.close()

    def __del__(self) -> None:
        pump = getattr(self, "_pump", None)
        if pump is None or pump.is_closed or os.getpid() != self._owner:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is everything on it
            self._portal.loop.call_soon_threadsafe(pump.stop)


class _Pump(Generic[V]):
    """The loop's side of a `Stream`: one task that takes an item when one is asked for."""

    def __init__(self, portal: Portal, source: AsyncIterator[V]) -> None:
        self._portal, self._source = portal, source
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._item: asyncio.Future[V] | None = None
        self._wanted: asyncio.Future[None] | None = None
        self.is_closed = False

    async def next(self, timeout: float | None) -> V:
        async with _within(self._turn, timeout):
            if self.is_closed:
                raise self._end()
            item = self._item
            if item is None:
                item = self._item = self._portal.loop.create_future()
                item.add_done_callback(_look_at)
                self._go_on()
            await asyncio.wait([item], timeout=timeout)
            if not item.done():
                raise TimedOut("the next item", timeout_s=timeout or 0.0)
            self._item = None
            if item.cancelled():
                raise self._end()
            return item.result()

    def _end(self) -> Exception:
        return StoreClosed() if self._portal.is_closing else StopAsyncIteration()

    def stop(self) -> None:
        """End the task, which closes the source."""
        self.is_closed = True
        if self._task is None:
            self._task = asyncio.create_task(self._close_source(), name="quoracy-sync-stream")
            self._portal.track_block(self._task)
        else:
            self._task.cancel()

    async def close(self) -> None:
        self.stop()
        assert self._task is not None
        await asyncio.wait([self._task])

    def _go_on(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._take(), name="quoracy-sync-stream")
            self._portal.track(self._task)
        elif self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def _take(self) -> None:
        try:
            while True:
                try:
                    value = await anext(self._source)
                except Exception as error:  # noqa: BLE001 (it goes to whoever wants the item)
                    if self._item is not None:
                        self._item.set_exception(error)
                    return
                self._wanted = self._portal.loop.create_future()
                if self._item is not None:
                    self._item.set_result(value)
                await self._wanted
        finally:
            self.is_closed = True
            if self._item is not None:
                self._item.cancel()
            await self._close_source()

    async def _close_source(self) -> None:
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()


class Event:
    """Something that happens once, such as the loss of a lock; for any thread."""

    def __init__(self, portal: Portal, event: asyncio.Event) -> None:
        self._portal, self._event = portal, event

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it; whether it has happened, as `threading.Event` has it."""
        if self._event.is_set():
            return True
        return self._portal.run(lambda: self._wait(timeout))

    async def _wait(self, timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                return await self._event.wait()
        except TimeoutError:
            return False


@contextlib.asynccontextmanager
async def _within(lock: asyncio.Lock, timeout: float | None) -> AsyncIterator[None]:
    try:
        await asyncio.wait_for(lock.acquire(), timeout)
    except TimeoutError:
        raise TimedOut("the next item", timeout_s=timeout or 0.0) from None
    try:
        yield
    finally:
        lock.release()


def _look_at(item: asyncio.Future[Any]) -> None:
    """So that an error nobody came for is not reported as forgotten: the iterator was dropped."""
    if not item.cancelled():
        item.exception()
