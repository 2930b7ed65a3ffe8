"""The hub of all watches: which watchers a revision concerns, and how the slow ones catch up.

A watcher is *synced* while it has been handed everything there is: the hub then pushes new revisions
into its buffer.  When the buffer is full the watcher *lags*: the hub forgets it, and it reads on from
history when its consumer comes for more, until it has caught up.

Invariants
    * No IO and no asyncio; a wake-up is a call to `Watcher.wake`.  A commit wakes a watcher once, and
      only if its buffer was empty: a consumer that was woken takes all there is.
    * The hub knows only durable revisions, in order, each once: `publish` is how it learns of them.
    * A watcher is handed each matching event exactly once, in order, a revision at a time.
    * A buffer holds at most `events_max` events and `bytes_max` bytes of keys and values (one batch may
      be larger: a revision is never split); memory does not grow with how slow a consumer is.
    * A progress notification is never ahead of an event that was not handed out.  [etcd#15220]
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable

from quoracy.engines.embedded.memory.revision_log import Changes
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.watching.range_index import RangeIndex
from quoracy.errors import Compacted
from quoracy.store.model import Event, KeyRange, KeyValue, Revision, WatchBatch

__all__ = ["WatchHub", "Watcher"]

# Batches of one revision by (prev_kv, first key, number of events): those made for one watcher serve
# every other that asks for the same.
_Which = tuple[bool, bytes, int]
_Made = dict[_Which, tuple[WatchBatch, int]]


class Watcher:
    """One watch: what it asks for, what is buffered for it, and where it stands."""

    __slots__ = (
        "buffer",
        "bytes_count",
        "deletes",
        "delivered_at",
        "events_count",
        "keys",
        "next_revision",
        "prev_kv",
        "progress_s",
        "progress_wanted",
        "puts",
        "synced",
        "wake",
    )

    def __init__(
        self,
        keys: KeyRange,
        *,
        next_revision: int,
        wake: Callable[[], None],
        puts: bool = True,
        deletes: bool = True,
        prev_kv: bool = False,
        progress_s: float | None = None,
    ) -> None:
        self.keys = keys
        self.puts = puts
        self.deletes = deletes
        self.prev_kv = prev_kv
        self.progress_s = progress_s
        self.progress_wanted = False
        self.next_revision = next_revision  # the first it has not been handed
        self.wake = wake
        self.synced = False
        self.buffer: deque[tuple[WatchBatch, int]] = deque()  # with its size in bytes
        self.events_count = 0
        self.bytes_count = 0
        self.delivered_at = 0.0


class WatchHub:
    """All watchers of one store."""

    def __init__(self, state: State, *, revision: int, events_max: int, bytes_max: int) -> None:
        self.revision = revision  # the newest that is durable
        self.watchers_count = 0
        self._state = state
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._synced: RangeIndex[Watcher] = RangeIndex()
        self._synced_count = 0
        # Asked for progress before they have begun: woken when the store gets there.
        self._ahead: dict[Watcher, None] = {}
        self._ready: list[Watcher] = []  # with the first batch of a commit that is being published
        self._progress: list[tuple[float, int, Watcher]] = []
        self._progress_gone = 0
        self._order = itertools.count()

    # -- life of a watcher ---------------------------------------------------------------

    def add(self, watcher: Watcher, *, now: float) -> None:
        """Start it.  One that starts in the past is not synced and must `catch_up` first."""
        self.watchers_count += 1
        watcher.delivered_at = now
        if watcher.next_revision > self.revision:
            self._sync(watcher)
        if watcher.progress_s is not None:
            self._schedule_progress(watcher, now + watcher.progress_s)

    def remove(self, watcher: Watcher) -> None:
        self.watchers_count -= 1
        self._unsync(watcher)
        self._ahead.pop(watcher, None)
        if watcher.progress_s is not None:
            watcher.progress_s = None
            self._progress_gone += 1
            # Those that left stay in the heap until they are due; never more of them than others.
            if self._progress_gone * 2 > len(self._progress):
                self._progress = [entry for entry in self._progress if entry[2].progress_s is not None]
                heapq.heapify(self._progress)
                self._progress_gone = 0

    def take(self, watcher: Watcher, *, now: float) -> WatchBatch | None:
        """The next batch for its consumer, if there is one yet."""
        if watcher.buffer:
            batch, size = watcher.buffer.popleft()
            watcher.events_count -= len(batch.events)
            watcher.bytes_count -= size
        elif watcher.progress_wanted and watcher.synced:
            if watcher.next_revision > self.revision + 1:
                self._ahead[watcher] = None
                return None
            watcher.progress_wanted = False
            batch = WatchBatch(Revision(self.revision))
        else:
            return None
        watcher.delivered_at = now
        return batch

    def catch_up(self, watcher: Watcher, *, revisions_max: int) -> None:
        """Feed a lagging watcher from history, at most `revisions_max` revisions a call.

        Raises `Compacted` if what it needs next is gone.
        """
        first = watcher.next_revision
        if first < self._state.compact_revision:
            raise Compacted(wanted=first, oldest=self._state.compact_revision)
        for revision in range(first, min(self.revision, first + revisions_max - 1) + 1):
            keys = watcher.keys
            kvs = [kv for kv in self._state.changes(revision) if keys.contains(kv.key)]
            if kvs and not self._hand(watcher, revision, kvs, {}):
                return
            watcher.next_revision = revision + 1
        if watcher.next_revision > self.revision:
            self._sync(watcher)

    # -- what happens ---------------------------------------------------------------------

    def publish(self, revision: int) -> None:
        """Everything up to `revision` is durable now: hand it to the watchers that it concerns."""
        first, self.revision = self.revision + 1, revision
        if self._synced_count:
            find = self._synced.find
            for at in range(first, revision + 1):
                changes = self._state.changes(at)
                if len(changes) != 1:  # none: a revision of another program on the cluster
                    self._publish_many(at, changes)
                elif watchers := find(changes[0].key):
                    made: _Made = {}
                    for watcher in watchers:
                        self._push(watcher, at, [changes[0]], made)
        if self._ahead:
            self._note_arrived()
        if self._ready:
            ready, self._ready = self._ready, []
            for watcher in ready:
                watcher.wake()

    def _publish_many(self, revision: int, changes: Changes) -> None:
        find = self._synced.find
        made: _Made = {}
        concerned: dict[Watcher, list[KeyValue]] = {}
        for kv in changes:
            for watcher in find(kv.key):
                concerned.setdefault(watcher, []).append(kv)
        for watcher, kvs in concerned.items():
            self._push(watcher, revision, kvs, made)

    def _push(
        self,
        watcher: Watcher,
        revision: int,
        kvs: list[KeyValue],
        made: _Made,
    ) -> None:
        if revision < watcher.next_revision:
            return  # it asked for later ones only
        was_empty = not watcher.buffer
        if self._hand(watcher, revision, kvs, made):
            watcher.next_revision = revision + 1
            if was_empty and watcher.buffer:
                self._ready.append(watcher)
        else:
            self._unsync(watcher)
            watcher.next_revision = revision

    def _hand(
        self,
        watcher: Watcher,
        revision: int,
        kvs: list[KeyValue],
        made: _Made,
    ) -> bool:
        """Put a revision into the buffer; False if it does not fit."""
        if not (watcher.puts and watcher.deletes):
            kvs = [kv for kv in kvs if (watcher.puts if kv.version else watcher.deletes)]
            if not kvs:
                return True
        which = (watcher.prev_kv, kvs[0].key, len(kvs))
        batch, size = made.get(which) or self._make(revision, kvs, which, made)
        if watcher.buffer and (
            watcher.events_count + len(kvs) > self._events_max
            or watcher.bytes_count + size > self._bytes_max
        ):
            return False
        watcher.buffer.append((batch, size))
        watcher.events_count += len(kvs)
        watcher.bytes_count += size
        return True

    def _make(
        self, revision: int, kvs: list[KeyValue], which: _Which, made: _Made
    ) -> tuple[WatchBatch, int]:
        """A batch and its size, kept for watchers that want the same."""
        size = sum([len(kv.key) + len(kv.value) for kv in kvs])
        batch = WatchBatch(Revision(revision), self._events(kvs, prev_kv=which[0]))
        if len(kvs) == 1:  # with several events, others may want others of them
            made[which] = (batch, size)
        return batch, size

    def _events(self, kvs: list[KeyValue], *, prev_kv: bool) -> tuple[Event, ...]:
        if prev_kv:
            return tuple([Event(kv, self._state.before(kv)) for kv in kvs])
        return tuple([Event(kv) for kv in kvs])

    # -- progress ------------------------------------------------------------------------

    def tick(self, *, now: float) -> None:
        """Have progress delivered to watchers that asked for it and got nothing for their time."""
        while self._progress and self._progress[0][0] <= now:
            _, _, watcher = heapq.heappop(self._progress)
            if watcher.progress_s is None:
                self._progress_gone -= 1
                continue
            due = watcher.delivered_at + watcher.progress_s
            if due <= now:
                due = now + watcher.progress_s
                if not watcher.buffer:
                    watcher.progress_wanted = True
                    watcher.wake()
            self._schedule_progress(watcher, due)

    def _note_arrived(self) -> None:
        for watcher in [each for each in self._ahead if each.next_revision <= self.revision]:
            del self._ahead[watcher]
            self._ready.append(watcher)

    def _schedule_progress(self, watcher: Watcher, due: float) -> None:
        heapq.heappush(self._progress, (due, next(self._order), watcher))

    def _sync(self, watcher: Watcher) -> None:
        watcher.synced = True
        self._synced_count += 1
        self._synced.add(watcher.keys, watcher)

    def _unsync(self, watcher: Watcher) -> None:
        if watcher.synced:
            watcher.synced = False
            self._synced_count -= 1
            self._synced.remove(watcher.keys, watcher)
