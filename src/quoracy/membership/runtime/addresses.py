"""Addresses: parsing, looking up names, choosing the one to advertise, and binding sockets.

Internally, an address is always "IP:PORT" or "[IPv6]:PORT".  Names are looked up once, when they are
given, in a thread: a slow name server must not stop the protocol's timers.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import os
import socket
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership.machine import Address

__all__ = [
    "DEFAULT_PORT", "SocketPair", "SystemAddress", "advertised", "bind_pair", "family_of",
    "is_on_this_machine", "join_address", "parse_address", "resolve", "source_towards",
    "system_address",
]  # fmt: skip

DEFAULT_PORT = 7946
_PORT_MAX = 65_535
# To find the address of the default route; from the blocks for documentation, and nothing is sent.
_FAR_AWAY = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def parse_address(text: str, *, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """Host and port.

    >>> parse_address("seed.example"), parse_address("[::1]:8000"), parse_address("::1")
    (('seed.example', 7946), ('::1', 8000), ('::1', 7946))
    """
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        is_well_formed = bool(bracket) and colon in ("", ":")
    elif text.count(":") > 1:  # a bare IPv6 address
        host, colon, port, is_well_formed = text, "", "", True
    else:
        host, colon, port = text.partition(":")
        is_well_formed = True
    if is_well_formed and host and not colon:
        return host, default_port
    if not (is_well_formed and host and port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
        raise InvalidRequest(
            f"{text!r} is no address. "
            f"Write HOST, HOST:PORT or [IPv6]:PORT, as in 10.0.0.1:{DEFAULT_PORT}."
        )
    return host, int(port)


def join_address(host: str, port: int) -> Address:
    """The canonical text of an address.

    >>> join_address("::1", 7946)
    '[::1]:7946'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve(text: str, *, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[Address]:
    """All addresses of a name, each once.  Raises `Unavailable` if there is none."""
    host, port = parse_address(text)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise Unavailable(
            f"{host!r} is not the name of a machine that is known here ({error.strerror or error}). "
            "Check how it is written, or give its address."
        ) from error
    return list(dict.fromkeys(join_address(str(name[0]), port) for *_, name in found))


def advertised(bound: Address, seeds: Sequence[Address] = ()) -> Address:
    """The address to advertise for a member that is bound to `bound`.

    A specific address is returned as it is.  The wildcard (0.0.0.0 or ::) becomes the address from
    which this machine reaches the first seed on another machine, else that of its default route, else
    the loopback address.
    """
    host, port = parse_address(bound)
    if not ipaddress.ip_address(host).is_unspecified:
        return bound
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    hosts = [parse_address(seed)[0] for seed in seeds]
    others = [each for each in hosts if not ipaddress.ip_address(each).is_loopback]
    for target in (*others, _FAR_AWAY[family]):
        source = source_towards(target)
        if source is not None and not ipaddress.ip_address(source).is_loopback:
            return join_address(source, port)
    return join_address("::1" if family is socket.AF_INET6 else "127.0.0.1", port)


def family_of(address: Address) -> socket.AddressFamily:
    """The family of sockets that can reach it."""
    return socket.AF_INET6 if address.startswith("[") else socket.AF_INET


def is_on_this_machine(host: str) -> bool:
    """Whether an IP address is one of this machine: packets to it have it as their source."""
    return ipaddress.ip_address(host).is_loopback or source_towards(host) == host


def source_towards(host: str) -> str | None:
    """The source address of packets to this IP address; None if there is no route.

    Found by connecting a datagram socket, which sends nothing.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, DEFAULT_PORT))
        except OSError:
            return None
        return str(probe.getsockname()[0])


SystemAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

# How many ports are tried: one that is free for TCP may be taken for UDP.
_PORTS_TRIED_MAX = 32
# The system's default holds fewer packets than a cluster can send during one pause of the event loop.
# Much more would not help: probes wait only for a fraction of a second.
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
    """Bind both; port 0 finds a port that is free for both.  Raises `Unavailable` if it fails."""
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


@functools.lru_cache(maxsize=4_096)  # bounded: addresses come from other members
def system_address(address: Address, family: socket.AddressFamily) -> SystemAddress:
    """The address as sockets take it.  Raises `InvalidRequest` if it is no IP address of this family.

    >>> system_address("127.0.0.1:80", socket.AF_INET)
    ('127.0.0.1', 80)
    """
    host, port = parse_address(address)
    try:
        # Numeric only, so that nothing is looked up (which could take seconds); unlike inet_pton it
        # accepts the zone of a link-local address: fe80::1%eth0.
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
        if os.name == "posix":  # elsewhere it would allow two processes to share the port
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
