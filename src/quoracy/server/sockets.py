"""Binding a listening socket, with errors that say what to do."""

from __future__ import annotations

import errno
import socket
import sys

from quoracy.errors import Unavailable
from quoracy.server.config import Address

__all__ = ["bind", "bound_address", "reachable"]


def bind(address: Address, *, setting: str) -> socket.socket:
    """A socket that does not listen yet: until it does, connections are refused, not kept waiting.

    `setting` is the one to change if the address cannot be had.
    """
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            _encoded(address.host), address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror or error}.") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # where it would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(name)
    except OSError as error:
        listener.close()
        raise Unavailable(f"cannot listen on {address}: {_explain(error, setting)}") from error
    return listener


def bound_address(listener: socket.socket) -> Address:
    """Where a socket really is, which port 0 leaves open."""
    host, port, *_ = listener.getsockname()
    return Address(host, port)


def reachable(address: Address) -> Address:
    """Where others find what listens at `address`: "everywhere" is no place to connect to."""
    if address.host in ("0.0.0.0", "::"):
        return Address(socket.gethostname(), address.port)
    return address


def _encoded(host: str) -> bytes | str:
    # Given text, Python loads all of IDNA, which numbers and most names need not.
    return host.encode() if host.isascii() else host


def _explain(error: OSError, setting: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                "another program (another Quoracy?) listens there. "
                f"Stop it, or choose another port with {setting}."
            )
        case errno.EADDRNOTAVAIL:
            return (
                f"this machine does not have that address. Give {setting} one it has, "
                "127.0.0.1, or 0.0.0.0 for all of them."
            )
        case errno.EACCES:
            return f"this user may not use that port. Give {setting} one above 1023."
        case _:
            return f"{error.strerror or error}."
