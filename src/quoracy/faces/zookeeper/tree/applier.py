"""What the watch brings is applied to the tree, revision by revision, in the turn of the commit.

    Watch.poll -> Tree.apply -> WatchTable.fire -> WritePipeline.shown -> ended and moved sessions

Invariants
    * Revisions are applied whole and in order.  Of each, watchers hear first; then its author is
      answered; then the next is looked at.  So on every connection events and answers come in the order
      of their zxids, and no answer shows what an event has not told yet.
    * A revision that may be a write of ours holds all that follow until the store has judged the write.
    * A long backlog is applied in pieces, so that others get their turn; but never cut before a write
      of ours that is durable, whose client may have its reply already.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

from quoracy.errors import Unavailable
from quoracy.faces.zookeeper.tree.watches import WatchTable
from quoracy.faces.zookeeper.tree.znodes import Tree
from quoracy.faces.zookeeper.writing.pipeline import WritePipeline
from quoracy.store.api import Watch
from quoracy.store.model import WatchBatch

__all__ = ["Applier"]

# Revisions applied in one go, before others get their turn.
_APPLY_MAX: Final = 200


class Applier:
    """Keeps one tree up with one watch at a time."""

    def __init__(
        self, tree: Tree, watches: WatchTable, pipeline: WritePipeline, node_id: bytes
    ) -> None:
        self.on_session_gone: Callable[[int], None] = lambda _: None
        self.on_session_moved: Callable[[int], None] = lambda _: None
        self.on_unrecorded: Callable[[], None] = lambda: None  # `Tree.unrecorded` is not empty
        self._tree, self._watches, self._pipeline = tree, watches, pipeline
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._watch: Watch | None = None
        self._end: asyncio.Future[None] | None = None
        self._held: WatchBatch | None = None  # of a revision that may be a write of ours
        self._is_polling = False
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiters_count = 0

    def follow(self, watch: Watch) -> asyncio.Future[None]:
        """Apply what comes, until `leave`; what is returned gets the error that ends it."""
        self._watch, self._held = watch, None
        self._end = self._loop.create_future()
        watch.on_ready(self._ready)
        if self._waiters:
            watch.request_progress()
        self.finish()
        self._poll()
        return self._end

    def leave(self) -> None:
        self._watch = self._held = None

    def fail(self, error: Exception) -> None:
        """Nothing more is applied: `follow` ends with this."""
        self._watch = None
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    def resume(self) -> None:
        """A write of ours was judged."""
        if self._held is not None:
            self._poll()

    def wait(self, revision: int) -> asyncio.Future[None] | None:
        """Done when the tree shows everything up to this revision; None if it does."""
        if self._tree.zxid >= revision:
            return None
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters_count += 1
        heapq.heappush(self._waiters, (revision, self._waiters_count, waiter))
        if self._watch is not None:
            self._watch.request_progress()
        return waiter

    def stop(self) -> None:
        """Nothing more will be applied."""
        self.leave()
        for _, _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(Unavailable("the replica of the tree has stopped"))
        self._waiters.clear()

    def _ready(self) -> None:
        if self._held is None:
            self._poll()

    def _poll(self) -> None:
        """Apply what there is."""
        watch = self._watch
        if watch is None or self._is_polling:
            return
        self._is_polling = True
        try:
            applied = 0
            while self._watch is watch:
                batch, self._held = self._held, None
                if batch is None:
                    batch = watch.poll()
                    if batch is None:
                        break
                if not self._apply(batch):
                    self._held = batch
                    break
                applied += 1
                if applied >= _APPLY_MAX and not self._pipeline.judged:
                    self._loop.call_soon(self._ready)
                    break
        except Exception as error:  # noqa: BLE001 (it ends the replica)
            self.fail(error)
        finally:
            self._is_polling = False

    def _apply(self, batch: WatchBatch) -> bool:
        """False, with nothing done, if it is not known yet whether this is a write of ours."""
        tree, pipeline = self._tree, self._pipeline
        revision: int = batch.revision
        events = batch.events
        if events:
            if revision not in pipeline.judged and pipeline.in_flight.may_have_made(events[0].kv.key):
                return False
            changes = tree.apply(batch)
            if tree.lost:
                lost, tree.lost = tree.lost, []
                for path in lost:
                    pipeline.in_flight.child_lost(path)
            if changes:
                self._watches.fire(changes, revision)
            pipeline.shown(revision)
        elif revision > tree.zxid:
            tree.zxid = revision
        if tree.ended or tree.moved or tree.unrecorded or self._waiters:
            self.finish()
        return True

    def finish(self) -> None:
        """What else there is to do at a revision."""
        tree = self._tree
        if tree.ended:
            ended, tree.ended = tree.ended, []
            for id in ended:
                self._pipeline.session_ended(id)
                self.on_session_gone(id)
        if tree.moved:
            moved, tree.moved = tree.moved, []
            for id in moved:
                session = tree.sessions.get(id)
                if session is not None and session.node_id != self._node_id:
                    self.on_session_moved(id)
        while self._waiters and self._waiters[0][0] <= tree.zxid:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        if tree.unrecorded:
            self.on_unrecorded()
