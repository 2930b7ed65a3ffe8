"""A client with nothing to do but ping: one session with each server, for as long as they are measured.

ZooKeeper 3.8.0 now and then forgets to look at a write that is committed until something else arrives:
its CommitProcessor waits (seen with jstack) while the other servers have applied the write.  Wherever
there are several clients something always arrives, if only a ping; where a load generator is the only
one it waits for ever.  So there is this one, with every system alike.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.zookeeper_frames import Op, Session, frame

__all__ = ["bystander"]

_EVERY_S = 0.1
_PING = frame(-2, Op.PING)


@contextmanager
def bystander(addresses: Sequence[tuple[str, int]]) -> Iterator[None]:
    """Ping each of these ten times a second.  Raises in the end if one stopped to answer."""
    stopping, errors = threading.Event(), list[Exception]()
    with ExitStack() as stack:
        sessions = [stack.enter_context(Session.open(address)) for address in addresses]
        thread = threading.Thread(target=_ping, args=(sessions, stopping, errors), name="bystander")
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
        if errors:
            raise RuntimeError("a session that only pings was lost meanwhile") from errors[0]


def _ping(sessions: Sequence[Session], stopping: threading.Event, errors: list[Exception]) -> None:
    try:
        while not stopping.wait(_EVERY_S):
            for session in sessions:
                session.socket.sendall(_PING)
            for session in sessions:
                session.receive_frame()
    except OSError as error:
        errors.append(error)  # for whoever waits for the thread
