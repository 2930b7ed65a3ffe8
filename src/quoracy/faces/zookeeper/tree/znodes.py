"""The replica of the tree: what the store's records amount to, revision by revision.

    WatchBatch (one revision)  ->  Tree.apply  ->  changes, in the order in which they were made

Invariants
    * No IO, no clock: the tree is a function of the batches it was given.  Two nodes at the same zxid
      have the same tree.
    * A znode is in its parent's `children` exactly as long as it is in `nodes`.
    * Of a znode, `cversion` counts the changes below it: 2 x creates - children, in 32 bits.  So a
      child that goes with its session's lease is counted although that is not written down;
      `unrecorded` says that its pzxid is not on record.
    * The n_ and c_ fields say in which version the store holds the two records of a znode: a write that
      was prepared from this state compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL
from quoracy.faces.zookeeper.tree.layout import (
    CREATED_HERE,
    CREATION,
    KIDS_KIND,
    KIND_AT,
    NODE_KIND,
    OWN,
    SESSION_KIND,
    NodeKind,
)
from quoracy.faces.zookeeper.tree.paths import ROOT, parent_of
from quoracy.store.model import KeyValue, WatchBatch
from quoracy.wire.zookeeper.codes import EventType
from quoracy.wire.zookeeper.replies import STAT_BYTES, data_body, encode_stat
from quoracy.wire.zookeeper.requests import Acl

__all__ = ["Change", "Node", "SessionRecord", "Tree", "as_int32"]

# Most znodes are leaves, and an empty set takes 216 bytes.
_NO_CHILDREN: Final[frozenset[bytes]] = frozenset()

# Replies up to this are kept for the next read of the znode.  Larger data is not in memory twice.
_SHOWN_MAX: Final = 1024

# Numbers, since an Enum's own comparison takes many times that of two of them.
_PERSISTENT: Final = int(NodeKind.PERSISTENT)
_EPHEMERAL: Final = int(NodeKind.EPHEMERAL)
_TTL: Final = int(NodeKind.TTL)
_CREATED: Final = EventType.CREATED
_DELETED: Final = EventType.DELETED
_DATA_CHANGED: Final = EventType.DATA_CHANGED


def as_int32(number: int) -> int:
    """What Java's int makes of a number.

    >>> as_int32(2**31)
    -2147483648
    """
    return (number + 0x80000000 & 0xFFFFFFFF) - 0x80000000


class Node:
    """A znode: one that is, in the tree; or one that will be, in what is in flight.

    In flight, zxids that are not known yet are 0, `children` is not kept (`children_count` is), and
    `n_version` 0 is a znode that was deleted.

    n_value: its record as the store has it, or will have it; before that is made, the data alone.
    data_at: where in it the data begins, which is its end; -1 if there is none, not even an empty one.
    So data is in memory once, and not once in the store and once here.
    """

    __slots__ = (
        "_shown",
        "acl",
        "aversion",
        "c_created",
        "c_mod",
        "c_value",
        "c_version",
        "children",
        "children_count",
        "creates",
        "ctime",
        "czxid",
        "data_at",
        "kind",
        "mtime",
        "mzxid",
        "n_created",
        "n_mod",
        "n_value",
        "n_version",
        "owner",
        "path",
        "pzxid",
        "recorded_children",
        "ttl_ms",
        "version",
    )

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.data_at = -1
        self.acl: tuple[Acl, ...] = OPEN_ACL
        self.kind: int = _PERSISTENT
        self.owner = 0  # of an ephemeral: its session
        self.ttl_ms = 0
        self.ctime = self.mtime = 0
        self.version = self.aversion = 0
        self.czxid = self.mzxid = self.pzxid = 0
        self.children: AbstractSet[bytes] = _NO_CHILDREN
        self.children_count = 0
        self.creates = 0
        self.recorded_children = 0  # how many there were when `c` was last written
        self.n_version = self.n_created = self.n_mod = 0
        self.c_version = self.c_created = self.c_mod = 0
        self.n_value = b""
        self.c_value = b""  # only of what is in flight
        self._shown: bytes | None = None  # what clients got last: the Stat, maybe after the data

    @property
    def data(self) -> bytes | None:
        at = self.data_at
        return self.n_value[at:] if at >= 0 else None

    @data.setter
    def data(self, data: bytes | None) -> None:
        self.n_value, self.data_at = (b"", -1) if data is None else (data, 0)

    @property
    def data_length(self) -> int:
        """0 as well if there is none."""
        return len(self.n_value) - self.data_at if self.data_at >= 0 else 0

    def recorded(self, value: bytes) -> None:
        """This is its record, which ends with the data that it has now."""
        if self.data_at >= 0:
            self.data_at = len(value) - self.data_length
        self.n_value = value

    @property
    def cversion(self) -> int:
        return as_int32(2 * self.creates - self.children_count)

    def stat(self) -> bytes:
        """The Stat as clients get it."""
        shown = self._shown
        if shown is None:
            self._shown = shown = encode_stat(
                self.czxid,
                self.mzxid,
                self.ctime,
                self.mtime,
                self.version,
                as_int32(2 * self.creates - self.children_count),
                self.aversion,
                self.owner,
                self.data_length,
                self.children_count,
                self.pzxid,
            )
        return shown if len(shown) == STAT_BYTES else shown[-STAT_BYTES:]

    def data_and_stat(self) -> bytes:
        """Both as clients get them."""
        shown = self._shown
        if shown is None or len(shown) == STAT_BYTES:
            shown = data_body(self.data, self.stat())
            if len(shown) <= _SHOWN_MAX:
                self._shown = shown
        return shown

    def copy(self) -> Node:
        """The same without its children: for what is in flight."""
        node = Node(self.path)
        node.data_at, node.acl, node.kind = self.data_at, self.acl, self.kind
        node.owner, node.ttl_ms = self.owner, self.ttl_ms
        node.ctime, node.mtime = self.ctime, self.mtime
        node.version, node.aversion = self.version, self.aversion
        node.czxid, node.mzxid, node.pzxid = self.czxid, self.mzxid, self.pzxid
        node.children, node.children_count = _NO_CHILDREN, self.children_count
        node.creates, node.recorded_children = self.creates, self.recorded_children
        node.n_version, node.n_created, node.n_mod = self.n_version, self.n_created, self.n_mod
        node.c_version, node.c_created, node.c_mod = self.c_version, self.c_created, self.c_mod
        node.n_value, node.c_value = self.n_value, self.c_value
        node._shown = None
        return node


class SessionRecord:
    """A session that lives, whichever node serves it."""

    __slots__ = ("ephemerals", "id", "key", "mod_revision", "node_id", "password", "timeout_ms")

    def __init__(self, id: int) -> None:
        self.id = id
        self.key = layout.session_key(id)
        self.password = b""
        self.timeout_ms = 0
        self.node_id = b""
        self.mod_revision = 0
        self.ephemerals: set[bytes] = set()


# What happened to which znode; of a deletion, the znode that is gone.
Change: TypeAlias = tuple[EventType, bytes, Node]


class Tree:
    """Every znode and every session as of `zxid`."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[bytes, Node] = {}
        self.special: dict[bytes, Node] = {}  # containers and TTL znodes
        self.sessions: dict[int, SessionRecord] = {}
        self.ended: list[int] = []  # sessions that ended; the consumer empties it
        self.moved: list[int] = []  # sessions whose record was written; likewise
        self.lost: list[bytes] = []  # of each child that went with its lease, the parent; likewise
        self.unrecorded: set[bytes] = set()  # parents of such children, until that is on record
        self.data_bytes = 0

    def get(self, path: bytes) -> Node | None:
        return self.nodes.get(path)

    def load(self, kvs: Iterable[KeyValue]) -> None:
        """Take records as they are, in the order of their keys; `loaded` when that was all."""
        for kv in kvs:
            match kv.key[layout.KIND_AT]:
                case layout.NODE_KIND if _is_path(layout.path_of(kv.key)):
                    self._load_node(kv)
                case layout.SESSION_KIND:
                    self._put_session(kv)
                case _:
                    pass

    def loaded(self, kids: Iterable[KeyValue], zxid: int) -> None:
        """The znodes are there; now what is known about their children."""
        for node in self.nodes.values():
            if node.path != ROOT:
                parent = self.nodes.get(parent_of(node.path))
                if parent is not None:
                    _add_child(parent, node.path)
        for kv in kids:
            self._put_kids(kv)
        # A session whose record is not there is none: its ephemerals are about to follow it.
        for id in [id for id, session in self.sessions.items() if not session.mod_revision]:
            del self.sessions[id]
        self.moved.clear()
        self.zxid = zxid
        # Some children went before this was read, it is not known when.  Now is late enough.
        for node in self.nodes.values():
            if node.children_count != node.recorded_children:
                node.pzxid = zxid
                node._shown = None
                self.unrecorded.add(node.path)

    def apply(self, batch: WatchBatch) -> list[Change]:
        """One revision; what it changed, in order."""
        revision: int = batch.revision
        changes: list[Change] = []
        note: KeyValue | None = None
        removed: list[bytes] | None = None
        for event in batch.events:
            kv = event.kv
            kind = kv.key[KIND_AT] if len(kv.key) > KIND_AT else 0
            if kind == NODE_KIND:
                if kv.version:
                    self._put_node(kv, changes)
                elif self._delete_node(kv, changes):
                    if removed is None:
                        removed = []
                    removed.append(kv.key)
            elif kind == KIDS_KIND:
                if kv.version:
                    self._put_kids(kv)
                else:
                    self._delete_kids(kv)
            elif kind == SESSION_KIND:
                if kv.version:
                    self._put_session(kv)
                else:
                    self._delete_session(kv)
            elif kv.version and kv.key == layout.NOTE_KEY:
                note = kv
        self.zxid = revision
        if removed is not None:
            self._find_lost(removed, revision)
        if note is not None:
            changes = _told(note)
        return changes

    # -- znodes --------------------------------------------------------------------------

    def _load_node(self, kv: KeyValue) -> Node:
        path = layout.path_of(kv.key)
        node = Node(path)
        self.nodes[path] = node
        self._fill(node, kv, layout.decode_node(kv.value))
        node.pzxid = node.czxid
        if node.owner:
            self._session(node.owner).ephemerals.add(path)
        elif node.kind != _PERSISTENT:
            self.special[path] = node
        return node

    def _put_node(self, kv: KeyValue, changes: list[Change]) -> None:
        path = layout.path_of(kv.key)
        node = self.nodes.get(path)
        if node is None:
            if not _is_path(path):
                return
            node = self._load_node(kv)
            if path != ROOT:
                parent = self.nodes.get(parent_of(path))
                if parent is not None:
                    _add_child(parent, path)
            changes.append((_CREATED, path, node))
            return
        record = layout.decode_node(kv.value)
        if record[5] == CREATED_HERE:  # deleted and created again, in one transaction
            self._replace(node, kv)
            return
        self.data_bytes -= node.data_length
        self._fill(node, kv, record)
        if record[6] == OWN:
            changes.append((_DATA_CHANGED, path, node))

    def _replace(self, old: Node, kv: KeyValue) -> None:
        # The note that comes with it says which events that makes.
        self._forget(old)
        node = self._load_node(kv)
        if old.path != ROOT:
            self.nodes[parent_of(old.path)]._shown = None
        node.children, node.children_count = old.children, old.children_count

    def _fill(self, node: Node, kv: KeyValue, record: layout.NodeRecord) -> None:
        kind, data, node.acl, node.ctime, node.mtime, czxid, mzxid, version, aversion, owner = record
        node.version, node.aversion = version, aversion
        node.kind, node.n_value = kind, kv.value
        node.data_at = len(kv.value) - len(data) if data is not None else -1
        node.owner = owner if kind == _EPHEMERAL else 0
        node.ttl_ms = owner if kind == _TTL else 0
        node.n_created, node.n_mod, node.n_version = kv.create_revision, kv.mod_revision, kv.version
        if czxid == CREATION:
            czxid = kv.create_revision
        elif czxid == CREATED_HERE:
            czxid = kv.mod_revision
        node.czxid = czxid
        node.mzxid = kv.mod_revision if mzxid == OWN else mzxid
        node._shown = None
        if data:
            self.data_bytes += len(data)

    def _delete_node(self, kv: KeyValue, changes: list[Change]) -> bool:
        path = layout.path_of(kv.key)
        node = self.nodes.pop(path, None)
        if node is None:
            return False
        self._forget(node)
        if path != ROOT:
            parent = self.nodes.get(parent_of(path))
            if parent is not None:
                _remove_child(parent, path)
                parent.pzxid = kv.mod_revision
        changes.append((_DELETED, path, node))
        return True

    def _forget(self, node: Node) -> None:
        self.data_bytes -= node.data_length
        if node.owner:
            if node.owner in self.sessions:
                self.sessions[node.owner].ephemerals.discard(node.path)
        elif node.kind != _PERSISTENT:
            self.special.pop(node.path, None)

    # -- what happened below them ----------------------------------------------------------

    def _put_kids(self, kv: KeyValue) -> None:
        node = self.nodes.get(layout.path_of(kv.key))
        if node is None:
            return  # a stray key: nothing of ours writes one without its znode
        node.creates, node.recorded_children, pzxid = layout.decode_kids(kv.value)
        if pzxid == OWN:
            pzxid = kv.mod_revision
        elif node.recorded_children != node.children_count:
            # More went since that was written: the next record will say so.
            pzxid = max(node.pzxid, pzxid)
        node.pzxid = pzxid
        node.c_created, node.c_mod, node.c_version = kv.create_revision, kv.mod_revision, kv.version
        node._shown = None

    def _delete_kids(self, kv: KeyValue) -> None:
        node = self.nodes.get(layout.path_of(kv.key))
        if node is not None:
            node.creates = node.recorded_children = 0
            node.c_created = node.c_mod = node.c_version = 0
            node.pzxid = node.czxid
            node._shown = None

    def _find_lost(self, removed: list[bytes], revision: int) -> None:
        for key in removed:
            path = layout.path_of(key)
            parent = self.nodes.get(parent_of(path)) if path != ROOT else None
            if parent is None:
                continue
            if revision not in (parent.c_mod, parent.czxid):  # it is not on record
                self.lost.append(parent.path)
            if parent.recorded_children != parent.children_count:
                self.unrecorded.add(parent.path)

    # -- sessions ------------------------------------------------------------------------

    def _session(self, id: int) -> SessionRecord:
        session = self.sessions.get(id)
        if session is None:
            session = self.sessions[id] = SessionRecord(id)
        return session

    def _put_session(self, kv: KeyValue) -> None:
        id = layout.session_id_of(kv.key)
        if id is None:
            return
        session = self._session(id)
        session.password, session.timeout_ms, session.node_id = layout.decode_session(kv.value)
        session.mod_revision = kv.mod_revision
        self.moved.append(session.id)

    def _delete_session(self, kv: KeyValue) -> None:
        id = layout.session_id_of(kv.key)
        if id is not None and self.sessions.pop(id, None) is not None:
            self.ended.append(id)


def _is_path(path: bytes) -> bool:
    """Whether a key of the kind `n` is that of a znode; what is not ours may look like one."""
    return path[:1] == b"/"


def _add_child(parent: Node, path: bytes) -> None:
    children = parent.children
    if not isinstance(children, set):
        parent.children = children = set()
    children.add(path[path.rindex(b"/") + 1 :])
    parent.children_count = len(children)
    parent._shown = None


def _remove_child(parent: Node, path: bytes) -> None:
    children = parent.children
    if isinstance(children, set):
        children.discard(path[path.rindex(b"/") + 1 :])
        parent.children_count = len(children)
        if not children:
            parent.children = _NO_CHILDREN
    parent._shown = None


def _told(note: KeyValue) -> list[Change]:
    """The changes in a note: of each znode, only its ACL is as it was at that moment."""
    told: list[Change] = []
    for type, path, acl in layout.decode_note(note.value):
        node = Node(path)
        node.acl = acl
        told.append((EventType(type), path, node))
    return told
