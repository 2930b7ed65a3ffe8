"""The contract every engine keeps: `Store` and `WatchStream`, fully specified; and `KnowsTimes`,
`Begins`, `ReadsAtOnce`, `Polled`, `InProcess` and `OnCluster`, which some keep as well.

What holds for every implementation
    * Revisions start at 1 for an empty store.  A transaction that changes at least one key gets the
      next one, however many keys it changes; reads, failed requests, transactions that change
      nothing and deletes that match nothing get none.
    * What is acknowledged is durable, as far as the engine is; and nothing an answer or an event
      shows can be undone by a crash.
    * A request that raises `Rejected` changed nothing.  `Indeterminate` may have been applied.
    * Every method may be called from many tasks at once, on the loop the store was opened on.
      Cancelling a write leaves open whether it is applied; it is never half applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypedDict, Unpack, runtime_checkable

from quoracy.store.following import Following
from quoracy.store.model import (
    ClusterHealth,
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
    SortTarget,
    StateHash,
    StoreStatus,
    Txn,
    TxnResult,
    WatchBatch,
)
from quoracy.store.replies import Reply

__all__ = [
    "Ahead",
    "Begins",
    "Follower",
    "Following",
    "InProcess",
    "KnowsQueues",
    "KnowsTimes",
    "OnCluster",
    "OnDone",
    "Polled",
    "PutOptions",
    "RangeOptions",
    "ReadsAtOnce",
    "RepliesAhead",
    "Store",
    "TellsQueues",
    "WatchOptions",
    "WatchStream",
]


class RangeOptions(TypedDict, total=False):
    """The options of `Store.range`; `store.model.Range` says what each does."""

    at: int | None
    limit: int | None
    sort_by: SortTarget
    descending: bool
    keys_only: bool
    count_only: bool
    mod_revision_min: int | None
    mod_revision_max: int | None
    create_revision_min: int | None
    create_revision_max: int | None
    serializable: bool


class PutOptions(TypedDict, total=False):
    """The options of `Store.put`; `store.model.Put` says what each does."""

    lease: int
    prev_kv: bool
    ignore_value: bool
    ignore_lease: bool


class WatchOptions(TypedDict, total=False):
    """The options of `Store.watch`.

    after: deliver what happened after this revision; None, the default, is the newest there is when
        the watch is entered.  It may lie in the future: nothing earlier is delivered then.
    puts, deletes: False leaves out events of that kind.
    prev_kv: give each event the key's previous version, where that is still kept.
    progress_s: after this many seconds without a batch, deliver one without events.
    """

    after: int | None
    puts: bool
    deletes: bool
    prev_kv: bool
    progress_s: float | None


# The result, or what went wrong.
OnDone: TypeAlias = Callable[[Any, BaseException | None], None]
Ahead: TypeAlias = Callable[[Any], Reply | None]


class WatchStream(Protocol):
    """A watch: enter it to start, iterate for its batches, leave it to stop.

    Every event is delivered exactly once, in revision order, all events of a revision in one batch,
    with no gap between history and what happens now.  A consumer that is slow holds up nobody: past
    a bounded buffer it is fed from history, and if that was compacted meanwhile it gets `Compacted`,
    with the oldest revision that is kept.  The iteration never just ends: it yields or it raises.
    """

    @property
    def keys(self) -> KeyRange: ...

    @property
    def revision(self) -> Revision:
        """Everything up to here has been delivered: `after=stream.revision` continues exactly here."""
        ...

    def request_progress(self) -> None:
        """Ask for a batch without events as soon as everything that happened was delivered."""
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


@runtime_checkable
class Polled(Protocol):
    """A `WatchStream` that can be asked for what is there, without a task that waits."""

    def poll(self) -> WatchBatch | None:
        """The next batch, if there is one.  Raises what iterating raises."""
        ...

    def on_ready(self, call: Callable[[], None]) -> None:
        """From now on, call when `poll` may have something again after it returned None; maybe from
        within `poll`, and maybe too often.  `call` must not raise.  Iterating is over then."""
        ...


class Store(Protocol):
    """A durable, revisioned, watchable map of bytes to bytes.

    Errors named here are raised besides those any method may raise: `InvalidRequest` for a request
    that breaks a rule, `Unavailable` when the store cannot serve it, `Indeterminate` for a write whose
    outcome is not known.
    """

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
        is changed.
        """
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

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> WatchStream:
        """Follow the changes of a key or a range: see `WatchStream`, `WatchOptions`."""
        ...

    async def hash(self, *, at: int | None = None) -> StateHash:
        """Digest the contents at a revision, to compare two stores."""
        ...

    async def status(self) -> StoreStatus:
        """How the store is doing."""
        ...


