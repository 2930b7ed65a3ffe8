"""Leases: how much longer each lives, and which keys go with it.

Invariants
    * No IO and no clock: every method that needs the time takes `now`, a monotonic reading.
    * A lease never ends early.  Time counts only while it is read: of a gap between two
      readings longer than `STALL_S` (the process was stopped, the machine slept, the event loop hung)
      only `STALL_S` counts, for the keep-alives of that time are still waiting to be read.
    * A keep-alive costs O(1) and a tick costs O(leases that are due): the heap may hold an older
      deadline of a lease than the true one; it is put right when it comes to the top.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from quoracy.errors import LeaseExists, LeaseNotFound
from quoracy.store.model import LeaseId

__all__ = ["STALL_S", "LeaseTable"]

STALL_S = 0.5


class _Lease:
    __slots__ = ("deadline", "id", "keys", "queued", "ttl_s")

    def __init__(self, id: LeaseId, ttl_s: float, deadline: float) -> None:
        self.id = id
        self.ttl_s = ttl_s
        self.deadline = deadline
        self.queued: float | None = deadline  # the heap's entry for it; others with its id are stale
        self.keys: set[bytes] | None = None  # many have none, and an empty set takes 216 bytes


class LeaseTable:
    """All leases of one store, on a timeline of its own that stands still while it is not read."""

    __slots__ = ("_elapsed", "_heap", "_leases", "_now")

    def __init__(self, *, now: float) -> None:
        self._leases: dict[int, _Lease] = {}
        self._heap: list[tuple[float, int]] = []
        self._now = now
        self._elapsed = 0.0

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, lease: int) -> bool:
        return lease in self._leases

    def ids(self) -> tuple[LeaseId, ...]:
        return tuple(sorted(lease.id for lease in self._leases.values()))

    # -- life ----------------------------------------------------------------------------

    def grant(self, id: LeaseId, ttl_s: float, *, now: float) -> None:
        if id in self._leases:
            raise LeaseExists(id)
        lease = _Lease(id, ttl_s, self._advance(now) + ttl_s)
        self._leases[id] = lease
        heapq.heappush(self._heap, (lease.deadline, id))

    def keep_alive(self, id: int, *, now: float) -> float:
        """Give the lease its full time again; return that time."""
        lease = self._find(id)
        lease.deadline = self._advance(now) + lease.ttl_s
        return lease.ttl_s

    def due(self, *, now: float, at_most: int | None = None) -> list[LeaseId]:
        """The leases whose time is up, in the order they came up.  The caller ends them.

        Looks at most at `at_most` that could be due; `is_any_due` tells whether there are more.
        """
        elapsed = self._advance(now)
        heap, due = self._heap, []
        looked_at = 0
        while heap and heap[0][0] <= elapsed and looked_at != at_most:
            looked_at += 1
            queued, id = heapq.heappop(heap)
            lease = self._leases.get(id)
            if lease is None or lease.queued != queued:
                continue  # of a lease that was revoked since; its id may have been granted anew
            if lease.deadline > elapsed:
                lease.queued = lease.deadline
                heapq.heappush(heap, (lease.deadline, id))  # kept alive since
            else:
                lease.queued = None
                due.append(lease.id)
        return due

    @property
    def is_any_due(self) -> bool:
        return bool(self._heap) and self._heap[0][0] <= self._elapsed

    def end(self, id: int) -> list[bytes]:
        """Forget the lease; return its keys in order, for the caller to delete."""
        keys = sorted(self._find(id).keys or ())
        del self._leases[id]
        return keys

    def remaining(self, id: int, *, now: float) -> tuple[float, float]:
        """The time to live it was granted and what is left of it, never below zero."""
        lease = self._find(id)
        return lease.ttl_s, max(0.0, lease.deadline - self._advance(now))

    # -- keys ----------------------------------------------------------------------------

    def keys(self, id: int) -> tuple[bytes, ...]:
        return tuple(sorted(self._find(id).keys or ()))

    def attach(self, id: int, key: bytes) -> None:
        lease = self._find(id)
        if lease.keys is None:
            lease.keys = {key}
        else:
            lease.keys.add(key)

    def detach(self, id: int, key: bytes) -> None:
        lease = self._leases.get(id)
        # A lease that has just ended has released its keys already.
        if lease is not None and lease.keys is not None:
            lease.keys.discard(key)

    def restore(self, leases: Iterable[tuple[int, float]], *, now: float) -> None:
        """Take over leases from before a restart: each has its full time again."""
        for id, ttl_s in leases:
            self.grant(LeaseId(id), ttl_s, now=now)

    # ------------------------------------------------------------------------------------

    def _find(self, id: int) -> _Lease:
        lease = self._leases.get(id)
        if lease is None:
            raise LeaseNotFound(id)
        return lease

    def _advance(self, now: float) -> float:
        # A reading that goes backwards counts as no time at all.
        self._elapsed += min(max(now - self._now, 0.0), STALL_S)
        self._now = now
        return self._elapsed
