"""ZooKeeper's watches, and the events that changes turn into.

    Change (CREATED, DELETED, DATA_CHANGED)  ->  WatchTable.fire  ->  watcher.event(frame, acl)

Four kinds, as in ZooKeeper 3.9.  DATA (from exists and getData) and CHILD (from getChildren) fire
once and are forgotten.  PERSISTENT stays, and fires where either of these would.  RECURSIVE stays, and
fires at every create, delete and change of data of its znode and of all below it, never of "children
changed".  A watcher may have several kinds on one path: they do not disturb each other (in 3.8 the last
one replaced those before it), and each watcher gets an event once.

One change makes its events in DataTree's order:

    create      CREATED to the znode's data watches, then CHILDREN_CHANGED to its parent's child watches
    delete      DELETED to the znode's data watches, then to those of its child watches that were not
                told yet, then CHILDREN_CHANGED to its parent's child watches
    set data    DATA_CHANGED to the znode's data watches

With every event goes the ACL of the znode it is about (of a deleted one, the last), and the watcher
delivers it only if its client may READ that: a path may be a secret too (CVE-2024-23944).  A one-shot
watch is spent by an event that is withheld like by any other.

Invariants
    * A path without watches costs one look-up for each table that is not empty.  Ancestors are walked
      only while there is a recursive watch anywhere.
    * An event is encoded once, however many watch; and not at all if there is no watcher.
    * `drop` takes time in proportion to what the watcher itself watches.
    * The table is not bounded, as in ZooKeeper; a lone watch takes two entries of dictionaries.
      A watcher must be dropped after its last `add`, or it stays for ever.
    * `event` may call back into the table: the watchers of a change are collected before the first of
      them is called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from quoracy.faces.zookeeper.tree.paths import ROOT, parent_of
from quoracy.wire.zookeeper.codes import EventType, KeeperState, WatcherType
from quoracy.wire.zookeeper.replies import encode_event
from quoracy.wire.zookeeper.requests import Acl

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.tree.znodes import Change, Node

__all__ = ["WatchKind", "WatchTable", "Watcher"]

_ONE_SHOT: Final = 1
_STAYING: Final = 2
_EITHER: Final = _ONE_SHOT | _STAYING

_DELETED: Final = EventType.DELETED
_DATA_CHANGED: Final = EventType.DATA_CHANGED
_CHILDREN_CHANGED: Final = EventType.CHILDREN_CHANGED
_SYNC_CONNECTED: Final = KeeperState.SYNC_CONNECTED

# For a znode of which nothing is known any more: only the super user may read it.
_NOBODY: Final = (Acl(0, "world", "anyone"),)


class WatchKind(Enum):
    DATA = "data"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


class Watcher(Protocol):
    """Gets the events: a connection."""

    @property
    def session_id(self) -> int: ...

    def event(self, frame: bytes, node_acl: tuple[Acl, ...], /) -> None:
        """Take a whole frame, to be sent if `node_acl` lets its receiver read."""
        ...


class Nodes(Protocol):
    """Where the table finds the ACL of a parent: the tree."""

    def get(self, path: bytes) -> Node | None: ...


class WatchTable:
    """Every watch on this server."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._data = _Register()
        self._child = _Register()
        self._recursive = _Register()

    def add(self, path: bytes, watcher: Watcher, kind: WatchKind) -> None:
        if kind is WatchKind.DATA:
            self._data.add(path, watcher, _ONE_SHOT)
        elif kind is WatchKind.CHILD:
            self._child.add(path, watcher, _ONE_SHOT)
        elif kind is WatchKind.PERSISTENT:
            self._data.add(path, watcher, _STAYING)
            self._child.add(path, watcher, _STAYING)
        else:
            self._recursive.add(path, watcher, _STAYING)

    def remove(self, path: bytes, watcher: Watcher, type: WatcherType) -> bool:
        """Whether there was such a watch; now there is none."""
        # No `any`: each of them must be removed.
        removed = [register.remove(path, watcher, modes) for register, modes in self._meant(type)]
        return True in removed

    def contains(self, path: bytes, watcher: Watcher, type: WatcherType) -> bool:
        return any(register.modes_of(path, watcher) & modes for register, modes in self._meant(type))

    def drop(self, watcher: Watcher) -> None:
        """Forget whatever it watches."""
        self._data.drop(watcher)
        self._child.drop(watcher)
        self._recursive.drop(watcher)

    def fire(self, changes: Sequence[Change], zxid: int) -> None:
        """Report the changes of one transaction, in order."""
        data, child = self._data, self._child
        recursive = self._recursive.watchers
        if not self.is_any:
            return
        for type, path, node in changes:
            told: Collection[Watcher] = data.take(path) if path in data.watchers else ()
            if recursive:
                told = self._with_recursive(told, path)
            if type is _DELETED and path in child.watchers:
                told = dict.fromkeys((*told, *child.take(path)))
            if told:
                _tell(told, type, path, zxid, node.acl)
            if type is not _DATA_CHANGED and child.watchers:
                parent = parent_of(path)
                if parent in child.watchers and path != ROOT:
                    acl = self._acl_of(parent, changes)
                    _tell(child.take(parent), _CHILDREN_CHANGED, parent, zxid, acl)

    @property
    def is_any(self) -> bool:
        return bool(self._data.watchers or self._child.watchers or self._recursive.watchers)

    def has(self, watcher: Watcher) -> bool:
        """Whether it watches anything."""
        return (
            watcher in self._data.modes
            or watcher in self._child.modes
            or watcher in self._recursive.modes
        )

    @property
    def count(self) -> int:
        """All watches.  A persistent one counts twice, as it is a data and a child watch."""
        return self._data.count + self._child.count + self._recursive.count

    def by_path(self) -> list[tuple[bytes, list[int]]]:
        """Each path that has data watches, with the sessions watching.  ZooKeeper lists no others."""
        found: dict[bytes, dict[int, None]] = {}
        for register in (self._data, self._recursive):
            for path in register.watchers:
                ids = found.setdefault(path, {})
                ids.update((watcher.session_id, None) for watcher in register.at(path))
        return [(path, list(ids)) for path, ids in found.items()]

    def by_session(self) -> list[tuple[int, list[bytes]]]:
        """Each session that has data watches, with the paths it watches."""
        found: dict[int, dict[bytes, None]] = {}
        for register in (self._data, self._recursive):
            for watcher, modes in register.modes.items():
                found.setdefault(watcher.session_id, {}).update(dict.fromkeys(modes))
        return [(id, list(paths)) for id, paths in found.items()]

    def _meant(self, type: WatcherType) -> tuple[tuple[_Register, int], ...]:
        """Where the watches are that checkWatches and removeWatches mean with `type`."""
        data, child, recursive = self._data, self._child, self._recursive
        match type:
            case WatcherType.CHILDREN:
                return ((child, _ONE_SHOT),)
            case WatcherType.DATA:
                return ((data, _ONE_SHOT),)
            case WatcherType.PERSISTENT:
                return ((data, _STAYING), (child, _STAYING))
            case WatcherType.PERSISTENT_RECURSIVE:
                return ((recursive, _STAYING),)
            case WatcherType.ANY:
                return ((data, _EITHER), (child, _EITHER), (recursive, _STAYING))

    def _with_recursive(self, told: Collection[Watcher], path: bytes) -> Collection[Watcher]:
        """`told` and the watchers of the path, or of one above it, with all that is below."""
        register = self._recursive
        found = dict.fromkeys(told)
        while True:
            if path in register.watchers:
                found.update(dict.fromkeys(register.at(path)))
            if path == ROOT:
                return found
            path = parent_of(path)

    def _acl_of(self, path: bytes, changes: Iterable[Change]) -> tuple[Acl, ...]:
        """The ACL of a parent; if it went in the same transaction, the one that it had."""
        node = self._nodes.get(path)
        if node is not None:
            return node.acl
        for _, changed, gone in changes:
            if changed == path:
                return gone.acl
        return _NOBODY


