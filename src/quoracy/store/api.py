"""The contract that every engine keeps: `Store`, `Watch` and, for a replica of a cluster, `Cluster`.

The primitive is to begin an operation with a `Completion` (`submit`, `read`).  Coroutines are a thin
layer over it, the same for every engine (`store.coroutines`).

Of every implementation this holds
    * Revisions start at 1 for an empty store.  A transaction that changes at least one key gets the
      next one, however many keys it changes; reads, failed requests, transactions that change
      nothing and deletes that match nothing get none.
    * What is acknowledged is durable, as far as the engine is; and nothing an answer or an event
      shows can be undone by a crash.
    * A request that ends with `Rejected` changed nothing.  `Indeterminate` may have been applied.
    * Every method may be called from many tasks at once, on the loop the store was opened on.

Of operations
    * Errors come through `Completion.done` only, also for a request that breaks a rule.  An error that
      was judged by state that is not durable yet comes when that state is durable.
    * `done` is called once, on the loop; never inside `submit`, but maybe inside `read`.
    * The embedded engine applies writes in the order of `submit`, also those behind one that waits for
      room, and completes them in that order.  On other engines two writes in flight have no order.
    * At a commit watches are made ready first, then waits for the front of a queue are answered, then
      writes are completed, in order.  So when a write is done its revision is in every read; and its
      event is in every watch of a store that has the state in this process, a replica included.
    * Deadlines belong to the caller: see `Completion.abandon`.
    * What is submitted and not completed is bounded, by number and by bytes; beyond that it ends with
      `Overloaded`, and nothing was applied.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, Unpack

from quoracy.store.completion import Completion
from quoracy.store.model import (
    ClusterHealth,
    Delete,
    DeleteResult,
    KeyRange,
    Keys,
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
    WaitFirst,
    WatchBatch,
)
from quoracy.store.options import PutOptions, RangeOptions, WatchOptions

__all__ = [
    "Cluster",
    "PutOptions",
    "RangeOptions",
    "Store",
    "Watch",
    "WatchOptions",
]


class Watch(Protocol):
    """A watch: enter it to start, poll it or iterate over it for its batches, leave it to stop.

    Every event is delivered exactly once, in revision order, all events of a revision in one batch,
    with no gap between history and what happens now.  A slow consumer holds up nobody: past a bounded
    buffer it is fed from history, and if that was compacted meanwhile it gets `Compacted`, with the
    oldest revision that is kept.  The iteration never just ends: it yields or it raises.
    """

    @property
    def keys(self) -> KeyRange: ...

    @property
    def revision(self) -> Revision:
        """Everything up to here has been delivered: `after=watch.revision` continues exactly here."""
        ...

    def request_progress(self) -> None:
        """Ask for a batch without events as soon as everything that happened was delivered."""
        ...

    def poll(self) -> WatchBatch | None:
        """The next batch, if there is one.  Raises what iterating raises."""
        ...

    def on_ready(self, call: Callable[[], None]) -> None:
        """From now on, call when `poll` may have something again after it returned None.

        Maybe from within `poll`, and maybe too often; in the turn of a commit, before its writes are
        completed.  `call` must not raise.  Iterating is not possible any more.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> WatchBatch: ...


class Cluster(Protocol):
    """What only a replica of a cluster can tell: it may know less than there is, and says so.

    While it is not serving, writes and linearizable reads end with `Unavailable` at once; serializable
    reads and watches go on with what is here.  It resumes by itself.
    """

    def health(self) -> ClusterHealth:
        """As it is known now: nobody is asked."""
        ...

    def on_serving(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call `changed` each time `health().is_serving` changes; the function returned ends that.

        Called on the loop of the store, in the turn of the change; it must not raise.
        """
        ...

    async def sync(self) -> Revision:
        """Wait until everything acknowledged anywhere before this call is here; return its revision."""
        ...


class Store(Protocol):
    """A durable, revisioned, watchable map of bytes to bytes.

    Errors named here come besides those any operation may end with: `InvalidRequest` for a request that
    breaks a rule, `Unavailable` when the store cannot serve it, `Overloaded`, and `Indeterminate` for a
    write whose outcome is not known.
    """

    @property
    def cluster(self) -> Cluster | None:
        """What this store stands on, if it is a replica of a cluster."""
        ...

    @property
    def head_revision(self) -> int | None:
        """The newest revision in memory, durable or not; None if writes take effect elsewhere."""
        ...

    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None:
        """Begin a write, or a transaction of reads; its result is that of the coroutine of its name."""
        ...

    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None:
        """Begin a read; its result is that of `range` or `wait_first`."""
        ...

    def catch_up(self) -> None:
        """Complete what is durable already.

        Call it when a client has sent something, before looking at it: the client may have seen a reply
        (`Completion.reply`) for which `done` was not called yet.
        """
        ...

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> Watch:
        """Follow the changes of a key or a range: see `Watch`, `WatchOptions`."""
        ...

    async def range(self, keys: Keys, **options: Unpack[RangeOptions]) -> RangeResult:
        """Read keys, now or as they were.  Raises `Compacted`, `FutureRevision`."""
        ...

    async def put(self, key: bytes, value: bytes = b"", **options: Unpack[PutOptions]) -> PutResult:
        """Write one key.  Raises `LeaseNotFound`, `KeyNotFound`, `NoSpace`."""
        ...

    async def delete(self, keys: Keys, *, prev_kv: bool = False) -> DeleteResult:
        """Remove every key of a range."""
        ...

    async def txn(self, txn: Txn) -> TxnResult:
        """Compare, then write and read, atomically.

        Raises what its operations raise, and `DuplicateKey`; everything is checked before anything
        is changed.  Cancelling a write leaves open whether it is applied; it is never half applied.
        """
        ...

    async def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        """Wait until a key is the oldest below `name` (see `WaitFirst`); None if it is gone."""
        ...

    async def compact(self, at: int) -> None:
        """Forget history before revision `at`, which itself can still be read and watched from.

        Raises `Compacted` if it was forgotten already, `FutureRevision` if it does not exist yet.
        """
        ...

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        """Make a lease.  Too short a time to live is raised to the least allowed.

        Raises `LeaseExists` if the chosen id is taken, `NoSpace`.
        """
        ...

    async def keep_alive(self, lease: int) -> LeaseGrant:
        """Give the lease its full time to live again.  Raises `LeaseNotFound`."""
        ...

    async def revoke(self, lease: int) -> Revision:
        """End the lease and delete its keys, in one revision.  Raises `LeaseNotFound`."""
        ...

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        """How long the lease has left and, if asked, its keys in order.  Raises `LeaseNotFound`."""
        ...

    async def leases(self) -> tuple[LeaseId, ...]:
        """The ids of all leases, in order."""
        ...

    async def revision_at(self, age_s: float) -> Revision:
        """The revision that was the newest `age_s` seconds ago: `range(..., at=...)` reads it.

        It was made at that time or before, never after.  The last changes before that time may be
        missing: how many depends on the engine, and grows with the age.  Raises `Compacted` if the
        history of that time is no longer kept, `Unsupported` if times are not known that far back, or
        at all.
        """
        ...

    async def hash(self, *, at: int | None = None) -> StateHash:
        """Digest the contents at a revision, to compare two stores."""
        ...

    async def status(self) -> StoreStatus:
        """How the store is doing."""
        ...
