"""ASGI's types, the headers of a request, and whole responses.

No framework: what is served here is a handful of fixed paths, and a framework costs its imports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

__all__ = ["AsgiApp", "Message", "Receive", "Scope", "Send", "header_values", "reply", "reply_text"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def header_values(scope: Scope, name: bytes) -> list[str]:
    """Every value of one header; `name` is in lower case, as ASGI has names."""
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
    """Send one response; `allow` says which method would have been right, `more` are more headers."""
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        # Nothing here is for a browser to guess at: values come from clients.
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
