"""Fencing over HTTP: the token travels in a header, and the server refuses stale ones.

    PUT /orders/7
    Fencing-Token: 1841          fencing_header(held.token)

`FencingMiddleware` stands before any ASGI application and asks a gate about each request that carries a
token.  Its answers are small problem documents (RFC 9457):

    400   the header is there twice, or is no token, or the resource cannot be named
    409   the token is stale; `highest` says what was seen
    428   the request may change something and carries no token (RFC 6585)
    503   the gate cannot be asked now, or has no room for a new resource

Invariants
    * A request reaches the application only when the gate admitted it, or when it was not to be asked.
      An error of the gate that is none of the above is the server's to report; it lets nothing through.
    * The gate is asked before the application runs, so it narrows the window and does not close it.  An
      application that writes to a database closes it: it finds the token with `fence_of(scope)` and
      admits it once more, in the transaction of its write.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import cast

from quoracy.errors import InvalidRequest, StaleToken, TooLarge, Unavailable
from quoracy.fencing.gate import TOKEN_MAX, Gate, require_valid

__all__ = ["HEADER", "Fence", "FencingMiddleware", "fence_of", "fencing_header", "path_of"]

HEADER = "Fencing-Token"

Scope = MutableMapping[str, object]
Message = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

# They ask for no change (RFC 9110, 9.2.1), so they need no token.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_IN_SCOPE = "quoracy.fence"


@dataclass(frozen=True, slots=True)
class Fence:
    """What a request was admitted with."""

    resource: str
    token: int


def fencing_header(token: int, *, name: str = HEADER) -> dict[str, str]:
    """The header to send with a request: `client.put(url, headers=fencing_header(held.token))`."""
    require_valid("header", token)
    return {name: str(token)}


def fence_of(scope: Scope) -> Fence | None:
    """What the middleware admitted this request with; None if it carried no token."""
    fence = scope.get(_IN_SCOPE)
    return fence if isinstance(fence, Fence) else None


def path_of(scope: Scope) -> str:
    """The path of the request, which is the name of the resource by default."""
    return str(scope["path"])


class FencingMiddleware:
    """Refuses requests with a stale fencing token before they reach the application.

        app = FencingMiddleware(app, SqliteGate("fencing.db"), resource="orders")

    resource: what the token guards: a name; or a function of the ASGI scope, and None from it means
        that this request is not guarded.  By default the path, which is right only if each path is
        guarded by a lock of its own, and has one spelling.
    header: the name of the header.
    required: whether a request that may change something (any method but GET, HEAD, OPTIONS and TRACE)
        is answered with 428 if it has no token.  If not, it passes.

    Only HTTP requests are looked at; websockets and the rest pass.  A client that may send a
    token may send the largest there is and so lock all others out: authenticate before.
    """

    __slots__ = ("_app", "_gate", "_header", "_header_name", "_required", "_resource")

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        *,
        resource: str | Callable[[Scope], str | None] = path_of,
        header: str = HEADER,
        required: bool = True,
    ) -> None:
        self._app, self._gate, self._resource, self._required = app, gate, resource, required
        self._header_name, self._header = header, header.lower().encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        resource = self._resource if isinstance(self._resource, str) else self._resource(scope)
        if resource is None:
            await self._app(scope, receive, send)
            return
        refusal, fence = await self._judge(scope, resource)
        if refusal is not None:
            await _answer(send, refusal)
            return
        if fence is not None:
            scope = {**scope, _IN_SCOPE: fence}  # a copy: the scope belongs to the caller
        await self._app(scope, receive, send)

    async def _judge(self, scope: Scope, resource: str) -> tuple[_Problem | None, Fence | None]:
        headers = cast(Iterable[tuple[bytes, bytes]], scope["headers"])
        given = [value for name, value in headers if name.lower() == self._header]
        if not given:
            if self._required and scope["method"] not in _SAFE_METHODS:
                return self._missing(resource), None
            return None, None
        if len(given) > 1 or (token := _read_token(given[0])) is None:
            return self._malformed(resource), None
        try:
            await self._gate.admit(resource, token)
        except StaleToken as stale:
            title, detail = "Stale fencing token", str(stale)
            return _Problem(409, title, detail, resource, stale.token, stale.highest), None
        except (TooLarge, Unavailable) as error:
            return _Problem(503, "Fencing gate unavailable", str(error), resource), None
        except InvalidRequest as error:
            return _Problem(400, "Resource cannot be fenced", str(error), resource), None
        return None, Fence(resource, token)

    def _missing(self, resource: str) -> _Problem:
        detail = f"send the token of the lock you hold in {self._header_name}."
        return _Problem(428, "Fencing token required", detail, resource)

    def _malformed(self, resource: str) -> _Problem:
        detail = f"{self._header_name} must be given once, as a whole number from 0 to {TOKEN_MAX}."
        return _Problem(400, "Malformed fencing token", detail, resource)


@dataclass(frozen=True, slots=True)
class _Problem:
    status: int
    title: str
    detail: str
    resource: str
    token: int | None = None
    highest: int | None = None

    def body(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({name: each for name, each in fields.items() if each is not None}).encode()


def _read_token(text: bytes) -> int | None:
    digits = text.strip(b" \t")
    # bytes.isdigit knows ASCII digits only; the length keeps int() from long texts.
    if not digits.isdigit() or len(digits) > len(str(TOKEN_MAX)):
        return None
    token = int(digits)
    return token if token <= TOKEN_MAX else None


async def _answer(send: Send, problem: _Problem) -> None:
    body = problem.body()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
