"""The configuration of a cell: its name, its members, and which of them this machine is.  Values only.

`--cell` names the members as NAME=HOST[:PEER_PORT[:CLIENT_PORT]], the same text on every machine.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.remote.urls import Address, Target, TlsOptions

__all__ = [
    "CLIENT_PORT",
    "PEER_PORT",
    "CellConfig",
    "CellMember",
    "CellTls",
    "choose_node",
    "is_here",
    "parse_cell_name",
    "parse_members",
]

# etcd's own client port, 2379, is where Quoracy itself speaks etcd's protocol.
PEER_PORT = 2380
CLIENT_PORT = 2381

_PORT_MAX = 65_535
_MEMBERS_MAX = 9
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MEMBER = re.compile(
    r"(?P<name>[^=]+)=(?P<host>\[[^\]]+\]|[^:\[\]]+)(?::(?P<peer>\d+)(?::(?P<client>\d+))?)?"
)


class CellMember(msgspec.Struct, frozen=True):
    """One etcd member: its address for peers, and its address for nodes."""

    name: str
    host: str
    peer_port: int = PEER_PORT
    client_port: int = CLIENT_PORT

    @property
    def peer(self) -> Address:
        return Address(self.host, self.peer_port)

    @property
    def client(self) -> Address:
        return Address(self.host, self.client_port)


class CellTls(msgspec.Struct, frozen=True):
    """The files for connections between members, and from nodes to members.

    Both sides show `cert`, and both accept only what `ca` signed.
    """

    cert: Path
    key: Path
    ca: Path


class CellConfig(msgspec.Struct, frozen=True):
    """A cell as one of its machines sees it.

    program: the etcd to run; None is the first that is found.
    flags: more flags for etcd, after those that Quoracy gives it.
    """

    name: str
    members: tuple[CellMember, ...]
    node: str
    data_dir: Path
    program: Path | None = None
    tls: CellTls | None = None
    flags: tuple[str, ...] = ()

    @property
    def own(self) -> CellMember:
        return next(member for member in self.members if member.name == self.node)

    @property
    def others(self) -> tuple[CellMember, ...]:
        return tuple(member for member in self.members if member.name != self.node)

    @property
    def etcd_dir(self) -> Path:
        return self.data_dir / "etcd"

    @property
    def pid_file(self) -> Path:
        """Holds the process id of the member while it runs."""
        return self.data_dir / "etcd.pid"

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    def peer_url(self, member: CellMember) -> str:
        return f"{self.scheme}://{member.peer}"

    def client_url(self, member: CellMember) -> str:
        return f"{self.scheme}://{member.client}"

    def target(self, members: Sequence[CellMember] | None = None) -> Target:
        """How to reach these members; by default the own one first, then the others."""
        asked = (self.own, *self.others) if members is None else members
        tls = self.tls
        options = None if tls is None else TlsOptions(str(tls.ca), str(tls.cert), str(tls.key))
        return Target(tuple(member.client for member in asked), tls=options)


def parse_members(text: str) -> tuple[CellMember, ...]:
    """The members of a cell, in the order they are written.

    >>> parse_members("a=10.0.0.1,b=[::1]:7000:7001")[1]
    CellMember(name='b', host='::1', peer_port=7000, client_port=7001)
    """
    members = tuple(_member(part.strip()) for part in text.split(","))
    if len(members) > _MEMBERS_MAX:
        raise InvalidRequest(
            f"a cell of {len(members)} members: each write waits for most of them. Use 3 or 5."
        )
    _refuse_twice([member.name for member in members], "name")
    addresses = [str(place) for member in members for place in (member.peer, member.client)]
    _refuse_twice(addresses, "address")
    return members


def parse_cell_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise InvalidRequest(f"{text!r} is no name. Use letters, digits, dots, dashes and underscores.")
    return text


def is_here(host: str) -> bool:
    """Whether a host's name or address is one of this machine's."""
    if host.lower() in {socket.gethostname().lower(), socket.getfqdn().lower()}:
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:  # a name that cannot be resolved here is not ours
        return False
    return any(_can_bind(family, place[0]) for family, _, _, _, place in found)


def choose_node(
    members: Sequence[CellMember], named: str | None, *, here: Callable[[str], bool] = is_here
) -> str:
    """Which member this machine is: the one that was named, or the only one whose host it is."""
    names = [member.name for member in members]
    if named is not None:
        if named not in names:
            raise InvalidRequest(
                f"{named!r} is no member of the cell. Its members: {', '.join(names)}."
            )
        return named
    found = [member.name for member in members if here(member.host)]
    if len(found) == 1:
        return found[0]
    what = "has no member's address" if not found else f"could be any of {', '.join(found)}"
    raise InvalidRequest(f"this machine {what}. Say which member it is: --node {names[0]}")


def _can_bind(family: int, host: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _member(text: str) -> CellMember:
    found = _MEMBER.fullmatch(text)
    if found is None or not _NAME.fullmatch(found["name"]):
        raise InvalidRequest(
            f"{text!r} is no member. Write NAME=HOST, NAME=HOST:PEER_PORT or "
            "NAME=HOST:PEER_PORT:CLIENT_PORT, as in a=10.0.0.1,b=10.0.0.2,c=10.0.0.3; "
            "an IPv6 address in brackets."
        )
    host = found["host"].removeprefix("[").removesuffix("]")
    if host in ("0.0.0.0", "::"):
        raise InvalidRequest(f"{text!r}: {host} is no place others can reach. Give the machine's own.")
    peer = _port(found["peer"], PEER_PORT)
    return CellMember(found["name"], host, peer, _port(found["client"], CLIENT_PORT))


def _port(text: str | None, default: int) -> int:
    port = default if text is None else int(text)
    if not 0 < port <= _PORT_MAX:
        raise InvalidRequest(f"{port} is no port. Give 1 to {_PORT_MAX}.")
    return port


def _refuse_twice(names: Sequence[str], what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"two members of the cell have the {what} {twice[0]}. Each needs its own.")
