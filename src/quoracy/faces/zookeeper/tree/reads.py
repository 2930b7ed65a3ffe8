"""What can be answered from the tree alone: every read, and every request about watches.

A read looks at the replica as it is and may leave a watch; nothing here writes, waits or asks the
store.  Where an answer is an error, `ZkError` carries its code.

Whether a failed read leaves a watch is ZooKeeper's choice: exists does so on a znode that is not there
(that is how one waits for it), getData and getChildren do not, and nothing that is refused does.

Differs from ZooKeeper:
    * /zookeeper/quota/<path>/zookeeper_stats is computed when it is read, from what is below
      <path> now; what clients write into it has no effect.
    * The answer to a multiRead has a bound, `MULTI_READ_BYTES_MAX`: one request could name the largest
      znode thousands of times.  Past it the whole request fails with MARSHALLING_ERROR.
"""

from __future__ import annotations

import re
import struct
from typing import Final, Protocol, TypeAlias, assert_never

from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import acl as acls
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, Identity
from quoracy.faces.zookeeper.tree.paths import QUOTA, QUOTA_STATS, ROOT, ZkError
from quoracy.faces.zookeeper.tree.watches import Watcher, WatchKind, WatchTable
from quoracy.faces.zookeeper.tree.znodes import Node, Tree
from quoracy.wire.zookeeper.codes import AddWatchMode, Err, EventType, KeeperState, Perm, WatcherType
from quoracy.wire.zookeeper.replies import (
    MULTI_END,
    acl_body,
    children_body,
    data_body,
    encode_event,
    ephemerals_body,
    multi_children,
    multi_data,
    multi_error,
    number_body,
    whoami_body,
)
from quoracy.wire.zookeeper.requests import (
    Acl,
    AddWatch,
    CheckWatches,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    MultiRead,
    RemoveWatches,
    SetWatches,
    WhoAmI,
)

__all__ = ["MULTI_READ_BYTES_MAX", "READ_REQUESTS", "ReadRequest", "Reads", "Viewer"]

MULTI_READ_BYTES_MAX = 64 << 20

ReadRequest: TypeAlias = (
    GetData
    | Exists
    | GetChildren
    | GetAcl
    | GetEphemerals
    | GetAllChildrenNumber
    | MultiRead
    | AddWatch
    | CheckWatches
    | RemoveWatches
    | SetWatches
    | WhoAmI
)
READ_REQUESTS: Final = (
    GetData,
    Exists,
    GetChildren,
    GetAcl,
    GetEphemerals,
    GetAllChildrenNumber,
    MultiRead,
    AddWatch,
    CheckWatches,
    RemoveWatches,
    SetWatches,
    WhoAmI,
)

_QUOTA_PREFIX: Final = QUOTA + b"/"
_QUOTA_SUFFIX: Final = b"/" + QUOTA_STATS

# Where the length of the data is in a Stat: after four longs, three ints and the owner.
_DATA_LENGTH_AT: Final = 52
_INT: Final = struct.Struct(">i")

# A plain int: `&` with an IntFlag costs more than the check that needs it.
_READ: Final = int(Perm.READ)
_ADMIN: Final = int(Perm.ADMIN)

# What String.trim() takes away.
_BLANK: Final = bytes(range(33))

# As Java's ":.*", where "." does not match what ends a line.
_AFTER_COLON: Final = re.compile(":[^\n\r\u0085\u2028\u2029]*")


class Viewer(Watcher, Protocol):
    """The caller, which is notified when a watch fires: a connection."""

    @property
    def ids(self) -> tuple[Identity, ...]: ...

    @property
    def address(self) -> str: ...


