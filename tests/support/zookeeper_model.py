"""ZooKeeper's semantics once more, as plainly as they can be said: one dictionary, one thing at a time.

Written from PrepRequestProcessor (what is refused, and with which of several errors) and DataTree (what
a transaction does, and which watches it triggers).  It shares no code with the face, so that it cannot
be wrong in the same way.  A multi that fails gets a copy of everything back that was made before it.

The zxid of a write is given to it, as is the time: whoever compares takes both from what is compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from quoracy.wire.zookeeper.requests import Acl, Check, Create, Delete, Multi, SetAcl, SetData

__all__ = ["Answer", "Asked", "Event", "Model", "Refused", "Request", "Stat", "Znode", "judge"]

Request: TypeAlias = Create | Delete | SetData | SetAcl | Check | Multi

# What a client is answered: the error, and what the body says.
Answer: TypeAlias = tuple[int, object]
# Type and path, as a server sends them.
Event: TypeAlias = tuple[int, bytes]

OPEN = (Acl(31, "world", "anyone"),)

OK = 0
RUNTIME_INCONSISTENCY = -2
UNIMPLEMENTED = -6
BAD_ARGUMENTS = -8
NO_NODE = -101
NO_AUTH = -102
BAD_VERSION = -103
NO_CHILDREN_FOR_EPHEMERALS = -108
NODE_EXISTS = -110
NOT_EMPTY = -111
INVALID_ACL = -114

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16

NODE_CREATED, NODE_DELETED, DATA_CHANGED, CHILDREN_CHANGED = 1, 2, 3, 4

_CREATE_TTL, _CREATE_CONTAINER, _CREATE2 = 21, 19, 15


class Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Stat(NamedTuple):
    """As it is on the wire."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_length: int
    num_children: int
    pzxid: int


@dataclass
class Znode:
    data: bytes | None
    acl: tuple[Acl, ...]
    kind: str = "persistent"  # or ephemeral, container, ttl
    owner: int = 0
    ttl_ms: int = 0
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    aversion: int = 0
    creates: int = 0  # what ZooKeeper keeps as the cversion
    children: set[bytes] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            _int(2 * self.creates - len(self.children)),
            self.aversion,
            self.owner,
            len(self.data or b""),
            len(self.children),
            self.pzxid,
        )


class Model:
    """A ZooKeeper that is asked one thing after the other."""

    def __init__(self, *, zxid: int = 2, extended_types: bool = True) -> None:
        self.extended_types = extended_types
        self.nodes: dict[bytes, Znode] = {}
        self.events: list[Event] = []
        for path, acl, aversion in (
            (b"/", OPEN, 0),
            (b"/zookeeper", OPEN, 0),
            (b"/zookeeper/config", (Acl(1, "world", "anyone"),), -1),
            (b"/zookeeper/quota", OPEN, 0),
        ):
            self.nodes[path] = Znode(b"", acl, czxid=zxid, mzxid=zxid, pzxid=zxid, aversion=aversion)
        self.nodes[b"/"].children = {b"zookeeper"}
        self.nodes[b"/zookeeper"].children = {b"config", b"quota"}

    def ask(
        self,
        request: Request,
        *,
        session: int,
        zxid: int,
        now_ms: int,
        ids: tuple[tuple[str, str], ...] = (),
    ) -> Answer:
        """Carry out a request, or refuse it.  Its events are added to `events`."""
        before = copy.deepcopy(self.nodes), list(self.events)
        turn = _Turn(self, session, zxid, now_ms, ids)
        if not isinstance(request, Multi):
            try:
                result = turn.carry_out(request)
            except Refused as refused:
                return refused.code, None
            return OK, _single(request, result)
        results: list[tuple[object, ...]] = []
        for index, op in enumerate(request.ops):
            try:
                results.append(_part(op, turn.carry_out(op)))
            except Refused as refused:
                self.nodes, self.events = before
                failed = [OK] * index + [refused.code]
                failed += [RUNTIME_INCONSISTENCY] * (len(request.ops) - len(failed))
                return OK, [("error", code) for code in failed]
        return OK, results

    def copy(self) -> Model:
        model = Model(extended_types=self.extended_types)
        model.nodes = copy.deepcopy(self.nodes)
        return model

    def end_session(self, session: int, *, zxid: int) -> None:
        """All its ephemerals go, with one zxid."""
        for path in sorted(p for p, node in self.nodes.items() if session and node.owner == session):
            self.remove(path, zxid=zxid)

    def remove(self, path: bytes, *, zxid: int) -> None:
        parent = _parent(path)
        del self.nodes[path]
        self.nodes[parent].children.remove(path.rpartition(b"/")[2])
        self.nodes[parent].pzxid = zxid
        self.events += [(NODE_DELETED, path), (CHILDREN_CHANGED, parent)]


