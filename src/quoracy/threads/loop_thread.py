"""An event loop in a daemon thread, and the one that all portals of a process share.

The shared loop starts with the first portal and stops with the last: a program that closes what it
opens is left with the threads and files it had before.

Invariants
    * At most one shared loop in a process takes new portals.  A forked child has none of its parent's:
      it starts its own, and touches nothing of the one it inherited.
    * Every thread started here is a daemon: none of them keeps a program from ending.
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
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = ["EXIT_S", "LoopThread", "User", "is_exiting", "leave_shared", "use_shared"]

P = ParamSpec("P")
R = TypeVar("R")

EXIT_S = 2.0
_STOP_S = 2.0
# `call` is for work of milliseconds: longer means that the loop hangs.
_CALL_S = 20.0


class LoopThread:
    """A loop that runs in a thread from `start` to `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self.loop.set_default_executor(_Workers())
        self.users: set[User] = set()
        self._stopping = asyncio.Event()
        self._starting = threading.Lock()
        self._is_started = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._starting:
            if not self._is_started:
                self._is_started = True
                self._thread.start()

    def call(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine on the loop and wait for its result, from any other thread."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"{self._thread.name} cannot wait for itself.")
        running = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return running.result(_CALL_S)
        except concurrent.futures.TimeoutError:
            if not running.done():
                running.cancel()
                raise RuntimeError(f"{self._thread.name} did not answer for {_CALL_S:g} s.") from None
            raise

    def stop(self, seconds: float = _STOP_S) -> None:
        """Cancel what still runs, and wait for the thread; a second call does nothing."""
        with contextlib.suppress(RuntimeError):  # it was closed already
            self.loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.ident is not None:
            self._thread.join(seconds)
        elif not self.loop.is_closed():  # interrupted before it ran
            self.loop.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stopping.wait()


class _Workers(concurrent.futures.ThreadPoolExecutor):
    """A daemon thread for each job.  Jobs are rare: files are opened and closed, host names looked up.

    Differs from its base: the end of the program does not wait for a look-up that hangs, and files can
    still be closed then.
    """

    def submit(
        self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[R]:
        future: concurrent.futures.Future[R] = concurrent.futures.Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 (the caller of the job gets it)
                    future.set_exception(error)

        try:
            threading.Thread(target=work, name="quoracy-sync-worker", daemon=True).start()
        except RuntimeError:
            # Since 3.12 no thread is started while the program ends; nothing else uses the loop then.
            work()
        return future


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


# -- the shared loop -------------------------------------------------------------------------


class User(Protocol):
    """What uses the shared loop, and is closed when the program ends."""

    def begin_close(self) -> concurrent.futures.Future[None] | None:
        """Begin to close; None: it is closed."""
        ...


class _Process:
    """What there is once in each process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shared: LoopThread | None = None
        self.exiting_thread: int | None = None  # in which the program ends, once it does
        self.inherited: list[LoopThread] = []


_process = _Process()


def use_shared(user: User) -> LoopThread:
    """The shared loop, which runs until `leave_shared` was called for every user."""
    with _process.lock:
        shared = _process.shared
        if shared is None:
            shared = _process.shared = LoopThread("quoracy-sync")
        shared.users.add(user)
    try:
        shared.start()
    except BaseException:  # interrupted
        leave_shared(shared, user)
        raise
    return shared


def leave_shared(shared: LoopThread, user: User) -> None:
    """End the use; with the last user the loop stops."""
    with _process.lock:
        shared.users.discard(user)
        if shared.users:
            return
        if _process.shared is shared:
            _process.shared = None
    shared.stop()


def is_exiting() -> bool:
    """Whether the program ends, in another thread than this one."""
    return _process.exiting_thread not in (None, threading.get_ident())


def _at_exit() -> None:
    """Close what is open, all at once, within `EXIT_S`."""
    shared = _process.shared
    if shared is None:
        return
    _process.exiting_thread = threading.get_ident()
    deadline = time.monotonic() + EXIT_S
    closing = [user.begin_close() for user in list(shared.users)]
    concurrent.futures.wait([each for each in closing if each is not None], timeout=EXIT_S)
    shared.stop(max(0.1, deadline - time.monotonic()))


def _in_child() -> None:
    """After a fork.  The inherited loop has no thread here, and its sockets and its epoll are the
    parent's.  It is kept as it is, for good: closing it would disturb the parent.
    """
    global _process
    before, _process = _process, _Process()
    _process.inherited = before.inherited
    if before.shared is not None:
        _process.inherited.append(before.shared)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_in_child)
