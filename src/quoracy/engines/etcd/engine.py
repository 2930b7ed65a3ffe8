"""The store on an etcd cluster: the cluster decides and keeps, this node knows and serves.

    put, txn, ...  -> the cluster, under our prefix -> its revision -> (replica has it) -> the answer
    linearizable reads -> the cluster's revision    -> (replica has it) -> read here
    serializable reads, watches                                        -> read here
                                   the cluster's watch -> Replica -> watchers here

Invariants
    * A write is sent once.  It is answered when the replica has its revision, so that a client finds
      what it wrote here; if its outcome is not known it ends with `Indeterminate`.
    * Nothing is kept here: a node that dies takes nothing with it.  Leases are the cluster's, so any
      node can keep one alive.
    * While the cluster cannot be asked (`Serving`), writes and linearizable reads fail with
      `Unavailable` at once; serializable reads and watches go on, and reads say that they may be stale.
    * Revisions are the cluster's.  They are gapless if nobody else writes to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Unpack

import msgspec

from quoracy.clock import Clock
from quoracy.engines.etcd.feed import Feed
from quoracy.engines.etcd.in_flight import CurrentRead, Forwarded, InFlight, applied_elsewhere
from quoracy.engines.etcd.linearizable_reads import ASK_S, Serving
from quoracy.engines.etcd.members import Members
from quoracy.engines.etcd.prefix import Prefix
from quoracy.engines.etcd.replica import Replica, Waiter
from quoracy.engines.etcd.watch import EtcdWatch
from quoracy.errors import (
    Compacted,
    FutureRevision,
    QuoracyError,
    StoreClosed,
    Unavailable,
)
from quoracy.remote.store import RemoteStore
from quoracy.remote.watch import RemoteWatch
from quoracy.store.api import WatchOptions
from quoracy.store.completion import Completion
from quoracy.store.contention import wait_by_watching
from quoracy.store.coroutines import CoroutineStore, complete_by_task
from quoracy.store.digest import Digest
from quoracy.store.model import (
    ClusterHealth,
    Delete,
    KeyRange,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    Put,
    Range,
    RangeResult,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    TxnResult,
    WaitFirst,
)
from quoracy.store.rules import (
    Limits,
    as_range,
    check_keys,
    check_op,
    reads_serializably,
    writes,
)

__all__ = ["KEEP_ALIVE_S", "EtcdStore"]

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# A keep-alive is not worth much after this: sent again after the cluster was out of reach for seconds,
# it would extend the lease of a client that is gone.
KEEP_ALIVE_S = 1.0

_HASH_PAGE_KEYS = 1000
_TICK_S = 0.1


class EtcdStore(CoroutineStore):
    """A `Store` on a cluster.  Made by `open_etcd`; lives on the loop it was made on."""

    def __init__(
        self,
        remote: RemoteStore,
        near: RemoteStore,
        prefix: bytes,
        *,
        limits: Limits,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        """`remote` reads and writes, at the member that leads; `near` sends what changed."""
        self.cluster = self
        self.prefix = Prefix(prefix)
        self.limits = limits
        self.clock = clock
        self.replica = Replica(limits)
        self.remote, self.near = remote, near
        self._timeout_s = timeout_s
        self._feed = Feed(near, self.prefix, self.replica, clock=clock, lost=self._history_lost)
        self._serving = Serving(
            ask=self._ask,
            reach=self.caught_up,
            elsewhere=self._look_elsewhere,
            went_back=self._went_back,
            applied=lambda: self.replica.revision,
            clock=clock,
        )
        self._members = Members(remote, near)
        self._watches: set[EtcdWatch] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._closed = False
        self._leases_count = 0
        self._in_flight = InFlight(
            self.prefix, self.replica, wait=self.when_reached, now=clock.now, timeout_s=timeout_s
        )
        self._loop = asyncio.get_running_loop()
        self._queue_waits: set[asyncio.Task[Revision | None]] = set()
        self._serving.subscribe(lambda _: self._members.look_again())

    async def start(self) -> None:
        """Read everything, then follow.  Raises `Unavailable` if the cluster cannot be asked."""
        await self._feed.begin()
        self._feed.start()
        self._serving.start()
        await self._members.start()
        self._tick()

    async def close(self) -> None:
        """End every watch; a write that was sent and not answered yet raises `Indeterminate`."""
        if self._closed:
            return
        self._closed = True
        if self._ticking is not None:
            self._ticking.cancel()
        await self._members.stop()
        await self._serving.stop()
        await self._feed.stop()
        for task in [*self._queue_waits]:
            task.cancel()
            await asyncio.wait([task])
        for watch in list(self._watches):
            watch.store_closed()

    @property
    def cluster_id(self) -> int:
        """The cluster's own id, the same at every node; 0 while no member has said it."""
        return self._members.cluster_id

    # -- how it is doing -----------------------------------------------------------------------

    def health(self) -> ClusterHealth:
        serving = self._serving
        return ClusterHealth(
            is_serving=serving.is_serving,
            reason=serving.reason if not serving.is_serving else "",
            stale_s=serving.stale_s,
            revision=Revision(self.replica.revision),
            lag=max(serving.newest - self.replica.revision, 0),
            leader=self._members.leader,
            role=self._members.role,
            term=self._members.term,
            members=self._members.all,
            warnings=self._members.warnings,
        )

    def on_serving(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        return self._serving.subscribe(changed)

    async def sync(self) -> Revision:
        self._check_open()
        try:
            async with asyncio.timeout(self._timeout_s):
                revision = await self._serving.newest_revision()
                await self.caught_up(revision)
        except TimeoutError as error:
            raise self._behind() from error
        return Revision(self.replica.revision)

    async def status(self) -> StoreStatus:
        self._check_open()
        compact_revision = self.replica.state.compact_revision
        members = self._members
        if self._serving.is_serving:
            try:
                self._leases_count = len(await self.remote.leases())
                compact_revision = await self.remote.compact_revision()
                members.note_status(await self.remote.server_status())
            except StoreClosed:
                raise
            except Unavailable as error:
                # An outage that was not noticed yet: the answer is what is known here.
                _log.info("how the cluster is doing is not known at the moment: %s", error)
        return StoreStatus(
            engine=f"etcd {members.version}",
            revision=Revision(self.replica.revision),
            compact_revision=compact_revision,
            keys_count=self.replica.state.keys_count,
            leases_count=self._leases_count,
            watchers_count=len(self._watches),
            size_bytes=members.size_bytes,
            size_bytes_max=members.size_bytes_max,
            alarms=members.alarms,
        )

    # -- reading -------------------------------------------------------------------------------

    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None:
        try:
            if isinstance(op, WaitFirst):
                self._check_open()
                waiting = complete_by_task(
                    wait_by_watching(self, op.name, op.key, op.token), completion
                )
                self._queue_waits.add(waiting)
                waiting.add_done_callback(self._queue_waits.discard)
                return
            check_op(op, self.limits)
            self._check_open()
            if op.serializable:
                self._answer(op, completion)
            else:
                self._read_current(op, completion)
        except QuoracyError as error:
            completion.done(None, error)

    def _read_current(self, op: Range | Txn, completion: Completion) -> None:
        """Read here once this node has everything that was acknowledged before now."""
        newest = self._serving.next_answer()
        reading = CurrentRead(self._in_flight, op, completion, self._answer)

        def answered(newest: asyncio.Future[int]) -> None:
            if newest.cancelled():
                reading.end(StoreClosed())
            elif (error := newest.exception()) is not None:
                reading.end(error)
            else:
                reading.newest(newest.result())

        newest.add_done_callback(answered)

    def _answer(self, op: Range | Txn, completion: Completion) -> None:
        """Answer a read with what is here, or pass it on if it is of a past that is not known here."""
        state = self.replica.state
        result: RangeResult | TxnResult
        try:
            if isinstance(op, Txn):
                result = state.read_txn(op, newest=state.revision)
            else:
                result = state.range(op, newest=state.revision)
                if op.serializable and self._serving.is_in_doubt:
                    result = msgspec.structs.replace(result, is_stale=True)
        except Compacted:
            # The cluster knows that past, or says how far back it does.
            forwarded = Forwarded(self._in_flight, completion, False)
            self.remote.submission.begin(self.prefix.op(op), forwarded)
        except QuoracyError as error:
            completion.done(None, error)
        else:
            completion.done(result, None)

    async def hash(self, *, at: int | None = None) -> StateHash:
        digest = Digest()
        page = await self.range(KeyRange.everything(), at=at, limit=_HASH_PAGE_KEYS)
        revision = page.revision if at is None else Revision(at)
        digest.update(page.kvs)
        while page.more:
            rest = KeyRange.from_key(page.kvs[-1].key + b"\0")
            page = await self.range(rest, at=revision, limit=_HASH_PAGE_KEYS, serializable=True)
            digest.update(page.kvs)
            await asyncio.sleep(0)
        return StateHash(revision, await self.remote.compact_revision(), digest.hexdigest())

    # -- writing -------------------------------------------------------------------------------

    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None:
        try:
            check_op(op, self.limits)
            if not isinstance(op, Txn) or writes((op,)):
                self._check_serving()
                forwarded = Forwarded(self._in_flight, completion, True)
                self.remote.submission.begin(self.prefix.op(op), forwarded)
                return
            self._check_open()
            if reads_serializably(op):
                self._loop.call_soon(self._answer, op, completion)  # not within `submit`
            else:
                self._read_current(op, completion)
        except QuoracyError as error:
            self._loop.call_soon(completion.done, None, error)

    async def compact(self, at: int) -> None:
        self._check_serving()
        await self.remote.compact(at)
        self.replica.compact(at)

    async def _reach_written(self, revision: int) -> None:
        self._serving.note(revision)
        if self.replica.revision >= revision:
            return
        try:
            await self.reach(revision)
        except Unavailable as error:
            raise applied_elsewhere(revision, error) from error

    async def caught_up(self, revision: int) -> None:
        """Returns when the replica has a revision, however long that takes."""
        if self.replica.revision >= revision:
            return
        waiter = _Awaited(self._loop.create_future())
        self._feed.wait(revision, waiter)
        try:
            await waiter.future
        finally:
            waiter.is_over = True

    def when_reached(self, revision: int, waiter: Waiter) -> None:
        """End `waiter` when the replica has a revision, which it has not yet."""
        if self._closed:  # the cluster answered while the store was being closed
            waiter.end(StoreClosed())
            return
        self._serving.note(revision)
        self._feed.wait(revision, waiter)

    async def reach(self, revision: int) -> None:
        """Returns when the replica has a revision; raises `Unavailable` when that takes too long."""
        if self.replica.revision >= revision:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.caught_up(revision)
        except TimeoutError as error:
            raise self._behind() from error

    # -- leases --------------------------------------------------------------------------------

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        self._check_serving()
        return await self.remote.grant(ttl_s, id=id)

    async def keep_alive(self, lease: int) -> LeaseGrant:
        self._check_serving()
        timeout_s = min(KEEP_ALIVE_S, self._timeout_s)
        if self._serving.is_in_doubt:
            # This process stood still, and maybe the member it asks did too: one that led then renews
            # leases which another has in hand by now, for nothing (etcd#15247).  It cannot answer a
            # question that takes a majority.
            try:
                async with asyncio.timeout(timeout_s):
                    await self._serving.newest_revision()
            except TimeoutError as error:
                raise Unavailable(
                    f"keep-alive of lease {lease:x}: the cluster did not answer within {timeout_s:g} s."
                ) from error
        return await self.remote.keep_alive(lease, timeout_s=timeout_s)

    async def revoke(self, lease: int) -> Revision:
        self._check_serving()
        revision = await self.remote.revoke(lease)
        await self._reach_written(revision)
        return revision

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        self._check_serving()
        status = await self.remote.time_to_live(lease, keys=keys)
        prefix = self.prefix
        # A lease is the cluster's: others may have put keys under it that are none of ours.
        ours = [prefix.key(key) for key in status.keys if key.startswith(prefix.text)]
        return LeaseStatus(status.id, status.ttl_s, status.remaining_s, tuple(ours))

    async def leases(self) -> tuple[LeaseId, ...]:
        self._check_serving()
        return await self.remote.leases()

    # -- watching ------------------------------------------------------------------------------

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> EtcdWatch:
        check_keys(keys, self.limits)
        return EtcdWatch(self, as_range(keys), **options)

    def watch_there(self, keys: Keys, **options: Unpack[WatchOptions]) -> RemoteWatch:
        """A watch of the cluster itself: its events have the prefix."""
        return self.near.watch(self.prefix.keys(keys), **options)

    def enter_watch(self, watch: EtcdWatch) -> None:
        self._check_open()
        self._watches.add(watch)

    def leave_watch(self, watch: EtcdWatch) -> None:
        self._watches.discard(watch)

    def _tick(self) -> None:
        now = self.clock.now()
        self.replica.hub.tick(now=now)
        self._in_flight.give_up_late(now, self._behind)
        self._ticking = self._loop.call_later(_TICK_S, self._tick)

    # -- for its parts ----------------------------------------------------------------------

    async def _ask(self) -> int:
        """The cluster's revision; on the way, whether it has forgotten more than we have."""
        key, kept = self.prefix.text + b"\0", self.replica.state.compact_revision
        try:
            return await self.remote.newest_revision(key, timeout_s=ASK_S, at=kept)
        except Compacted as error:
            self.replica.compact(error.oldest)
        except FutureRevision:
            pass  # it was replaced by another; its revision says so
        return await self.remote.newest_revision(key, timeout_s=ASK_S)

    def _history_lost(self, replaced: bool) -> None:
        for watch in list(self._watches):
            watch.history_lost(replaced=replaced)

    def _look_elsewhere(self) -> None:
        self.remote.look_elsewhere()
        if self.replica.revision < self._serving.newest:
            # Its machine may have vanished without a word.  The watch goes on at the next.
            self.near.hang_up("it does not tell what has happened")

    def _went_back(self, revision: int) -> None:
        _log.error(
            "the cluster is at revision %d, and this node at %d: it was restored or replaced; "
            "everything is read anew",
            revision,
            self.replica.revision,
        )
        self._serving.newest = revision
        self._feed.begin_anew()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    def _check_serving(self) -> None:
        self._check_open()
        self._serving.check()

    def _behind(self) -> Unavailable:
        return Unavailable(
            f"this node is at revision {self.replica.revision} and the cluster at "
            f"{self._serving.newest}: it did not catch up within {self._timeout_s:g} s."
        )


class _Awaited(Waiter):
    """A wait for a revision that is awaited."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        super().__init__()
        self.future = future

    def ended(self, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)
