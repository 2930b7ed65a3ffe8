"""Quoracy's own Cluster service: how the cluster is that this node stands on, for `quoracy status`.

Only a node on a cluster offers it; to all others it is an unknown service, and a client that asks
takes that for an answer.
"""

from __future__ import annotations

from quoracy.errors import Unavailable
from quoracy.faces.etcd.methods import Method, Unary
from quoracy.faces.etcd.services.header import Headers
from quoracy.faces.etcd.services.standing import Standing
from quoracy.store.api import Store
from quoracy.wire.quoracy import (
    CLUSTER_HEALTH,
    ClusterHealthRequest,
    ClusterHealthResponse,
    ClusterMember,
)

__all__ = ["CellService"]


class CellService:
    def __init__(self, store: Store, headers: Headers, standing: Standing) -> None:
        self._store = store
        self._headers = headers
        self._standing = standing

    def methods(self) -> list[Method]:
        if self._standing.health is None:
            return []
        return [Unary(CLUSTER_HEALTH, ClusterHealthRequest, ClusterHealthResponse, self.health)]

    async def health(self, _: ClusterHealthRequest) -> ClusterHealthResponse:
        health = self._standing.health
        assert health is not None, "offered on a cluster only"
        return ClusterHealthResponse(
            header=self._headers.at(health.revision),
            engine=await self._engine(),
            is_serving=health.is_serving,
            reason=health.reason,
            stale_ms=int(health.stale_s * 1000),
            lag=health.lag,
            leader=health.leader,
            role=health.role,
            members=[
                ClusterMember(
                    name=member.name,
                    address=member.address,
                    version=member.version,
                    is_leader=member.is_leader,
                    revision=member.revision,
                    size_bytes=member.size_bytes,
                    error=member.error,
                )
                for member in health.members
            ],
            warnings=list(health.warnings),
        )

    async def _engine(self) -> str:
        try:
            return (await self._store.status()).engine
        except Unavailable:
            return ""  # how the cluster is must be told all the more
