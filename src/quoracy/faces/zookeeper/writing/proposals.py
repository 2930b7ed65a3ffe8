"""What each writing request asks of a draft, and what it is answered: ZooKeeper's rules, in its order.

Which of several errors a client sees depends on the order of the checks; it is that of
PrepRequestProcessor.  Nothing here waits, and nothing is changed but the draft, which is thrown away
when an operation is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import acl as acls
from quoracy.faces.zookeeper.tree import paths
from quoracy.faces.zookeeper.tree.acl import Identity
from quoracy.faces.zookeeper.tree.layout import NodeKind
from quoracy.faces.zookeeper.tree.paths import ZkError
from quoracy.faces.zookeeper.tree.znodes import Node, as_int32
from quoracy.faces.zookeeper.writing.drafts import HERE, Draft, MustWait
from quoracy.wire.zookeeper import replies
from quoracy.wire.zookeeper.codes import Err, Op, Perm
from quoracy.wire.zookeeper.requests import Check, Create, Delete, Multi, SetAcl, SetData

__all__ = [
    "Caller",
    "DeleteContainer",
    "MultiRefused",
    "Proposal",
    "WriteRequest",
    "propose",
]

_READ: Final = int(Perm.READ)
_WRITE: Final = int(Perm.WRITE)
_CREATE: Final = int(Perm.CREATE)
_DELETE: Final = int(Perm.DELETE)
_ADMIN: Final = int(Perm.ADMIN)

# CreateMode: flag -> ephemeral, sequential, TTL
_MODES: dict[int, tuple[bool, bool, bool]] = {
    0: (False, False, False),
    1: (True, False, False),
    2: (False, True, False),
    3: (True, True, False),
    4: (False, False, False),  # container
    5: (False, False, True),
    6: (False, True, True),
}
_TTL_MAX_MS = 0xFF_FFFF_FFFF
_NOTHING_COUNTED: dict[bytes, int] = {}
# Numbers, since an Enum's own comparison takes many times that of two of them.
_CREATE_OP: Final = int(Op.CREATE)
_CREATE_CONTAINER: Final = int(Op.CREATE_CONTAINER)
_CREATE_TTL: Final = int(Op.CREATE_TTL)
_PERSISTENT: Final = int(NodeKind.PERSISTENT)
_EPHEMERAL: Final = int(NodeKind.EPHEMERAL)
_CONTAINER: Final = int(NodeKind.CONTAINER)
_TTL: Final = int(NodeKind.TTL)


class DeleteContainer:
    """Remove a container or a TTL znode that has served its time; asked for by the server itself."""

    __slots__ = ("path",)

    def __init__(self, path: bytes) -> None:
        self.path = path


WriteRequest: TypeAlias = Create | Delete | SetData | SetAcl | Check | Multi | DeleteContainer
_Single: TypeAlias = Create | Delete | SetData | SetAcl | Check


class Caller(Protocol):
    """The client that asks, or the server itself."""

    @property
    def session_id(self) -> int: ...

    @property
    def ids(self) -> tuple[Identity, ...]: ...

    @property
    def address(self) -> str: ...


class Proposal:
    """A request that was found right, and how it is answered once its revision has been applied."""

    __slots__ = ("_counted", "_request", "_shown")

    def __init__(
        self, request: WriteRequest, shown: Sequence[_Shown], counted: dict[bytes, int]
    ) -> None:
        self._request = request
        self._shown = shown
        self._counted = counted  # the children that znodes will have, as far as was known

    def reply(self, nodes: dict[bytes, Node], zxid: int) -> bytes:
        """The body of the reply, while the tree is at `zxid`, the revision of this very write."""
        request, shown = self._request, self._shown
        if not isinstance(request, Multi):
            path = shown[0][0]
            return _single_reply(request, path, nodes.get(path))
        for path, node in shown:
            if node is not None and path in nodes:
                _take_off_lost(node, nodes[path], self._counted[path])
        parts = [_multi_reply(op, each, zxid) for op, each in zip(request.ops, shown, strict=True)]
        parts.append(replies.MULTI_END)
        return b"".join(parts)

    def reply_ahead(self, left: Mapping[bytes, Node]) -> bytes | None:
        """The same, from the znodes as the draft leaves them; None if that does not show everything."""
        if isinstance(self._request, Multi):
            return None
        path = self._shown[0][0]
        node = left.get(path)
        if (
            node is not None
            and node.n_version
            and not (node.czxid > 0 and node.mzxid > 0 and node.pzxid > 0)
        ):
            return None
        return _single_reply(self._request, path, node)


# What an operation shows: the path it made, or the znode as it left it.
_Shown: TypeAlias = tuple[bytes, Node | None]


def propose(
    request: WriteRequest, caller: Caller, draft: Draft, settings: ZooKeeperSettings
) -> Proposal:
    """Raises `ZkError` for what is refused, `MustWait` for what cannot be judged yet.

    A multi is refused by its own kind of reply: see `MultiRefused`.
    """
    rules = _Rules(caller, draft, settings)
    if not isinstance(request, Multi):
        return Proposal(request, (rules.carry_out(request),), _NOTHING_COUNTED)
    shown = rules.multi(request)
    counted: dict[bytes, int] = {}
    for path, snapshot in shown:
        node = None if snapshot is None else draft.node(path)
        if node is not None:
            counted[path] = node.children_count
    return Proposal(request, shown, counted)


class MultiRefused(Exception):
    """An operation of a multi is refused, and with it all of them.  `body` is the reply's."""

    def __init__(self, index: int, count: int, code: Err) -> None:
        super().__init__(f"operation {index} of {count}: {code.name}")
        parts = [replies.multi_error(Err.OK)] * index
        parts.append(replies.multi_error(code))
        parts += [replies.multi_error(Err.RUNTIME_INCONSISTENCY)] * (count - index - 1)
        parts.append(replies.MULTI_END)
        self.body = b"".join(parts)


