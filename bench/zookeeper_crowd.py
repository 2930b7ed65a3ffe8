"""A thousand clients of a ZooKeeper server: how fast they get their sessions, and hear of one write."""

from __future__ import annotations

import resource
import select
import statistics
import struct
import time
from collections.abc import Sequence

from bench.spending import Meter, Told, no_meter
from bench.zookeeper_frames import (
    HEADER,
    NODE_EXISTS,
    Op,
    Session,
    create,
    frame,
    get_data,
    sessions,
    set_data,
    sync_all,
)

__all__ = ["allow_many_files", "fan_out", "fan_out_s", "sessions_s"]

_PATH = b"/bench-watched"
_EVENT_XID, _DATA_CHANGED = struct.pack(">i", -1), struct.pack(">i", 3)
_STALLED_S = 30.0


def allow_many_files() -> None:
    """As many descriptors as are allowed, for this process and for servers that it starts later."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def sessions_s(address: tuple[str, int], *, number: int) -> float:
    """From the first connect to the last session granted, with 32 at most on their way at a time."""
    started = time.perf_counter()
    with sessions([address], number):
        return time.perf_counter() - started


def fan_out_s(address: tuple[str, int], *, watchers: int, writes: int) -> float:
    """From sending a setData to the last of the watchers having its event: the median of so many.

    Every watcher is a connection with a data watch, which it sets again for every write.
    """
    return fan_out([address], watchers=watchers, writes=writes).median_s


def fan_out(
    addresses: Sequence[tuple[str, int]], *, watchers: int, writes: int, spent: Meter = no_meter
) -> Told:
    """The same on servers that hold one tree: the watchers are spread, the writer is with the first."""
    with Session.open(addresses[0]) as writer, sessions(addresses, watchers) as opened:
        writer.calls([(Op.CREATE, create(_PATH))], expected=frozenset({NODE_EXISTS}))
        sync_all(addresses[1:])
        with select.epoll(watchers) as poll:
            for session in opened:
                poll.register(session.socket, select.EPOLLIN)
            by_descriptor = {session.socket.fileno(): session for session in opened}
            times = []
            spent_s = spent()
            for number in range(writes):
                _watch(opened)
                started = time.perf_counter()
                writer.socket.sendall(frame(number, Op.SET_DATA, set_data(_PATH, b"v" * 100)))
                _wait_events(poll, by_descriptor)
                times.append(time.perf_counter() - started)
                _see_success(writer)
            spent_s = spent() - spent_s
    return Told(statistics.median(times), spent_s / writes)


def _watch(watchers: list[Session]) -> None:
    request = frame(1, Op.GET_DATA, get_data(_PATH, watch=True))
    for watcher in watchers:
        watcher.socket.sendall(request)
    for watcher in watchers:
        _see_success(watcher)


def _see_success(session: Session) -> None:
    error = HEADER.unpack_from(session.receive_frame())[3]
    if error:
        raise RuntimeError(f"error {error}")


def _wait_events(poll: select.epoll, watchers: dict[int, Session]) -> None:
    waiting = set(watchers)
    while waiting:
        ready = poll.poll(_STALLED_S)
        if not ready:
            raise TimeoutError(f"{len(waiting)} of {len(watchers)} watchers were not told of a write")
        for descriptor, _ in ready:
            # In one read, not as a frame: the clock is running, and it is small enough to come whole.
            event = watchers[descriptor].socket.recv(4096)
            if event[4:8] != _EVENT_XID or event[20:24] != _DATA_CHANGED:
                raise RuntimeError(f"a watcher received {event!r} instead of its event")
            waiting.remove(descriptor)
