"""How a tree of znodes lies in the store: keys and records, and nothing else.

    quoracy/zk/n/app/config     what the znode /app/config is: data, ACL, times, versions
    quoracy/zk/c/app            what happened below /app: how many creates, how many children
    quoracy/zk/s/<16 hex>       a session; it hangs on the lease with the session's id
    quoracy/zk/t                what a transaction did, where the keys it wrote cannot tell

zxids are revisions of the store.  A record cannot contain the revision that will be made by writing it,
so a zxid in a record is `OWN` when it is that revision: the store remembers it for us.  For the czxid,
`CREATION` means the revision in which the key came to be; one transaction that deletes a znode and
creates it again writes `CREATED_HERE`.

A znode has its second record, `c`, from its first child on.  Every create and delete below it writes
that, and nothing else does: deletions by the end of a lease do not.  `children` in it is the number of
children there were when it was written, so a reader sees that some went without a trace, and a record
with a pzxid of its own puts the zxid of that on file (see `replica.Replica`).

Compatibility: the first byte of each record is its format; an unknown one is refused, not guessed at.
A key that has none of these forms belongs to others, and is ignored.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final

import msgspec

from quoracy.errors import DataError
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, interned
from quoracy.store.model import KeyRange
from quoracy.wire.zookeeper.requests import Acl

__all__ = [
    "CREATED_HERE",
    "CREATION",
    "EVERYTHING",
    "KIDS_KIND",
    "KIND_AT",
    "NODE_KIND",
    "NOTE_KEY",
    "NOTE_KIND",
    "OWN",
    "SESSION_KIND",
    "WATCHED",
    "KidsRecord",
    "NodeKind",
    "NodeRecord",
    "Note",
    "SessionData",
    "decode_kids",
    "decode_node",
    "decode_note",
    "decode_session",
    "encode_kids",
    "encode_node",
    "encode_note",
    "encode_session",
    "kids_key",
    "node_key",
    "path_of",
    "session_id_of",
    "session_key",
]

_PREFIX: Final = b"quoracy/zk/"
_NODES: Final = b"quoracy/zk/n"
_KIDS: Final = b"quoracy/zk/c"
_SESSIONS: Final = b"quoracy/zk/s/"
NOTE_KEY: Final = b"quoracy/zk/t"

# What there is to read; not the prefix itself, which has no byte that says what it is.
EVERYTHING: Final = KeyRange(_PREFIX + b"\0", KeyRange.prefix(_PREFIX).end)
# What there is to watch: a prefix, since the watchers of a key are found by its prefixes.
WATCHED: Final = KeyRange.prefix(_PREFIX)

# The byte of a key that says what it is.
KIND_AT: Final = 11
NODE_KIND: Final = 0x6E  # n
KIDS_KIND: Final = 0x63  # c
SESSION_KIND: Final = 0x73  # s
NOTE_KIND: Final = 0x74  # t

# zxids in records.
OWN: Final = 0  # the revision that writes the record
CREATION: Final = 0  # for the czxid: the revision that created the key
CREATED_HERE: Final = -1  # for the czxid: the revision that writes the record, though the key is older

_FORMAT: Final = 1


class NodeKind(IntEnum):
    PERSISTENT = 0
    EPHEMERAL = 1
    CONTAINER = 2
    TTL = 3


def node_key(path: bytes) -> bytes:
    return _NODES + path


def kids_key(path: bytes) -> bytes:
    return _KIDS + path


def session_key(session_id: int) -> bytes:
    return _SESSIONS + b"%016x" % session_id


def path_of(key: bytes) -> bytes:
    """The path in a key of the kind `n` or `c`."""
    return key[KIND_AT + 1 :]


def session_id_of(key: bytes) -> int | None:
    """The session whose record has this key of the kind `s`; None if it has another form."""
    digits = key[len(_SESSIONS) :]
    if len(digits) != 16 or key[: len(_SESSIONS)] != _SESSIONS:
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


# -- the znode itself ------------------------------------------------------------------------
# format, kind, has data, ctime, mtime, czxid, mzxid, version, aversion, owner (or TTL), ACL's length

_NODE: Final = struct.Struct(">BBBqqqqiiqI")
_NODE_SIZE: Final = 55
_pack_node: Final = _NODE.pack

# What `decode_node` gives: kind, data, acl, ctime, mtime, czxid, mzxid, version, aversion, owner.
# A plain tuple: it is made for every change the replica applies.
NodeRecord = tuple[int, bytes | None, tuple[Acl, ...], int, int, int, int, int, int, int]


def encode_node(
    kind: int,
    data: bytes | None,
    acl: tuple[Acl, ...],
    *,
    ctime: int,
    mtime: int,
    czxid: int,
    mzxid: int,
    version: int,
    aversion: int,
    owner: int,
) -> bytes:
    """`owner` is the session of an ephemeral, the milliseconds of a TTL node, else 0."""
    packed = b"" if acl is OPEN_ACL else _pack_acl(acl)
    head = _pack_node(
        _FORMAT,
        kind,
        data is not None,
        ctime,
        mtime,
        czxid,
        mzxid,
        version,
        aversion,
        owner,
        len(packed),
    )
    return head + packed + data if data else head + packed


def decode_node(value: bytes) -> NodeRecord:
    try:
        format, kind, has_data, ctime, mtime, czxid, mzxid, version, aversion, owner, size = (
            _NODE.unpack_from(value)
        )
    except struct.error as error:
        raise _unreadable("a znode", value) from error
    if format != _FORMAT:
        raise _unreadable("a znode", value)
    start = _NODE_SIZE + size
    acl = _unpack_acl(value[_NODE_SIZE:start]) if size else OPEN_ACL
    data = value[start:] if has_data else None
    return kind, data, acl, ctime, mtime, czxid, mzxid, version, aversion, owner


@lru_cache(maxsize=1024)
def _pack_acl(acl: tuple[Acl, ...]) -> bytes:
    if acl == OPEN_ACL:
        return b""
    return msgspec.msgpack.encode([(each.perms, each.scheme, each.id) for each in acl])


@lru_cache(maxsize=1024)
def _unpack_acl(packed: bytes) -> tuple[Acl, ...]:
    try:
        rows = msgspec.msgpack.decode(packed, type=list[tuple[int, str, str]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable("an ACL", packed) from error
    return interned(tuple([Acl(*row) for row in rows]))


# -- what happened below it ------------------------------------------------------------------

_KIDS_RECORD: Final = struct.Struct(">Biiq")
_pack_kids: Final = _KIDS_RECORD.pack

KidsRecord = tuple[int, int, int]  # creates, children, pzxid


def encode_kids(creates: int, children: int, pzxid: int = OWN) -> bytes:
    return _pack_kids(_FORMAT, creates, children, pzxid)


def decode_kids(value: bytes) -> KidsRecord:
    try:
        format, creates, children, pzxid = _KIDS_RECORD.unpack(value)
    except struct.error as error:
        raise _unreadable("the children of a znode", value) from error
    if format != _FORMAT:
        raise _unreadable("the children of a znode", value)
    return creates, children, pzxid


# -- sessions --------------------------------------------------------------------------------

_SESSION = struct.Struct(">B16si8s")

SessionData = tuple[bytes, int, bytes]  # password, timeout in ms, the node that serves it


def encode_session(password: bytes, timeout_ms: int, node_id: bytes) -> bytes:
    return _SESSION.pack(_FORMAT, password, timeout_ms, node_id)


def decode_session(value: bytes) -> SessionData:
    try:
        format, password, timeout_ms, node_id = _SESSION.unpack(value)
    except struct.error as error:
        raise _unreadable("a session", value) from error
    if format != _FORMAT:
        raise _unreadable("a session", value)
    return password, timeout_ms, node_id


# -- notes -----------------------------------------------------------------------------------
# Two operations of one multi on one znode become one write of its key.  Watchers want to hear of both.


Note = list[tuple[int, bytes, tuple[Acl, ...]]]


def encode_note(events: Note) -> bytes:
    """The events of a transaction in their order: type, path, and the znode's ACL at that moment."""
    rows = [(type, path, _pack_acl(acl)) for type, path, acl in events]
    return bytes((_FORMAT,)) + msgspec.msgpack.encode(rows)


def decode_note(value: bytes) -> Note:
    if value[:1] != bytes((_FORMAT,)):
        raise _unreadable("a note", value)
    try:
        rows = msgspec.msgpack.decode(value[1:], type=list[tuple[int, bytes, bytes]])
    except msgspec.DecodeError as error:
        raise _unreadable("a note", value) from error
    return [(type, path, _unpack_acl(acl) if acl else OPEN_ACL) for type, path, acl in rows]


def _unreadable(what: str, value: bytes) -> DataError:
    return DataError(
        f"a record of {what} begins with {value[:4]!r}, which this version does not know. "
        "Was it written by a newer Quoracy, or by hand?"
    )