def _tell(
    watchers: Iterable[Watcher], type: EventType, path: bytes, zxid: int, acl: tuple[Acl, ...]
) -> None:
    frame = encode_event(type, _SYNC_CONNECTED, path, zxid)
    for watcher in watchers:
        watcher.event(frame, acl)


class _Register:
    """Watches that fire alike: by path, and by watcher with the modes it has on each path."""

    __slots__ = ("count", "modes", "watchers")

    def __init__(self) -> None:
        # A path is mostly watched by one alone; a set for it would take more memory than all the rest.
        self.watchers: dict[bytes, Watcher | set[Watcher]] = {}
        self.modes: dict[Watcher, dict[bytes, int]] = {}
        self.count = 0

    def add(self, path: bytes, watcher: Watcher, mode: int) -> None:
        modes = self.modes.get(watcher)
        if modes is None:
            modes = self.modes[watcher] = {}
        had = modes.get(path, 0)
        modes[path] = had | mode
        if had:
            return
        self.count += 1
        there = self.watchers.get(path)
        if there is None:
            self.watchers[path] = watcher
        elif isinstance(there, set):
            there.add(watcher)
        else:
            self.watchers[path] = {there, watcher}

    def at(self, path: bytes) -> Collection[Watcher]:
        there = self.watchers[path]
        return there if isinstance(there, set) else (there,)

    def take(self, path: bytes) -> Collection[Watcher]:
        """All that watch this path, to be notified now; one-shot watches among them are spent."""
        told = tuple(self.at(path))
        for watcher in told:
            self.remove(path, watcher, _ONE_SHOT)
        return told

    def modes_of(self, path: bytes, watcher: Watcher) -> int:
        modes = self.modes.get(watcher)
        return 0 if modes is None else modes.get(path, 0)

    def remove(self, path: bytes, watcher: Watcher, mode: int) -> bool:
        modes = self.modes.get(watcher)
        if modes is None:
            return False
        had = modes.get(path, 0)
        if not had & mode:
            return False
        left = had & ~mode
        if left:
            modes[path] = left
            return True
        del modes[path]
        if not modes:
            del self.modes[watcher]
        self._unlink(path, watcher)
        return True

    def drop(self, watcher: Watcher) -> None:
        for path in self.modes.pop(watcher, ()):
            self._unlink(path, watcher)

    def _unlink(self, path: bytes, watcher: Watcher) -> None:
        self.count -= 1
        there = self.watchers[path]
        if isinstance(there, set):
            there.remove(watcher)
            if there:
                return
        del self.watchers[path]
