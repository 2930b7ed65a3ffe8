"""Maintenance: leases end, history is compacted, space returns, alarms clear, time is noted.

A task ticks, on the store's clock.  Compaction takes effect at once; what it leaves over is freed in
slices, in memory and in the journal (at most `SLICE_S` of the writer), each slice its own transaction,
with commits in between.  What a crash interrupts is found again when the store is opened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from quoracy.clock import Clock
from quoracy.engines.embedded.disk.journal import Cleaned
from quoracy.engines.embedded.disk.off_loop import called_back
from quoracy.engines.embedded.disk.sweep import Unswept
from quoracy.engines.embedded.disk.writer import Clean, GiveBack, Sweep, Writer
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.memory.versions import VersionName, names_of
from quoracy.engines.embedded.retention import Ages, Retention
from quoracy.errors import Indeterminate, Rejected, Unavailable
from quoracy.store.model import Alarm, KeyValue

if TYPE_CHECKING:
    from quoracy.engines.embedded.engine import EmbeddedStore

__all__ = ["LEASES_PER_TURN", "TICK_S", "Maintenance"]

TICK_S = 0.1

# Versions that are gone through in one go, while the loop does nothing else: a few for each revision
# that was written since, when a group has left for the disk and its writers wait anyway, but some at
# least; and more when there are no writes.  Some keys leave many to be freed at once: then nothing is
# freed while the next groups leave.
_TRIM_PER_REVISION = 4
# For each, where space is short: more than a transaction usually writes.  Otherwise large transactions,
# one after the other, would use up the quota, and all writers would wait for seconds.
_TRIM_PER_REVISION_PRESSED = 256
_TRIM_VERSIONS_MIN = 16
_TRIM_VERSIONS = 64
_TRIM_VERSIONS_MAX = 4000
_NOBODY_WRITES_S = 0.001
# Names that are put in order in one go.
_CLEAN_NAMES_MAX = 500
_BACKLOG_MAX = 50_000
# About as many versions as one sweep handles; twice as many when a lot has piled up, since each sweep
# begins and ends with a turn of the loop.
_SWEEP_VERSIONS = 8_000
# Versions that a finished sweep drops in one go.
_LET_GO_VERSIONS = 256
_GIVE_BACK_PAUSE_S = 0.002
# Leases that one turn of the loop looks at: some milliseconds.
LEASES_PER_TURN = 1000


class Maintenance:
    """The tasks that tick, compact and clean up."""

    def __init__(
        self,
        store: EmbeddedStore,
        state: State,
        retention: Retention,
        clock: Clock,
        garbage: list[KeyValue],
    ) -> None:
        self._store = store
        self._state = state
        self._retention = retention
        self._clock = clock
        self._ages = None if retention.age_max_s is None else Ages(retention.age_max_s)
        self._garbage: deque[VersionName] = deque(names_of(garbage))
        self._unswept = Unswept(state.revision)
        self._cleaning = asyncio.Lock()  # what a sweep goes by must not change meanwhile
        self._compact_target = 0
        self._trimmed_at = state.revision  # when some of it was freed last
        self._trimmed_ahead = 0  # versions that were freed then, and need not be yet
        self._nobody_writes = False  # since some of it was freed last
        self._group_left: asyncio.Future[None] | None = None  # awaited by `_pause`
        self._compaction_wanted = asyncio.Event()
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: Writer  # set by `start`

    @property
    def garbage_count(self) -> int:
        """Versions that nobody can read any more but that are still on disk."""
        return len(self._garbage) + self._unswept.freed_count

    def start(self, writer: Writer) -> None:
        self._writer = writer
        if self._garbage or self._state.trim_pending:
            self._work.set()
        for work in (self._tick_forever(), self._compact_forever(), self._clean_forever()):
            task = asyncio.create_task(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """There is something to clean up."""
        self._work.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        # None of them ends by itself: if one does, its error must not go unseen.
        if not task.cancelled() and (error := task.exception()) is not None:
            self._store.fail(error)

    # -- ticking -------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            now = self._clock.now()
            self._store.tick_watches(now)
            if Alarm.STORAGE_FAILED in self._store.alarms:
                continue
            await self._end_leases(now)
            self._store.review_space()
            self._store.keep_time()
            self._compact_target = self._compaction_due(now)
            if self._compact_target > self._state.compact_revision:
                self._compaction_wanted.set()

    async def _end_leases(self, now: float) -> None:
        # After a restart all leases were granted at one moment, and come up for review at one.
        leases = self._state.leases
        while True:
            for lease in leases.due(now=now, at_most=LEASES_PER_TURN):
                self._store.end_lease(lease)
            if not leases.is_any_due:
                return
            await asyncio.sleep(0)

    def _compaction_due(self, now: float) -> int:
        """The revision that auto-compaction should go to now; 0 if there is no need."""
        retention, newest = self._retention, self._store.compactable
        if not retention.enabled:
            return 0
        target = 0
        if retention.revisions_max is not None:
            # A tenth of slack, so that a busy store is not compacted at every tick.
            oldest = max(self._state.compact_revision, 1)
            if newest - oldest > retention.revisions_max + retention.revisions_max // 10:
                target = newest - retention.revisions_max
        if self._ages is not None:
            target = max(target, self._ages.expired(newest, now=now))
        if self._store.pressed_for_space:
            target = newest
        return min(target, newest)

    async def _compact_forever(self) -> None:
        # Apart from the ticks: compaction waits for the disk, and leases must not wait for that.
        while True:
            await self._compaction_wanted.wait()
            self._compaction_wanted.clear()
            await self._compact(self._compact_target)

    async def compact_all(self) -> None:
        """Compact all history that may go, and free its memory now rather than by and by."""
        if self._retention.enabled:
            await self._compact(self._store.compactable)
            await self._trim()

    async def _compact(self, target: int) -> None:
        if target <= self._state.compact_revision:
            return
        try:
            await self._store.compact(target)
        except (Rejected, Unavailable, Indeterminate):
            # A client compacted further meanwhile, or the disk failed and the alarm says so.
            failed = Alarm.STORAGE_FAILED in self._store.alarms
            if target > self._state.compact_revision and not failed:
                raise

    # -- cleaning up -----------------------------------------------------------------------

    async def _clean_forever(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._state.trim_pending or self.garbage_count:
                unswept_max = _SWEEP_VERSIONS * (2 if self._is_behind else 1)
                await self._trim(garbage_max=2 * _BACKLOG_MAX, unswept_max=unswept_max)
                await self._clean()
                await self._sweep()
            while await self._submit(GiveBack()):  # noqa: ASYNC110  the pause is the point
                await asyncio.sleep(_GIVE_BACK_PAUSE_S)

    async def _trim(self, *, garbage_max: int | None = None, unswept_max: int | None = None) -> None:
        """Free memory, until there is enough to clean from the journal."""
        async with self._cleaning:
            self._trimmed_at, self._nobody_writes = self._state.revision, False
            while self._state.trim_pending:
                if garbage_max is not None and len(self._garbage) >= garbage_max:
                    return
                versions_max = self._trim_versions()
                if versions_max:
                    newest: dict[bytes, KeyValue] = {}
                    freed = self._state.trim(versions_max=versions_max, newest=newest)
                    self._trimmed_ahead = max(len(freed) - versions_max, 0)
                    self._garbage.extend(names_of(self._unswept.trimmed(freed, newest)))
                    del freed, newest  # now, and not when there is something else to do
                await self._pause()
                # (After a slice, never before: whatever sweeping does, trimming comes to its end.  Nor
                # while memory is short: the journal can wait.)
                is_enough = unswept_max is not None and self._unswept.count >= unswept_max
                if is_enough and not self._store.pressed_for_space:
                    return

    def _trim_versions(self) -> int:
        """How many to free now, by what was written since the last time, and was freed then."""
        revision = self._state.revision
        written, self._trimmed_at = revision - self._trimmed_at, revision
        if not written:
            return _TRIM_VERSIONS if self._nobody_writes else _TRIM_VERSIONS_MIN
        pressed = self._store.pressed_for_space
        each = _TRIM_PER_REVISION_PRESSED if pressed else _TRIM_PER_REVISION
        wanted = max(each * written, _TRIM_VERSIONS_MIN)
        ahead = min(self._trimmed_ahead, wanted)
        self._trimmed_ahead -= ahead
        return min(wanted - ahead, _TRIM_VERSIONS_MAX)

    async def _pause(self) -> None:
        """Wait until a group has left for the disk; or for a moment, if there are no writes."""
        if self._nobody_writes:
            await asyncio.sleep(0)
        else:
            loop = asyncio.get_running_loop()
            self._group_left = group_left = loop.create_future()
            timer = loop.call_later(_NOBODY_WRITES_S, self.left)
            await group_left
            timer.cancel()
        # A commit that waits for the disk counts as a write: the thread that is to sync it may be
        # behind this one on its processor, and must not wait while the loop takes turn after turn.
        is_idle = self._state.revision == self._trimmed_at and not self._writer.is_committing
        self._nobody_writes = is_idle

    def left(self) -> None:
        """A group has left for the disk."""
        group_left, self._group_left = self._group_left, None
        if group_left is not None and not group_left.done():
            group_left.set_result(None)

    @property
    def _untrimmed(self) -> int:
        """Revisions that compaction has passed and trimming has not."""
        return self._state.compact_revision - self._state.trimmed_until

    async def _clean(self) -> None:
        garbage = self._garbage
        # Neighbours on disk together: compaction frees them in the order they were replaced.
        names = sorted(garbage.popleft() for _ in range(min(_CLEAN_NAMES_MAX, len(garbage))))
        done, more, is_last = 0, bool(names), not garbage
        while more:
            cleaned = await self._submit(Clean(names, done, is_last=is_last))
            assert isinstance(cleaned, Cleaned)
            done, more = done + cleaned.done, cleaned.more
            # At most half of the writer's time, so that commits are hardly delayed; unless the backlog
            # is so long that it would never shrink.
            if cleaned.took_s and len(garbage) < _BACKLOG_MAX:
                await asyncio.sleep(cleaned.took_s)

    async def _sweep(self) -> None:
        """Sweep all that was trimmed, once everything older was dropped by name."""
        async with self._cleaning:
            unswept = self._unswept
            if self._garbage or not (unswept.freed_count or unswept.count >= _SWEEP_VERSIONS):
                return
            sweep = unswept.sweep(self._state.trimmed_until)
            more = True
            while more:
                cleaned = await self._submit(sweep)
                assert isinstance(cleaned, Cleaned)
                more = cleaned.more
                # As in `_clean`.
                if more and not self._is_behind:
                    await asyncio.sleep(cleaned.took_s)
            unswept.done(sweep)
        while sweep.let_go(_TRIM_VERSIONS_MAX if self._store.pressed_for_space else _LET_GO_VERSIONS):
            self._trimmed_at = self._state.revision
            await self._pause()

    @property
    def _is_behind(self) -> bool:
        """Whether more has piled up than is cleaned by taking turns with commits."""
        return self._untrimmed > _BACKLOG_MAX

    async def _submit(self, job: Clean | Sweep | GiveBack) -> object:
        return await called_back(partial(self._writer.submit, job))
