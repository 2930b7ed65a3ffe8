"""Quoracy's own services, beside etcd's: Cluster, History and Queue.

They have no routes of the JSON gateway's: what is under /v3/ is etcd's to name.
"""

from __future__ import annotations

from quoracy.errors import Unavailable
from quoracy.faces.etcd.answer import Answer, Caller
from quoracy.faces.etcd.methods import Method, Unary, awaited
from quoracy.faces.etcd.services.member import Headers, Standing
from quoracy.store.api import Store
from quoracy.store.model import Revision, WaitFirst
from quoracy.wire.quoracy import (
    CLUSTER_HEALTH,
    WAIT_FIRST,
    ClusterHealthRequest,
    ClusterHealthResponse,
    ClusterMember,
    RevisionAtRequest,
    RevisionAtResponse,
    WaitFirstRequest,
    WaitFirstResponse,
)

__all__ = ["ClusterHealthService", "HistoryService", "QueueService"]


class ClusterHealthService:
    """How the cluster is that this node stands on, for `quoracy status`.

    Only a node on a cluster offers it; to all others it is an unknown service, and a client that asks
    takes that for an answer.
    """

    def __init__(self, store: Store, headers: Headers, standing: Standing) -> None:
        self._store = store
        self._headers = headers
        self._standing = standing

    def methods(self) -> list[Method]:
        if self._standing.health is None:
            return []
        return [awaited(CLUSTER_HEALTH, ClusterHealthRequest, ClusterHealthResponse, self.health)]

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
            return ""  # the cluster's state can be reported all the same


class HistoryService:
    """Which revision it was so long ago."""

    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        path = "/quoracy.v1.History/RevisionAt"
        return [awaited(path, RevisionAtRequest, RevisionAtResponse, self.revision_at)]

    async def revision_at(self, request: RevisionAtRequest) -> RevisionAtResponse:
        revision = await self._store.revision_at(request.age_ms / 1000)
        return RevisionAtResponse(header=await self._headers.now(), revision=revision)


class QueueService:
    """Wait for the front of a queue of `store.contention`, and nothing else.

    What a client would do itself with a watch and a read, done next to the store: the next in the queue
    learns of it one message after the release, not three.  It takes no place and leaves none, so a call
    that is given up, or lost with its connection, changes nothing, and may be made again.
    """

    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        return [Unary(WAIT_FIRST, WaitFirstRequest, WaitFirstResponse, self._begin, is_wait=True)]

    def _begin(self, payload: bytes, call: Caller) -> Answer:
        request = WaitFirstRequest.decode(payload)
        answer = _FirstAnswer(call, self._headers)
        self._store.read(WaitFirst(request.name, request.key, request.token), answer)
        return answer


class _FirstAnswer(Answer):
    __slots__ = ("_headers",)

    def __init__(self, call: Caller, headers: Headers) -> None:
        super().__init__(call)
        self._headers = headers

    def encode(self, result: Revision | None) -> bytes:
        if result is None:
            return WaitFirstResponse(is_gone=True).encode()
        return self._headers.encoded(result)  # the response has nothing else