class _Rules:
    """The checks of one request."""

    __slots__ = ("_address", "_caller", "_draft", "_ids", "_settings")

    def __init__(self, caller: Caller, draft: Draft, settings: ZooKeeperSettings) -> None:
        self._caller, self._draft, self._settings = caller, draft, settings
        self._ids, self._address = caller.ids, caller.address

    def multi(self, request: Multi) -> list[_Shown]:
        shown: list[_Shown] = []
        for index, op in enumerate(request.ops):
            try:
                path, node = self.carry_out(op)
            except ZkError as error:
                raise MultiRefused(index, len(request.ops), error.code) from error
            if node is not None:
                self._draft.look_below(path)  # it is shown with what happened there
                node = _snapshot(node)
            shown.append((path, node))
        return shown

    def carry_out(self, op: _Single | DeleteContainer) -> _Shown:
        if isinstance(op, SetData):
            return self.set_data(op)
        if isinstance(op, Create):
            return self.create(op)
        if isinstance(op, Delete):
            return self.delete(op)
        if isinstance(op, Check):
            return self.check(op)
        if isinstance(op, SetAcl):
            return self.set_acl(op)
        return self.delete_container(op)

    # -- the operations ------------------------------------------------------------------

    def create(self, op: Create) -> _Shown:
        draft = self._draft
        ephemeral, sequential, is_ttl = _mode(op, self._settings)
        path = op.path
        parent_path = paths.parent_for_create(path)
        acl = acls.fix_up(op.acl or (), self._ids)
        parent = self._existing(parent_path)
        self._allow(parent, _CREATE)
        if sequential:
            draft.look_below(parent_path)
            path += b"%010d" % parent.creates
        if not paths.is_valid_below(path, len(parent_path) if parent_path != paths.ROOT else 0):
            raise ZkError(Err.BAD_ARGUMENTS)
        if draft.node(path) is not None:
            raise ZkError(Err.NODE_EXISTS)
        if parent.kind == _EPHEMERAL:
            raise ZkError(Err.NO_CHILDREN_FOR_EPHEMERALS)
        kind, owner, ttl_ms = _PERSISTENT, 0, 0
        if op.op == _CREATE_CONTAINER:
            kind = _CONTAINER
        elif is_ttl:
            kind, ttl_ms = _TTL, op.ttl_ms
        elif ephemeral:
            kind, owner = _EPHEMERAL, self._caller.session_id
        node = draft.create(path, parent_path, op.data, acl, kind, owner=owner, ttl_ms=ttl_ms)
        return path, node if op.op != _CREATE_OP else None

    def delete(self, op: Delete) -> _Shown:
        path = op.path
        parent_path = paths.parent_for_delete(path)
        self._allow(self._existing(parent_path), _DELETE)
        node = self._existing(path)
        if op.version not in (-1, node.version):
            raise ZkError(Err.BAD_VERSION)
        self._remove(node, parent_path)
        return path, None

    def delete_container(self, op: DeleteContainer) -> _Shown:
        parent_path = paths.parent_for_delete(op.path)
        node = self._existing(op.path)
        if node.kind not in (_CONTAINER, _TTL):
            raise ZkError(Err.BAD_VERSION)
        self._existing(parent_path)
        self._remove(node, parent_path)
        return op.path, None

    def _remove(self, node: Node, parent_path: bytes) -> None:
        self._draft.look_below(node.path)
        if node.children_count > 0:
            raise ZkError(Err.NOT_EMPTY)
        self._draft.remove(node.path, parent_path)

    def set_data(self, op: SetData) -> _Shown:
        path = op.path
        node = self._valid_and_existing(path)
        self._allow(node, _WRITE)
        version = _next_version(node.version, op.version)
        return path, self._draft.set_data(path, op.data, version)

    def set_acl(self, op: SetAcl) -> _Shown:
        path = op.path
        paths.validate_path(path)
        acl = acls.fix_up(op.acl or (), self._ids)
        node = self._existing(path)
        self._allow(node, _ADMIN)
        version = _next_version(node.aversion, op.version)
        return path, self._draft.set_acl(path, acl, version)

    def check(self, op: Check) -> _Shown:
        node = self._valid_and_existing(op.path)
        self._allow(node, _READ)
        _next_version(node.version, op.version)
        return op.path, None

    # -- what they have in common ----------------------------------------------------------

    def _existing(self, path: bytes) -> Node:
        node = self._draft.node(path)
        if node is None:
            raise ZkError(Err.NO_NODE)
        return node

    def _valid_and_existing(self, path: bytes) -> Node:
        node = self._draft.node(path)
        if node is None:  # what exists has a valid path
            paths.validate_path(path)
            raise ZkError(Err.NO_NODE)
        return node

    def _allow(self, node: Node, perm: int) -> None:
        if node.acl is acls.OPEN_ACL:
            return
        if not acls.check(node.acl, perm, self._ids, self._address, skip_acl=self._settings.skip_acl):
            raise ZkError(Err.NO_AUTH)


