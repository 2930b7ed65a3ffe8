"""The network between one client and the server: a TCP proxy, and a face of the server of its own.

The proxy breaks connections and drops data.  It does not understand what it carries, so it cannot lose
the answer to a write alone; the face does that: it has the write carried out, then the proxy hangs up
instead of answering.

Invariants
    * Methods with a plain name may be called in any thread but the server's; they return when the fault
      is in effect.
    * A link has one port from beginning to end, which no other link of this process has.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from quoracy.errors import InvalidRequest
from quoracy.faces.etcd.answer import Answer, Caller
from quoracy.faces.etcd.methods import Method, Unary
from quoracy.faces.etcd.serving.server import Face
from quoracy.testing.clock import PausableClock
from quoracy.testing.tcp_proxy import TcpProxy, tcp_proxy
from quoracy.threads.loop_thread import LoopThread

__all__ = ["Happened", "NetworkLink", "link_at", "network_link"]

_PUT = "/etcdserverpb.KV/Put"
_DELETE = "/etcdserverpb.KV/DeleteRange"
_TXN = "/etcdserverpb.KV/Txn"

Revoke = Callable[[int], Awaitable[object]]

_lock = threading.Lock()
_by_port: dict[int, NetworkLink] = {}


class Happened:
    """For `await`: something that is over already."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


def link_at(port: int) -> NetworkLink | None:
    """The link that has this port, if one has."""
    with _lock:
        return _by_port.get(port)


class NetworkLink:
    """A way to the server that can be broken: give `url` to one client, and break its network alone.

    url: for `quoracy.connect`.
    address: host and port, for clients of other kinds: `etcdctl --endpoints`, kazoo's `hosts`.
    clock: what a connection through here takes its time from, so that it can be paused.
    """

    def __init__(
        self, thread: LoopThread, proxy: TcpProxy, clock: PausableClock, *, scheme: str, revoke: Revoke
    ) -> None:
        self.port = proxy.port
        self.address = f"127.0.0.1:{proxy.port}"
        self.url = f"{scheme}://{self.address}"
        self.clock = clock
        self._thread, self._proxy, self._revoke = thread, proxy, revoke
        self._held_by: set[str] = set()
        self._face: Face | None = None
        self._answers_to_lose = 0

    # -- faults, from any thread -------------------------------------------------------------

    def partition(self) -> None:
        """Nothing gets through, either way, and neither side notices."""
        self._thread.call(lambda: self._hold("partition"))

    def heal(self) -> None:
        """Everything gets through, also what is waiting."""
        self._thread.call(lambda: self._pass("partition"))

    def pause(self) -> None:
        """Stop a connection that lives by `clock`, as far as that is possible from outside of it."""
        self.clock.pause()
        self._thread.call(lambda: self._hold("pause"))

    def resume(self) -> None:
        """Let the connection go on."""
        self._thread.call(lambda: self._pass("pause"))
        self.clock.resume()

    def disconnect(self) -> None:
        """Break every connection that goes through here; new ones are taken."""
        self._thread.call(self._cut)

    def lose_answers(self, count: int) -> None:
        """The next `count` writes of keys are carried out, and not answered: the connection breaks."""
        if self._face is None:
            raise InvalidRequest(
                f"answers of {self.url} cannot be lost one by one: only clients of etcd's protocol can "
                "have that. Use disconnect or partition."
            )
        self._answers_to_lose = count

    def mend(self) -> None:
        """End every fault, unless the server is gone."""
        if link_at(self.port) is self:
            self._answers_to_lose = 0
            self.heal()
            self.resume()

    def expire(self, lease: int) -> Happened:
        """The server ends this lease, now."""

        async def revoke() -> None:
            await self._revoke(lease)

        self._thread.call(revoke)
        return Happened()

    # -- on the loop of the server -----------------------------------------------------------

    async def _hold(self, reason: str) -> None:
        self._held_by.add(reason)
        self._proxy.hold_all()

    async def _pass(self, reason: str) -> None:
        self._held_by.discard(reason)
        if not self._held_by:
            self._proxy.pass_all()

    async def _cut(self) -> None:
        self._proxy.cut()

    def attend(self, face: Face) -> None:
        """Have this face lose answers on request."""
        self._face = face
        face.methods = self._losing(face.methods.values())
        face.guarded_methods = self._losing(face.guarded_methods.values())

    def _losing(self, methods: Iterable[Method]) -> dict[str, Method]:
        return {
            method.path: self._losing_one(method)
            if isinstance(method, Unary) and method.path in (_PUT, _DELETE, _TXN)
            else method
            for method in methods
        }

    def _losing_one(self, method: Unary) -> Method:
        def begin(payload: bytes, call: Caller) -> Answer:
            if self._answers_to_lose > 0 and _writes(method.request.decode(payload)):
                call = _LosingCaller(self, call)
            return method.begin(payload, call)

        return dataclasses.replace(method, begin=begin)

    def carried_out(self) -> None:
        """A write was, whose answer is to be lost if there are any such left."""
        if self._answers_to_lose > 0:
            self._answers_to_lose -= 1
            self._proxy.cut()


class _LosingCaller:
    """The `Caller` of a write: there is no way to it any more when it is answered."""

    def __init__(self, link: NetworkLink, call: Caller) -> None:
        self._link, self._call = link, call

    def done(self, answer: Answer, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._link.carried_out()
        self._call.done(answer, result, error)

    def reply(self, data: bytes) -> None:
        """Not with the sync: the connection is to be broken before."""


def _writes(request: Any) -> bool:
    """Whether it could change a key; of the three kinds of requests, only a transaction may not."""
    operations = [*getattr(request, "success", ()), *getattr(request, "failure", ())]
    if not hasattr(request, "success"):
        return True
    return any(
        each.request_put is not None
        or each.request_delete_range is not None
        or (each.request_txn is not None and _writes(each.request_txn))
        for each in operations
    )


@asynccontextmanager
async def network_link(
    thread: LoopThread,
    target_port: int,
    clock: PausableClock,
    *,
    scheme: str,
    revoke: Revoke,
) -> AsyncIterator[tuple[NetworkLink, TcpProxy]]:
    """A link to a port of the server, on the server's loop."""
    async with tcp_proxy(target_port) as proxy:
        link = NetworkLink(thread, proxy, clock, scheme=scheme, revoke=revoke)
        with _lock:
            _by_port[link.port] = link
        try:
            yield link, proxy
        finally:
            with _lock:
                del _by_port[link.port]
            clock.resume()
