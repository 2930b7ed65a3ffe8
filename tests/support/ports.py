"""Ports for servers that tests and benchmarks start: nobody else's now, nor while the server is down.

Tests run in several processes at once.  Asking the system for a free port and giving it to a server a
moment later lets two of them have the same one: then one server does not start, and what is asked of it
is answered by the other.  So each process has a slice of the ports to itself, by a lock that ends with
it, and gives each of them out again only after all the others.

They lie below those that the system gives to whoever connects: a server that is down is dialled all the
time, and one of those calls would have its port when it comes back.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["free_port", "free_ports"]

_PORTS = range(12_000, 32_000)
_SLICE = 250

_asking = threading.Lock()


def free_port() -> int:
    """One port that nobody listens on."""
    with _asking:
        for port in _turn():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue  # a server of ours that still runs
            return port
        raise AssertionError(f"all {_SLICE} ports of this process are in use")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    return [free_port() for _ in range(count)]


def _turn() -> Iterator[int]:
    """The ports of this process once around, from after the last that was given out."""
    ports = _own_ports(os.getpid())
    for _ in range(_SLICE):
        ports.append(ports.pop(0))
        yield ports[-1]


@cache
def _own_ports(pid: int) -> list[int]:
    """The first slice that no other process has.  A child that was forked gets one of its own."""
    locks = Path(tempfile.gettempdir(), f"quoracy-test-ports-{os.getuid()}")
    locks.mkdir(exist_ok=True)
    starts = list(_PORTS[::_SLICE])
    # Not the first one every time: what others left behind is mostly there.
    random.SystemRandom().shuffle(starts)
    for start in starts:
        lock = os.open(locks / str(start), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return list(range(start, start + _SLICE))  # the lock stays open, and ends with the process
    raise AssertionError(f"no slice of {_PORTS} is free: {len(starts)} processes have one")
