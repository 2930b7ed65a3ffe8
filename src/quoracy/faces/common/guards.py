"""ASGI middleware that refuses requests which a web page makes to a server that trusts its callers.

DNS rebinding: a page on evil.example lets its name resolve to 127.0.0.1 and reads, as its own origin,
whatever listens there.  The browser still sends evil.example in the Host header, which gives the page
away; `HostGuard` checks it.  The class of flaw is CVE-2018-1099 (etcd).

Cross-site request forgery: a browser sends a POST with a plain-text body to any site without asking
first, and the server has acted before the browser finds that the page may not read the response.  The
browser sends an Origin header with it; `OriginGuard` checks that.  Programs that are not browsers send
no Origin.

Invariants
    * `HostGuard`, bound to a loopback address: only requests for a loopback name, or for the address as
      it was configured, get through.  Others are answered 421 (WebSockets 403) and reach nothing.
    * `HostGuard`, bound to anything else: every request gets through, because such a server has names
      that we do not know.
    * `OriginGuard`: a request without an Origin gets through, and one with an Origin if its host
      and port are those of the request.  Others are answered 403 and reach nothing.
"""

from __future__ import annotations

import ipaddress

from quoracy.faces.common.asgi import AsgiApp, Receive, Scope, Send, header_values, reply_text

__all__ = ["HostGuard", "OriginGuard", "is_loopback"]


class HostGuard:
    """Checks the Host header; `bound_host` is the configured host that the server listens on."""

    def __init__(self, app: AsgiApp, *, bound_host: str) -> None:
        self._app = app
        self._bound_host = bound_host.lower()
        self._guards = is_loopback(bound_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._guards and scope["type"] in ("http", "websocket"):
            # A request without a Host is HTTP/1.0, so not from a browser: simple health checks use it.
            for host in header_values(scope, b"host"):
                if not self._allows(host):
                    await _refuse(scope, send)
                    return
        await self._app(scope, receive, send)

    def _allows(self, host: str) -> bool:
        name = _without_port(host).lower()
        return name == self._bound_host or is_loopback(name)


class OriginGuard:
    """Checks the Origin header."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = {host.lower() for host in header_values(scope, b"host") if host}
        for origin in header_values(scope, b"origin"):
            # An origin is scheme://host[:port], or the word null, which matches no host.
            if origin.lower().partition("://")[2] not in hosts:
                await reply_text(send, 403, "Web pages of other origins are not served here.\n")
                return
        await self._app(scope, receive, send)


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})  # closed before it is accepted, it is answered 403
    else:
        await reply_text(send, 421, "This address serves loopback names only; ask for localhost.\n")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine, whatever DNS says.

    >>> is_loopback("127.0.0.53"), is_loopback("localhost"), is_loopback("a.example")
    (True, True, False)
    """
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
