"""`python -m tests.cells.planted BUG serve ...`: the server with a bug in it, which must be noticed.

Each is a mistake that is easily made in an engine like this one.  The product knows nothing of them: a
method is replaced in this process before the server starts.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from typing import Any

from quoracy.cli import main
from quoracy.engines.etcd.engine import EtcdStore
from quoracy.engines.etcd.replica import Waiter
from quoracy.engines.etcd.watch import EtcdWatch
from quoracy.faces.zookeeper.serving.session_timing import CLUSTER
from quoracy.faces.zookeeper.serving.sessions import Sessions
from quoracy.remote.watch import RemoteWatch
from quoracy.store.completion import Completion
from quoracy.store.model import Revision

__all__ = ["BUGS"]


def _stale_read() -> None:
    """A linearizable read answers with what is here, without asking how far the cluster is."""

    def read_current(self: Any, op: Any, completion: Completion) -> None:
        self._loop.call_soon(self._answer, op, completion)

    async def sync(self: EtcdStore) -> Revision:
        return Revision(self.replica.revision)

    _replace(EtcdStore, "_read_current", read_current)
    _replace(EtcdStore, "sync", sync)


def _early_answer() -> None:
    """A write is answered when the cluster has it, before this node does."""

    def when_reached(self: EtcdStore, revision: int, waiter: Waiter) -> None:
        waiter.end(None)

    async def reach_written(self: EtcdStore, revision: int) -> None:
        return

    _replace(EtcdStore, "when_reached", when_reached)
    _replace(EtcdStore, "_reach_written", reach_written)


def _watch_repeats() -> None:
    """A watch that changes its place goes on at the last revision it told instead of behind it."""
    go_on: Any = EtcdWatch._go_on

    async def go_on_too_early(self: Any) -> None:
        if getattr(self, "_went_on", False):
            self._revision = Revision(self._revision - 1)
        self._went_on = True
        await go_on(self)

    # The place for what the wrapper remembers.
    _replace(EtcdWatch, "_went_on", False)
    _replace(EtcdWatch, "_go_on", go_on_too_early)


def _feed_skips() -> None:
    """When the connection to the cluster is lost, following it goes on one revision too late."""
    request = RemoteWatch.request

    def request_too_late(self: Any) -> Any:
        if self.epoch > 1:
            self.received += 1
        return request(self)

    _replace(RemoteWatch, "request", request_too_late)


def _feed_stops() -> None:
    """When the connection to the cluster is lost, nothing is heard of it any more for a while."""
    request = RemoteWatch.request

    def request_of_the_future(self: Any) -> Any:
        if self.epoch > 1:
            self.received += 200
        return request(self)

    _replace(RemoteWatch, "request", request_of_the_future)


def _unkept_sessions() -> None:
    """Signs of life are acknowledged and not passed on to the cluster."""
    _replace(type(CLUSTER), "answers_s", lambda self, timeout_ms: math.inf)
    _replace(Sessions, "_renew_soon", lambda self, session: None)


def _eternal_sessions() -> None:
    """A session is kept alive by its node, whether its client gives a sign of life or not."""
    begin: Any = Sessions._begin

    def begin_for_ever(self: Any, session: Any, *about: Any) -> None:
        begin(self, session, *about)
        asyncio.get_running_loop().call_later(1.0, renew, self, session)

    def renew(sessions: Any, session: Any) -> None:
        sessions._renew_soon(session)
        asyncio.get_running_loop().call_later(1.0, renew, sessions, session)

    _replace(Sessions, "_begin", begin_for_ever)


BUGS: dict[str, Callable[[], None]] = {
    "stale-read": _stale_read,
    "early-answer": _early_answer,
    "watch-repeats": _watch_repeats,
    "feed-skips": _feed_skips,
    "feed-stops": _feed_stops,
    "unkept-sessions": _unkept_sessions,
    "eternal-sessions": _eternal_sessions,
}


def _replace(owner: type, name: str, replacement: object) -> None:
    setattr(owner, name, replacement)


if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main()
