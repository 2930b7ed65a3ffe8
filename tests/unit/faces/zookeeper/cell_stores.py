"""A store on a cluster that a test can take away, and behind it the parts of which it is made.

CellStore        on a cluster: `lose_cluster`, `find_cluster`, `write_error`
  .relay         what stands between it and its data: watches that fail or are held back
    .inner       the data: what is done there is done by others
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from quoracy.clock import Clock
from quoracy.engines.opening import open_embedded
from quoracy.store.api import Store
from quoracy.store.model import LeaseGrant
from tests.support.cluster_store import ClusterStore
from tests.support.zookeeper_stores import Relay

__all__ = ["CellStore", "cell_store"]


class CellStore(ClusterStore):
    """As many as there are nodes may stand on one `inner`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.relay = Relay(inner)
        super().__init__(self.relay)
        self.calls: Counter[str] = Counter()

    async def keep_alive(self, lease: int) -> LeaseGrant:
        self.calls["keep_alive"] += 1
        return await super().keep_alive(lease)


@contextlib.asynccontextmanager
async def cell_store(clock: Clock | None = None) -> AsyncIterator[CellStore]:
    async with open_embedded("memory:", clock=clock) as inner:
        yield CellStore(inner)
