"""Refuse requests that a web page smuggled to a loopback address (DNS rebinding).

A page on evil.example can have its name resolve to 127.0.0.1 and then read, as its own origin,
whatever listens there.  The browser cannot help naming evil.example in the Host header: that is what
gives the page away.  The class of flaw is CVE-2018-1099 (etcd).

Invariants
    * Bound to a loopback address, only requests for a loopback name or for the address as it was
      configured get through; the others are answered 421 (WebSockets 403) and reach nothing.
    * Bound to anything else, every request gets through: such a server has names we do not know.
"""

from __future__ import annotations

import ipaddress

from quoracy.faces.common.asgi import AsgiApp, Receive, Scope, Send, header_values, reply_text

__all__ = ["HostGuard", "is_loopback"]


class HostGuard:
    """ASGI middleware; `bound_host` is the host the server was told to listen on."""

    def __init__(self, app: AsgiApp, *, bound_host: str) -> None:
        self._app = app
        self._bound_host = bound_host.lower()
        self._guards = is_loopback(bound_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._guards and scope["type"] in ("http", "websocket"):
            # Without any Host it is HTTP/1.0, hence no browser: let plain health checkers in.
            for host in header_values(scope, b"host"):
                if not self._allows(host):
                    await _refuse(scope, send)
                    return
        await self._app(scope, receive, send)

    def _allows(self, host: str) -> bool:
        name = _without_port(host).lower()
        return name == self._bound_host or is_loopback(name)


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})  # before it was accepted: the server answers 403
    else:
        await reply_text(send, 421, "This address serves loopback names only; ask for localhost.\n")


def is_loopback(host: str) -> bool:
    """Whether a host name or address cannot mean another machine, whatever DNS says.

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