class Asked(NamedTuple):
    """What a session asked, and was answered: with which zxid, 0 if nothing was written."""

    session: int
    request: Request
    zxid: int
    answer: Answer
    ids: tuple[tuple[str, str], ...] = ()
    since: int = 0  # the newest zxid that had been told to anybody when it asked


def judge(
    model: Model,
    asked: Sequence[Asked],
    *,
    now_ms: int,
    ends: Mapping[int, int] | None = None,
    others: Sequence[tuple[int, Callable[[Model], None]]] = (),
) -> None:
    """Whether there is an order in which a ZooKeeper would have answered like that, all of it.

    Writes took effect in the order of their zxids; those of a session, and what was refused among them,
    in the order in which it asked.  `ends` has the zxid with which sessions ended, `others` what else
    happened.  The model carries everything out; a refusal must be what it would have answered at some
    moment that was possible: not before what was known when it was asked for.
    """
    ends = ends or {}
    moments = [model.copy()]
    moment_of: dict[int, int] = {}

    def carry_out(each: Asked) -> None:
        told = model.ask(
            each.request, session=each.session, zxid=each.zxid, now_ms=now_ms, ids=each.ids
        )
        assert each.answer == told, each

    happened: list[tuple[int, Callable[[], None]]] = [
        *((each.zxid, partial(carry_out, each)) for each in asked if each.zxid),
        *((zxid, partial(model.end_session, id, zxid=zxid)) for id, zxid in ends.items()),
        *((zxid, partial(other, model)) for zxid, other in others),
    ]
    happened.sort(key=lambda row: row[0])
    for zxid, happen in happened:
        assert zxid not in moment_of, "two writes with one zxid"
        happen()
        moment_of[zxid] = len(moments)
        moments.append(model.copy())

    def is_right(each: Asked, moment: int) -> bool:
        then = moments[moment].copy()
        told = then.ask(each.request, session=each.session, zxid=0, now_ms=now_ms, ids=each.ids)
        return told == each.answer and then.nodes == moments[moment].nodes

    for session in {each.session for each in asked}:
        own = [each for each in asked if each.session == session]
        earliest = 0
        for index, each in enumerate(own):
            known = [moment for zxid, moment in moment_of.items() if zxid <= each.since]
            earliest = max(earliest, *known, 0)
            if each.zxid:
                assert moment_of[each.zxid] > earliest, f"out of order: {each}"
                earliest = moment_of[each.zxid]
                continue
            later = [moment_of[other.zxid] for other in own[index + 1 :] if other.zxid]
            if session in ends:
                later.append(moment_of[ends[session]])
            latest = min(later, default=len(moments)) - 1
            right = [moment for moment in range(earliest, latest + 1) if is_right(each, moment)]
            # (What is wrong in itself is wrong at any time, even when the session is over.)
            assert right or all(is_right(each, moment) for moment in range(len(moments))), each
            earliest = min(right, default=earliest)


# What an operation made or changed: the path, and the Stat at that moment.
_Result: TypeAlias = tuple[bytes, Stat | None]


