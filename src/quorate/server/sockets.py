"""Binding a listening socket, with errors that say what to do."""

from __future__ import annotations

import errno
import socket
import sys

from quorate.errors import Unavailable
from quorate.server.config import Address

__all__ = ["bind", "bound_address"]


def bind(address: Address) -> socket.socket:
    """A socket that does not listen yet: until it does, connections are refused, not kept waiting."""
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
        raise Unavailable(f"cannot listen on {address}: {_explain(error)}") from error
    return listener


def bound_address(listener: socket.socket) -> Address:
    """Where a socket really is, which port 0 leaves open."""
    host, port, *_ = listener.getsockname()
    return Address(host, port)


def _explain(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                "another program (another Quorate?) listens there. "
                "Stop it, or choose another port with --listen-http."
            )
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address. Use 127.0.0.1, or 0.0.0.0 for all of them."
        case errno.EACCES:
            return "this user may not use that port. Choose one above 1023."
        case _:
            return f"{error.strerror or error}."
