"""A group commit: the batch that goes to disk together, and everybody who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quorate.engines.embedded.journal import Batch
from quorate.store.model import Revision

__all__ = ["Group"]


class Group(Batch):
    """A batch with those who hear how it ended; `takers` only if it failed."""

    __slots__ = ("leases_count", "put_bytes", "revision", "takers", "waiters")

    def __init__(self) -> None:
        super().__init__()
        self.put_bytes = 0
        self.leases_count = 0  # leases there are when it is durable
        self.revision: Revision = Revision(0)
        self.waiters: list[asyncio.Future[None]] = []
        self.takers: list[Callable[[BaseException], None]] = []

    @property
    def waiting_count(self) -> int:
        return len(self.waiters) + len(self.takers)

    def succeeded(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def failed(self, error: BaseException) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)
        for on_failed in self.takers:
            on_failed(error)
