"""The embedded store: the state machine, made durable by group commit and shared with watchers.

    put, txn, ...  -> State (at once, in memory)  -> the batch that is filling
                                                         |  one SQLite transaction, one fsync
    reads          <- State as of the newest durable <- committed -> WatchHub -> watchers
                                                         |
                                                     the writers' answers

Invariants
    * Nothing leaves before what it depends on is durable.  Writes are answered, and events published,
      when their batch is.  Reads are answered as of the newest durable revision: they wait for no disk,
      show nothing a crash could undo, and see every write that was acknowledged before they came.
    * One batch is on its way to disk at a time; all that arrives meanwhile goes into the next.
    * A failed commit is the end of writing: its writers get `Indeterminate` (it may be on disk), all
      later ones `StorageFailed`, and the alarm is up.  Reads go on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

import msgspec

from quorate.clock import Clock
from quorate.engines.embedded.backup import BackupReport, Progress, write_backup
from quorate.engines.embedded.first_waits import FirstWaits
from quorate.engines.embedded.following import EmbeddedFollowing, Followings
from quorate.engines.embedded.group import Group
from quorate.engines.embedded.journal import JournalSize
from quorate.engines.embedded.maintenance import Maintenance
from quorate.engines.embedded.retention import Retention
from quorate.engines.embedded.state import State
from quorate.engines.embedded.streams import EmbeddedWatch
from quorate.engines.embedded.timekeeper import Timekeeper
from quorate.engines.embedded.timeline import SavedTimeline
from quorate.engines.embedded.watches import WatchHub
from quorate.engines.embedded.writer import Writer
from quorate.errors import (
    Indeterminate,
    NoSpace,
    Overloaded,
    Rejected,
    StorageFailed,
    StoreClosed,
)
from quorate.store.api import Follower, OnDone, RangeOptions, WatchOptions
from quorate.store.digest import Digest
from quorate.store.model import (
    Alarm,
    Delete,
    DeleteResult,
    KeyRange,
    Keys,
    KeyValue,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    Put,
    PutResult,
    Range,
    RangeResult,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    TxnResult,
)
from quorate.store.rules import (
    Limits,
    as_range,
    check_delete,
    check_keys,
    check_lease_id,
    check_lease_ttl,
    check_plain_writes,
    check_put,
    check_range,
    check_txn,
    writes,
)

__all__ = ["EmbeddedStatistics", "EmbeddedStore"]

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # nothing on stderr unless the program sets up logging

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


class EmbeddedStore:
    """A `Store` in this process.  Made by `open_store`; lives on the loop it was made on."""

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
        self._state = state
        self.limits = limits
        self._clock = clock
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._writer: Writer  # set by `start`
        self._hub = WatchHub(
            state,
            revision=state.revision,
            events_max=limits.watch_buffer_events_max,
            bytes_max=limits.watch_buffer_bytes_max,
        )
        self._followings = Followings(self, state)
        self._first_waits = FirstWaits(state, self._hub, self._loop.call_soon)
        self._streams: set[EmbeddedWatch] = set()
        self._durable: Revision = state.revision
        self._durable_leases_count = len(state.leases)
        self._filling = Group()
        self._committing: Group | None = None
        self._flush_due = False
        self._is_lone_writer = False
        self._commits_count = 0
        self._compacting = asyncio.Lock()
        self._failure: BaseException | None = None  # what stopped writing, for good
        self._leases_torn = False  # the failure that stopped writes hit grants or ends of leases
        self._closed = False
        self._pins: dict[object, int] = {}
        self.alarms: frozenset[Alarm] = frozenset()
        self._times = Timekeeper(clock, revision=state.revision, saved=times)
        self._maintenance = Maintenance(self, state, retention, clock, garbage)

    def start(self, writer: Writer) -> None:
        self._writer = writer
        self._maintenance.start(writer)

    # -- reading -------------------------------------------------------------------------

    async def range(self, keys: Keys, **options: Unpack[RangeOptions]) -> RangeResult:
        return self.read(Range(keys, **options))

    def read(self, op: Range) -> RangeResult:
        check_range(op, self.limits)
        self._check_open()
        return self._state.range(op, newest=self._durable)

    async def backup(self, path: str | Path, *, progress: Progress | None = None) -> BackupReport:
        """Write everything to a file that `quorate.restore` takes, while the store goes on."""
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
        self._check_open()
        return self._state.page(after, _PAGE_KEYS, at=at)

    @contextmanager
    def pinned(self, at: int | None = None) -> Iterator[Revision]:
        """Keep auto-compaction off a revision meanwhile.  A compaction somebody asks for still goes."""
        self._check_open()
        op = Range(b"\0", at=at, count_only=True)
        check_range(op, self.limits)
        self._state.range(op, newest=self._durable)
        revision = Revision(self._durable if at is None else at)
        pin = object()
        self._pins[pin] = revision
        try:
            yield revision
        finally:
            del self._pins[pin]

    @property
    def compactable(self) -> int:
        """How far auto-compaction may go."""
        return min(self._pins.values(), default=self._durable)

    async def revision_at(self, age_s: float) -> Revision:
        self._check_open()
        return self._times.revision_at(
            age_s, newest=self._durable, compact_revision=self._state.compact_revision
        )

    async def status(self) -> StoreStatus:
        self._check_open()
        state = self._state
        return StoreStatus(
            engine="memory" if self.path is None else "sqlite",
            revision=self._durable,
            compact_revision=state.compact_revision,
            keys_count=state.count(newest=self._durable),
            leases_count=self._durable_leases_count,
            watchers_count=self._hub.watchers_count,
            size_bytes=state.size_bytes,
            size_bytes_max=self.limits.storage_bytes_max,
            alarms=self.alarms,
        )

    def statistics(self) -> EmbeddedStatistics:
        state = self._state
        return EmbeddedStatistics(
            revision=state.revision,
            durable_revision=self._durable,
            compact_revision=state.compact_revision,
            keys_count=state.keys_count,
            leases_count=len(state.leases),
            watchers_count=self._hub.watchers_count,
            size_bytes=state.size_bytes,
            history_bytes=state.history_bytes,
            commits_count=self._commits_count,
            garbage_count=self._maintenance.garbage_count,
        )

    async def journal_size(self) -> JournalSize | None:
        """Bytes on disk, or None where there is no disk."""
        self._check_open()
        return await self._writer.size()

    # -- writing -------------------------------------------------------------------------

    async def put(
        self,
        key: bytes,
        value: bytes = b"",
        *,
        lease: int = 0,
        prev_kv: bool = False,
        ignore_value: bool = False,
        ignore_lease: bool = False,
    ) -> PutResult:
        op = Put(key, value, lease, prev_kv, ignore_value, ignore_lease)
        check_put(op, self.limits)
        size = len(key) + len(value)
        if self._is_full(size):
            await self._make_room()
        self._check_room(size)
        try:
            result = self._state.put(op)
        except Rejected:
            await self._settled()  # what it was judged by must not be undone either
            raise
        self._stage(result.revision - 1)
        await self._enlist()
        return result

    async def delete(self, keys: Keys, *, prev_kv: bool = False) -> DeleteResult:
        op = Delete(keys, prev_kv)
        check_delete(op, self.limits)
        self._check_writable()
        before = self._state.revision
        result = self._state.delete(op)
        await self._changed_since(before)
        return result

    async def txn(self, txn: Txn) -> TxnResult:
        plain = check_txn(txn, self.limits)
        if not writes((txn,)):
            self._check_open()
            return self._state.read_txn(txn, newest=self._durable)
        size = _put_bytes(txn)
        if size:
            if self._is_full(size):
                await self._make_room()
            self._check_room(size)
        self._check_writable()
        before = self._state.revision
        try:
            result = self._state.plain_txn(txn) if plain else self._state.txn(txn)
        except Rejected:
            await self._settled()
            raise
        await self._changed_since(before)
        return result

    def take(
        self, txn: Txn, on_failed: Callable[[BaseException], None], by: EmbeddedFollowing
    ) -> TxnResult:
        """`Following.take`."""
        plain = check_txn(txn, self.limits)
        size = _put_bytes(txn)
        self._check_takable(size)
        before = self._state.revision
        result = self._state.plain_txn(txn) if plain else self._state.txn(txn)
        if self._stage(before, by):
            self._filling.takers.append(on_failed)
            self._schedule_flush()
        return result

    def write(
        self,
        ops: tuple[Put | Delete, ...],
        on_failed: Callable[[BaseException], None],
        by: EmbeddedFollowing,
    ) -> int:
        """`Following.write`."""
        size = check_plain_writes(ops, self.limits)
        self._check_takable(size)
        before = self._state.revision
        revision = self._state.write(ops)
        if self._stage(before, by):
            self._filling.takers.append(on_failed)
            self._schedule_flush()
        return revision

    def _check_takable(self, size: int) -> None:
        """(The alarm is not for this: there is none before `make_room` was tried.)"""
        limits, batch = self.limits, self._filling
        self._check_writable()
        if self._is_full(size):
            raise NoSpace(size=self._state.size_bytes, size_max=limits.storage_bytes_max)
        if batch.put_bytes > limits.pending_bytes_max:
            raise Overloaded(pending=batch.put_bytes, pending_max=limits.pending_bytes_max)
        batch.put_bytes += size

    def begin(self, op: Put | Txn, on_done: OnDone) -> bool:
        state = self._state
        result: PutResult | TxnResult
        plain = False
        if isinstance(op, Put):
            check_put(op, self.limits)
            size = len(op.key) + len(op.value)
        else:
            plain = check_txn(op, self.limits)
            if not writes((op,)):
                return self._begin_reading(op, on_done)
            size = _put_bytes(op)
        if self._is_full(size):
            return False
        self._check_room(size)
        before = state.revision
        try:
            if isinstance(op, Put):
                result = state.put(op)
            else:
                result = state.plain_txn(op) if plain else state.txn(op)
        except Rejected:
            return False  # asked again, it waits for what it was judged by
        if self._stage(before):
            self._filling.callers.append((on_done, result))
            self._schedule_flush()
        elif self._filling:
            self._filling.callers.append((on_done, result))
        elif self._committing is not None:
            self._committing.callers.append((on_done, result))
        else:
            self._loop.call_soon(on_done, result, None)
        return True

    def _begin_reading(self, txn: Txn, on_done: OnDone) -> bool:
        self._check_open()
        try:
            result = self._state.read_txn(txn, newest=self._durable)
        except Rejected:
            return False
        self._loop.call_soon(on_done, result, None)
        return True

    async def make_room(self) -> None:
        await self._settled()  # only what is durable can become history
        await self._make_room()
        self._check_room(0)

    def follow(self, keys: KeyRange, *, after: int, follower: Follower) -> EmbeddedFollowing:
        self._check_open()
        return self._followings.add(keys, after, self._durable, follower)

    async def compact(self, at: int) -> None:
        # One at a time, and the state learns of it when it is durable: until then everything it
        # forgets can still be read.
        async with self._compacting:
            self._check_writable()
            self._state.check_compact(at, newest=self._state.revision)
            await self._settled()
            self._check_writable()
            self._filling.compact_revision = at
            await self._enlist()

    # -- leases --------------------------------------------------------------------------

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        granted_s = check_lease_ttl(ttl_s, self.limits)
        if id is not None:
            check_lease_id(id)
        if self._is_full(0):
            await self._make_room()
        self._check_room(0)
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
        self._filling.leases.append((id, granted_s))
        await self._enlist()
        return LeaseGrant(id, granted_s)

    async def keep_alive(self, lease: int) -> LeaseGrant:
        self._check_open()
        try:
            ttl_s = self._state.leases.keep_alive(lease, now=self._clock.now())
        finally:
            await self._leases_settled()
        return LeaseGrant(LeaseId(lease), ttl_s)

    async def revoke(self, lease: int) -> Revision:
        self._check_writable()
        try:
            revision = self.end_lease(lease)
        finally:
            await self._settled()
        return revision

    def end_lease(self, lease: int) -> Revision:
        """End a lease without waiting for the disk: it goes with the next commit."""
        before = self._state.revision
        revision = self._state.end_lease(lease)
        self._filling.leases.append((lease, None))
        self._stage(before)
        self._schedule_flush()
        return revision

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        self._check_open()
        leases = self._state.leases
        try:
            ttl_s, remaining_s = leases.remaining(lease, now=self._clock.now())
            attached = leases.keys(lease) if keys else ()
        finally:
            await (self._settled() if keys else self._leases_settled())
        return LeaseStatus(LeaseId(lease), ttl_s, remaining_s, attached)

    async def leases(self) -> tuple[LeaseId, ...]:
        self._check_open()
        ids = self._state.leases.ids()
        await self._leases_settled()
        return ids

    async def _leases_settled(self) -> None:
        """Returns when every grant and end of a lease is durable.

        A keep-alive itself is never written (after a restart every lease has its full time again), so
        it need not wait for the disk unless the lease itself is on its way there.
        """
        committing = self._committing
        if self._filling.leases or (committing is not None and committing.leases):
            await self._settled()
        elif self._leases_torn:
            self._check_unfailed()

    # -- watching ------------------------------------------------------------------------

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> EmbeddedWatch:
        check_keys(keys, self.limits)
        return EmbeddedWatch(self, self._hub, self._clock, as_range(keys), **options)

    def enter_stream(self, stream: EmbeddedWatch) -> None:
        self._check_open()
        self._streams.add(stream)

    def leave_stream(self, stream: EmbeddedWatch) -> None:
        self._streams.discard(stream)

    def when_oldest(self, name: bytes, key: bytes, token: int, on_done: OnDone) -> Callable[[], None]:
        self._check_open()
        return self._first_waits.begin(name, key, token, on_done)

    async def wait_oldest(self, name: bytes, key: bytes, token: int) -> Revision | None:
        waiter: asyncio.Future[Revision | None] = self._loop.create_future()

        def on_done(seen: Revision | None, error: BaseException | None) -> None:
            if waiter.done():
                return
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(seen)

        give_up = self.when_oldest(name, key, token, on_done)
        try:
            return await waiter
        finally:
            give_up()

    def tick_watches(self, now: float) -> None:
        self._hub.tick(now=now)

    def keep_time(self) -> None:
        """Note which revision is the newest now; what was noted goes with the next commit, if due."""
        compacted = self._state.compact_revision
        self._remember(self._times.tick(self._durable, compact_revision=compacted))

    def _remember(self, times: bytes | None) -> None:
        if times is not None:
            self._filling.meta["timeline"] = times
            self._schedule_flush()

    # -- group commit --------------------------------------------------------------------

    def _changed_since(self, before: int) -> Awaitable[None]:
        """Put what changed into the batch; wait for it, or for whatever the answer has seen."""
        if self._stage(before):
            return self._enlist()
        return self._settled()

    def _stage(self, before: int, by: EmbeddedFollowing | None = None) -> bool:
        revision = self._state.revision
        if revision == before:
            return False
        changes = self._state.changes(revision)
        self._filling.changes.append(changes)
        if self._followings.has_others_than(by):
            self._followings.note(revision, changes, by)
        return True

    def _enlist(self) -> asyncio.Future[None]:
        """Done when the batch that is filling is durable."""
        waiter = self._loop.create_future()
        self._filling.waiters.append(waiter)
        self._schedule_flush()
        return waiter

    async def _settled(self) -> None:
        """Returns when everything in memory is durable."""
        if self._filling:
            await self._enlist()
        elif self._committing is not None:
            waiter = self._loop.create_future()
            self._committing.waiters.append(waiter)
            await waiter
        else:
            self._check_unfailed()

    def _schedule_flush(self) -> None:
        # Not at once: everybody whose turn it is in this round of the loop gets into the batch.  Unless
        # there seems to be only one writer, for whom a round is time lost (4 % of a put in one
        # comparison, nothing beyond the noise in another); if there are others after all, they meet in
        # the next batch.
        if self._flush_due or self._committing is not None:
            return
        if self._is_lone_writer:
            self._flush()
        else:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        batch = self._filling
        if self._failure is not None or self._committing is not None or not batch:
            return
        batch.revision = self._state.revision
        batch.leases_count = len(self._state.leases)
        self._is_lone_writer = batch.waiting_count == 1
        self._committing, self._filling = batch, Group()
        self._writer.submit(batch, self._committed)

    def _committed(self, error: BaseException | None, _: object) -> None:
        batch, self._committing = self._committing, None
        assert batch is not None
        if error is not None:
            self.fail(error, batch)
            return
        self._commits_count += 1
        first, self._durable = self._durable + 1, batch.revision
        self._durable_leases_count = batch.leases_count
        if batch.compact_revision is not None:
            self._state.compact(batch.compact_revision)
            self._maintenance.wake()
        # Events first: whoever gets its answer now may ask what others have been told.
        try:
            if self._followings:
                self._followings.tell(first, batch.revision)
            self._hub.publish(batch.revision)
            self._first_waits.tell()
        finally:
            batch.succeeded()
            # Not at once: those who were just answered come back in this same turn.  Leaving without
            # them splits writers into two groups that never meet again, each with an fsync of its own
            # (measured with 16 writers that started one by one: 8 a commit and 21,000 puts/s; now 16
            # and 32,000).
            if self._filling:
                self._schedule_flush()

    def fail(self, error: BaseException, batch: Group | None = None) -> None:
        """The journal failed: stop writing, say so, keep reading."""
        if self._failure is None:
            # What the disk does is told in a line; anything else is a bug and wants its traceback.
            expected = isinstance(error, StorageFailed)
            _log.error("writing stopped: %s", error, exc_info=None if expected else error)
            self._failure = error.cause if isinstance(error, StorageFailed) else error
            self.alarms |= {Alarm.STORAGE_FAILED}
        if self._filling.leases or (batch is not None and batch.leases):
            self._leases_torn = True
        filling, self._filling = self._filling, Group()
        if batch is not None:
            batch.failed(Indeterminate(f"this write may be on disk or not: {error}"))
        filling.failed(StorageFailed(str(self.path), self._failure))
        self._followings.dismiss(StorageFailed(str(self.path), self._failure))

    # -- refusing ------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    def _check_writable(self) -> None:
        if self._closed:
            raise StoreClosed
        self._check_unfailed()

    def _check_unfailed(self) -> None:
        # A new error each time: one that is raised again and again gathers the traceback of each.
        if self._failure is not None:
            raise StorageFailed(str(self.path), self._failure)

    def _is_full(self, size: int) -> bool:
        return bool(self.alarms) or self._state.size_bytes + size > self.limits.storage_bytes_max

    async def _make_room(self) -> None:
        """History gives way to data: at once, before a write is refused for it."""
        self._check_writable()
        await self._maintenance.compact_all()
        self.review_space()

    def _check_room(self, size: int) -> None:
        self._check_writable()
        limit = self.limits.storage_bytes_max
        if self._is_full(size):
            if not self.alarms:
                _log.warning("the quota of %d bytes is used up: writes are refused", limit)
            self.alarms |= {Alarm.NO_SPACE}
            raise NoSpace(size=self._state.size_bytes, size_max=limit)
        batch = self._filling
        if batch.put_bytes > self.limits.pending_bytes_max:
            raise Overloaded(pending=batch.put_bytes, pending_max=self.limits.pending_bytes_max)
        batch.put_bytes += size

    def review_space(self) -> None:
        """Writes resume when there is room again, with some to spare so that they do not stutter."""
        if (
            Alarm.NO_SPACE in self.alarms
            and self._state.size_bytes <= self.limits.storage_bytes_max * 0.95
        ):
            self.alarms -= {Alarm.NO_SPACE}
            _log.warning("there is room again: writes are taken")

    @property
    def pressed_for_space(self) -> bool:
        """Whether history should give way to data."""
        state, limit = self._state, self.limits.storage_bytes_max
        if Alarm.NO_SPACE in self.alarms:
            return state.history_bytes > 0
        return state.size_bytes > limit * 3 // 4 and state.history_bytes > limit // 20

    # -- the end -------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish what is under way, tell every watcher, let go of the data."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._maintenance.stop()
            if self._failure is None:
                await self._settled()
                await self._remember_at_last()
        finally:
            for stream in list(self._streams):
                stream.store_closed()
            self._followings.dismiss(StoreClosed())
            self._first_waits.dismiss(StoreClosed())
            await self._writer.close()

    async def _remember_at_last(self) -> None:
        self._remember(self._times.close(self._durable))
        try:
            await self._settled()
        except Indeterminate as error:  # which is about a write that nobody asked for
            assert self._failure is not None
            raise StorageFailed(str(self.path), self._failure) from error


def _put_bytes(txn: Txn) -> int:
    """What its puts could add at most, both branches together."""
    size = 0
    for op in (*txn.then, *txn.otherwise):
        if isinstance(op, Put):
            size += len(op.key) + len(op.value)
        elif isinstance(op, Txn):
            size += _put_bytes(op)
    return size
