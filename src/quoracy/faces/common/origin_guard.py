"""Refuse requests that a web page of another origin makes (cross-site request forgery).

A browser sends a POST with a plain-text body anywhere without asking first, and whoever serves it has
acted before the browser finds out that the page may not read the answer.  It cannot help sending the
Origin header with it, which is what gives the page away.  Programs that are no browsers send none.

Invariants
    * A request with an Origin gets through if that origin's host and port are those of the request;
      every other is answered 403 and reaches nothing.
    * A request without an Origin gets through.
"""

from __future__ import annotations

from quoracy.faces.common.asgi import AsgiApp, Receive, Scope, Send, header_values, reply_text

__all__ = ["OriginGuard"]


class OriginGuard:
    """ASGI middleware."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = {host.lower() for host in header_values(scope, b"host") if host}
        for origin in header_values(scope, b"origin"):
            # An origin is scheme://host[:port], or the word null, which is nobody's.
            if origin.lower().partition("://")[2] not in hosts:
                await reply_text(send, 403, "Web pages of other origins are not served here.\n")
                return
        await self._app(scope, receive, send)
