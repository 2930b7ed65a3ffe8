"""Writing and syncing a file in a thread, with a callback on the loop when that is done.

`NativeSync` uses a thread written in C (`_sync_thread.c`) that never takes the interpreter lock, so
that the disk does not wait for a busy loop.  `ThreadSync` does the same in Python, where the C code was
not compiled.
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
    """Let any thread that wakes up on its processor preempt this one, and let this one preempt none.

    Returns whether the system did so.
    """
    try:
        from quoracy.engines.embedded.disk import _sync_thread
    except ImportError:
        return False
    return _sync_thread.let_others_go_first()


def let_others() -> None:
    """Let threads that wait for the interpreter lock or for this processor go on.

    It sleeps for a moment, which is the least that works.  A thread that only releases the lock has it
    back before another is awake, and one that yields the processor may be scheduled again before those
    that wait for it.  They wait even while another processor is idle, because the system does not look
    for an idle one when it wakes a thread behind a running one.
    """
    time.sleep(0)


def start_writing(file: int) -> None:
    """Ask the system, where it can do so, to begin to write back the dirty pages of a file.

    A later sync then has less to write.
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
        """A hint that `begin` will very likely be called in a moment."""

    def attach(self, reply: Reply) -> None:
        """Add a reply to the write that was begun last."""

    def catch_up(self) -> None:
        """Run the callback of a write that is done: a client may have seen a reply to it."""

    def close(self) -> None:
        """Finish the write that was begun, without its callback, and end the thread."""


class FileSyncs:
    """Makes `FileSync`s, native ones if possible, whose writes count in the order they are begun.

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
    """A `FileSync` with a thread in C, which wakes the loop through a pipe."""

    def __init__(
        self,
        file: int,
        loop: asyncio.AbstractEventLoop,
        on_synced: OnSynced,
        order: SyncOrder | None = None,
    ) -> None:
        """Raises `ImportError` where the C code was not compiled."""
        from quoracy.engines.embedded.disk._sync_thread import SyncOrder, SyncThread, make_sending

        self._make_sending = make_sending
        self._loop, self._on_synced = loop, on_synced
        self._rings, self._bell = os.pipe()
        os.set_blocking(self._rings, False)  # neither end may ever block
        os.set_blocking(self._bell, False)
        self._thread = SyncThread(file, self._bell, order or SyncOrder())
        self.expect = self._thread.expect
        self._outcome: Callable[[], int | None] = self._thread.outcome
        loop.add_reader(self._rings, self._rung)

    def begin(self, data: bytes, offset: int, replies: Sequence[Reply] = (), /) -> None:
        # (A reply that was taken back already is over.)
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
    """The outcome once the thread was closed."""


class ThreadSync:
    """A `FileSync` with a Python thread."""

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
        """Not sent here; as in `begin`."""

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
    )  # (no other user of the descriptor seeks, and not every system has pwrite)
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
