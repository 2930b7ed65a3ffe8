"""Proxies: objects for threads, each of which stands for one that lives on the loop.

A `Proxy` is the base of the generated classes.  What is longer than one call has a class here: a
`Block` is entered and left, a `Stream` is iterated over, an `Event` happens once.  Each block and each
stream lives in one task of its own from beginning to end, as it would in a coroutine; calls from the
thread have it go on.

Invariants
    * A block that lost what it held never ends quietly.  A thread cannot be cancelled, so its body goes
      on until it looks at `held.lost` or `held.check()`, or ends: then the block raises the loss,
      unless the body raised something itself.
    * A stream asks for nothing before it is asked, and loses nothing when a wait for the next item is
      interrupted or times out.
    * A stream that is closed, dropped, or whose connection is closed has closed its source.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Never, Self, TypeVar, overload

from quoracy.errors import Forked, InvalidRequest, StoreClosed, TimedOut
from quoracy.threads.calls import BlockTask, Leaving
from quoracy.threads.portal import Portal

__all__ = [
    "Attribute",
    "Block",
    "BlockProxy",
    "ConnectionProxy",
    "Event",
    "Proxy",
    "Stream",
    "refuse_others",
    "same",
]

A = TypeVar("A")
R = TypeVar("R")
V = TypeVar("V")

# Guards the lists of blocks that were entered; for a moment each time.
_entries = threading.Lock()


def same(value: V) -> V:
    """For a plain value, which needs no proxy."""
    return value


class Proxy(Generic[A]):
    """Stands for one object of the loop."""

    def __init__(self, portal: Portal, it: A) -> None:
        self._portal, self._it = portal, it

    def _next(self, source: AsyncIterator[V]) -> V:
        try:
            return self._portal.run(source.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __repr__(self) -> str:
        # Without a question to the loop: a debugger asks this of a program that stands still.
        of = getattr(self, "name", None) or getattr(self, "identity", None)
        cls = type(self)
        return f"<{cls.__module__}.{cls.__name__}{f' {of}' if of else ''}>"


class Attribute(Generic[V]):
    """An attribute of the object on the loop, which may be read in any thread; for plain values."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, proxy: None, owner: type) -> Self: ...
    @overload
    def __get__(self, proxy: Proxy[Any], owner: type) -> V: ...
    def __get__(self, proxy: Proxy[Any] | None, owner: type) -> Any:
        return self if proxy is None else getattr(proxy._it, self._name)

    def __set__(self, proxy: Proxy[Any], value: V) -> Never:
        raise AttributeError(f"{self._name!r} cannot be set")


class BlockProxy(Proxy[A]):
    """Stands for an object that is entered directly, as `with q.lock("x")`, by many threads at once."""

    def __init__(self, portal: Portal, it: A) -> None:
        super().__init__(portal, it)
        # Blocks that were entered through this object, and the thread of each.
        self._entered: list[tuple[threading.Thread, Block[object]]] = []

    def _enter(self, block: AbstractAsyncContextManager[V]) -> V:
        entering = Block(self._portal, block, same)
        value: V = entering.__enter__()
        with _entries:
            self._entered.append((threading.current_thread(), entering))
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._last_entered().__exit__(kind, error, trace)

    def _last_entered(self) -> Block[object]:
        """The last of this thread; failing that, of a thread that is over (as with an exit stack)."""
        thread = threading.current_thread()
        with _entries:
            for own in (True, False):
                for entry in reversed(self._entered):
                    by, block = entry
                    if by is thread if own else not by.is_alive():
                        self._entered.remove(entry)
                        return block
        raise RuntimeError("this block was entered by another thread, which is still running.")


class ConnectionProxy(Proxy[A]):
    """Stands for a connection: closed at the end of a block, or by `close`."""

    def close(self) -> None:
        """Close it: everything held is free at once, and calls in other threads raise `StoreClosed`.

        From any thread; a second time it does nothing.  In a forked child it does nothing either: the
        connection is the parent's.
        """
        self._portal.close()

    def __enter__(self) -> Self:
        self._portal.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def refuse_others(where: object) -> None:
    """Raise for a store that lives on another loop: it cannot be used from the shared one."""
    if not isinstance(where, str | Proxy):
        raise InvalidRequest(
            f"quoracy.sync cannot connect to {where!r}. Give a URL, or the `store` of another "
            "connection of quoracy.sync."
        )


class Block(Generic[R]):
    """A block in which something is held: `with` acquires and releases.  For one use.

    When what is held is lost, the body goes on (nobody can stop a thread): look at `held.lost` or call
    `held.check()` before what counts on it.  The block raises the loss at its end.
    """

    def __init__(
        self, portal: Portal, block: AbstractAsyncContextManager[Any], wrap: Callable[[Any], R]
    ) -> None:
        self._portal, self._block, self._wrap = portal, block, wrap
        self._running: BlockTask[Any] | None = None

    def __enter__(self) -> R:
        if self._running is not None:
            raise RuntimeError("this block was entered before. Make another one.")
        return self._wrap(self._portal.run(self._enter, undo=lambda _: self._leave((None, None, None))))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._running is not None
        task = self._running.task
        try:
            self._portal.check_process()
            if not task.done() and not self._portal.is_closing:
                self._portal.run(lambda: self._leave((kind, error, trace)))
        except Forked:
            if kind is None:
                raise
            return None  # the body has more to say
        except StoreClosed:
            assert self._portal.is_closing
        if self._portal.is_closing:
            # The thread that closes the connection ends the block, which knows how it ended.
            self._running.wait_over()
        return self._outcome(task, kind, error)

    # -- on the loop -------------------------------------------------------------------------

    def _enter(self) -> Awaitable[Any]:
        running = self._running = BlockTask(self._block, name="quoracy-sync-block")
        self._portal.track_block(running.task)
        return running.entered()

    def _leave(self, leaving: Leaving) -> Awaitable[None]:
        assert self._running is not None
        self._running.leave(leaving)
        return self._running.ended()

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
    """An iterator over what happens, for any thread; several threads take turns.

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
        self._wanted = asyncio.Event()
        self.is_closed = False

    async def next(self, timeout: float | None) -> V:
        try:
            async with asyncio.timeout(timeout), self._turn:
                if self.is_closed:
                    raise self._end()
                item = self._item
                if item is None:
                    item = self._item = self._portal.loop.create_future()
                    item.add_done_callback(_look_at)
                    self._wanted.set()
                    if self._task is None:
                        self._task = asyncio.create_task(self._take(), name="quoracy-sync-stream")
                        self._portal.track(self._task)
                await asyncio.wait([item])
                self._item = None
        except TimeoutError:
            raise TimedOut("the next item", timeout_s=timeout or 0.0) from None
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

    async def _take(self) -> None:
        try:
            while await self._wanted.wait():
                self._wanted.clear()
                assert self._item is not None
                try:
                    self._item.set_result(await anext(self._source))
                except Exception as error:  # noqa: BLE001 (it goes to the thread that wants the item)
                    self._item.set_exception(error)
                    return
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


def _look_at(item: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging an error that nobody fetched: the iterator was dropped."""
    if not item.cancelled():
        item.exception()
