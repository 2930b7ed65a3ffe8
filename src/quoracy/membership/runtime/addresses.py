"""Places on a network: how they are written, found by name, and told to others.

Inside, an address is always "IP:PORT" or "[IPv6]:PORT"; names are looked up once, on the way in, in a
thread: a name server that takes its time must not stop the protocol's timers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership.machine import Address

__all__ = [
    "DEFAULT_PORT",
    "advertised",
    "family_of",
    "is_on_this_machine",
    "join_address",
    "parse_address",
    "resolve",
    "source_towards",
]

DEFAULT_PORT = 7946
_PORT_MAX = 65_535
# Where the way out of this machine leads; from the blocks for documentation, and nothing is sent.
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
    """The one way an address is written.

    >>> join_address("::1", 7946)
    '[::1]:7946'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve(text: str, *, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[Address]:
    """Every address that the name stands for, each once.  Raises `Unavailable` if there is none."""
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
    """Where others find a member that is bound to `bound`.

    An address of its own is what it is.  "Everywhere" (0.0.0.0 or ::) becomes the address from which
    this machine reaches the first seed that is on another machine, else the one it reaches the rest of
    the world from, else the loopback address.
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
    """Which kind of socket reaches it."""
    return socket.AF_INET6 if address.startswith("[") else socket.AF_INET


def is_on_this_machine(host: str) -> bool:
    """Whether packets to this IP address stay here: they would carry it as their source as well."""
    return ipaddress.ip_address(host).is_loopback or source_towards(host) == host


def source_towards(host: str) -> str | None:
    """Which IP address of ours packets to this one would carry; None if there is no way there.

    Connecting a datagram socket finds out, and sends nothing.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, DEFAULT_PORT))
        except OSError:
            return None
        return str(probe.getsockname()[0])
