"""The tree this node serves: brought up from the store, kept up by one watch, and written through.

Invariants
    * What a store on a cluster cannot tell now it will tell later: the tree stays as it is until then,
      and goes on from there.  Whether it may be shown meanwhile, and to whom, others decide.
    * When the store's history was compacted under the watch, the tree is read anew, and watchers hear
      what the difference amounts to.
    * Children that go with the lease of their session leave no record at their parent.  Every node that
      sees that writes one (`_record_losses`), so that the pzxid outlives this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from quoracy.clock import Clock, SystemClock
from quoracy.errors import Compacted, LeaseNotFound, QuoracyError, StoreClosed, Unavailable
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, READ_ONLY_ACL
from quoracy.faces.zookeeper.tree.applier import Applier
from quoracy.faces.zookeeper.tree.layout import NodeKind, kids_key, node_key
from quoracy.faces.zookeeper.tree.paths import CONFIG, QUOTA, ROOT, ZOOKEEPER
from quoracy.faces.zookeeper.tree.watches import WatchTable
from quoracy.faces.zookeeper.tree.znodes import Change, Node, Tree
from quoracy.faces.zookeeper.writing.in_flight import OutcomeCall
from quoracy.faces.zookeeper.writing.pipeline import Outcome, Request, WritePipeline
from quoracy.faces.zookeeper.writing.proposals import Caller
from quoracy.store.api import Store
from quoracy.store.model import Compare, KeyRange, KeyValue, Put, Txn
from quoracy.wire.zookeeper.codes import EventType
from quoracy.wire.zookeeper.requests import Acl

__all__ = ["Replica"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE_KEYS = 1000
# Parents recorded in one transaction.
_LOSSES_MAX = 50
# When that is tried again: after a lost race, and after the store could not take it.
_LOSSES_AGAIN_S = 0.05
_LOSSES_RETRY_S = 5.0
# Before a store on a cluster is followed again that could not be.
_FOLLOW_AGAIN_S = 0.5


class Replica:
    """The tree of one node of the service, and the way into the store."""

    def __init__(
        self, store: Store, settings: ZooKeeperSettings | None = None, clock: Clock | None = None
    ) -> None:
        self.node_id = os.urandom(8)
        self.tree = Tree()
        self.watches = WatchTable(self.tree)
        self.ready = asyncio.Event()
        self._store = store
        # Such a store is a replica itself, and shows what it has also when it is cut off.
        self._is_on_cluster = store.cluster is not None
        self._clock = clock or SystemClock()
        self.pipeline = WritePipeline(self, store, settings or ZooKeeperSettings(), self._clock)
        self.applier = Applier(self.tree, self.watches, self.pipeline, self.node_id)
        self.applier.on_unrecorded = self._record
        self._tasks: set[asyncio.Task[None]] = set()
        self._recording: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def unsettled(self) -> set[int]:
        """Sessions with a write that may still be on its way, though no client waits for it."""
        return self.pipeline.unsettled

    @property
    def in_flight_count(self) -> int:
        return self.pipeline.count

    def submit(
        self, request: Request, caller: Caller, on_outcome: Callable[[Outcome | None], object]
    ) -> None:
        """Have a write carried out; `on_outcome` is called once, maybe before this returns.

        When it is, every event up to its zxid has been handed out, and the tree is at that zxid.
        None as the outcome: it is not known whether it happened, or the session is not ours any more.
        """
        self.pipeline.submit(request, caller, OutcomeCall(on_outcome))

    async def caught_up(self, revision: int, *, pause_s: float = 0.0) -> None:
        """Returns when the tree shows everything up to this revision.  Raises `Unavailable`."""
        if pause_s:
            await asyncio.sleep(pause_s)
        if self.tree.zxid >= revision:
            return
        if self._is_over:
            raise Unavailable("the replica of the tree has stopped")
        waiter = self.applier.wait(revision)
        if waiter is not None:
            await waiter

    async def sync(self) -> None:
        """Returns when the tree shows everything that was acknowledged anywhere before this call."""
        cluster = self._store.cluster
        if cluster is not None:
            revision = await cluster.sync()
        else:
            revision = (await self._store.range(b"\0", count_only=True)).revision
        await self.caught_up(revision)

    async def end_session(self, session_id: int) -> None:
        """Returns when the tree does not show a session any more."""
        try:
            revision = await self._store.revoke(session_id)
        except LeaseNotFound:
            return  # it ended before
        await self.caught_up(revision)

    async def run(self) -> None:
        """Follow the store until cancelled.  Raises `Unavailable` when the store is."""
        try:
            await self._establish()
            revision = await self._load_anew()
            while True:
                try:
                    await self._follow(revision)
                except Compacted:
                    _log.warning("history was compacted under the watch: reading the tree anew")
                    revision = await self._load_anew()
                except Unavailable as error:
                    if isinstance(error, StoreClosed) or not self._is_on_cluster:
                        raise
                    _log.warning("the store cannot be followed at the moment: %s", error)
                    await self._clock.sleep(_FOLLOW_AGAIN_S)
                    revision = self.tree.zxid
        finally:
            self._is_over = True
            self.ready.clear()
            self.pipeline.end()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.pipeline.abandon()
            if self._recording is not None:
                self._recording.cancel()
            self.applier.stop()

    async def _follow(self, revision: int) -> None:
        async with self._store.watch(layout.WATCHED, after=revision) as watch:
            try:
                self.ready.set()
                await self.applier.follow(watch)
            finally:
                self.applier.leave()

    # -- tasks of writes -------------------------------------------------------------------

    def start(
        self,
        work: Callable[[], Awaitable[T]],
        then: Callable[[T | None, Exception | None], None],
    ) -> None:
        """Call `then` with what comes of it in the turn in which it ends, unless this stops before.

        An error that is not a `QuoracyError` is logged instead.
        """
        task = asyncio.get_running_loop().create_task(_carry_out(work, then))
        self._tasks.add(task)
        task.add_done_callback(self._carried_out)

    def _carried_out(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._is_over:
            _log.error("work for a write failed in a way it never should", exc_info=error)

    # -- coming up -----------------------------------------------------------------------

    async def _establish(self) -> None:
        """The znodes every ZooKeeper has."""
        if self._is_on_cluster:
            root = await self._store.range(node_key(ROOT), keys_only=True, serializable=True)
            if root.kvs:
                return  # so it comes up while nothing can be written, too
        await self._store.txn(Txn((Compare.missing(node_key(ROOT)),), _first_nodes()))

    async def _load(self, tree: Tree) -> int:
        first = await self._store.range(
            layout.EVERYTHING, limit=1, keys_only=True, serializable=self._is_on_cluster
        )
        revision: int = first.revision
        kids: list[KeyValue] = []
        keys = layout.EVERYTHING
        read = 0
        while True:
            page = await self._store.range(
                keys, at=revision, limit=_PAGE_KEYS, serializable=self._is_on_cluster
            )
            tree.load(page.kvs)
            kids += [kv for kv in page.kvs if kv.key[layout.KIND_AT] == layout.KIDS_KIND]
            read += len(page.kvs)
            if not page.more:
                break
            if read % (100 * _PAGE_KEYS) == 0:
                _log.info("read %d records of %d", read, first.count)
            keys = KeyRange(page.kvs[-1].key + b"\0", keys.end)
            await asyncio.sleep(0)
        tree.loaded(kids, revision)
        return revision

    async def _load_anew(self) -> int:
        while True:
            tree = Tree()
            try:
                revision = await self._load(tree)
            except Compacted:
                continue  # it went on while the pages were read
            old = self.tree
            if old.zxid:
                old.ended = [id for id in old.sessions if id not in tree.sessions]
                old.moved = list(tree.sessions)
            changes = _differences(old, tree) if old.zxid else []
            # The same object, so that all that refer to it see the new state.
            old.zxid, old.nodes, old.sessions = tree.zxid, tree.nodes, tree.sessions
            old.special, old.data_bytes = tree.special, tree.data_bytes
            old.unrecorded = tree.unrecorded
            self.watches.fire(changes, revision)
            self.pipeline.skipped(revision)
            return revision

    # -- children that went with their session ---------------------------------------------

    def _record(self) -> None:
        if self._recording is None and self.tree.unrecorded:
            self._recording = asyncio.get_running_loop().create_task(self._record_losses())
            self._recording.add_done_callback(self._recorded)

    async def _record_losses(self) -> None:
        tree = self.tree
        while tree.unrecorded:
            compares: list[Compare] = []
            puts: list[Put] = []
            for path in list(tree.unrecorded):
                tree.unrecorded.discard(path)
                node = tree.nodes.get(path)
                # (A write in flight below it may have found that out before us.)
                if node is None or node.children_count == node.recorded_children:
                    continue
                compares.append(Compare.mod_revision(kids_key(path), "=", node.c_mod))
                record = layout.encode_kids(node.creates, node.children_count, node.pzxid)
                puts.append(Put(kids_key(path), record))
                if len(puts) == _LOSSES_MAX:
                    break
            if not puts:
                continue
            pause_s = 0.0
            try:
                result = await self._store.txn(Txn(tuple(compares), tuple(puts)))
                await self.caught_up(result.revision)
                if not result.succeeded:
                    pause_s = _LOSSES_AGAIN_S  # one of them was written meanwhile
            except QuoracyError as error:
                if self._is_over:
                    return
                _log.warning("children that went with their session are not on record yet: %s", error)
                pause_s = _LOSSES_RETRY_S
            if pause_s:
                # What is still missing then is found one by one.
                tree.unrecorded.update(layout.path_of(put.key) for put in puts)
                await self._clock.sleep(pause_s)

    def _recorded(self, task: asyncio.Task[None]) -> None:
        self._recording = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _log.error("recording lost children failed", exc_info=error)
        elif not self._is_over:
            self._record()


async def _carry_out(
    work: Callable[[], Awaitable[T]], then: Callable[[T | None, Exception | None], None]
) -> None:
    try:
        result = await work()
    except QuoracyError as error:
        then(None, error)
    else:
        then(result, None)


def _first_nodes() -> tuple[Put, ...]:
    """As a ZooKeeper begins: their times are 0, and they count as children but not as creates."""

    def node(data: bytes, acl: tuple[Acl, ...] = OPEN_ACL, aversion: int = 0) -> bytes:
        return layout.encode_node(
            NodeKind.PERSISTENT,
            data,
            acl,
            ctime=0,
            mtime=0,
            czxid=layout.CREATION,
            mzxid=layout.OWN,
            version=0,
            aversion=aversion,
            owner=0,
        )

    return (
        Put(node_key(ROOT), node(b"")),
        Put(kids_key(ROOT), layout.encode_kids(0, 1)),
        Put(node_key(ZOOKEEPER), node(b"")),
        Put(kids_key(ZOOKEEPER), layout.encode_kids(0, 2)),
        Put(node_key(CONFIG), node(b"", READ_ONLY_ACL, -1)),
        Put(node_key(QUOTA), node(b"")),
    )


def _differences(old: Tree, new: Tree) -> list[Change]:
    """The changes that lead from one tree to the other."""
    changes: list[Change] = []
    for path, node in old.nodes.items():
        now = new.nodes.get(path)
        if now is None or now.czxid != node.czxid:
            changes.append((EventType.DELETED, path, node))
    # Children first: no event is of a child below a znode that is gone already.
    changes.sort(key=lambda change: change[1], reverse=True)
    for path, node in sorted(new.nodes.items()):
        before: Node | None = old.nodes.get(path)
        if before is None or before.czxid != node.czxid:
            changes.append((EventType.CREATED, path, node))
        elif before.mzxid != node.mzxid:
            changes.append((EventType.DATA_CHANGED, path, node))
    return changes
