"""What clients of ZooKeeper ask: one struct for each kind of request, but for the plain writes.

The structs are not tracked by the garbage collector: they are frozen and hold only bytes, numbers and
tuples of each other, so no cycle can pass through them.
"""

from __future__ import annotations

import msgspec

from quoracy.wire.zookeeper.plain_writes import Create, Delete, SetData

__all__ = [
    "Acl",
    "AddWatch",
    "Auth",
    "Check",
    "CheckWatches",
    "CloseSession",
    "ConnectRequest",
    "Create",
    "Delete",
    "Exists",
    "GetAcl",
    "GetAllChildrenNumber",
    "GetChildren",
    "GetData",
    "GetEphemerals",
    "Multi",
    "MultiOp",
    "MultiRead",
    "Ping",
    "ReadOp",
    "Reconfig",
    "RemoveWatches",
    "Request",
    "Sasl",
    "SetAcl",
    "SetData",
    "SetWatches",
    "Sync",
    "Unknown",
    "WhoAmI",
]


class Acl(msgspec.Struct, frozen=True, gc=False):
    """One entry of an access control list: who (scheme and id) may do what (bits of Perm)."""

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


MultiOp = Create | Delete | SetData | Check
ReadOp = GetData | GetChildren


class Multi(msgspec.Struct, frozen=True, gc=False):
    """Writes that happen together or not at all."""

    ops: tuple[MultiOp, ...]


class MultiRead(msgspec.Struct, frozen=True, gc=False):
    """Reads in one request.  They leave no watches, whatever the client wrote there."""

    ops: tuple[ReadOp, ...]


class GetAcl(msgspec.Struct, frozen=True, gc=False):
    path: bytes


class Sync(msgspec.Struct, frozen=True, gc=False):
    """The reply echoes the path; nothing else looks at it, not even whether it is null."""

    path: bytes | None


class SetWatches(msgspec.Struct, frozen=True, gc=False):
    """setWatches and setWatches2: the watches a client had when it last saw `relative_zxid`."""

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
    """A null `auth` is not an empty one: digest refuses the first and takes the second."""

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
    """An operation that clients may not send, or that does not exist."""

    op: int


Request = (
    Create
    | Delete
    | SetData
    | SetAcl
    | Check
    | Multi
    | MultiRead
    | GetData
    | Exists
    | GetChildren
    | GetAcl
    | Sync
    | SetWatches
    | AddWatch
    | CheckWatches
    | RemoveWatches
    | GetEphemerals
    | GetAllChildrenNumber
    | WhoAmI
    | Auth
    | Ping
    | CloseSession
    | Reconfig
    | Sasl
    | Unknown
)


class ConnectRequest(msgspec.Struct, frozen=True, gc=False):
    """The first frame of a connection.  `read_only` is None from clients before 3.4."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None
