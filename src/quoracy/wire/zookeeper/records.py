"""The requests of ZooKeeper's clients, one struct for each kind, except create, delete and setData.

Those three are compiled classes in `requests`; mypyc would drop the options of these structs.  The
garbage collector does not track the structs: they are frozen and hold only bytes, numbers and tuples of
each other, so they cannot be part of a cycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from quoracy.wire.zookeeper.requests import MultiOp

__all__ = [
    "Acl",
    "AddWatch",
    "Auth",
    "Check",
    "CheckWatches",
    "CloseSession",
    "ConnectRequest",
    "Exists",
    "GetAcl",
    "GetAllChildrenNumber",
    "GetChildren",
    "GetData",
    "GetEphemerals",
    "Multi",
    "MultiRead",
    "Ping",
    "ReadOp",
    "Reconfig",
    "RemoveWatches",
    "Sasl",
    "SetAcl",
    "SetWatches",
    "Sync",
    "Unknown",
    "WhoAmI",
]


class Acl(msgspec.Struct, frozen=True, gc=False):
    """An entry of an access control list: the identity (scheme and id) and its permissions (Perm)."""

    perms: int
    scheme: str
    id: str


class SetAcl(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    acl: tuple[Acl, ...]
    version: int


class Check(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    version: int


class GetData(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    watch: bool


class Exists(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    watch: bool


class GetChildren(msgspec.Struct, frozen=True, gc=False):
    """getChildren, or getChildren2 if `with_stat`."""

    path: bytes
    watch: bool
    with_stat: bool


ReadOp = GetData | GetChildren


class Multi(msgspec.Struct, frozen=True, gc=False):
    """A transaction: all of its writes take effect, or none."""

    ops: tuple[MultiOp, ...]


class MultiRead(msgspec.Struct, frozen=True, gc=False):
    """Several reads in one request.  They set no watches, whatever their watch flags say."""

    ops: tuple[ReadOp, ...]


class GetAcl(msgspec.Struct, frozen=True, gc=False):
    path: bytes


class Sync(msgspec.Struct, frozen=True, gc=False):
    """The reply echoes the path, which may be null; nothing else uses it."""

    path: bytes | None


class SetWatches(msgspec.Struct, frozen=True, gc=False):
    """setWatches or setWatches2: the watches of a client whose last zxid was `relative_zxid`."""

    relative_zxid: int
    data: tuple[bytes, ...]
    exist: tuple[bytes, ...]
    child: tuple[bytes, ...]
    persistent: tuple[bytes, ...] = ()
    recursive: tuple[bytes, ...] = ()


class AddWatch(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    mode: int


class CheckWatches(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    type: int


class RemoveWatches(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    type: int


class GetEphemerals(msgspec.Struct, frozen=True, gc=False):
    prefix: bytes


class GetAllChildrenNumber(msgspec.Struct, frozen=True, gc=False):
    path: bytes


class WhoAmI(msgspec.Struct, frozen=True, gc=False):
    pass


class Auth(msgspec.Struct, frozen=True, gc=False):
    """Null and empty `auth` differ: digest refuses the first and accepts the second."""

    type: int
    scheme: str
    auth: bytes | None


class Ping(msgspec.Struct, frozen=True, gc=False):
    pass


class CloseSession(msgspec.Struct, frozen=True, gc=False):
    pass


class Reconfig(msgspec.Struct, frozen=True, gc=False):
    joining: bytes | None
    leaving: bytes | None
    new_members: bytes | None
    config_id: int


class Sasl(msgspec.Struct, frozen=True, gc=False):
    token: bytes


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """An operation that does not exist, or that clients may not send."""

    op: int


class ConnectRequest(msgspec.Struct, frozen=True, gc=False):
    """The first frame of a connection.  `read_only` is None from clients before 3.4."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None
