"""Generated: the classes of `quoracy.connect`, for threads.

Do not change it by hand: run `python -m quoracy.threads.generator`.
"""

from __future__ import annotations

from typing import Self, Unpack

from quoracy.store.api import Store as AsyncStore
from quoracy.store.api import Watch as AsyncWatch
from quoracy.store.model import (
    DeleteResult,
    KeyRange,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    PutResult,
    RangeResult,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    TxnResult,
    WatchBatch,
)
from quoracy.store.options import PutOptions, RangeOptions, WatchOptions
from quoracy.threads.proxies import BlockProxy, Proxy


class Store(Proxy[AsyncStore]):
    """A durable, revisioned, watchable map of bytes to bytes.

    Errors named here come besides those any operation may end with: `InvalidRequest` for a request that
    breaks a rule, `Unavailable` when the store cannot serve it, `Overloaded`, and `Indeterminate` for a
    write whose outcome is not known.
    """

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> Watch:
        """Follow the changes of a key or a range: see `Watch`, `WatchOptions`."""
        return Watch(self._portal, self._portal.call(lambda: self._it.watch(keys, **options)))

    def range(self, keys: Keys, **options: Unpack[RangeOptions]) -> RangeResult:
        """Read keys, now or as they were.  Raises `Compacted`, `FutureRevision`."""
        return self._portal.run(lambda: self._it.range(keys, **options))

    def put(self, key: bytes, value: bytes = b"", **options: Unpack[PutOptions]) -> PutResult:
        """Write one key.  Raises `LeaseNotFound`, `KeyNotFound`, `NoSpace`."""
        return self._portal.run(lambda: self._it.put(key, value, **options))

    def delete(self, keys: Keys, *, prev_kv: bool = False) -> DeleteResult:
        """Remove every key of a range."""
        return self._portal.run(lambda: self._it.delete(keys, prev_kv=prev_kv))

    def txn(self, txn: Txn) -> TxnResult:
        """Compare, then write and read, atomically.

        Raises what its operations raise, and `DuplicateKey`; everything is checked before anything
        is changed.  Cancelling a write leaves open whether it is applied; it is never half applied.
        """
        return self._portal.run(lambda: self._it.txn(txn))

    def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        """Wait until a key is the oldest below `name` (see `WaitFirst`); None if it is gone."""
        return self._portal.run(lambda: self._it.wait_first(name, key, token))

    def compact(self, at: int) -> None:
        """Forget history before revision `at`, which itself can still be read and watched from.

        Raises `Compacted` if it was forgotten already, `FutureRevision` if it does not exist yet.
        """
        self._portal.run(lambda: self._it.compact(at))

    def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        """Make a lease.  Too short a time to live is raised to the least allowed.

        Raises `LeaseExists` if the chosen id is taken, `NoSpace`.
        """
        return self._portal.run(lambda: self._it.grant(ttl_s, id=id))

    def keep_alive(self, lease: int) -> LeaseGrant:
        """Give the lease its full time to live again.  Raises `LeaseNotFound`."""
        return self._portal.run(lambda: self._it.keep_alive(lease))

    def revoke(self, lease: int) -> Revision:
        """End the lease and delete its keys, in one revision.  Raises `LeaseNotFound`."""
        return self._portal.run(lambda: self._it.revoke(lease))

    def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        """How long the lease has left and, if asked, its keys in order.  Raises `LeaseNotFound`."""
        return self._portal.run(lambda: self._it.time_to_live(lease, keys=keys))

    def leases(self) -> tuple[LeaseId, ...]:
        """The ids of all leases, in order."""
        return self._portal.run(self._it.leases)

    def revision_at(self, age_s: float) -> Revision:
        """The revision that was the newest `age_s` seconds ago: `range(..., at=...)` reads it.

        It was made at that time or before, never after.  The last changes before that time may be
        missing: how many depends on the engine, and grows with the age.  Raises `Compacted` if the
        history of that time is no longer kept, `Unsupported` if times are not known that far back, or
        at all.
        """
        return self._portal.run(lambda: self._it.revision_at(age_s))

    def hash(self, *, at: int | None = None) -> StateHash:
        """Digest the contents at a revision, to compare two stores."""
        return self._portal.run(lambda: self._it.hash(at=at))

    def status(self) -> StoreStatus:
        """How the store is doing."""
        return self._portal.run(self._it.status)


class Watch(BlockProxy[AsyncWatch]):
    """A watch: enter it to start, poll it or iterate over it for its batches, leave it to stop.

    Every event is delivered exactly once, in revision order, all events of a revision in one batch,
    with no gap between history and what happens now.  A slow consumer holds up nobody: past a bounded
    buffer it is fed from history, and if that was compacted meanwhile it gets `Compacted`, with the
    oldest revision that is kept.  The iteration never just ends: it yields or it raises.
    """

    @property
    def keys(self) -> KeyRange:
        return self._portal.call(lambda: self._it.keys)

    @property
    def revision(self) -> Revision:
        """Everything up to here has been delivered: `after=watch.revision` continues exactly here."""
        return self._portal.call(lambda: self._it.revision)

    def request_progress(self) -> None:
        """Ask for a batch without events as soon as everything that happened was delivered."""
        self._portal.call(self._it.request_progress)

    def __enter__(self) -> Self:
        self._enter(self._it)
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchBatch:
        return self._next(self._it)
