"""Trees and watchers by hand: what tests of reads and watches need of a server."""

from __future__ import annotations

import struct
from typing import NamedTuple

from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, Identity
from quoracy.faces.zookeeper.tree.paths import ROOT, parent_and_name, parent_of
from quoracy.faces.zookeeper.tree.znodes import Change, Node, SessionRecord, Tree
from quoracy.wire.zookeeper.codes import EventType, KeeperState
from quoracy.wire.zookeeper.requests import Acl


class Event(NamedTuple):
    """An event as a client sees it, and the ACL it came with."""

    type: EventType
    path: bytes
    zxid: int
    acl: tuple[Acl, ...]


class Somebody:
    """A connection that only keeps what it is told."""

    def __init__(self, session_id: int = 1, *ids: Identity, address: str = "127.0.0.1") -> None:
        self.session_id = session_id
        self.ids = ids
        self.address = address
        self.frames: list[bytes] = []
        self._acls: list[tuple[Acl, ...]] = []

    def event(self, frame: bytes, acl: tuple[Acl, ...]) -> None:
        self.frames.append(frame)
        self._acls.append(acl)

    def take(self) -> list[Event]:
        """What it was told since it was last asked."""
        events = [decoded(frame, acl) for frame, acl in zip(self.frames, self._acls, strict=True)]
        self.frames.clear()
        self._acls.clear()
        return events

    def told(self) -> list[tuple[str, str]]:
        """The same in short: names of types, and paths."""
        return [(event.type.name, event.path.decode()) for event in self.take()]


def decoded(frame: bytes, acl: tuple[Acl, ...]) -> Event:
    size, xid, zxid, err, type, state, length = struct.unpack_from(">iiqiiii", frame)
    path = frame[32:]
    assert (size, xid, err, length) == (len(frame) - 4, -1, 0, len(path))
    assert state == KeeperState.SYNC_CONNECTED
    return Event(EventType(type), path, zxid, acl)


class Garden:
    """A tree that grows one change at a time, each with a zxid of its own."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.tree.nodes[ROOT] = Node(ROOT)

    def create(
        self, path: bytes, data: bytes | None = b"", acl: tuple[Acl, ...] = OPEN_ACL, *, owner: int = 0
    ) -> Change:
        tree = self.tree
        tree.zxid += 1
        node = Node(path)
        node.data, node.acl, node.owner = data, acl, owner
        node.czxid = node.mzxid = node.pzxid = tree.zxid
        tree.nodes[path] = node
        parent, name = parent_and_name(path)
        self._below(parent, {*tree.nodes[parent].children, name})
        if owner:
            tree.sessions.setdefault(owner, SessionRecord(owner)).ephemerals.add(path)
        return EventType.CREATED, path, node

    def delete(self, path: bytes) -> Change:
        tree = self.tree
        tree.zxid += 1
        node = tree.nodes.pop(path)
        parent, name = parent_and_name(path)
        self._below(parent, {*tree.nodes[parent].children} - {name})
        return EventType.DELETED, path, node

    def set_data(self, path: bytes, data: bytes | None = b"") -> Change:
        tree = self.tree
        tree.zxid += 1
        node = tree.nodes[path]
        node.data, node.mzxid, node._shown = data, tree.zxid, None
        node.version += 1
        return EventType.DATA_CHANGED, path, node

    def grow(self, *paths: str) -> None:
        """Create these, and whatever is missing above them."""
        for path in map(str.encode, paths):
            if path not in self.tree.nodes:
                self.grow(parent_of(path).decode())
                self.create(path)

    def _below(self, path: bytes, children: set[bytes]) -> None:
        node = self.tree.nodes[path]
        node.children, node.children_count = children, len(children)
        node.pzxid, node._shown = self.tree.zxid, None