class Reads:
    """Answers reads from one tree, and keeps what they watch in one table."""

    def __init__(self, tree: Tree, watches: WatchTable, settings: ZooKeeperSettings) -> None:
        self._tree = tree
        self._watches = watches
        self._skip_acl = settings.skip_acl

    def answer(self, request: ReadRequest, viewer: Viewer) -> bytes:
        """The body of the reply.  Raises `ZkError`."""
        match request:
            case GetData(path, watch):
                node = self._readable(path, viewer)
                if watch:
                    self._watches.add(_key(path, node), viewer, WatchKind.DATA)
                return self._content(node)
            case Exists(path, watch):
                return self._exists(path, watch, viewer)
            case GetChildren(path, watch, with_stat):
                node = self._readable(path, viewer)
                if watch:
                    self._watches.add(_key(path, node), viewer, WatchKind.CHILD)
                return children_body(node.children, self._stat(node) if with_stat else None)
            case MultiRead():
                return self._multi_read(request, viewer)
            case GetAcl(path):
                return self._get_acl(path, viewer)
            case SetWatches():
                self._set_watches(request, viewer)
                return b""
            case AddWatch(path, mode):
                self._watches.add(path, viewer, _kind_of(mode))
                return number_body(0)
            case CheckWatches(path, type):
                return _found(self._watches.contains(path, viewer, _watcher_type(type)))
            case RemoveWatches(path, type):
                return _found(self._watches.remove(path, viewer, _watcher_type(type)))
            case GetEphemerals(prefix):
                return ephemerals_body(self._ephemerals(prefix, viewer))
            case GetAllChildrenNumber(path):
                return number_body(self._all_children_number(path, viewer))
            case WhoAmI():
                known_as = acls.identities(viewer.ids, viewer.address)
                return whoami_body((one.scheme, acls.user_name(one)) for one in known_as)
            case _:
                assert_never(request)

    # -- znodes --------------------------------------------------------------------------

    def _readable(self, path: bytes, viewer: Viewer, perms: int = _READ) -> Node:
        node = self._tree.nodes.get(path or ROOT)
        if node is None:
            raise ZkError(Err.NO_NODE)
        if node.acl is not OPEN_ACL and not self._may(node, perms, viewer):
            raise ZkError(Err.NO_AUTH)
        return node

    def _may(self, node: Node, perms: int, viewer: Viewer) -> bool:
        return acls.check(node.acl, perms, viewer.ids, viewer.address, skip_acl=self._skip_acl)

    def _exists(self, path: bytes, watch: bool, viewer: Viewer) -> bytes:
        if b"\x00" in path:  # the only read that looks at the path
            raise ZkError(Err.BAD_ARGUMENTS)
        node = self._tree.nodes.get(path or ROOT)
        if node is None:
            if watch:
                self._watches.add(path, viewer, WatchKind.DATA)
            raise ZkError(Err.NO_NODE)
        if node.acl is not OPEN_ACL and not self._may(node, _READ, viewer):
            raise ZkError(Err.NO_AUTH)  # since 3.8.4 and 3.9.2; before, exists was open to all
        if watch:
            self._watches.add(_key(path, node), viewer, WatchKind.DATA)
        return self._stat(node)

    def _get_acl(self, path: bytes, viewer: Viewer) -> bytes:
        # A caller that may only read sees no digests: a password could be guessed from one
        # (CVE-2019-0201).
        node = self._readable(path, viewer, _READ | _ADMIN)
        acl = node.acl
        if not self._may(node, _ADMIN, viewer):
            acl = tuple([_masked(entry) for entry in acl])
        return acl_body(acl, self._stat(node))

    def _all_children_number(self, path: bytes, viewer: Viewer) -> int:
        node = self._readable(path, viewer)
        if not path:
            return len(self._tree.nodes)  # everything that begins with "/", so the root as well
        if path == ROOT:
            return len(self._tree.nodes) - 1
        return self._usage(node.path)[0] - 1

    def _ephemerals(self, prefix: bytes, viewer: Viewer) -> list[bytes]:
        session = self._tree.sessions.get(viewer.session_id)
        if session is None:
            return []
        if prefix.strip(_BLANK) in (b"", ROOT):
            return sorted(session.ephemerals)
        return sorted(path for path in session.ephemerals if path.startswith(prefix))

    def _multi_read(self, request: MultiRead, viewer: Viewer) -> bytes:
        """Each operation has its own result or error, and none leaves a watch (as Op.GetData)."""
        results: list[bytes] = []
        size = 0
        for op in request.ops:
            try:
                node = self._readable(op.path, viewer)
            except ZkError as error:
                result = multi_error(error.code)
            else:
                if isinstance(op, GetData):
                    result = multi_data(self._content(node))
                else:
                    result = multi_children(node.children)
            size += len(result)
            if size > MULTI_READ_BYTES_MAX:
                raise ZkError(Err.MARSHALLING_ERROR)
            results.append(result)
        results.append(MULTI_END)
        return b"".join(results)

    # -- quotas --------------------------------------------------------------------------

    def _content(self, node: Node) -> bytes:
        """Data and Stat."""
        return data_body(*self._counted(node)) if _is_count(node.path) else node.data_and_stat()

    def _stat(self, node: Node) -> bytes:
        return self._counted(node)[1] if _is_count(node.path) else node.stat()

    def _counted(self, node: Node) -> tuple[bytes, bytes]:
        """Data and Stat of a znode that tells how much is used."""
        count, size = self._usage(node.path[len(QUOTA) : -len(_QUOTA_SUFFIX)] or ROOT)
        data = b"count=%d,bytes=%d" % (count, size)  # as StatsTrack writes it
        stat = node.stat()
        return data, stat[:_DATA_LENGTH_AT] + _INT.pack(len(data)) + stat[_DATA_LENGTH_AT + 4 :]

    def _usage(self, top: bytes) -> tuple[int, int]:
        """How many znodes there are from `top` down, and the bytes in them."""
        nodes = self._tree.nodes
        count = size = 0
        below = [top]
        while below:
            path = below.pop()
            node = nodes.get(path)
            if node is None:
                continue
            count += 1
            size += node.data_length
            if node.children:
                prefix = b"/" if path == ROOT else path + b"/"
                below += [prefix + name for name in node.children]
        return count, size

    # -- watches -------------------------------------------------------------------------

    def _set_watches(self, request: SetWatches, viewer: Viewer) -> None:
        """Watches of a client that was away: it hears what it missed; the rest is watched again.

        As DataTree.setWatches: these events have no zxid and pass without a look at the ACL.  A znode
        that came and went again in the meantime is missed.
        """
        nodes, watches, seen = self._tree.nodes, self._watches, request.relative_zxid
        for path in request.data:
            node = nodes.get(path or ROOT)
            if node is None:
                _tell(viewer, EventType.DELETED, path)
            elif node.mzxid > seen:
                _tell(viewer, EventType.DATA_CHANGED, path)
            else:
                watches.add(_key(path, node), viewer, WatchKind.DATA)
        for path in request.exist:
            if (path or ROOT) in nodes:
                _tell(viewer, EventType.CREATED, path)
            else:
                watches.add(path, viewer, WatchKind.DATA)
        for path in request.child:
            node = nodes.get(path or ROOT)
            if node is None:
                _tell(viewer, EventType.DELETED, path)
            elif node.pzxid > seen:
                _tell(viewer, EventType.CHILDREN_CHANGED, path)
            else:
                watches.add(_key(path, node), viewer, WatchKind.CHILD)
        for path in request.persistent:
            watches.add(path, viewer, WatchKind.PERSISTENT)
        for path in request.recursive:
            watches.add(path, viewer, WatchKind.RECURSIVE)


