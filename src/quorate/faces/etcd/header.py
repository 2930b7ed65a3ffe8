"""The header of every answer: who answered, and at which revision of the store."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.store.api import Store
from quorate.wire.etcd.rpc import ResponseHeader

__all__ = ["Headers", "Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this server is to etcd's clients.

    Clients compare `cluster_id` to notice that they were led to another cluster, and `member_id` to
    tell servers apart: both are made once for the data and then stay.  `raft_term` grows with each
    leader; a server that is its own and only leader has had one.
    """

    cluster_id: int
    member_id: int
    name: str = "default"
    client_urls: tuple[str, ...] = ()
    raft_term: int = 2


class Headers:
    """Makes headers.  `at` is on the path of every request: it makes one small object."""

    __slots__ = ("_cluster_id", "_member_id", "_raft_term", "_store")

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._cluster_id = identity.cluster_id
        self._member_id = identity.member_id
        self._raft_term = identity.raft_term

    def at(self, revision: int) -> ResponseHeader:
        return ResponseHeader(
            cluster_id=self._cluster_id,
            member_id=self._member_id,
            revision=revision,
            raft_term=self._raft_term,
        )

    async def revision(self) -> int:
        """The store's revision now, by the cheapest read there is: one key that need not exist."""
        found = await self._store.range(b"\0", count_only=True, serializable=True)
        return found.revision

    async def now(self) -> ResponseHeader:
        return self.at(await self.revision())
