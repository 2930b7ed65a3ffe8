"""The Python runtime of a server: its event loop, its garbage collector, the memory it keeps resident.

The collector
    What a busy server makes for each request is freed by reference counting: the collector finds
    nothing, and each of its passes stops the event loop.  So it looks at the young objects in small
    pieces, at those that survived twice soon after (a container is looked at as a whole, and early it
    is still small), and at everything very seldom.  What was loaded at the start is frozen: the
    collector never looks at it. A cycle goes with one of these passes, unless it is made of frozen
    objects.

Resident memory
    Most resident pages of a process that has just started are code that ran once, and of one that was
    busy, code that runs only then.  `MemoryTrimmer` gives such pages back to the system; a page that is
    used again is found in the system's cache of files.  See docs/decisions/0013.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from quoracy.clock import Clock, SystemClock, Timer

__all__ = ["MemoryTrimmer", "freeze_loaded", "loop_factory", "run", "trim_memory"]

_T = TypeVar("_T")

# Young objects, young collections, middle collections: after that many more the collector runs.
_GC_THRESHOLDS = (5_000, 2, 10_000)

# How long a thread waits before it asks for the interpreter lock.  The journal's worker waits for it
# after each call of SQLite, and needs it for a moment only.
_SWITCH_S = 0.0005

_TRIM_CHECK_S = 2.0
_TRIM_PAUSE_S = 60.0
_IDLE_SHARE = 0.01

_MADV_DONTNEED = 4
_PAGEMAP_ENTRY_BYTES = 8
# The top byte of an entry of /proc/self/pagemap for a page that is in memory (bit 63), not swapped
# (62), and of a file (61).  Documentation/admin-guide/mm/pagemap.rst of Linux.
_PAGES_OF_A_FILE = re.compile(rb"[\xa0-\xbf]+")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` as asyncio.run does, on uvloop where there is one, with the collector set as above."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(main)
    finally:
        # The process ends soon, and Python would look through all of its objects before it does.
        gc.freeze()


def freeze_loaded() -> None:
    """Leave everything that is in memory now out of what the collector looks at.  Call it once."""
    gc.freeze()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's event loop where there is one, else asyncio's."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def trim_memory() -> int:
    """Give back pages of code, and what malloc has free.  How many bytes of code; 0 if not on Linux.

    Only mappings that are read-only are touched, and of these only pages that hold what the file holds:
    relocations and a debugger's breakpoints are in private copies, which stay.  The loader writes only
    to what is mapped writable meanwhile.  Other threads may run in the very pages.
    """
    if sys.platform != "linux":
        return 0
    import ctypes

    libc = ctypes.PyDLL(None)  # holds the interpreter lock: no other thread of Python loads a library
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    page = os.sysconf("SC_PAGE_SIZE")
    trimmed = 0
    try:
        with open("/proc/self/maps", "rb") as maps, open("/proc/self/pagemap", "rb", 0) as pagemap:
            for line in maps.readlines():
                addresses, access, _, _, inode, *_ = line.split(maxsplit=5)
                if access not in (b"r-xp", b"r--p") or inode == b"0":
                    continue
                start, end = (int(address, 16) for address in addresses.split(b"-"))
                pagemap.seek(start // page * _PAGEMAP_ENTRY_BYTES)
                entries = pagemap.read((end - start) // page * _PAGEMAP_ENTRY_BYTES)
                # The entries are little-endian wherever this runs; their flags are in the last byte.
                for pages in _PAGES_OF_A_FILE.finditer(entries[_PAGEMAP_ENTRY_BYTES - 1 :: 8]):
                    length = (pages.end() - pages.start()) * page
                    if libc.madvise(start + pages.start() * page, length, _MADV_DONTNEED) == 0:
                        trimmed += length
    except OSError:  # no /proc
        return 0
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
    return trimmed


class MemoryTrimmer:
    """Trims memory now, once more when the server is idle after that, and after every busy time.

    The server is idle if it uses less than `_IDLE_SHARE` of a processor for `_TRIM_CHECK_S`; it trims
    no more often than every `_TRIM_PAUSE_S`.  `processor_s` is the processor time used so far.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        processor_s: Callable[[], float] = time.process_time,
        trim: Callable[[], object] = trim_memory,
    ) -> None:
        self._clock = clock or SystemClock()
        self._processor_s, self._trim = processor_s, trim
        self._trim()
        self._is_due = True  # the first clients come now
        self._not_before = self._checked_at = self._clock.now()
        self._used_s = self._processor_s()
        self._timer: Timer = self._clock.call_later(_TRIM_CHECK_S, self._check)

    def close(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        now, used_s = self._clock.now(), self._processor_s()
        is_idle = used_s - self._used_s < _IDLE_SHARE * (now - self._checked_at)
        if not is_idle:
            self._is_due = True
        elif self._is_due and now >= self._not_before:
            self._trim()
            self._is_due = False
            self._not_before = now + _TRIM_PAUSE_S
            used_s = self._processor_s()
        self._checked_at, self._used_s = now, used_s
        self._timer = self._clock.call_later(_TRIM_CHECK_S, self._check)
