"""One port for packets and streams alike, and how addresses are handed to the system."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import socket
from typing import TypeAlias

import msgspec

from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership.machine import Address
from quoracy.membership.runtime.addresses import join_address, parse_address

__all__ = ["SocketPair", "SystemAddress", "bind_pair", "system_address"]

SystemAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

# How many free ports are tried: each is free for streams, and may be taken for packets.
_PORTS_TRIED_MAX = 32
# The system's default holds some 250 small packets, less than a cluster can send us in one pause of the
# loop.  Much more would only let them grow old: probes wait for a fraction of a second.
_RECEIVE_BUFFER_BYTES = 1024 * 1024


class SocketPair(msgspec.Struct, frozen=True):
    """A UDP socket and a listening TCP socket at one address."""

    packets: socket.socket
    streams: socket.socket
    bound: Address

    def close(self) -> None:
        self.packets.close()
        self.streams.close()


async def bind_pair(bind: str) -> SocketPair:
    """Bind both; port 0 finds one that is free for both.  Raises `Unavailable` if it cannot be had."""
    host, port = parse_address(bind)
    try:
        family, _, _, _, place = (
            await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        )[0]
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"cannot bind {bind}: {host!r} is not known here ({error}).") from error
    for attempt in range(_PORTS_TRIED_MAX):
        try:
            return _bind(family, place)
        except OSError as error:
            is_last = port != 0 or attempt == _PORTS_TRIED_MAX - 1
            if error.errno != errno.EADDRINUSE or is_last:
                raise Unavailable(f"cannot bind {bind}: {_explain(error)}") from error
    raise AssertionError("the last attempt returns or raises")


@functools.lru_cache(maxsize=4_096)  # at the bound the least recently used is worked out anew
def system_address(address: Address, family: socket.AddressFamily) -> SystemAddress:
    """As the system wants it.  Raises `InvalidRequest` for what is no IP address of this family.

    >>> system_address("127.0.0.1:80", socket.AF_INET)
    ('127.0.0.1', 80)
    """
    host, port = parse_address(address)
    try:
        # Numeric only, so that nothing is looked up (which could take seconds); unlike inet_pton it
        # understands the zone of a link-local address: fe80::1%eth0.
        found = socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError, ValueError) as error:
        name = "IPv6" if family is socket.AF_INET6 else "IPv4"
        raise InvalidRequest(
            f"{address!r} is no {name} address, and this member speaks {name}. "
            "All members of a cluster must be bound to one family; names are looked up before."
        ) from error
    return found[0][4]  # type: ignore[return-value]  # of the family that was asked for


def _bind(family: socket.AddressFamily, place: tuple[object, ...]) -> SocketPair:
    streams = socket.socket(family, socket.SOCK_STREAM)
    packets = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if os.name == "posix":  # elsewhere it would let two processes share the port
            streams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            for each in (streams, packets):
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        streams.bind(place)
        host, port, *more = streams.getsockname()
        packets.bind((host, port, *more))
        streams.listen(128)
        for each in (streams, packets):
            each.setblocking(False)
    except BaseException:
        streams.close()
        packets.close()
        raise
    return SocketPair(packets, streams, join_address(host, port))


def _explain(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "the port is in use, for UDP or for TCP; both are needed. Choose another, or 0."
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address. Bind to one it has, or to 0.0.0.0."
        case errno.EACCES:
            return "the system does not allow it. Choose a port above 1023."
        case _:
            return f"{error.strerror or error}."
