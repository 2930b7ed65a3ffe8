"""Writing and syncing a file off the loop, which is called when that is done.

`NativeSync` stands on a thread written in C (`_sync_thread.c`) that never takes the interpreter lock,
so that a busy loop keeps no disk waiting.  `ThreadSync` does the same in Python, where nothing was
compiled.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from quoracy.store.completion import Reply

if TYPE_CHECKING:
    from quoracy.engines.embedded.disk._sync_thread import SyncOrder

__all__ = [
    "FileSync",
    "FileSyncs",
    "NativeSync",
    "OnSynced",
    "ThreadSync",
    "let_others",
    "let_others_go_first",
    "start_writing",
    "sync_data",
]

# Called on the loop: with the error that the write or the sync failed with, if one did.
OnSynced = Callable[[OSError | None], None]

_RINGS_MAX = 64

# (What macOS calls fdatasync is no part of its interface; Windows has none.)
sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def let_others_go_first() -> bool:
    """Let this thread be interrupted by any that wakes up on its processor, and interrupt none.

    Returns whether that is so now.
    """
    try:
        from quoracy.engines.embedded.disk import _sync_thread
    except ImportError:
        return False
    return _sync_thread.let_others_go_first()


def let_others() -> None:
    """Let threads that wait for the interpreter lock or for this processor go on.

    It sleeps for a moment.  Nothing less will do: a thread that only gives the lock up has it back
    before another is awake, and one that yields the processor is put before those that wait for it
    again.  They do wait though another processor sleeps, since the system looks for none when a thread
    is woken behind one that runs.
    """
    time.sleep(0)


def start_writing(file: int) -> None:
    """Have the system begin to write what it has not yet of a file, where it can be told to.

    What is left to do when the file is synced is less by that, and done in smaller pieces.
    """
    try:
        from quoracy.engines.embedded.disk import _sync_thread
    except ImportError:
        return
    _sync_thread.start_writing(file)


class FileSync(Protocol):
    """Writes to one file, which it does not own, and syncs it; one write at a time."""

    def begin(self, data: bytes, offset: int, replies: Sequence[Reply] = (), /) -> None:
        """Write these bytes there, and sync the file; then send the replies, if all went well."""

    def expect(self) -> None:
        """Something will very likely be begun in a moment."""

    def attach(self, reply: Reply) -> None:
        """One more reply for what was begun last."""

    def catch_up(self) -> None:
        """Call for what was begun, if it is done: a client may have seen a reply of it."""

    def close(self) -> None:
        """Finish what was begun, without a call, and end."""


class FileSyncs:
    """Makes those whose writes count in the order in which they are begun, the best there are here.

    sends_replies: whether replies are sent at all, or left to the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        try:
            from quoracy.engines.embedded.disk._sync_thread import SyncOrder
        except ImportError:
            self.sends_replies = False
        else:
            self.sends_replies = True
            self._order = SyncOrder()

    def make(self, file: int, on_synced: OnSynced) -> FileSync:
        if self.sends_replies:
            return NativeSync(file, self._loop, on_synced, self._order)
        return ThreadSync(file, self._loop, on_synced)


class NativeSync:
    """A thread in C, which wakes the loop through a pipe."""

    def __init__(
        self,
        file: int,
        loop: asyncio.AbstractEventLoop,
        on_synced: OnSynced,
        order: SyncOrder | None = None,
    ) -> None:
        """Raises `ImportError` where that was not compiled."""
        from quoracy.engines.embedded.disk._sync_thread import SyncOrder, SyncThread, make_sending

        self._make_sending = make_sending
        self._loop, self._on_synced = loop, on_synced
        self._rings, self._bell = os.pipe()
        os.set_blocking(self._rings, False)  # neither may wait here, whatever happens
        os.set_blocking(self._bell, False)
        self._thread = SyncThread(file, self._bell, order or SyncOrder())
        self.expect = self._thread.expect
        self._outcome: Callable[[], int | None] = self._thread.outcome
        loop.add_reader(self._rings, self._rung)

    def begin(self, data: bytes, offset: int, replies: Sequence[Reply] = (), /) -> None:
        # (One that was taken back before it left is over.)
        make = self._make_sending
        sendings = [reply.hand_over(make) for reply in replies if not reply.is_over]
        self._thread.begin(data, offset, sendings)

    def attach(self, reply: Reply) -> None:
        if not reply.is_over:
            self._thread.attach(reply.hand_over(self._make_sending))

    def catch_up(self) -> None:
        error = self._outcome()
        if error is not None:
            self._on_synced(OSError(error, os.strerror(error)) if error else None)

    def close(self) -> None:
        if self._rings >= 0:
            self._thread.close()
            self._outcome = _no_outcome
            self._loop.remove_reader(self._rings)
            os.close(self._rings)
            os.close(self._bell)
            self._rings = -1

    def _rung(self) -> None:
        os.read(self._rings, _RINGS_MAX)
        self.catch_up()


def _no_outcome() -> None:
    """Of one that was closed."""


class ThreadSync:
    """A thread of Python's."""

    def __init__(self, file: int, loop: asyncio.AbstractEventLoop, on_synced: OnSynced) -> None:
        self._file, self._loop, self._on_synced = file, loop, on_synced
        self._is_open = True
        self._wishes: queue.SimpleQueue[tuple[bytes, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="quoracy-file-sync", daemon=True)
        self._thread.start()

    def begin(self, data: bytes, offset: int, replies: Sequence[Reply] = (), /) -> None:
        del replies  # left to the loop: this thread, too, would need the interpreter lock to send them
        self._wishes.put((data, offset))

    def expect(self) -> None:
        pass

    def attach(self, reply: Reply) -> None:
        """(As above.)"""

    def catch_up(self) -> None:
        pass

    def close(self) -> None:
        self._is_open = False
        self._wishes.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (wish := self._wishes.get()) is not None:
            failure: OSError | None = None
            try:
                _write(self._file, *wish)
                sync_data(self._file)
            except OSError as error:
                failure = error
            self._loop.call_soon_threadsafe(self._synced, failure)

    def _synced(self, failure: OSError | None) -> None:
        if self._is_open:
            self._on_synced(failure)


def _write(file: int, data: bytes, offset: int) -> None:
    os.lseek(
        file, offset, os.SEEK_SET
    )  # (nobody else has a place in it, and not every system has pwrite)
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
