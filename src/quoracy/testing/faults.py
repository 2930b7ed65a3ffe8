"""Faults on request: what goes wrong in production, in a test.

Each fault is for one connection (or for one URL, with all who use it), begins with the call and is in
effect when that returns.  Those that last are context managers as well:

    with faults.partition(q):        # or: faults.partition(q) ... faults.heal(q)
        await clock.advance(30)

Invariants
    * A fault touches the way to the server, or what the server holds; never the client itself, which
      learns of it as it would in production.
    * At the end of its block, `Faults` has ended every fault that it began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from quoracy.client.context import Context
from quoracy.client.session import Session
from quoracy.errors import InvalidRequest
from quoracy.remote.store import RemoteStore
from quoracy.remote.urls import parse_url
from quoracy.store.api import Store
from quoracy.testing.memory_link import LinkedStore, MemoryLink
from quoracy.testing.network_link import Happened, NetworkLink, link_at

if TYPE_CHECKING:
    from quoracy import sync

__all__ = ["Fault", "Faults", "Link"]

Link: TypeAlias = NetworkLink | MemoryLink
Of: TypeAlias = "Context | sync.Connection | NetworkLink | MemoryLink | str"


class Fault:
    """A fault that lasts until it is ended: by the end of a `with` block, or by `end`."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end

    def end(self) -> None:
        """All is well again.  A second time does nothing."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class Faults:
    """Breaks what connects clients and server.  The same for `quoracy.connect` and `quoracy.sync`.

    Where it says `of`: a connection, a link, or a URL or address (of `server()`, for all who use it).

        with quoracy.testing.server() as server, Faults() as faults:
            ...
            faults.disconnect(server.url)
    """

    def __init__(self) -> None:
        self._broken: dict[Link, None] = {}

    def expire(self, of: Context | sync.Connection | Session) -> Awaitable[None]:
        """The server ends the session now: what it held goes to others, at once.

        The client learns it as in production: from its next renewal, a third of its time to live later
        at most, or before, from its next request or from the watch on what it holds.

        In a coroutine, await it.  In a test without a loop it has happened when this returns.
        """
        if isinstance(of, Session):
            return _link(of._store).expire(of.id)
        session = _session(_asynchronous(of))
        return Happened() if session is None else _link(of).expire(session.id)

    def pause(self, of: Context | sync.Connection) -> Fault:
        """The process of the connection is stopped, as by SIGSTOP, while everyone else goes on.

        Nothing is sent, received or noticed: no renewal, no answer, no loss.  What is asked of the
        connection meanwhile waits.  Other code goes on: it cannot be stopped from outside.
        """
        link = self._break(of)
        if _asynchronous(of).clock is not link.clock:
            raise InvalidRequest(
                "this connection cannot be paused: it takes its time from a clock of its own. Open it "
                "with `connect` of the place or with the fixtures, or give it `clock=link.clock`; or "
                "use partition."
            )
        link.pause()
        return Fault(link.resume)

    def resume(self, of: Context | sync.Connection) -> None:
        """The process goes on, and learns from its clock what it missed."""
        _link(of).resume()

    def disconnect(self, of: Of) -> None:
        """The connection to the server breaks, once; the client makes another.

        A write that was in flight raises `Indeterminate`.  The session goes on.
        """
        self._break(of).disconnect()

    def partition(self, of: Of) -> Fault:
        """Nothing gets through, either way, and neither side notices; until `heal`."""
        link = self._break(of)
        link.partition()
        return Fault(link.heal)

    def heal(self, of: Of) -> None:
        """Everything gets through again, also what is waiting."""
        _link(of).heal()

    def lose_answers(self, of: Of, count: int = 1) -> Fault:
        """The next `count` writes of keys are carried out, and their answers lost: `Indeterminate`."""
        if count < 0:
            raise InvalidRequest(f"{count} answers cannot be lost. Give 0 or more.")
        link = self._break(of)
        link.lose_answers(count)
        return Fault(lambda: link.lose_answers(0))

    def mend(self) -> None:
        """End every fault that lasts."""
        broken, self._broken = self._broken, {}
        for link in broken:
            link.mend()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.mend()

    def _break(self, of: Of) -> Link:
        link = _link(of)
        self._broken[link] = None
        return link


def _link(of: Of | Store) -> Link:
    """The way that this goes to the server."""
    if isinstance(of, NetworkLink | MemoryLink):
        return of
    if isinstance(of, str):
        return _link_of_ports([_port(of)], of)
    if not isinstance(of, LinkedStore | RemoteStore):
        inner = getattr(_asynchronous(of), "store", None)
        if inner is not None:
            of = inner
    if isinstance(of, LinkedStore):
        return of.link
    if isinstance(of, RemoteStore):
        return _link_of_ports([address.port for address in of.target.addresses], of)
    raise _no_link(of)


def _link_of_ports(ports: list[int], of: object) -> NetworkLink:
    for port in ports:
        link = link_at(port)
        if link is not None:
            return link
    raise _no_link(of)


def _no_link(of: object) -> InvalidRequest:
    return InvalidRequest(
        f"{of!r} has no network that could be broken. Open it with `connect` of quoracy.testing.memory "
        "or quoracy.testing.server, with the fixtures, or by the URL of such a server, while that runs."
    )


def _port(text: str) -> int:
    if "://" in text and not text.startswith("zookeeper:"):
        return parse_url(text).addresses[0].port
    return int(text.rpartition(":")[2])


def _asynchronous(of: object) -> Context:
    """The connection on the loop that a connection of `quoracy.sync` stands for."""
    it: object = getattr(of, "_it", of)
    if not isinstance(it, Context):
        raise InvalidRequest(f"{of!r} is no connection.")
    return it


def _session(connection: Context) -> Session | None:
    # Not `current`: that looks at the clock, and a paused process does not.
    return connection.session_renewal._current
