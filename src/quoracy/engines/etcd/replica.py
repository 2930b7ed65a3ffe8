"""What this node knows of the cluster: the state, its watchers, and the waits for revisions.  Pure.

It is fed revision by revision, in order; reads and watches see a revision as soon as it is applied.

Invariants
    * Revisions are applied whole and in order, each once; one that was applied already is passed over.
    * At a revision, watches are made ready first; then the waits for it end.
    * Memory for history is bounded: past `KEPT_REVISIONS` or `KEPT_BYTES` the oldest is forgotten here,
      a piece at each revision.  Older history is the cluster's to read.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.revision_log import Changes
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.watching.hub import WatchHub
from quoracy.native import mypyc_attr
from quoracy.store.model import KeyValue
from quoracy.store.rules import Limits

__all__ = ["KEPT_BYTES", "KEPT_REVISIONS", "Replica", "Waiter"]

KEPT_REVISIONS = 10_000
KEPT_BYTES = 64 * 1024**2

# Forgotten in one go: often enough to be short, seldom enough to cost little.
_TRIM_REVISIONS = 256
# Versions freed with each revision that comes: many times what one brings, so that it catches up.
_TRIM_VERSIONS = 2048


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Something that waits for a revision."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False

    def end(self, error: BaseException | None) -> None:
        """The revision is here; or it is not waited for any more, for this reason."""
        if not self.is_over:
            self.is_over = True
            self.ended(error)

    def ended(self, error: BaseException | None) -> None:
        """Called once; must not raise."""
        raise NotImplementedError


class Replica:
    """The contents of the store as far as this node knows them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiters: list[tuple[int, int, Waiter]] = []
        self._order = itertools.count()
        self.begin([], revision=0)

    def begin(self, kvs: Iterable[KeyValue], *, revision: int) -> None:
        """Start from what there is at a revision, whatever was known before."""
        # Leases are the cluster's: of a key's lease only the number is known here.
        self.state = State(LeaseTable(now=0.0))
        self.state.adopt(kvs, revision=revision)
        self.hub = WatchHub(
            self.state,
            revision=revision,
            events_max=self._limits.watch_buffer_events_max,
            bytes_max=self._limits.watch_buffer_bytes_max,
        )
        # The first revision whose changes are known here.
        self._known_from = revision + 1
        self._forgotten = 0  # by the cluster, as far as is known
        self._wake()

    @property
    def revision(self) -> int:
        return self.state.revision

    @property
    def known_from(self) -> int:
        """The first revision of which the changes are known here."""
        return max(self._known_from, self.state.compact_revision)

    def apply(self, revision: int, changes: Changes) -> None:
        """A revision's changes; without any, everything up to it is known to concern others."""
        state = self.state
        if revision <= state.revision:
            return
        state.apply(revision, changes)
        self.hub.publish(revision)
        if self._waiters:
            self._wake()
        self._forget_some()

    def compact(self, at: int) -> None:
        """The cluster forgot what was before; so do we, as soon as we are there."""
        self._forgotten = max(self._forgotten, at)
        if self.state.compact_revision < self._forgotten <= self.state.revision:
            self.state.compact(self._forgotten)

    def wait(self, revision: int, waiter: Waiter) -> None:
        """End `waiter` when a revision is here, which it is not yet."""
        heapq.heappush(self._waiters, (revision, next(self._order), waiter))

    @property
    def is_awaited(self) -> bool:
        """Whether there is a wait for a revision that is not here."""
        while self._waiters and self._waiters[0][2].is_over:
            heapq.heappop(self._waiters)
        return bool(self._waiters)

    def fail_waiters(self, error: BaseException) -> None:
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            waiter.end(error)

    def _wake(self) -> None:
        waiters, revision = self._waiters, self.state.revision
        while waiters and waiters[0][0] <= revision:
            heapq.heappop(waiters)[2].end(None)

    def _forget_some(self) -> None:
        state = self.state
        if state.compact_revision < self._forgotten <= state.revision:
            state.compact(self._forgotten)
        floor = state.revision - KEPT_REVISIONS
        if floor - state.compact_revision >= _TRIM_REVISIONS:
            state.compact(floor)
        elif state.history_bytes > KEPT_BYTES and not state.trim_pending:
            state.compact((state.compact_revision + state.revision + 1) // 2)
        if state.trim_pending:
            state.trim(versions_max=_TRIM_VERSIONS)
