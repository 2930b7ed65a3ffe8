"""Requests of ZooKeeper's protocol as values, made into bytes, and their replies read back.

Whatever can be written in a request can be said here, right or wrong: `cut` takes bytes away from its
end, `tail` adds some, and an operation that nobody knows carries any bytes.

A reply is read into a *shape*, plain values that two servers must agree on, and next to it what each
server chooses for itself: the zxids in the order in which they appear, and times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from tests.differential.zk_jute import (
    JuteReader,
    Unreadable,
    boolean,
    buffer,
    int32,
    int64,
    text,
    vector,
)

__all__ = [
    "OPEN",
    "Acl",
    "Mark",
    "Op",
    "Reading",
    "Request",
    "Shape",
    "encode",
    "is_known",
    "read_event",
    "read_reply",
]

Shape: TypeAlias = Any


class Op(IntEnum):
    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


@dataclass(frozen=True)
class Acl:
    perms: int
    scheme: str | None
    id: str | None


OPEN = (Acl(31, "world", "anyone"),)


@dataclass(frozen=True)
class Mark:
    """The zxid of a change both servers have made; the `index`th, counted round and round."""

    index: int


@dataclass(frozen=True)
class Request:
    """One request: its operation and the values of its fields, in the order of the protocol.

    The fields of a multi are requests.  `xid` None: the next one, as clients count.
    """

    op: int
    values: tuple[Any, ...] = ()
    xid: int | None = None
    cut: int = 0
    tail: bytes = b""

    @property
    def name(self) -> str:
        return Op(self.op).name.lower() if self.op in _OPS else f"op{self.op}"

    @property
    def changes_the_tree(self) -> bool:
        """Whether success means that there is a new zxid."""
        return self.op in _CHANGES or (
            self.op == Op.MULTI and any(part.op in _CHANGES for part in self.values)
        )

    def __str__(self) -> str:
        said = ", ".join(map(_said, self.values))
        odd = [
            *([f"xid={self.xid}"] if self.xid is not None else []),
            *([f"cut={self.cut}"] if self.cut else []),
            *([f"tail={self.tail!r}"] if self.tail else []),
        ]
        return f"{self.name}({said}){' ' + ' '.join(odd) if odd else ''}"


_OPS = frozenset(int(op) for op in Op)


def is_known(op: int) -> bool:
    """Whether clients may ask for that operation."""
    return op in _OPS and op not in (Op.NOTIFICATION, Op.ERROR, Op.CREATE_SESSION)


_CHANGES = frozenset(
    {Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL, Op.DELETE, Op.SET_DATA, Op.SET_ACL}
)


def _said(value: Any) -> str:
    if value is OPEN or value == OPEN:
        return "OPEN"
    if isinstance(value, tuple) and value and isinstance(value[0], Acl):
        return "[" + ", ".join(f"{acl.scheme}:{acl.id}:{acl.perms}" for acl in value) + "]"
    if isinstance(value, Request):
        return str(value)
    said = repr(value)
    return said if len(said) <= 120 else f"{said[:100]}... ({len(said):,} characters)"


# -- fields ----------------------------------------------------------------------------------------


def _acls(value: Any) -> bytes:
    return vector(
        None if value is None else (int32(a.perms) + text(a.scheme) + text(a.id) for a in value)
    )


def _texts(value: Any) -> bytes:
    return vector(None if value is None else map(text, value))


_WRITE: Mapping[str, Callable[[Any], bytes]] = {
    "i": int32,
    "l": int64,
    "?": boolean,
    "b": buffer,
    "s": text,
    "A": _acls,
    "S": _texts,
    "*": bytes,
}

# The types of the fields of each request; "*" is bytes as they are.
_FIELDS: Mapping[int, str] = {
    Op.CREATE: "sbAi",
    Op.CREATE2: "sbAi",
    Op.CREATE_CONTAINER: "sbAi",
    Op.CREATE_TTL: "sbAil",
    Op.DELETE: "si",
    Op.EXISTS: "s?",
    Op.GET_DATA: "s?",
    Op.SET_DATA: "sbi",
    Op.GET_ACL: "s",
    Op.SET_ACL: "sAi",
    Op.GET_CHILDREN: "s?",
    Op.GET_CHILDREN2: "s?",
    Op.SYNC: "s",
    Op.PING: "",
    Op.CHECK: "si",
    Op.RECONFIG: "sssl",
    Op.CHECK_WATCHES: "si",
    Op.REMOVE_WATCHES: "si",
    Op.AUTH: "isb",
    Op.SASL: "b",
    Op.SET_WATCHES: "lSSS",
    Op.SET_WATCHES2: "lSSSSS",
    Op.ADD_WATCH: "si",
    Op.GET_EPHEMERALS: "s",
    Op.GET_ALL_CHILDREN_NUMBER: "s",
    Op.WHO_AM_I: "",
    Op.CLOSE_SESSION: "",
}


def encode(request: Request, zxid_of: Callable[[Mark], int]) -> bytes:
    """What follows the header."""
    if request.op in (Op.MULTI, Op.MULTI_READ):
        body = b"".join(
            int32(part.op) + boolean(False) + int32(-1) + encode(part, zxid_of)
            for part in request.values
        ) + (int32(-1) + boolean(True) + int32(-1))
    else:
        types = _FIELDS.get(request.op, "*" * len(request.values))
        assert len(types) == len(request.values), request
        body = b"".join(
            _WRITE[kind](zxid_of(value) if isinstance(value, Mark) else value)
            for kind, value in zip(types, request.values, strict=True)
        )
    return body[: len(body) - request.cut] + request.tail


# -- replies ---------------------------------------------------------------------------------------


@dataclass
class Reading:
    """A reply taken apart: `shape` is to be equal, zxids are to be in the same order.

    `times` says which time belongs to which zxid: a server has one time for all that one change did.
    """

    shape: Shape = None
    zxids: list[int] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)


# The types of what a reply holds.  "C" is names in any order, "I" ids in any order, "T" a Stat.
_ANSWERS: Mapping[int, str] = {
    Op.CREATE: "s",
    Op.CREATE2: "sT",
    Op.CREATE_CONTAINER: "sT",
    Op.CREATE_TTL: "sT",
    Op.DELETE: "",
    Op.EXISTS: "T",
    Op.GET_DATA: "bT",
    Op.SET_DATA: "T",
    Op.GET_ACL: "AT",
    Op.SET_ACL: "T",
    Op.GET_CHILDREN: "C",
    Op.GET_CHILDREN2: "CT",
    Op.SYNC: "s",
    Op.PING: "",
    Op.CHECK: "",
    Op.CHECK_WATCHES: "",
    Op.REMOVE_WATCHES: "",
    Op.AUTH: "",
    Op.SASL: "b",
    Op.SET_WATCHES: "",
    Op.SET_WATCHES2: "",
    Op.ADD_WATCH: "i",
    Op.GET_EPHEMERALS: "C",
    Op.GET_ALL_CHILDREN_NUMBER: "i",
    Op.WHO_AM_I: "I",
    Op.CLOSE_SESSION: "",
}

_ERROR_RESULT = -1


def read_reply(op: int, err: int, body: bytes, owner: Callable[[int], str]) -> Reading:
    """`owner` gives a session id the name that it has on both servers."""
    reading = Reading()
    reader = JuteReader(body)
    try:
        if err != 0:
            reading.shape = ()  # an error has no body; bytes are seen as left over
        elif op in (Op.MULTI, Op.MULTI_READ):
            reading.shape = _multi(reader, reading, owner)
        else:
            reading.shape = _values(_ANSWERS.get(op, ""), reader, reading, owner)
        if reader.rest:
            reading.shape = (reading.shape, "and left over", reader.rest)
    except (Unreadable, UnicodeDecodeError) as problem:
        reading.shape = ("unreadable", str(problem), body)
    return reading


def read_event(body: bytes) -> Shape:
    reader = JuteReader(body)
    try:
        shape = (reader.int32(), reader.int32(), reader.text())
    except Unreadable as problem:
        return ("unreadable", str(problem), body)
    return (*shape, "and left over", reader.rest) if reader.rest else shape


def _values(types: str, reader: JuteReader, reading: Reading, owner: Callable[[int], str]) -> Shape:
    read: Mapping[str, Callable[[], Any]] = {
        "i": reader.int32,
        "b": reader.buffer,
        "s": reader.text,
        "A": lambda: _acls_in_order(reader.vector(lambda: _acl(reader))),
        "C": lambda: _in_order(reader.vector(reader.text)),
        "I": lambda: _in_order(reader.vector(lambda: (reader.text(), reader.text()))),
        "T": lambda: _stat(reader, reading, owner),
    }
    return tuple(read[kind]() for kind in types)


def _in_order(items: list[Any] | None) -> tuple[Any, ...] | None:
    """ZooKeeper keeps children and identities in hash sets: the order says nothing."""
    return None if items is None else tuple(sorted(items, key=repr))


def _acls_in_order(acls: list[Any] | None) -> tuple[Any, ...] | None:
    """In their order, but for the identities that `auth` stood for: they were a hash set."""
    if acls is None:
        return None
    digests = iter(sorted(acl for acl in acls if acl[1] == "digest"))
    return tuple(next(digests) if acl[1] == "digest" else acl for acl in acls)


def _acl(reader: JuteReader) -> tuple[int, str | None, str | None]:
    return (reader.int32(), reader.text(), reader.text())


def _stat(reader: JuteReader, reading: Reading, owner: Callable[[int], str]) -> Shape:
    czxid, mzxid, ctime, mtime = reader.int64(), reader.int64(), reader.int64(), reader.int64()
    version, cversion, aversion = reader.int32(), reader.int32(), reader.int32()
    owner_id, data_length, children, pzxid = (
        reader.int64(),
        reader.int32(),
        reader.int32(),
        reader.int64(),
    )
    reading.zxids += [czxid, mzxid, pzxid]
    reading.times += [(czxid, ctime), (mzxid, mtime)]
    return {
        "version": version,
        "cversion": cversion,
        "aversion": aversion,
        "owner": owner(owner_id),
        "data_length": data_length,
        "children": children,
        "timed": (ctime != 0, mtime != 0),
    }


# The results of a multi: like the replies, but setData has the name of its operation, and so on.
def _multi(reader: JuteReader, reading: Reading, owner: Callable[[int], str]) -> Shape:
    results: list[Shape] = []
    while True:
        op, done, err = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return (*results, ("end", op, err))
        if op == _ERROR_RESULT:
            results.append(("error", err, reader.int32()))
        else:
            results.append((op, err, _values(_ANSWERS.get(op, ""), reader, reading, owner)))
