"""Room for connections: each costs a file descriptor, and systems start programs with few of them."""

from __future__ import annotations

import logging
import sys

__all__ = ["make_room_for"]

_log = logging.getLogger(__name__)

_OTHERS = 1_100  # data, listeners, the event loop, and whoever asks the HTTP port


def make_room_for(connections_max: int) -> None:
    """Raise the process's soft limit to what so many connections need, or as far as it goes."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    except (OSError, ValueError):  # macOS has a maximum that it does not tell
        reachable = soft
    if reachable < wanted:
        _log.warning(
            "this system gives the process %d file descriptors; %d connections need %d. "
            "Raise its hard limit (LimitNOFILE, ulimit -Hn) or lower connections-max.",
            reachable,
            connections_max,
            wanted,
        )
