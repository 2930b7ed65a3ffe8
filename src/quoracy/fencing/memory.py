"""A gate in this process's memory.

It guards what this process alone writes, and for as long as it runs: another process has a gate of its
own, and after a restart nothing is remembered, so the first token is admitted whatever it is.

Invariants
    * Safe from any number of threads and tasks: the lock is held for one look and one assignment.
    * Memory is bounded by `resources_max`.  At the bound a *new* resource is refused with `TooLarge`,
      and the known ones go on.  Nothing is ever evicted: a gate that forgets a resource would admit the
      stale token it exists to refuse.
"""

from __future__ import annotations

import threading

from quoracy.errors import TooLarge
from quoracy.fencing.gate import refuse_stale, require_valid

__all__ = ["MemoryGate"]


class MemoryGate:
    """Remembers the highest token of each resource in memory.

        gate = MemoryGate()
        await gate.admit("orders", held.token)      # or gate.admit_sync(...), from any thread

    resources_max: how many resources it remembers; None for as many as come, which is for names that
        your own program chooses, never for names that come from outside.

    In one event loop, `admit_sync` and a write with no `await` between them are one step.  Threads need
    a lock of their own around both.
    """

    __slots__ = ("_highest", "_lock", "_resources_max")

    def __init__(self, *, resources_max: int | None = 100_000) -> None:
        self._resources_max = resources_max
        self._highest: dict[str, int] = {}
        self._lock = threading.Lock()

    async def admit(self, resource: str, token: int) -> None:
        """As `Gate.admit`; never waits.  Raises `TooLarge` for a new resource at the bound."""
        self.admit_sync(resource, token)

    def admit_sync(self, resource: str, token: int) -> None:
        """As `Gate.admit`; never blocks.  Raises `TooLarge` for a new resource at the bound."""
        require_valid(resource, token)
        with self._lock:
            highest = self._highest.get(resource)
            if highest is None:
                self._require_room()
            if highest is None or token > highest:
                self._highest[resource] = highest = token
        refuse_stale(resource, token=token, highest=highest)

    def _require_room(self) -> None:
        size, size_max = len(self._highest) + 1, self._resources_max
        if size_max is not None and size > size_max:
            raise TooLarge(
                "the number of resources of this gate",
                size=size,
                size_max=size_max,
                setting="resources_max of MemoryGate; it forgets none, that would let stale tokens in",
            )