@runtime_checkable
class KnowsTimes(Protocol):
    """A store that also knows when its revisions were made."""

    async def revision_at(self, age_s: float) -> Revision:
        """The revision that was the newest `age_s` seconds ago: `range(..., at=...)` reads it.

        It was made at that time or before, never after.  The last changes before that time may be
        missing: how many depends on the engine, and grows with the age.  Raises `Compacted` if the
        history of that time is no longer kept, `Unsupported` if times are not known that far back.
        """
        ...


class Follower(Protocol):
    """Whoever follows a store that is in this process: called while a commit is being told."""

    def changed(self, revision: int, kvs: Sequence[KeyValue]) -> None:
        """A revision is durable; its changes, in order.  One with version 0 is a deletion."""
        ...

    def wrote(self, first: int, last: int) -> None:
        """These revisions are durable, and each is one that it made with `Following.write`."""
        ...

    def durable(self, revision: int) -> None:
        """Everything up to here is durable, and what concerns this follower was told."""
        ...

    def failed(self, error: BaseException) -> None:
        """Nothing more will come: the store was closed, its disk failed, or the follower raised."""
        ...


@runtime_checkable
class Begins(Protocol):
    """A store that takes a write in the call, and calls when it is done: no task, no future between."""

    def begin(self, op: Put | Txn, on_done: OnDone) -> bool:
        """`Store.put` or `Store.txn` with a call at the end instead of a wait.

        `on_done` gets the result or the error, once, after this has returned; it must not raise.
        False: this one may have to wait before it can begin, and nothing was done.  Raises what is
        wrong with the request itself.
        """
        ...


@runtime_checkable
class RepliesAhead(Begins, Protocol):
    """A store that can have the answer to a write sent in the moment in which the write is durable."""

    def expect(self) -> None:
        """A write is begun in this turn, very likely: what has to wake up for it may do so now."""
        ...

    def begin_replying(self, op: Put | Txn, on_done: OnDone, ahead: Ahead) -> bool:
        """`begin`; before it returns, `ahead` may be called with what the result will be.

        It may return a reply, which is then sent by another thread as soon as the write is durable, or
        not at all: `on_done` is called in any case, and by then it is known how much of it was sent.
        """
        ...

    def catch_up(self) -> None:
        """Call this when something has come from a client, before looking at it.

        It may come from one who has seen such an answer, of which the store has not been told yet.
        """
        ...


@runtime_checkable
class ReadsAtOnce(Protocol):
    """A store that has everything here: it answers a read in the call, and waits for nothing."""

    def read(self, op: Range) -> RangeResult:
        """`Store.range` without a wait.  Raises what that raises."""
        ...


@runtime_checkable
class KnowsQueues(Protocol):
    """A store that waits for the front of a queue of `store.contention` itself, or its server does."""

    async def wait_oldest(self, name: bytes, key: bytes, token: int) -> Revision | None:
        """A revision at which the key, created at `token`, was there and the oldest below the name.

        None: it is gone.  Raises `Unsupported` if this server cannot, as etcd's cannot, or if it has
        enough of such waits: a watch does as well.
        """
        ...


@runtime_checkable
class TellsQueues(KnowsQueues, Protocol):
    """A store that calls who waits for the front of a queue, in the turn in which that is over."""

    def when_oldest(
        self, name: bytes, key: bytes, token: int, on_done: OnDone, ahead: Ahead | None = None
    ) -> Callable[[], None]:
        """`wait_oldest` with a call at the end instead of a wait; what is returned gives it up.

        `on_done` gets the revision or None, or the error that ended it, once, after this has returned;
        it must not raise.  Before, `ahead` may be called with the revision that it will get, as in
        `RepliesAhead.begin_replying`: it is on its way to the disk, and the reply leaves with it.
        """
        ...


@runtime_checkable
class InProcess(Begins, Protocol):
    """A store whose state is in this process: a follower is called in the turn of the commit itself."""

    def follow(self, keys: KeyRange, *, after: int, follower: Follower) -> Following:
        """Tell a follower of every change after a revision; what happened already, before it returns.

        Raises `Compacted`.
        """
        ...

    async def make_room(self) -> None:
        """Let history give way to data.  Raises `NoSpace` if that does not help."""
        ...


@runtime_checkable
class OnCluster(Protocol):
    """A store that is a replica of what a cluster holds: it may know less than there is, and says so.

    While it is not serving, writes and linearizable reads raise `Unavailable` at once; serializable
    reads and watches go on with what is here.  It resumes by itself.
    """

    def health(self) -> ClusterHealth:
        """As it is known now: nobody is asked."""
        ...

    def on_serving(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call `changed` each time `health().is_serving` changes; what it returns ends that.

        Called on the loop of the store, in the turn of the change; it must not raise.
        """
        ...

    async def sync(self) -> Revision:
        """Wait until everything acknowledged anywhere before this call is here; return its revision."""
        ...
