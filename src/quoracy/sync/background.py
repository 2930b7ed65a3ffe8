"""The one loop that synchronous connections of a process share, in a thread of its own.

Started with the first connection, stopped with the last: a program that closes what it opens is left
with the threads and files it had before.

Invariants
    * At most one loop in a process is in use by new connections.  A forked child has none of its
      parent's: it starts its own, and touches nothing of the one it inherited.
    * Every thread started here is a daemon: nothing of ours keeps a program from ending.
    * What is still open when the program ends is closed then, within `EXIT_S` for all of it together.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = ["EXIT_S", "Background", "Closing", "hire", "is_exiting", "leave"]

P = ParamSpec("P")
R = TypeVar("R")

EXIT_S = 2.0
_STOP_S = 2.0


class Closing(Protocol):
    """Something to be closed when the program ends."""

    def begin_close(self) -> concurrent.futures.Future[None] | None:
        """Begin to; None: it is closed."""
        ...


class Background:
    """A loop that runs in a thread until it is stopped."""

    def __init__(self) -> None:
        self.users_count = 0
        self.open: set[Closing] = set()
        self.loop = _new_loop()
        self.loop.set_default_executor(_Workers())
        self._stopping = asyncio.Event()
        self._starting = threading.Lock()
        self._is_started = False
        self.thread = threading.Thread(target=self._run, name="quoracy-sync", daemon=True)

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._starting:
            if not self._is_started:
                self._is_started = True
                self.thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._stopping.wait()

    def stop(self, seconds: float = _STOP_S) -> None:
        """Cancel what still runs, and wait for the thread; a second call does nothing."""
        with contextlib.suppress(RuntimeError):  # it was closed already
            self.loop.call_soon_threadsafe(self._stopping.set)
        if self.thread.ident is not None:
            self.thread.join(seconds)
        elif not self.loop.is_closed():  # interrupted before it ran
            self.loop.close()


class _Workers(concurrent.futures.ThreadPoolExecutor):
    """A daemon thread for each job.  Jobs are rare: files are opened and closed, host names looked up.

    Differs from its base: at the end of the program nobody waits for a look-up that hangs, and closing
    a file still works then.
    """

    def submit(
        self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[R]:
        future: concurrent.futures.Future[R] = concurrent.futures.Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 (whoever waits for the job gets it)
                future.set_exception(error)
            else:
                future.set_result(result)

        try:
            threading.Thread(target=work, name="quoracy-sync-worker", daemon=True).start()
        except RuntimeError:
            # Since 3.12 no thread is started while the program ends; nobody else wants the loop then.
            work()
        return future


class _Process:
    """What there is once in each process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.background: Background | None = None
        self.ends: int | None = None  # the thread in which the program ends, once it does
        self.inherited: list[Background] = []


_process = _Process()


def hire(user: Closing) -> Background:
    """The loop, started if need be; `leave` it as often."""
    with _process.lock:
        background = _process.background
        if background is None:
            background = _process.background = Background()
        background.users_count += 1
        background.open.add(user)
    try:
        background.start()
    except BaseException:  # interrupted
        leave(background, user)
        raise
    return background


def leave(background: Background, user: Closing) -> None:
    """One user less; the last one stops it."""
    with _process.lock:
        background.open.discard(user)
        background.users_count -= 1
        if background.users_count > 0:
            return
        if _process.background is background:
            _process.background = None
    background.stop()


def is_exiting() -> bool:
    """Whether the program ends, in another thread than this one."""
    return _process.ends is not None and _process.ends != threading.get_ident()


def _at_exit() -> None:
    """Close what is open, all at once and not for long."""
    background = _process.background
    if background is None:
        return
    _process.ends = threading.get_ident()
    deadline = time.monotonic() + EXIT_S
    begun: list[concurrent.futures.Future[Any]] = []
    for each in list(background.open):
        closing = each.begin_close()
        if closing is not None:
            begun.append(closing)
    concurrent.futures.wait(begun, timeout=EXIT_S)
    background.stop(max(0.1, deadline - time.monotonic()))


def _in_child() -> None:
    """After a fork.  The loop has no thread here, and its sockets and its epoll are the parent's: it is
    kept as it is, for good, because to tidy it up would disturb the parent.
    """
    global _process
    before, _process = _process, _Process()
    _process.inherited = before.inherited
    if before.background is not None:
        _process.inherited.append(before.background)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_in_child)


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    # Measured in turns with asyncio's own, lock cycles of one thread on a server: 1.18 times as many.
    import uvloop

    return uvloop.new_event_loop()