class _Turn:
    """One request of one session."""

    def __init__(
        self, model: Model, session: int, zxid: int, now_ms: int, ids: tuple[tuple[str, str], ...]
    ) -> None:
        self.model, self.nodes = model, model.nodes
        self.session, self.zxid, self.now_ms, self.ids = session, zxid, now_ms, ids

    def carry_out(self, op: Create | Delete | SetData | SetAcl | Check) -> _Result:
        match op:
            case Create():
                return self.create(op)
            case Delete():
                return self.delete(op)
            case SetData():
                return self.set_data(op)
            case SetAcl():
                return self.set_acl(op)
            case Check():
                return self.check(op)

    def create(self, op: Create) -> _Result:
        if not 0 <= op.flags <= 6:
            raise Refused(BAD_ARGUMENTS)
        is_ephemeral, is_sequential = op.flags in (1, 3), op.flags in (2, 3, 6)
        is_ttl = op.flags in (5, 6)
        if is_ttl and not self.model.extended_types:
            raise Refused(UNIMPLEMENTED)
        if is_ttl != (op.ttl_ms >= 0) or (is_ttl and not 0 < op.ttl_ms < 2**40):
            raise Refused(BAD_ARGUMENTS)
        path = op.path
        if b"/" not in path or b"\0" in path:
            raise Refused(BAD_ARGUMENTS)
        acl = self.fixed(op.acl)
        parent = self.existing(_parent(path))
        self.allow(parent, CREATE)
        if is_sequential:
            path += b"%010d" % parent.creates
        _check_path(path)
        if path in self.nodes:
            raise Refused(NODE_EXISTS)
        if parent.kind == "ephemeral":
            raise Refused(NO_CHILDREN_FOR_EPHEMERALS)
        node = Znode(op.data, acl, czxid=self.zxid, mzxid=self.zxid, pzxid=self.zxid)
        node.ctime = node.mtime = self.now_ms
        if op.op == _CREATE_CONTAINER:
            node.kind = "container"
        elif is_ttl:
            node.kind, node.ttl_ms = "ttl", op.ttl_ms
        elif is_ephemeral:
            node.kind, node.owner = "ephemeral", self.session
        self.nodes[path] = node
        parent.creates = _int(parent.creates + 1)
        parent.pzxid = self.zxid
        parent.children.add(path.rpartition(b"/")[2])
        self.model.events += [(NODE_CREATED, path), (CHILDREN_CHANGED, _parent(path))]
        return path, node.stat()

    def delete(self, op: Delete) -> _Result:
        path = op.path
        special = (b"", b"/", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config")
        if b"/" not in path or b"\0" in path or path in special:
            raise Refused(BAD_ARGUMENTS)
        self.allow(self.existing(_parent(path)), DELETE)
        node = self.existing(path)
        _next(node.version, op.version)
        if node.children:
            raise Refused(NOT_EMPTY)
        self.model.remove(path, zxid=self.zxid)
        return path, None

    def set_data(self, op: SetData) -> _Result:
        _check_path(op.path)
        node = self.existing(op.path)
        self.allow(node, WRITE)
        node.version = _next(node.version, op.version)
        node.data, node.mzxid, node.mtime = op.data, self.zxid, self.now_ms
        self.model.events.append((DATA_CHANGED, op.path))
        return op.path, node.stat()

    def set_acl(self, op: SetAcl) -> _Result:
        _check_path(op.path)
        acl = self.fixed(op.acl)
        node = self.existing(op.path)
        self.allow(node, ADMIN)
        node.aversion = _next(node.aversion, op.version)
        node.acl = acl
        return op.path, node.stat()

    def check(self, op: Check) -> _Result:
        _check_path(op.path)
        node = self.existing(op.path)
        self.allow(node, READ)
        _next(node.version, op.version)
        return op.path, None

    def existing(self, path: bytes) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        return node

    def allow(self, node: Znode, perm: int) -> None:
        """(Of the schemes only those that the tests use.)"""
        for entry in node.acl:
            known = entry.scheme == "world" or (entry.scheme, entry.id) in self.ids
            if known and entry.perms & perm:
                return
        raise Refused(NO_AUTH)

    def fixed(self, acl: tuple[Acl, ...] | None) -> tuple[Acl, ...]:
        fixed: list[Acl] = []
        for entry in acl or ():
            if entry.scheme == "auth":
                own = [Acl(entry.perms, *id) for id in self.ids]
                if not own:
                    raise Refused(INVALID_ACL)
                fixed += own
            elif entry.scheme in ("world", "digest"):
                if entry not in fixed:
                    fixed.append(entry)
            else:
                raise Refused(INVALID_ACL)
        if not fixed:
            raise Refused(INVALID_ACL)
        return tuple(fixed)


def _single(request: object, result: _Result) -> object:
    path, stat = result
    match request:
        case Create(op=op):
            return (path, stat) if op in (_CREATE2, _CREATE_CONTAINER, _CREATE_TTL) else path
        case SetData() | SetAcl():
            return stat
        case _:
            return None


def _part(request: object, result: _Result) -> tuple[object, ...]:
    """A result of a multi, as it is on the wire."""
    path, stat = result
    match request:
        case Create(op=op):
            with_stat = op in (_CREATE2, _CREATE_CONTAINER, _CREATE_TTL)
            return ("create2", path, stat) if with_stat else ("create", path)
        case SetData() | SetAcl():
            return "set", stat
        case Delete():
            return ("delete",)
        case _:
            return ("check",)


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"


def _check_path(path: bytes) -> None:
    names = path.split(b"/")
    if not path or names[0] or (b"" in names[1:] and path != b"/") or b"." in names or b".." in names:
        raise Refused(BAD_ARGUMENTS)
    if any(byte < 0x20 or byte == 0x7F for byte in path):
        raise Refused(BAD_ARGUMENTS)


def _next(version: int, expected: int) -> int:
    if expected not in (-1, version):
        raise Refused(BAD_VERSION)
    following = _int(version + 1)
    return 0 if following == -1 else following


def _int(number: int) -> int:
    """Java's int."""
    number %= 2**32
    return number - 2**32 if number >= 2**31 else number