def _is_count(path: bytes) -> bool:
    """Whether a znode tells how much is used, under a quota."""
    return path.endswith(_QUOTA_SUFFIX) and path.startswith(_QUOTA_PREFIX)


def _key(path: bytes, node: Node) -> bytes:
    """The key of a watch: the node's own copy of its path, which costs no memory of its own.

    But b"", by which a request may call the root, is watched as b"": nothing ever happens there.
    """
    return node.path if path else path


def _tell(viewer: Viewer, type: EventType, path: bytes) -> None:
    viewer.event(encode_event(type, KeeperState.SYNC_CONNECTED, path), OPEN_ACL)


def _found(watch: bool) -> bytes:
    if not watch:
        raise ZkError(Err.NO_WATCHER)
    return b""


def _kind_of(mode: int) -> WatchKind:
    if mode == AddWatchMode.PERSISTENT:
        return WatchKind.PERSISTENT
    if mode == AddWatchMode.PERSISTENT_RECURSIVE:
        return WatchKind.RECURSIVE
    raise ZkError(Err.MARSHALLING_ERROR)


def _watcher_type(type: int) -> WatcherType:
    try:
        return WatcherType(type)
    except ValueError:
        raise ZkError(Err.MARSHALLING_ERROR) from None


def _masked(entry: Acl) -> Acl:
    if entry.scheme != "digest":
        return entry
    return Acl(entry.perms, entry.scheme, _AFTER_COLON.sub(":x", entry.id))
