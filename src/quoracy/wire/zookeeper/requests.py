"""Decoding of the requests of ZooKeeper's clients.

create, delete and setData, the writes of busy clients, become compiled classes, whose attributes cost
compiled code little; all others become the structs of `records`.

`decode_request` raises JuteError, and nothing else, for a body that is not the record its operation
needs.  What ZooKeeper does then was found out with raw sockets on a 3.8.0 server and in the source of
the newest version; the connection does the same:

    a length before a frame that is negative or over jute.maxbuffer   hangs up, in any state
    a frame shorter than its header (8 bytes; 0 is a legal length)     hangs up
    a connect request that is cut short, or a password length < -1     hangs up
    a malformed auth or sasl request (HANGS_UP), a null sasl token     hangs up, without a reply
    any other malformed request, multi and multiRead included          err -5 (MARSHALLING_ERROR),
                                                                       no body, and goes on
    a null path                                                        the same -5, except as below
    an operation that does not exist (Unknown)                         err -6 (UNIMPLEMENTED), hangs up
    deleteContainer (20) from a client (Unknown)                       err -8 (BAD_ARGUMENTS), goes on
    createSession (-10) from a client (Unknown)                        err -5 if its body is too short

A record is malformed if it is cut short, has a length under -1, or has a length or
count beyond the frame; a multi also if it has an operation that is not allowed there (setACL, exists, a
read in a write), no end, or a TTL mode without a TTL.  Nothing of a malformed multi is carried out.

Not malformed, and read as ZooKeeper reads it:

    * bytes after the record are ignored; any byte but 0 is true;
    * a null or negative ACL list is an empty one (answered with InvalidACL), negative counts are zero;
    * setData, setACL, check, addWatch, removeWatches and getEphemerals take a null path for an empty
      one; sync echoes it;
    * ping and closeSession may have a body; the password of a connect request may be null (here b"");
    * the headers of a multi end with the first that says `done`, whatever its type; their `err` is
      ignored, and which create an operation is follows from its flags, not only from its type.

Differs from ZooKeeper: there the -5 for a null path in a multi comes with the body of an empty result,
here without; clients do not look at the body of an error.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Final

from quoracy.wire.zookeeper.codes import CreateMode, Op
from quoracy.wire.zookeeper.jute import INT, LONG, JuteError, Reader, acl_at, int_at, known_acl
from quoracy.wire.zookeeper.records import (
    Acl,
    AddWatch,
    Auth,
    Check,
    CheckWatches,
    CloseSession,
    ConnectRequest,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    Multi,
    MultiRead,
    Ping,
    ReadOp,
    Reconfig,
    RemoveWatches,
    Sasl,
    SetAcl,
    SetWatches,
    Sync,
    Unknown,
    WhoAmI,
)

__all__ = [
    "HANGS_UP",
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
    "PlainWrite",
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
    "decode_connect",
    "decode_request",
]


class PlainWrite:
    """Base class of the three: equal if all fields are."""

    __slots__ = ()

    def fields(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlainWrite) or type(self) is not type(other):
            return NotImplemented
        return self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.fields()!r}"


class Create(PlainWrite):
    """create, create2, createContainer or createTTL, according to `op`."""

    __slots__ = ("acl", "data", "flags", "op", "path", "ttl_ms")

    def __init__(
        self,
        op: int,
        path: bytes,
        data: bytes | None,
        acl: tuple[Acl, ...],
        flags: int,
        ttl_ms: int = -1,
    ) -> None:
        self.op, self.path, self.data, self.acl = op, path, data, acl
        self.flags, self.ttl_ms = flags, ttl_ms

    def fields(self) -> tuple[object, ...]:
        return self.op, self.path, self.data, self.acl, self.flags, self.ttl_ms


class Delete(PlainWrite):
    __slots__ = ("path", "version")

    def __init__(self, path: bytes, version: int) -> None:
        self.path, self.version = path, version

    def fields(self) -> tuple[object, ...]:
        return self.path, self.version


class SetData(PlainWrite):
    __slots__ = ("data", "path", "version")

    def __init__(self, path: bytes, data: bytes | None, version: int) -> None:
        self.path, self.data, self.version = path, data, version

    def fields(self) -> tuple[object, ...]:
        return self.path, self.data, self.version


MultiOp = Create | Delete | SetData | Check
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

# A connection on which one of these is malformed is closed without a reply: authentication is handled
# before a request is queued, where ZooKeeper has no other answer.
HANGS_UP: Final = frozenset({int(Op.AUTH), int(Op.SASL)})

_CREATE: Final = int(Op.CREATE)
_CREATE2: Final = int(Op.CREATE2)
_DELETE: Final = int(Op.DELETE)
_SET_DATA: Final = int(Op.SET_DATA)
_CHECK: Final = int(Op.CHECK)

_CONNECT: Final = Struct(">iqiqi")
_MULTI_HEADER: Final = Struct(">i?i")
_int: Final = INT.unpack_from
_long: Final = LONG.unpack_from


def decode_connect(frame: bytes) -> ConnectRequest:
    """The first frame of a connection."""
    if len(frame) < _CONNECT.size:
        raise JuteError(f"a connect request of {len(frame)} bytes is cut short; it takes at least 28")
    version, zxid, timeout_ms, session_id, size = _CONNECT.unpack_from(frame)
    if size < -1:
        raise JuteError(f"the password of a connect request has length {size}")
    end = _CONNECT.size + max(size, 0)
    if end > len(frame):
        raise JuteError(
            f"a connect request of {len(frame)} bytes ends before its password of {size:,} does"
        )
    read_only = None if end == len(frame) else frame[end] != 0
    return ConnectRequest(version, zxid, timeout_ms, session_id, frame[_CONNECT.size : end], read_only)


def decode_request(op: int, frame: bytes, at: int) -> Request:
    """The request for operation `op` whose body starts at `at` in `frame`.

    The decoders below read a fixed field after each variable one.  If the variable field was out of
    bounds, so is the fixed one, and reading it raises.
    """
    try:
        # The most frequent writes do without the table.
        if op == _SET_DATA:
            return _set_data(frame, at)
        if op in (_CREATE, _CREATE2):
            return _create(op, frame, at)
        if op == _DELETE:
            return _delete(frame, at)
        decode = _DECODERS.get(op)
        return Unknown(op) if decode is None else decode(frame, at)
    except (struct_error, IndexError):
        raise JuteError(
            f"a {Op(op).name} request of {len(frame) - at:,} bytes ends before its record does"
        ) from None


def _length_refused(size: int) -> JuteError:
    if size == -1:
        return JuteError("the path of a request is null; send at least '/'")
    return JuteError(f"a field has length {size}; only -1, for null, may be negative")


def _path_and_watch(frame: bytes, at: int) -> tuple[bytes, bool]:
    """The body of most reads."""
    size = int_at(frame, at)
    if size < 0:
        raise _length_refused(size)
    end = at + 4 + size
    return frame[at + 4 : end], frame[end] != 0


def _get_data(frame: bytes, at: int) -> GetData:
    path, watch = _path_and_watch(frame, at)
    return GetData(path, watch)


def _exists(frame: bytes, at: int) -> Exists:
    path, watch = _path_and_watch(frame, at)
    return Exists(path, watch)


def _get_children(frame: bytes, at: int) -> GetChildren:
    path, watch = _path_and_watch(frame, at)
    return GetChildren(path, watch, False)


def _get_children2(frame: bytes, at: int) -> GetChildren:
    path, watch = _path_and_watch(frame, at)
    return GetChildren(path, watch, True)


def _delete(frame: bytes, at: int) -> Delete:
    size = int_at(frame, at)
    if size < 0:
        raise _length_refused(size)
    end = at + 4 + size
    version = int_at(frame, end)
    return Delete(frame[at + 4 : end], version)


def _set_data(frame: bytes, at: int) -> SetData:
    size = int_at(frame, at)
    if size < -1:
        raise _length_refused(size)
    end = at + 4 + size if size > 0 else at + 4
    path = frame[at + 4 : end]
    data, end = _data(frame, end)
    return SetData(path, data, int_at(frame, end))


def _data(frame: bytes, at: int) -> tuple[bytes | None, int]:
    """The buffer at `at`, and the position after it, where the caller must read on."""
    size = int_at(frame, at)
    if size < 0:
        if size < -1:
            raise _length_refused(size)
        return None, at + 4
    end = at + 4 + size
    return frame[at + 4 : end], end


def _create(op: int, frame: bytes, at: int) -> Create:
    size = int_at(frame, at)
    if size < 0:
        raise _length_refused(size)
    end = at + 4 + size
    path = frame[at + 4 : end]
    data, end = _data(frame, end)
    # An ACL list does not say how long it is.  If nothing follows the record, the list is all that is
    # left before the flags; if those bytes are in the cache, the list need not be parsed.
    acl = known_acl(frame[end:-4]) if end <= len(frame) - 4 else None
    if acl is None:
        acl, end = acl_at(frame, end)
    else:
        end = len(frame) - 4
    return Create(op, path, data, acl, int_at(frame, end))


def _create_container(frame: bytes, at: int) -> Create:
    return _create(int(Op.CREATE_CONTAINER), frame, at)


def _create_ttl(frame: bytes, at: int) -> Create:
    reader = Reader(frame, at)
    path, data, acl = reader.read_path(), reader.read_buffer(), reader.read_acl()
    return Create(int(Op.CREATE_TTL), path, data, acl, reader.read_int(), reader.read_long())


_CREATES: Final = frozenset(map(int, (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL)))
_TTL_MODES: Final = frozenset(
    {int(CreateMode.PERSISTENT_WITH_TTL), int(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL)}
)


def _multi(frame: bytes, at: int) -> Multi:
    ops: list[MultiOp] = []
    while True:
        kind, done, _err = _MULTI_HEADER.unpack_from(frame, at)
        at += 9
        if done:
            return Multi(tuple(ops))
        (size,) = _int(frame, at)
        if size < 0:
            raise _length_refused(size)
        end = at + 4 + size
        path = frame[at + 4 : end]
        if kind in (_CHECK, _DELETE):
            (version,) = _int(frame, end)
            ops.append(Check(path, version) if kind == _CHECK else Delete(path, version))
            at = end + 4
        elif kind == _SET_DATA:
            data, end = _data(frame, end)
            (version,) = _int(frame, end)
            ops.append(SetData(path, data, version))
            at = end + 4
        elif kind in _CREATES:
            create, at = _multi_create(kind, path, frame, end)
            ops.append(create)
        else:
            raise JuteError(f"operation {kind} may not be part of a multi")


def _multi_create(kind: int, path: bytes, frame: bytes, at: int) -> tuple[Create, int]:
    data, at = _data(frame, at)
    acl, at = acl_at(frame, at)
    (flags,) = _int(frame, at)
    at += 4
    ttl_ms = -1
    if kind == Op.CREATE_TTL:
        (ttl_ms,) = _long(frame, at)
        at += 8
    # ZooKeeper converts the record into one of its Ops and back, according to the flags.
    if flags in _TTL_MODES:
        if kind != Op.CREATE_TTL:
            raise JuteError(f"a create in a multi has mode {flags} and no TTL; send it as createTTL")
        return Create(kind, path, data, acl, flags, ttl_ms), at
    if flags == CreateMode.CONTAINER:
        kind = int(Op.CREATE_CONTAINER)
    elif kind != Op.CREATE2:
        kind = int(Op.CREATE)
    return Create(kind, path, data, acl, flags), at


def _multi_read(frame: bytes, at: int) -> MultiRead:
    ops: list[ReadOp] = []
    while True:
        kind, done, _err = _MULTI_HEADER.unpack_from(frame, at)
        at += 9
        if done:
            return MultiRead(tuple(ops))
        if kind not in (Op.GET_DATA, Op.GET_CHILDREN):
            raise JuteError(f"operation {kind} may not be part of a multiRead")
        request = _get_data(frame, at)
        at += 5 + len(request.path)
        if kind == Op.GET_DATA:
            ops.append(GetData(request.path, False))
        else:
            ops.append(GetChildren(request.path, False, False))


def _set_acl(frame: bytes, at: int) -> SetAcl:
    reader = Reader(frame, at)
    return SetAcl(reader.read_buffer() or b"", reader.read_acl(), reader.read_int())


def _check(frame: bytes, at: int) -> Check:
    reader = Reader(frame, at)
    return Check(reader.read_buffer() or b"", reader.read_int())


def _set_watches(frame: bytes, at: int) -> SetWatches:
    reader = Reader(frame, at)
    return SetWatches(reader.read_long(), reader.read_paths(), reader.read_paths(), reader.read_paths())


def _set_watches2(frame: bytes, at: int) -> SetWatches:
    reader = Reader(frame, at)
    zxid = reader.read_long()
    data, exist, child = (reader.read_paths() for _ in range(3))
    # ZooKeeper keeps a persistent watch on null, which never fires; a watch on an empty path is the
    # same.
    persistent, recursive = (reader.read_paths(null_allowed=True) for _ in range(2))
    return SetWatches(zxid, data, exist, child, persistent, recursive)


def _add_watch(frame: bytes, at: int) -> AddWatch:
    reader = Reader(frame, at)
    return AddWatch(reader.read_buffer() or b"", reader.read_int())


def _check_watches(frame: bytes, at: int) -> CheckWatches:
    reader = Reader(frame, at)
    return CheckWatches(reader.read_path(), reader.read_int())


def _remove_watches(frame: bytes, at: int) -> RemoveWatches:
    reader = Reader(frame, at)
    return RemoveWatches(reader.read_buffer() or b"", reader.read_int())


def _auth(frame: bytes, at: int) -> Auth:
    reader = Reader(frame, at)
    return Auth(reader.read_int(), reader.read_text() or "", reader.read_buffer())


def _sasl(frame: bytes, at: int) -> Sasl:
    token = Reader(frame, at).read_buffer()
    if token is None:
        raise JuteError("the token of a SASL request is null")
    return Sasl(token)


def _reconfig(frame: bytes, at: int) -> Reconfig:
    reader = Reader(frame, at)
    joining, leaving, members = (reader.read_buffer() for _ in range(3))
    return Reconfig(joining, leaving, members, reader.read_long())


_PING: Final = Ping()
_CLOSE: Final = CloseSession()
_WHO_AM_I: Final = WhoAmI()

_DECODERS: Final[dict[int, Callable[[bytes, int], Request]]] = {
    Op.EXISTS: _exists,
    Op.GET_DATA: _get_data,
    Op.GET_ACL: lambda frame, at: GetAcl(Reader(frame, at).read_path()),
    Op.SET_ACL: _set_acl,
    Op.GET_CHILDREN: _get_children,
    Op.SYNC: lambda frame, at: Sync(Reader(frame, at).read_buffer()),
    Op.PING: lambda _frame, _at: _PING,
    Op.GET_CHILDREN2: _get_children2,
    Op.CHECK: _check,
    Op.MULTI: _multi,
    Op.RECONFIG: _reconfig,
    Op.CHECK_WATCHES: _check_watches,
    Op.REMOVE_WATCHES: _remove_watches,
    Op.CREATE_CONTAINER: _create_container,
    Op.CREATE_TTL: _create_ttl,
    Op.MULTI_READ: _multi_read,
    Op.AUTH: _auth,
    Op.SET_WATCHES: _set_watches,
    Op.SASL: _sasl,
    Op.GET_EPHEMERALS: lambda frame, at: GetEphemerals(Reader(frame, at).read_buffer() or b""),
    Op.GET_ALL_CHILDREN_NUMBER: lambda frame, at: GetAllChildrenNumber(Reader(frame, at).read_path()),
    Op.SET_WATCHES2: _set_watches2,
    Op.ADD_WATCH: _add_watch,
    Op.WHO_AM_I: lambda _frame, _at: _WHO_AM_I,
    Op.CLOSE_SESSION: lambda _frame, _at: _CLOSE,
}
