"""What a request would change: the state it read, the state it leaves, the transaction between them.

    Draft.node(path)      as the znode will be after all that is in flight, and after what this
                          request did to it already
    create, remove, ...   change that
    Draft.transaction()   one `Txn`: compares that pin every record that was read, and the writes

Invariants
    * A transaction goes through only if every record the request looked at is, at that moment, in the
      very state it was read in.  Being in flight does not weaken that: what is in flight has a version
      that can be foretold.
    * Of a znode in flight some zxids are not known until its write is judged.  A request that would
      have to write one of them down, or show one, is not drafted: `MustWait`.
    * A draft changes nothing but itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.layout import CREATED_HERE, NodeKind, kids_key, node_key
from quoracy.faces.zookeeper.tree.znodes import Node, as_int32
from quoracy.store.model import Compare, CompareTarget, Delete, Put, Relation
from quoracy.store.rules import Limits
from quoracy.wire.zookeeper.codes import EventType
from quoracy.wire.zookeeper.requests import Acl

__all__ = [
    "HERE",
    "UNKNOWN",
    "Draft",
    "MustWait",
    "Pending",
    "made_at",
]

# A revision that is the one the transaction will get; and one that is not known, because it is that of
# another one in flight.
HERE: Final = -2
UNKNOWN: Final = 0
# A czxid that is not known, and not that of the key either.
_CREATED_THERE: Final = -3

_KEY_BYTES_MAX = Limits().key_bytes_max
# A value in flight that is larger is not compared but waited for.
_VALUE_COMPARED_MAX = 4096

_MOD: Final = CompareTarget.MOD
_CREATE: Final = CompareTarget.CREATE
_VERSION: Final = CompareTarget.VERSION
_VALUE: Final = CompareTarget.VALUE
_EQUAL: Final = Relation.EQUAL
# Numbers, since an Enum's own comparison takes many times that of two of them.
_EPHEMERAL: Final = int(NodeKind.EPHEMERAL)
_CREATED: Final = int(EventType.CREATED)
_DELETED: Final = int(EventType.DELETED)
_DATA_CHANGED: Final = int(EventType.DATA_CHANGED)


class MustWait(Exception):
    """It cannot be drafted before what is in flight has landed."""


# By path: how a znode will be, and the last write in flight that makes it so.
Pending: TypeAlias = dict[bytes, tuple[Node, object]]


class _Edit:
    """What one request does to one znode."""

    __slots__ = ("created", "kids", "node", "wrote_acl", "wrote_data")

    def __init__(self, node: Node | None) -> None:
        self.node = node  # as it is now; None when it is deleted
        self.created = False
        self.wrote_data = False
        self.wrote_acl = False
        self.kids = False


class Draft:
    """One request on its way to a transaction."""

    __slots__ = (
        "_edits",
        "_events",
        "_kids_read",
        "_nodes",
        "_pending",
        "_read",
        "now_ms",
    )

    def __init__(self, nodes: Mapping[bytes, Node], pending: Pending, *, now_ms: int) -> None:
        self.now_ms = now_ms
        self._nodes = nodes
        self._pending = pending
        self._read: dict[bytes, Node | None] = {}
        self._kids_read: set[bytes] = set()
        self._edits: dict[bytes, _Edit] = {}
        self._events: layout.Note = []

    @property
    def paths(self) -> Collection[bytes]:
        """The znodes this was judged by."""
        return self._read.keys()

    @property
    def depends(self) -> set[object]:
        """What this was judged by and has not landed."""
        pending = self._pending
        return {pending[path][1] for path in self._read if path in pending}

    # -- reading -------------------------------------------------------------------------

    def node(self, path: bytes) -> Node | None:
        edit = self._edits.get(path)
        if edit is not None:
            return edit.node
        node = self._first(path)
        return node if node is not None and node.n_version else None

    def look_below(self, path: bytes) -> None:
        """The number of children or of creates of this znode was used."""
        self._kids_read.add(path)

    def _first(self, path: bytes) -> Node | None:
        """The state before this request, pinned from now on."""
        if path in self._read:
            return self._read[path]
        in_flight = self._pending.get(path)
        node = self._nodes.get(path) if in_flight is None else in_flight[0]
        self._read[path] = node
        return node

    # -- changing ------------------------------------------------------------------------

    def create(
        self,
        path: bytes,
        parent: bytes,
        data: bytes | None,
        acl: tuple[Acl, ...],
        kind: int,
        *,
        owner: int = 0,
        ttl_ms: int = 0,
    ) -> Node:
        edit = self._edits.get(path)
        if edit is None:
            self._first(path)
            edit = self._edits[path] = _Edit(None)
        node = edit.node = Node(path)
        node.data, node.acl, node.kind = data, acl, kind
        node.owner, node.ttl_ms = owner, ttl_ms
        node.ctime = node.mtime = self.now_ms
        node.czxid = node.mzxid = node.pzxid = HERE
        edit.created = edit.wrote_data = True
        above = self._edit(parent)
        above.children_count += 1
        above.creates = as_int32(above.creates + 1)
        self._below_changed(parent, above)
        self._events.append((_CREATED, path, acl))
        return node

    def remove(self, path: bytes, parent: bytes) -> None:
        edit = self._edits.get(path)
        if edit is None:
            self._first(path)
            edit = self._edits[path] = _Edit(None)
            acl = self._read[path].acl  # type: ignore[union-attr]  # the caller looked
        else:
            assert edit.node is not None
            acl, edit.node = edit.node.acl, None
        edit.created = edit.wrote_data = edit.wrote_acl = edit.kids = False
        above = self._edit(parent)
        above.children_count -= 1
        self._below_changed(parent, above)
        self._events.append((_DELETED, path, acl))

    def set_data(self, path: bytes, data: bytes | None, version: int) -> Node:
        node = self._edit(path)
        node.data, node.version = data, version
        node.mtime, node.mzxid = self.now_ms, HERE
        self._edits[path].wrote_data = True
        self._events.append((_DATA_CHANGED, path, node.acl))
        return node

    def set_acl(self, path: bytes, acl: tuple[Acl, ...], version: int) -> Node:
        node = self._edit(path)
        node.acl, node.aversion = acl, version
        self._edits[path].wrote_acl = True
        return node

    def _edit(self, path: bytes) -> Node:
        edit = self._edits.get(path)
        if edit is None:
            first = self._first(path)
            assert first is not None  # the caller looked
            node = first.copy()
            if path in self._pending:
                _forget_unknown(node)
            edit = self._edits[path] = _Edit(node)
        assert edit.node is not None
        return edit.node

    def _below_changed(self, parent: bytes, node: Node) -> None:
        self._kids_read.add(parent)
        self._edits[parent].kids = True
        node.pzxid = HERE

    # -- the transaction -----------------------------------------------------------------

    def compares(self) -> list[Compare]:
        """Everything that was read is as it was."""
        compares: list[Compare] = []
        for path, node in self._read.items():
            _pin_node(node, path, compares)
            if path in self._kids_read and node is not None and node.n_version:
                _pin_kids(node, path, compares)
        return compares

    def writes(self) -> tuple[list[Put | Delete], dict[bytes, Node]]:
        """The operations; and how the znodes will be, for drafts that are made while it is in flight.

        They are in the order in which the znodes were first touched, and so are the events that they
        make; where those of the request were others, or came in another order, a note has them.
        """
        writes: list[Put | Delete] = []
        after: dict[bytes, Node] = {}
        told: list[bytes] = []
        for path, edit in self._edits.items():
            before = self._read[path]
            existed = before is not None and before.n_version > 0
            if edit.node is None:
                if existed:
                    assert before is not None
                    writes.append(Delete(node_key(path)))
                    told.append(path)
                    if before.c_version:
                        writes.append(Delete(kids_key(path)))
                    after[path] = Node(path)
                continue
            if edit.wrote_data or edit.wrote_acl:
                writes.append(self._put_node(edit, before if existed else None))
                if edit.wrote_data:
                    told.append(path)
            if edit.kids or (existed and edit.created):
                self._put_kids(edit, before if existed else None, writes)
            after[path] = edit.node
        if len(self._events) > 1 and told != [path for _, path, _ in self._events]:
            writes.append(Put(layout.NOTE_KEY, layout.encode_note(self._events)))
        return writes, after

    def _put_node(self, edit: _Edit, before: Node | None) -> Put:
        node = edit.node
        assert node is not None
        czxid = mzxid = layout.OWN
        if edit.created:
            czxid = layout.CREATION if before is None else layout.CREATED_HERE
        elif before is not None and before.czxid != before.n_created:
            czxid = before.czxid
            if czxid < 0:
                raise MustWait
        if not edit.wrote_data:
            mzxid = node.mzxid
            if mzxid == UNKNOWN:
                raise MustWait
        ephemeral = node.kind == _EPHEMERAL
        value = layout.encode_node(
            node.kind,
            node.data,
            node.acl,
            ctime=node.ctime,
            mtime=node.mtime,
            czxid=czxid,
            mzxid=mzxid,
            version=node.version,
            aversion=node.aversion,
            owner=node.owner or node.ttl_ms,
        )
        node.n_version = 1 if before is None else before.n_version + 1
        node.n_created = HERE if before is None else _known(before.n_created)
        node.n_mod = HERE
        node.recorded(value)
        if czxid == layout.CREATED_HERE:
            node.czxid = layout.CREATED_HERE
        return Put(node_key(node.path), value, node.owner if ephemeral else 0)

    def _put_kids(self, edit: _Edit, before: Node | None, writes: list[Put | Delete]) -> None:
        node = edit.node
        assert node is not None
        had = before is not None and before.c_version > 0
        if not edit.kids:  # deleted and created again: nothing happened below it yet
            node.c_version = node.c_created = node.c_mod = 0
            if had:
                writes.append(Delete(kids_key(node.path)))
            return
        value = layout.encode_kids(node.creates, node.children_count)
        node.c_version = 1 if before is None else before.c_version + 1
        node.c_created = _known(before.c_created) if had and before is not None else HERE
        node.c_mod, node.c_value = HERE, value
        writes.append(Put(kids_key(node.path), value))


def _pin_node(node: Node | None, path: bytes, compares: list[Compare]) -> None:
    """The znode's own record is what was read, or what is in flight makes of it."""
    key = node_key(path)
    if node is None or not node.n_version:
        # One that no store has is not there; to ask for it would be refused.
        if len(key) <= _KEY_BYTES_MAX:
            compares.append(Compare(key, _CREATE, _EQUAL, 0))
    elif node.n_mod > 0:
        compares.append(Compare(key, _MOD, _EQUAL, node.n_mod))
    else:
        _pin_in_flight(key, node.n_version, node.n_value, compares)


