"""What signals mean to a server.

SIGINT and SIGTERM stop it; the second of them kills it.  SIGHUP has two meanings by tradition, and the
terminal tells them apart: for a program whose terminal has just gone away it means "end", or the server
would live on unseen with its port and its data; for any other it means "read your files again".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["signals"]

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals(hang_up: Callable[[], None]) -> Iterator[asyncio.Future[signal.Signals]]:
    """A future for the signal that stops the server; another SIGHUP calls `hang_up` in the loop.

    After the first signal that stops, SIGINT and SIGTERM have the system's default again: whoever is in
    a hurry can have the process die at once, which costs nothing that was acknowledged.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: int, _: FrameType | None) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        if sys.platform != "win32":
            # A terminal that goes away may say so twice: the kernel does, and so does a shell.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        loop.call_soon_threadsafe(stopped.set_result, signal.Signals(number))  # wakes the loop, too

    def hung_up(number: int, frame: FrameType | None) -> None:
        if ends_with_terminal and not _has_terminal():
            stop(number, frame)
        else:
            loop.call_soon_threadsafe(hang_up)

    # Not loop.add_signal_handler, which Windows lacks.
    previous = {each: signal.signal(each, stop) for each in _STOPPING}
    ends_with_terminal = False
    if sys.platform != "win32":
        # Ignored so far means nohup: to outlive the terminal is what was asked for.
        ends_with_terminal = _has_terminal() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, hung_up)
    try:
        yield stopped
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
