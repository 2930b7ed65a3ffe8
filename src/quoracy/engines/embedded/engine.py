"""The embedded store: what waits for the disk, around `GroupCommit`, which decides.

The state machine, the group commit and everything that happens in one turn of the loop are in
`group_commit`; here is what a caller awaits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

import msgspec

from quoracy.clock import Clock
from quoracy.engines.embedded.committing.group_commit import GroupCommit
from quoracy.engines.embedded.disk.backup import BackupReport, Progress, write_backup
from quoracy.engines.embedded.disk.journal import JournalSize
from quoracy.engines.embedded.disk.off_loop import called_back
from quoracy.engines.embedded.disk.writer import Writer
from quoracy.engines.embedded.maintenance import Maintenance
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.memory.timeline import SavedTimeline, Timekeeper
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.embedded.watching.watch import EmbeddedWatch
from quoracy.errors import Indeterminate, Rejected, StorageFailed, StoreClosed, Unavailable
from quoracy.store.api import WatchOptions
from quoracy.store.completion import Completion
from quoracy.store.coroutines import CoroutineStore, ended
from quoracy.store.digest import Digest
from quoracy.store.model import (
    Alarm,
    Delete,
    Keys,
    KeyValue,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    Put,
    Range,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    WaitFirst,
)
from quoracy.store.rules import (
    Limits,
    as_range,
    check_keys,
    check_lease_id,
    check_lease_ttl,
    check_range,
)

__all__ = ["EmbeddedStatistics", "EmbeddedStore"]

# Work on a whole store (a digest, a backup) goes in pages, so that others get their turn.
_PAGE_KEYS = 1000


class EmbeddedStatistics(msgspec.Struct, frozen=True):
    """What the engine is doing, for people and dashboards; costs nothing to take."""

    revision: int
    durable_revision: int
    compact_revision: int
    keys_count: int
    leases_count: int
    watchers_count: int
    size_bytes: int
    history_bytes: int
    commits_count: int
    garbage_count: int


class EmbeddedStore(CoroutineStore):
    """A `Store` in this process.  Made by `open_store`; lives on the loop it was made on."""

    # What does not wait is the commits' own, without a call in between.
    submit: Callable[[Put | Delete | Txn, Completion], None]
    read: Callable[[Range | WaitFirst, Completion], None]

    def __init__(
        self,
        state: State,
        *,
        path: Path | None,
        limits: Limits,
        retention: Retention,
        clock: Clock,
        rng: random.Random,
        garbage: list[KeyValue],
        times: SavedTimeline | None = None,
    ) -> None:
        self.path = path
        self.limits = limits
        self._state = state
        self._clock = clock
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._streams: set[EmbeddedWatch] = set()
        self._compacting = asyncio.Lock()
        self._pins: dict[object, int] = {}
        self._making_room: asyncio.Task[None] | None = None
        self._times = Timekeeper(clock, revision=state.revision, saved=times)
        self._maintenance = Maintenance(self, state, retention, clock, garbage)
        commits = self._commits = GroupCommit(
            state,
            path=path,
            limits=limits,
            loop=self._loop,
            on_compacted=self._maintenance.wake,
            on_full=self._start_making_room,
            on_left=self._maintenance.left,
        )
        self.submit = commits.submit
        self.read = commits.read
        self.catch_up = commits.catch_up  # type: ignore[method-assign]
        self.end_lease = commits.end_lease
        self.fail = commits.fail
        self.review_space = commits.review_space

    @property
    def head_revision(self) -> int:
        return self._state.revision

    def start(self, writer: Writer) -> None:
        self._commits.use(writer)
        self._maintenance.start(writer)

    # -- reading -------------------------------------------------------------------------

    async def backup(self, path: str | Path, *, progress: Progress | None = None) -> BackupReport:
        """Write everything to a file that `quoracy.restore` takes, while the store goes on."""
        return await write_backup(self, Path(path), progress)

    async def hash(self, *, at: int | None = None) -> StateHash:
        digest = Digest()
        with self.pinned(at) as revision:
            after: bytes | None = None
            while page := self.page(after, at=revision):
                digest.update(page)
                after = page[-1].key
                await asyncio.sleep(0)
            return StateHash(revision, self._state.compact_revision, digest.hexdigest())

    def granted_leases(self) -> dict[int, float]:
        """Every lease with its time to live."""
        leases = self._state.leases
        return {id: leases.remaining(id, now=self._clock.now())[0] for id in leases.ids()}

    def page(self, after: bytes | None, *, at: int) -> list[KeyValue]:
        """The next keys of a revision that is `pinned`."""
        self._commits.check_open()
        return self._state.page(after, _PAGE_KEYS, at=at)

    @contextmanager
    def pinned(self, at: int | None = None) -> Iterator[Revision]:
        """Keep auto-compaction from passing a revision.  A client's compaction still may."""
        self._commits.check_open()
        op = Range(b"\0", at=at, count_only=True)
        check_range(op, self.limits)
        self._state.range(op, newest=self._commits.durable)
        revision = Revision(self._commits.durable if at is None else at)
        pin = object()
        self._pins[pin] = revision
        try:
            yield revision
        finally:
            del self._pins[pin]

    @property
    def compactable(self) -> int:
        """How far auto-compaction may go."""
        return min(self._pins.values(), default=self._commits.durable)

    async def revision_at(self, age_s: float) -> Revision:
        self._commits.check_open()
        return self._times.revision_at(
            age_s, newest=self._commits.durable, compact_revision=self._state.compact_revision
        )

    async def status(self) -> StoreStatus:
        self._commits.check_open()
        state = self._state
        return StoreStatus(
            engine="memory" if self.path is None else "sqlite",
            revision=self._commits.durable,
            compact_revision=state.compact_revision,
            keys_count=state.count(newest=self._commits.durable),
            leases_count=self._commits.durable_leases_count,
            watchers_count=self._commits.hub.watchers_count,
            size_bytes=state.size_bytes,
            size_bytes_max=self.limits.storage_bytes_max,
            alarms=self.alarms,
        )

    def statistics(self) -> EmbeddedStatistics:
        state = self._state
        return EmbeddedStatistics(
            revision=state.revision,
            durable_revision=self._commits.durable,
            compact_revision=state.compact_revision,
            keys_count=state.keys_count,
            leases_count=len(state.leases),
            watchers_count=self._commits.hub.watchers_count,
            size_bytes=state.size_bytes,
            history_bytes=state.history_bytes,
            commits_count=self._commits.commits_count,
            garbage_count=self._maintenance.garbage_count,
        )

    async def journal_size(self) -> JournalSize | None:
        """Bytes on disk, or None where there is no disk."""
        self._commits.check_open()
        size = await called_back(self._commits.writer.size)
        assert isinstance(size, JournalSize | None)
        return size

    # -- writing -------------------------------------------------------------------------

    async def compact(self, at: int) -> None:
        # One at a time, and the state learns of it when it is durable: until then everything it
        # forgets can still be read.
        async with self._compacting:
            self._commits.check_writable()
            self._state.check_compact(at, newest=self._state.revision)
            await self._settled()
            self._commits.check_writable()
            await ended(self._commits.enlist_compaction(at))

    # -- leases --------------------------------------------------------------------------

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        granted_s = check_lease_ttl(ttl_s, self.limits)
        if id is not None:
            check_lease_id(id)
        if self._commits.is_full(0):
            await self._make_room()
        self._commits.check_room()
        leases = self._state.leases
        while id is None:
            candidate = LeaseId(self._rng.getrandbits(63))
            if candidate and candidate not in leases:
                id = candidate
        try:
            leases.grant(id, granted_s, now=self._clock.now())
        except Rejected:
            await self._leases_settled()
            raise
        await ended(self._commits.enlist_grant(id, granted_s))
        return LeaseGrant(id, granted_s)

    async def keep_alive(self, lease: int) -> LeaseGrant:
        self._commits.check_open()
        try:
            ttl_s = self._state.leases.keep_alive(lease, now=self._clock.now())
        finally:
            await self._leases_settled()
        return LeaseGrant(LeaseId(lease), ttl_s)

    async def revoke(self, lease: int) -> Revision:
        self._commits.check_writable()
        try:
            revision = self.end_lease(lease)
        finally:
            await self._settled()
        return revision

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        self._commits.check_open()
        leases = self._state.leases
        try:
            ttl_s, remaining_s = leases.remaining(lease, now=self._clock.now())
            attached = leases.keys(lease) if keys else ()
        finally:
            await (self._settled() if keys else self._leases_settled())
        return LeaseStatus(LeaseId(lease), ttl_s, remaining_s, attached)

    async def leases(self) -> tuple[LeaseId, ...]:
        self._commits.check_open()
        ids = self._state.leases.ids()
        await self._leases_settled()
        return ids

    async def _settled(self) -> None:
        """Returns when everything in memory is durable."""
        waiter = self._commits.settling()
        if waiter is not None:
            await ended(waiter)

    async def _leases_settled(self) -> None:
        waiter = self._commits.leases_settling()
        if waiter is not None:
            await ended(waiter)

    # -- watching ------------------------------------------------------------------------

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> EmbeddedWatch:
        check_keys(keys, self.limits)
        return EmbeddedWatch(self, self._commits.hub, self._clock, as_range(keys), **options)

    def enter_stream(self, stream: EmbeddedWatch) -> None:
        self._commits.check_open()
        self._streams.add(stream)

    def leave_stream(self, stream: EmbeddedWatch) -> None:
        self._streams.discard(stream)

    def tick_watches(self, now: float) -> None:
        self._commits.hub.tick(now=now)

    def keep_time(self) -> None:
        """Note which revision is the newest now; what was noted goes with the next commit, if due."""
        compacted = self._state.compact_revision
        self._remember(self._times.tick(self._commits.durable, compact_revision=compacted))

    def _remember(self, times: bytes | None) -> None:
        if times is not None:
            self._commits.remember("timeline", times)

    # -- making room -----------------------------------------------------------------------

    def _start_making_room(self) -> None:
        self._making_room = self._loop.create_task(self._make_room_for_waiting())

    async def _make_room_for_waiting(self) -> None:
        is_enough = False
        while not is_enough:
            try:
                await self._make_room()
            except (Unavailable, Indeterminate):
                # The disk failed or the store was closed; each write that waits is refused for that.
                assert self._commits.is_closed or self._commits.failure is not None
            is_enough = self._commits.take_waiting()

    async def _make_room(self) -> None:
        """Let history give way to data, at once."""
        await self._settled()  # only what is durable can become history
        self._commits.check_writable()
        await self._maintenance.compact_all()
        self.review_space()

    @property
    def alarms(self) -> frozenset[Alarm]:
        return self._commits.alarms

    @property
    def pressed_for_space(self) -> bool:
        """Whether history should give way to data."""
        return self._commits.pressed_for_space

    # -- the end -------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish what is under way, end every watch, close the data."""
        if self._commits.is_closed:
            return
        self._commits.is_closed = True
        try:
            await self._maintenance.stop()
            if self._commits.failure is None:
                await self._settled()
                await self._remember_at_last()
        finally:
            if self._making_room is not None:
                self._making_room.cancel()
                await asyncio.wait([self._making_room])
                self._commits.take_waiting()
            for stream in list(self._streams):
                stream.store_closed()
            self._commits.queue_waits.dismiss(StoreClosed())
            try:
                await called_back(self._commits.writer.close)
            finally:
                self._commits.writer.stop()

    async def _remember_at_last(self) -> None:
        self._remember(self._times.close(self._commits.durable))
        try:
            await self._settled()
        except Indeterminate as error:  # which is about a write that nobody asked for
            assert self._commits.failure is not None
            raise StorageFailed(str(self.path), self._commits.failure) from error