def _pin_kids(node: Node, path: bytes, compares: list[Compare]) -> None:
    key = kids_key(path)
    if not node.c_version:
        compares.append(Compare(key, _CREATE, _EQUAL, 0))
    elif node.c_mod > 0:
        compares.append(Compare(key, _MOD, _EQUAL, node.c_mod))
    else:
        _pin_in_flight(key, node.c_version, node.c_value, compares)


def _pin_in_flight(key: bytes, version: int, value: bytes, compares: list[Compare]) -> None:
    # The version alone could be that of another write, which got in instead.
    if len(value) > _VALUE_COMPARED_MAX:
        raise MustWait
    compares.append(Compare(key, _VERSION, _EQUAL, version))
    compares.append(Compare(key, _VALUE, _EQUAL, value))


def made_at(node: Node, zxid: int) -> None:
    """The draft that leaves this znode took effect as this revision."""
    if node.czxid == HERE or node.czxid == CREATED_HERE:
        node.czxid = zxid
    if node.mzxid == HERE:
        node.mzxid = zxid
    if node.pzxid == HERE:
        node.pzxid = zxid
    if node.n_mod == HERE:
        node.n_mod = zxid
    if node.n_created == HERE:
        node.n_created = zxid
    if node.c_mod == HERE:
        node.c_mod = zxid
    if node.c_created == HERE:
        node.c_created = zxid


def _forget_unknown(node: Node) -> None:
    """What another draft writes is not written here."""
    node.czxid = _CREATED_THERE if node.czxid == CREATED_HERE else _known(node.czxid)
    node.mzxid, node.pzxid = _known(node.mzxid), _known(node.pzxid)
    node.n_mod, node.n_created = _known(node.n_mod), _known(node.n_created)
    node.c_mod, node.c_created = _known(node.c_mod), _known(node.c_created)


def _known(revision: int) -> int:
    return UNKNOWN if revision == HERE else revision
