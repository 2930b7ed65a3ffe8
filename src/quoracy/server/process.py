"""The server as a process: its signals, its file descriptors, and systemd.

SIGINT and SIGTERM stop it; the second of them kills it.  SIGHUP has two meanings by tradition, and the
terminal tells them apart.  If the terminal of the process was just closed, it means "end", or the
server would live on unseen with its port and its data; otherwise it means "read your files again".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

__all__ = ["notify_service_manager", "raise_descriptor_limit", "signals"]

_log = logging.getLogger(__name__)


_STOPPING = (signal.SIGINT, signal.SIGTERM)
_OTHER_DESCRIPTORS = 1_100  # data, listeners, the event loop, connections of the HTTP port


@contextlib.contextmanager
def signals(hang_up: Callable[[], None]) -> Iterator[asyncio.Future[signal.Signals]]:
    """A future for the signal that stops the server; another SIGHUP calls `hang_up` in the loop.

    After the first signal that stops, SIGINT and SIGTERM have the system's default again: a second one
    kills the process at once, which loses nothing that was acknowledged.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: int, _: FrameType | None) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        if sys.platform != "win32":
            # A closed terminal may send SIGHUP twice: the kernel does, and so does a shell.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        loop.call_soon_threadsafe(stopped.set_result, signal.Signals(number))  # also wakes the loop

    def hung_up(number: int, frame: FrameType | None) -> None:
        if ends_with_terminal and not _has_terminal():
            stop(number, frame)
        else:
            loop.call_soon_threadsafe(hang_up)

    # Not loop.add_signal_handler, which Windows lacks.
    previous = {each: signal.signal(each, stop) for each in _STOPPING}
    ends_with_terminal = False
    if sys.platform != "win32":
        # Ignored at the start means nohup: the server is meant to outlive its terminal.
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


def notify_service_manager(state: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Send systemd the state of a service of `Type=notify`, as sd_notify(3) does.

    It is one datagram to the socket that NOTIFY_SOCKET names, if it is set.
    """
    place = environ.get("NOTIFY_SOCKET")
    if not place:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # A leading @ stands for the NUL of Linux's abstract names.
            sender.sendto(state.encode(), "\0" + place[1:] if place.startswith("@") else place)
    except OSError as error:
        _log.warning("NOTIFY_SOCKET %s cannot be written to: %s", place, error)


def raise_descriptor_limit(connections_max: int) -> None:
    """Raise the soft limit on file descriptors to what the connections need, or as far as it goes."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + _OTHER_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    except (OSError, ValueError):  # macOS has a maximum that it does not report
        reachable = soft
    if reachable < wanted:
        _log.warning(
            "this system gives the process %d file descriptors; %d connections need %d. "
            "Raise its hard limit (LimitNOFILE, ulimit -Hn) or lower connections-max.",
            reachable,
            connections_max,
            wanted,
        )
