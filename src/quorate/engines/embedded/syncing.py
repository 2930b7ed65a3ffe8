"""Bytes are made durable off the loop: a write and its sync are begun here, and told on the loop.

`NativeSync` stands on a thread written in C (`_sync_thread.c`) which takes the interpreter lock never,
so that a busy loop keeps no disk waiting, and none of the thread's wake-ups is for the lock.
`ThreadSync` does the same in Python, where nothing was compiled.
"""

from __future__ import annotations

import asyncio
import os
import queue
import struct
import threading
from collections.abc import Callable
from typing import Protocol

from quorate.store.replies import Reply

__all__ = ["FileSync", "NativeSync", "OnSynced", "ThreadSync", "file_sync", "sync_data"]

# Told on the loop: with the error that the write or the sync has failed with, if one did.
OnSynced = Callable[[OSError | None], None]

_REPORT = struct.Struct("=i")

# (What macOS calls fdatasync is no part of its interface; Windows has none.)
sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class FileSync(Protocol):
    """Writes to one file, which it does not own, and syncs it; one write at a time."""

    def begin(self, data: bytes, offset: int, /) -> None:
        """Write these bytes there, and sync the file."""

    def expect(self) -> None:
        """Something is begun in a moment, very likely."""

    def attach(self, reply: Reply) -> None:
        """The reply may be sent when what was begun is done, if all went well."""

    def catch_up(self) -> None:
        """Tell of what has a reply, if it is done: somebody may have seen the reply."""

    def close(self) -> None:
        """Finish what was begun, which is not told any more, and end."""


def file_sync(file: int, loop: asyncio.AbstractEventLoop, on_synced: OnSynced) -> FileSync:
    """The best there is here."""
    try:
        return NativeSync(file, loop, on_synced)
    except ImportError:
        return ThreadSync(file, loop, on_synced)


class NativeSync:
    """A thread in C, which reports through a pipe that the loop reads."""

    def __init__(self, file: int, loop: asyncio.AbstractEventLoop, on_synced: OnSynced) -> None:
        """Raises `ImportError` where that was not compiled."""
        from quorate.engines.embedded._sync_thread import SyncThread

        self._loop, self._on_synced = loop, on_synced
        self._reports, writing_end = os.pipe()
        self._writing_end = writing_end
        os.set_blocking(self._reports, False)  # the loop must not wait here, whatever happens
        self._thread = SyncThread(file, writing_end)
        self.begin, self.expect = self._thread.begin, self._thread.expect
        self._reply: Reply | None = None
        loop.add_reader(self._reports, self._reported)

    def attach(self, reply: Reply) -> None:
        if self._thread.attach(reply.descriptor, reply.data):
            self._reply = reply
            reply.handed_over(self._thread.take_back)

    def catch_up(self) -> None:
        if self._reply is not None:
            self._reported()

    def close(self) -> None:
        if self._reports >= 0:
            self._thread.close()
            self._loop.remove_reader(self._reports)
            os.close(self._reports)
            os.close(self._writing_end)
            self._reports = -1

    def _reported(self) -> None:
        try:
            (error,) = _REPORT.unpack(os.read(self._reports, _REPORT.size))
        except BlockingIOError:  # it is not there yet, or somebody who caught up has read it
            return
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.take_back()  # it was sent by now; if not, that is for the loop to do
        self._on_synced(OSError(error, os.strerror(error)) if error else None)


class ThreadSync:
    """A thread of Python's."""

    def __init__(self, file: int, loop: asyncio.AbstractEventLoop, on_synced: OnSynced) -> None:
        self._file, self._loop, self._on_synced = file, loop, on_synced
        self._is_open = True
        self._wishes: queue.SimpleQueue[tuple[bytes, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="quorate-sync", daemon=True)
        self._thread.start()

    def begin(self, data: bytes, offset: int, /) -> None:
        self._wishes.put((data, offset))

    def expect(self) -> None:
        pass

    def attach(self, reply: Reply) -> None:
        """(It is left to the loop: this thread, too, would need the interpreter lock to send it.)"""

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
