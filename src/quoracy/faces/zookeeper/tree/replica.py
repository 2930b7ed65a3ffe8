"""The tree this node serves: brought up from the store, kept up by one watch, and written through.

    store --watch--> Replica.run: Tree.apply -> WatchTable.fire -> Commits.applied -> ended sessions

Invariants
    * Revisions are applied whole and in order.  Of each, watchers are told first; then whoever wrote it
      is answered; then the next is looked at.  So on every connection events and answers come in the
      order of their zxids, and no answer shows what an event has not told yet.
    * A revision that may be a write of ours waits until the store has said so.
    * What a store on a cluster cannot tell now it will tell later: the tree stays as it is until then,
      and goes on from there.  Whether it may be shown meanwhile, and to whom, is for others to say.
    * When the store's history was compacted under the watch, the tree is read anew, and watchers are
      told what the difference amounts to.
    * Children that go with the lease of their session leave no record at their parent.  Whoever sees
      that writes one (`_record_losses`), so that the pzxid outlives this process.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import os
from collections.abc import Callable, Sequence

from quoracy.clock import Clock, SystemClock
from quoracy.errors import Compacted, QuoracyError, StoreClosed, Unavailable
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, READ_ONLY_ACL
from quoracy.faces.zookeeper.tree.layout import NodeKind, kids_key, node_key
from quoracy.faces.zookeeper.tree.paths import CONFIG, QUOTA, ROOT, ZOOKEEPER
from quoracy.faces.zookeeper.tree.watches import WatchTable
from quoracy.faces.zookeeper.tree.znodes import Change, Node, Tree
from quoracy.faces.zookeeper.writing.commits import Commits, Outcome, Request
from quoracy.faces.zookeeper.writing.outcome import Calls
from quoracy.faces.zookeeper.writing.proposals import Caller
from quoracy.store.api import Store, Watch
from quoracy.store.legacy import InProcess, OnCluster
from quoracy.store.model import Compare, KeyRange, KeyValue, Put, Txn, WatchBatch
from quoracy.wire.zookeeper.codes import EventType
from quoracy.wire.zookeeper.requests import Acl

__all__ = ["Replica"]

_log = logging.getLogger(__name__)

_PAGE_KEYS = 1000
# Revisions applied in one go, before others get their turn.
_APPLY_MAX = 200
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
        self,
        store: Store,
        settings: ZooKeeperSettings | None = None,
        clock: Clock | None = None,
        *,
        sole_writer: bool = False,
    ) -> None:
        """`sole_writer`: nobody but this face changes what is its own in the store."""
        self.node_id = os.urandom(8)
        self.tree = Tree()
        self.watches = WatchTable(self.tree)
        self.ready = asyncio.Event()
        self.on_session_gone: Callable[[int], None] = lambda _: None
        self.on_session_moved: Callable[[int], None] = lambda _: None
        self._store = store
        # Such a store is a replica itself, and shows what it has also when it is cut off.
        self._is_on_cluster = isinstance(store, OnCluster)
        self._clock = clock or SystemClock()
        settings = settings or ZooKeeperSettings()
        self.commits = Commits(self, store, settings, self._clock, sole_writer=sole_writer)
        self._stream: Watch | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._recording: asyncio.Task[None] | None = None
        self._end: asyncio.Future[None] | None = None
        self._is_over = False

    @property
    def unsettled(self) -> set[int]:
        """Sessions with a write that may still be on its way, though nobody waits for it any more."""
        return self.commits.unsettled

    @property
    def in_flight_count(self) -> int:
        return self.commits.count

    def submit(
        self, request: Request, caller: Caller, on_outcome: Callable[[Outcome | None], object]
    ) -> None:
        """Have a write carried out; `on_outcome` hears of it once, maybe before this returns.

        When it does, every event up to its zxid has been handed out, and the tree is at that zxid.
        None as the outcome: nobody knows whether it happened, or the session is not ours any more.
        """
        self.commits.submit(request, caller, Calls(on_outcome))

    async def caught_up(self, revision: int) -> None:
        """Returns when the tree shows everything up to this revision.  Raises `Unavailable`."""
        if self.tree.zxid >= revision:
            return
        if self._is_over:
            raise Unavailable("the replica of the tree has stopped")
        waiter = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (revision, next(self._order), waiter))
        if self._stream is not None:
            self._stream.request_progress()
        await waiter

    async def sync(self) -> None:
        """Returns when the tree shows everything that was acknowledged anywhere before this call."""
        if isinstance(self._store, OnCluster):
            revision = await self._store.sync()
        else:
            revision = (await self._store.range(b"\0", count_only=True)).revision
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
            self.commits.end()
            await self.commits.errands.stop()
            self.commits.abandon()
            if self._recording is not None:
                self._recording.cancel()
            for _, _, waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(Unavailable("the replica of the tree has stopped"))
            self._waiters.clear()

    # -- following -----------------------------------------------------------------------

    async def _follow(self, revision: int) -> None:
        if isinstance(self._store, InProcess):
            await self._follow_in_process(self._store, revision)
        else:
            await self._follow_watch(revision)

    async def _follow_in_process(self, store: InProcess, revision: int) -> None:
        """Called by the store with each revision, in the very turn in which it became durable."""
        self._end = asyncio.get_running_loop().create_future()
        following = store.follow(layout.EVERYTHING, after=revision, follower=self)
        self.commits.following = following
        try:
            self.ready.set()
            self._after_apply()
            await self._end
        finally:
            following.stop()

    def changed(self, revision: int, kvs: Sequence[KeyValue]) -> None:
        tree = self.tree
        changes = tree.change(revision, kvs)
        if tree.lost:
            self._tell_lost()
        if changes:
            self.watches.fire(changes, revision)
        self.commits.applied(revision)
        if tree.ended or tree.moved or tree.unrecorded:
            self._after_apply()

    def wrote(self, first: int, last: int) -> None:
        self.commits.wrote(first, last)
        if self.tree.unrecorded:
            self._after_apply()

    def durable(self, revision: int) -> None:
        self.tree.zxid = max(self.tree.zxid, revision)
        if self._waiters:
            self._after_apply()

    def failed(self, error: BaseException) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    async def _follow_watch(self, revision: int) -> None:
        async with self._store.watch(layout.EVERYTHING, after=revision) as stream:
            self._stream = stream
            try:
                if self._waiters:
                    stream.request_progress()
                self.ready.set()
                self._after_apply()
                applied = 0
                async for batch in stream:
                    await self._apply(batch)
                    applied += 1
                    if applied % _APPLY_MAX == 0:
                        await asyncio.sleep(0)
            finally:
                self._stream = None

    async def _apply(self, batch: WatchBatch) -> None:
        tree, commits = self.tree, self.commits
        revision: int = batch.revision
        if batch.events:
            key = batch.events[0].kv.key
            if commits.flights.may_be_ours(key):
                while (known := commits.flights.unknown(key, revision)) is not None:
                    await known
            changes = tree.apply(batch)
            if tree.lost:
                self._tell_lost()
            if changes:
                self.watches.fire(changes, revision)
            commits.applied(revision)
        else:
            tree.zxid = max(tree.zxid, revision)
        if tree.ended or tree.moved or tree.unrecorded or self._waiters:
            self._after_apply()

    def _tell_lost(self) -> None:
        lost, self.tree.lost = self.tree.lost, []
        for path in lost:
            self.commits.flights.child_lost(path)

    def _after_apply(self) -> None:
        tree = self.tree
        if tree.ended:
            ended, tree.ended = tree.ended, []
            for id in ended:
                self.commits.session_ended(id)
                self.on_session_gone(id)
        if tree.moved:
            moved, tree.moved = tree.moved, []
            for id in moved:
                session = tree.sessions.get(id)
                if session is not None and session.node_id != self.node_id:
                    self.on_session_moved(id)
        while self._waiters and self._waiters[0][0] <= tree.zxid:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        if tree.unrecorded and self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._record_losses())
            self._recording.add_done_callback(self._recorded)

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
            # The same object, so that whoever holds it sees the new state.
            old.zxid, old.nodes, old.sessions = tree.zxid, tree.nodes, tree.sessions
            old.special, old.data_bytes = tree.special, tree.data_bytes
            old.unrecorded = tree.unrecorded
            self.commits.flights.started_anew()
            self.watches.fire(changes, revision)
            for made in self.commits.expected_until(revision):
                self.commits.applied(made)
            return revision

    # -- children that went with their session ---------------------------------------------

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
                    pause_s = _LOSSES_AGAIN_S  # somebody wrote one of them meanwhile
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
        elif self.tree.unrecorded and not self._is_over:
            self._after_apply()


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
    """What watchers of one tree must hear so that they know the other."""
    changes: list[Change] = []
    for path, node in old.nodes.items():
        now = new.nodes.get(path)
        if now is None or now.czxid != node.czxid:
            changes.append((EventType.DELETED, path, node))
    # Children first, so that nobody hears of a child below a znode that is gone already.
    changes.sort(key=lambda change: change[1], reverse=True)
    for path, node in sorted(new.nodes.items()):
        before: Node | None = old.nodes.get(path)
        if before is None or before.czxid != node.czxid:
            changes.append((EventType.CREATED, path, node))
        elif before.mzxid != node.mzxid:
            changes.append((EventType.DATA_CHANGED, path, node))
    return changes
