"""Encoding of what a ZooKeeper server sends: replies with the body of each operation, and events.

A reply is a frame: its length, a header (xid, zxid, err) and, if err is 0, the body of its
operation.  The functions named encode_...  return whole frames or records.  Those named ..._body
and multi_...  return pieces for `encode_reply`: the body of a multi is its results in order, then
MULTI_END.

A stat is passed as its 68 bytes (`encode_stat`), because a znode keeps them and most replies end with
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from struct import Struct
from typing import Final

from quoracy.wire.zookeeper.codes import XID_EVENT, Op
from quoracy.wire.zookeeper.jute import INT
from quoracy.wire.zookeeper.records import Acl

__all__ = [
    "MULTI_END",
    "STAT_BYTES",
    "acl_body",
    "children_body",
    "created_body",
    "data_body",
    "encode_connect_response",
    "encode_event",
    "encode_reply",
    "encode_stat",
    "ephemerals_body",
    "multi_checked",
    "multi_children",
    "multi_created",
    "multi_data",
    "multi_deleted",
    "multi_error",
    "multi_stat",
    "number_body",
    "path_body",
    "token_body",
    "whoami_body",
]

_CONNECTED: Final = Struct(">iiiqi")
_MULTI_HEADER: Final = Struct(">i?i")

STAT_BYTES: Final = 68

_int: Final = INT.pack
_reply: Final = Struct(">iiqi").pack
_event: Final = Struct(">iiqiiii").pack

# The stat of a znode: czxid, mzxid, ctime, mtime, version, cversion, aversion, the owner of an
# ephemeral, the length of the data, the number of children, pzxid.
encode_stat: Final = Struct(">qqqqiiiqiiq").pack

_NULL: Final = _int(-1)

# The encoded lengths of nearly all names: lists of children consist mostly of names.
_LENGTHS: Final = tuple(_int(size) for size in range(256))


def encode_reply(xid: int, zxid: int, err: int, body: bytes = b"") -> bytes:
    """The frame that answers the request `xid`."""
    return _reply(16 + len(body), xid, zxid, err) + body


def encode_event(type: int, state: int, path: bytes, zxid: int = -1) -> bytes:
    """The frame that notifies a watcher of what happened to `path`."""
    return _event(28 + len(path), XID_EVENT, zxid, 0, type, state, len(path)) + path


def encode_connect_response(
    timeout_ms: int, session_id: int, password: bytes, read_only: bool | None
) -> bytes:
    """The first frame of a connection.  `read_only` is None, and omitted, if the client omitted it."""
    tail = b"" if read_only is None else b"\x01" if read_only else b"\x00"
    size = 20 + len(password) + len(tail)
    return _CONNECTED.pack(size, 0, timeout_ms, session_id, len(password)) + password + tail


def data_body(data: bytes | None, stat: bytes) -> bytes:
    if data is None:
        return _NULL + stat
    return _int(len(data)) + data + stat


def path_body(path: bytes | None) -> bytes:
    """create, and sync, which echoes its path."""
    return _NULL if path is None else _int(len(path)) + path


def created_body(path: bytes, stat: bytes) -> bytes:
    """create2, createContainer, createTTL."""
    return _int(len(path)) + path + stat


def children_body(names: Collection[bytes], stat: bytes | None) -> bytes:
    """getChildren, or getChildren2 with a stat."""
    try:
        parts = [_LENGTHS[len(name)] + name for name in names]
    except IndexError:
        parts = [_int(len(name)) + name for name in names]
    if stat is not None:
        parts.append(stat)
    return _int(len(names)) + b"".join(parts)


def acl_body(acl: Collection[Acl], stat: bytes) -> bytes:
    parts = [_int(len(acl))]
    for entry in acl:
        parts.append(_int(entry.perms))
        parts.append(_text(entry.scheme))
        parts.append(_text(entry.id))
    parts.append(stat)
    return b"".join(parts)


def number_body(number: int) -> bytes:
    """getAllChildrenNumber, and the 0 that answers addWatch."""
    return _int(number)


def ephemerals_body(paths: Collection[bytes]) -> bytes:
    return children_body(paths, None)


def whoami_body(identities: Iterable[tuple[str, str]]) -> bytes:
    """The identities of the client: pairs of a scheme and the user's name in it."""
    parts = [_text(scheme) + _text(user) for scheme, user in identities]
    return _int(len(parts)) + b"".join(parts)


def token_body(token: bytes | None) -> bytes:
    """The token that answers a SASL request."""
    return _NULL if token is None else _int(len(token)) + token


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _int(len(encoded)) + encoded


_RESULT_CREATE: Final = _MULTI_HEADER.pack(Op.CREATE, False, 0)
_RESULT_CREATE2: Final = _MULTI_HEADER.pack(Op.CREATE2, False, 0)
_RESULT_DELETE: Final = _MULTI_HEADER.pack(Op.DELETE, False, 0)
_RESULT_SET_DATA: Final = _MULTI_HEADER.pack(Op.SET_DATA, False, 0)
_RESULT_CHECK: Final = _MULTI_HEADER.pack(Op.CHECK, False, 0)
_RESULT_GET_DATA: Final = _MULTI_HEADER.pack(Op.GET_DATA, False, 0)
_RESULT_GET_CHILDREN: Final = _MULTI_HEADER.pack(Op.GET_CHILDREN, False, 0)

# The header that ends the results.  On its own it answers an empty multi.
MULTI_END: Final = _MULTI_HEADER.pack(Op.ERROR, True, -1)


def multi_created(op: int, path: bytes, stat: bytes | None) -> bytes:
    """The result of a create.  All kinds except the plain create include the stat, as type create2."""
    if op == Op.CREATE or stat is None:
        return _RESULT_CREATE + path_body(path)
    return _RESULT_CREATE2 + created_body(path, stat)


def multi_stat(stat: bytes) -> bytes:
    """The result of a setData."""
    return _RESULT_SET_DATA + stat


def multi_deleted() -> bytes:
    return _RESULT_DELETE


def multi_checked() -> bytes:
    return _RESULT_CHECK


def multi_data(body: bytes) -> bytes:
    """The result of a getData in a multiRead; `body` is the same as for a single getData."""
    return _RESULT_GET_DATA + body


def multi_children(names: Collection[bytes]) -> bytes:
    """The result of a getChildren in a multiRead."""
    return _RESULT_GET_CHILDREN + children_body(names, None)


def multi_error(code: int) -> bytes:
    """The result of an operation that failed, or was not carried out because another one failed.

    In a failed multi, the operations before the failed one have the code 0 and those after it -2
    (RUNTIME_INCONSISTENCY).
    """
    return _MULTI_HEADER.pack(Op.ERROR, False, code) + _int(code)
