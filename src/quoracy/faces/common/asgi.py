"""ASGI: its types, complete responses, and one request with its response (an exchange).

There is no framework: what is served here is a few fixed paths, and importing a framework costs memory
and time at each start.

HTTP/1.1 (`http1.py`) and HTTP/2 (the sessions of the etcd face) carry bytes differently, but give an
application the same `receive` and `send`, which `Exchange` implements for both.

Invariants of an exchange
    * The request's body is not acknowledged before the application has taken it, and the application
      waits while the client does not read the response: nothing piles up on either side.
    * When the client disconnects, the application's task is cancelled.
    * The wire is notified of the end exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

__all__ = [
    "AsgiApp",
    "Exchange",
    "Headers",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "Wire",
    "header_values",
    "make_scope",
    "reply",
    "reply_text",
]

logger = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of one header; `name` is in lower case, as in ASGI."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]


async def reply(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: bytes,
    allow: str | None = None,
    more: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send a complete response; `allow` names the permitted methods, `more` are additional headers."""
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        # Values come from clients, so browsers must not guess a content type.
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        *more,
    ]
    if allow is not None:
        headers.append((b"allow", allow.encode("ascii")))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def reply_text(send: Send, status: int, text: str, *, allow: str | None = None) -> None:
    content_type = b"text/plain; charset=utf-8"
    await reply(send, status, text.encode(), content_type=content_type, allow=allow)


class Wire(Protocol):
    """What an exchange needs from its connection."""

    @property
    def blocked(self) -> bool:
        """Whether the client is not reading; `Exchange.may_send` is called when it reads again."""
        ...

    def start_response(self, status: int, headers: Headers) -> None: ...

    def send_body(self, data: bytes, *, more: bool) -> None: ...

    def taken(self, size: int) -> None:
        """The application has taken a part of the body; `size` is the one given to `received`."""
        ...

    def finished(self, *, started: bool, answered: bool) -> None:
        """The application has returned; `answered` is false if its response is incomplete."""
        ...


class Exchange:
    """Runs an application on one request, in a task of its own."""

    __slots__ = (
        "_answered", "_arrived", "_body", "_gone", "_loop", "_read_out", "_received_all", "_started",
        "_task", "_turn", "_what", "_wire",
    )  # fmt: skip

    def __init__(self, wire: Wire, app: AsgiApp, scope: Scope, loop: asyncio.AbstractEventLoop) -> None:
        self._wire, self._loop = wire, loop
        self._what = f"{scope['method']} {scope['path']}"
        self._body: deque[tuple[bytes, int]] = deque()
        self._arrived = asyncio.Event()
        self._received_all = self._read_out = False
        self._started = self._answered = self._gone = False
        self._turn: asyncio.Future[None] | None = None
        self._task = loop.create_task(self._run(app, scope))

    # -- from the connection

    @property
    def received_all(self) -> bool:
        return self._received_all

    def received(self, data: bytes, size: int) -> None:
        self._body.append((data, size))
        self._arrived.set()

    def received_end(self) -> None:
        self._received_all = True
        self._arrived.set()

    def may_send(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def cancel(self) -> None:
        """The client has disconnected, or the server is shutting down."""
        self._gone = True
        self._arrived.set()
        self._task.cancel()

    # -- from the application

    async def _run(self, app: AsgiApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            logger.exception("%s failed", self._what)
        finally:
            self._wire.finished(started=self._started, answered=self._answered)

    async def _receive(self) -> Message:
        while not (self._body or self._gone or self._answered):
            if self._received_all and not self._read_out:
                break
            self._arrived.clear()
            await self._arrived.wait()
        if self._gone or self._answered:
            return {"type": "http.disconnect"}
        data, size = self._body.popleft() if self._body else (b"", 0)
        self._wire.taken(size)
        self._read_out = self._received_all and not self._body
        return {"type": "http.request", "body": data, "more_body": not self._read_out}

    async def _send(self, message: Message) -> None:
        if self._answered or self._gone:
            return
        if message["type"] == "http.response.start":
            self._started = True
            self._wire.start_response(message["status"], message.get("headers", ()))
            return
        while self._wire.blocked:
            self._turn = self._loop.create_future()
            await self._turn
        more = message.get("more_body", False)
        if not more:
            self._answered = True
            self._arrived.set()
        self._wire.send_body(message.get("body", b""), more=more)


def make_scope(version: str, method: bytes, scheme: str, target: bytes, headers: Headers) -> Scope:
    """An ASGI scope, made from the parts of a request."""
    path, _, query = target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": method.decode("latin-1"),
        "scheme": scheme,
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
        "client": None,
        "server": None,
        "state": {},
    }
