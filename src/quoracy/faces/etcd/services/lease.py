"""etcd's Lease service: grant, revoke, keep alive, ask.  Times are whole seconds on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator

from quoracy.errors import LeaseNotFound
from quoracy.faces.etcd.errors import EtcdFault
from quoracy.faces.etcd.methods import Method, Send, Streaming, awaited
from quoracy.faces.etcd.services.member import Headers
from quoracy.store.api import Store
from quoracy.store.model import LeaseId
from quoracy.store.rules import Limits
from quoracy.wire.etcd.rpc import (
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseLeasesRequest,
    LeaseLeasesResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    LeaseStatus,
    LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
)

__all__ = ["LeaseService"]


class LeaseService:
    def __init__(self, store: Store, headers: Headers, limits: Limits) -> None:
        self._store = store
        self._headers = headers
        self._ttl_max_s = limits.lease_ttl_max_s

    def methods(self) -> list[Method]:
        service = "/etcdserverpb.Lease/"
        return [
            awaited(
                service + "LeaseGrant",
                LeaseGrantRequest,
                LeaseGrantResponse,
                self.grant,
                ("/v3/lease/grant",),
            ),
            awaited(
                service + "LeaseRevoke",
                LeaseRevokeRequest,
                LeaseRevokeResponse,
                self.revoke,
                ("/v3/lease/revoke", "/v3/kv/lease/revoke"),
            ),
            Streaming(
                service + "LeaseKeepAlive",
                LeaseKeepAliveRequest,
                LeaseKeepAliveResponse,
                self.keep_alive,
                client_streams=True,
                routes=("/v3/lease/keepalive",),
            ),
            awaited(
                service + "LeaseTimeToLive",
                LeaseTimeToLiveRequest,
                LeaseTimeToLiveResponse,
                self.time_to_live,
                ("/v3/lease/timetolive", "/v3/kv/lease/timetolive"),
            ),
            awaited(
                service + "LeaseLeases",
                LeaseLeasesRequest,
                LeaseLeasesResponse,
                self.leases,
                ("/v3/lease/leases", "/v3/kv/lease/leases"),
            ),
        ]

    async def grant(self, request: LeaseGrantRequest) -> LeaseGrantResponse:
        """ID 0 leaves the choice to the store, which raises too short a TTL (0 and less too)."""
        if self._ttl_max_s < request.TTL:
            raise EtcdFault.lease_ttl_too_large()
        granted = await self._store.grant(request.TTL, id=LeaseId(request.ID) if request.ID else None)
        return LeaseGrantResponse(
            header=await self._headers.now(), ID=granted.id, TTL=_whole_s(granted.ttl_s)
        )

    async def revoke(self, request: LeaseRevokeRequest) -> LeaseRevokeResponse:
        revision = await self._store.revoke(request.ID)
        return LeaseRevokeResponse(header=self._headers.at(revision))

    async def keep_alive(
        self,
        requests: AsyncIterator[LeaseKeepAliveRequest],
        send: Send[LeaseKeepAliveResponse],
    ) -> None:
        """One answer to each request; TTL 0 says that the lease is gone, and the stream goes on."""
        async for request in requests:
            # The revision is read first: the answer must not seem to be from after an end of the lease.
            header = await self._headers.now()
            try:
                ttl_s = (await self._store.keep_alive(request.ID)).ttl_s
            except LeaseNotFound:
                ttl_s = 0
            await send(LeaseKeepAliveResponse(header=header, ID=request.ID, TTL=_whole_s(ttl_s)))

    async def time_to_live(self, request: LeaseTimeToLiveRequest) -> LeaseTimeToLiveResponse:
        try:
            status = await self._store.time_to_live(request.ID, keys=request.keys)
        except LeaseNotFound:
            return LeaseTimeToLiveResponse(header=await self._headers.now(), ID=request.ID, TTL=-1)
        return LeaseTimeToLiveResponse(
            header=await self._headers.now(),
            ID=status.id,
            TTL=_whole_s(status.remaining_s),
            grantedTTL=_whole_s(status.ttl_s),
            keys=status.keys,
        )

    async def leases(self, _: LeaseLeasesRequest) -> LeaseLeasesResponse:
        ids = await self._store.leases()
        return LeaseLeasesResponse(
            header=await self._headers.now(), leases=[LeaseStatus(ID=id) for id in ids]
        )


def _whole_s(seconds: float) -> int:
    # Down, so that no client counts on more time than there is.
    return int(seconds)
