"""A file is made durable off the loop: a sync is begun here, and its end is told on the loop.

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

__all__ = ["FileSync", "NativeSync", "OnSynced", "ThreadSync", "file_sync"]

# Told on the loop: with the error that a sync has failed with, if it did.
OnSynced = Callable[[OSError | None], None]

_REPORT = struct.Struct("=i")

# (What macOS calls fdatasync is no part of its interface; Windows has none.)
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class FileSync(Protocol):
    """Syncs one file, which it does not own, one sync at a time."""

    def begin(self) -> None:
        """Sync what was written so far."""

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
        self.begin = self._thread.begin
        loop.add_reader(self._reports, self._reported)

    def close(self) -> None:
        if self._reports >= 0:
            self._thread.close()
            self._loop.remove_reader(self._reports)
            os.close(self._reports)
            os.close(self._writing_end)
            self._reports = -1

    def _reported(self) -> None:
        (error,) = _REPORT.unpack(os.read(self._reports, _REPORT.size))
        self._on_synced(OSError(error, os.strerror(error)) if error else None)


class ThreadSync:
    """A thread of Python's."""

    def __init__(self, file: int, loop: asyncio.AbstractEventLoop, on_synced: OnSynced) -> None:
        self._file, self._loop, self._on_synced = file, loop, on_synced
        self._is_open = True
        self._wishes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="quorate-sync", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._wishes.put(True)

    def close(self) -> None:
        self._is_open = False
        self._wishes.put(False)
        self._thread.join()

    def _run(self) -> None:
        while self._wishes.get():
            failure: OSError | None = None
            try:
                _sync(self._file)
            except OSError as error:
                failure = error
            self._loop.call_soon_threadsafe(self._synced, failure)

    def _synced(self, failure: OSError | None) -> None:
        if self._is_open:
            self._on_synced(failure)