def _mode(op: Create, settings: ZooKeeperSettings) -> tuple[bool, bool, bool]:
    mode = _MODES.get(op.flags)
    if mode is None:
        raise ZkError(Err.BAD_ARGUMENTS)
    is_ttl = mode[2]
    if is_ttl and not settings.extended_types_enabled:
        raise ZkError(Err.UNIMPLEMENTED)
    if is_ttl:
        if not 0 < op.ttl_ms <= _TTL_MAX_MS:
            raise ZkError(Err.BAD_ARGUMENTS)
    elif op.ttl_ms >= 0 or op.op == _CREATE_TTL:
        raise ZkError(Err.BAD_ARGUMENTS)
    return mode


def _next_version(version: int, expected: int) -> int:
    if expected not in (-1, version):
        raise ZkError(Err.BAD_VERSION)
    # -1 would mean "any" in the next request that names it.
    following = as_int32(version + 1)
    return 0 if following == -1 else following


# -- answers ---------------------------------------------------------------------------------


def _single_reply(request: object, path: bytes, node: Node | None) -> bytes:
    """The body of the reply to anything but a multi: how it left the znode it was about."""
    if isinstance(request, SetData):
        assert node is not None
        return node.stat()
    if isinstance(request, Create):
        if request.op == _CREATE_OP:
            return replies.path_body(path)
        assert node is not None
        return replies.created_body(path, node.stat())
    if isinstance(request, SetAcl):
        assert node is not None
        return node.stat()
    return b""


def _multi_reply(op: _Single, shown: _Shown, zxid: int) -> bytes:
    path, node = shown
    if isinstance(op, SetData | SetAcl):
        assert node is not None
        return replies.multi_stat(_stat(node, zxid))
    if isinstance(op, Create):
        return replies.multi_created(op.op, path, None if node is None else _stat(node, zxid))
    if isinstance(op, Delete):
        return replies.multi_deleted()
    return replies.multi_checked()


def _snapshot(node: Node) -> Node:
    """A znode between two operations of a multi, with every zxid known but its own."""
    if not (node.czxid and node.mzxid and node.pzxid):
        raise MustWait
    return node.copy()


def _take_off_lost(shown: Node, now: Node, counted: int) -> None:
    """Children that went with their lease, after this was drafted and before it took effect."""
    lost = counted - now.children_count
    if lost > 0:
        shown.children_count -= lost
        if shown.pzxid != HERE and now.pzxid > shown.pzxid:
            shown.pzxid = now.pzxid


def _stat(node: Node, zxid: int) -> bytes:
    if node.czxid == HERE:
        node.czxid = zxid
    if node.mzxid == HERE:
        node.mzxid = zxid
    if node.pzxid == HERE:
        node.pzxid = zxid
    return node.stat()
