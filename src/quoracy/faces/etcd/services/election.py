"""etcd's Election service: the queue of `store.contention`, where the first leads and says a value."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from quoracy.errors import LeaseLost
from quoracy.faces.etcd.methods import Method, Send, Streaming, Unary
from quoracy.faces.etcd.services import translate
from quoracy.faces.etcd.services.contenders import contending
from quoracy.faces.etcd.services.header import Headers
from quoracy.store import contention
from quoracy.store.api import Store
from quoracy.store.contention import Owner, Place
from quoracy.store.model import Revision
from quoracy.wire.etcd.election import (
    CampaignRequest,
    CampaignResponse,
    LeaderKey,
    LeaderRequest,
    LeaderResponse,
    ProclaimRequest,
    ProclaimResponse,
    ResignRequest,
    ResignResponse,
)
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["ElectionService"]


class ElectionService:
    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        service, route = "/v3electionpb.Election/", "/v3/election/"
        return [
            Unary(
                service + "Campaign",
                CampaignRequest,
                CampaignResponse,
                self.campaign,
                (route + "campaign",),
            ),
            Unary(
                service + "Proclaim",
                ProclaimRequest,
                ProclaimResponse,
                self.proclaim,
                (route + "proclaim",),
            ),
            Unary(service + "Leader", LeaderRequest, LeaderResponse, self.leader, (route + "leader",)),
            Streaming(
                service + "Observe",
                LeaderRequest,
                LeaderResponse,
                self.observe,
                client_streams=False,
                routes=(route + "observe",),
            ),
            Unary(service + "Resign", ResignRequest, ResignResponse, self.resign, (route + "resign",)),
        ]

    async def campaign(self, request: CampaignRequest) -> CampaignResponse:
        """Waits until elected.

        Differs from etcd: a candidate whose key was lost while it waited is told so, where etcd lets it
        believe that it leads.
        """
        store = self._store
        try:
            async with contending(store, request.name, request.lease, request.value) as place:
                if place.value != request.value:
                    await contention.proclaim(store, place, request.value)
                if not place.was_first:
                    await contention.wait_first(store, place)
        except LeaseLost as error:
            raise _not_leader() from error
        return CampaignResponse(
            # The revision of the candidacy, not of the election: etcd's answer has that too.
            header=self._headers.at(place.revision),
            leader=LeaderKey(name=request.name, key=place.key, rev=place.token, lease=place.lease),
        )

    async def proclaim(self, request: ProclaimRequest) -> ProclaimResponse:
        place = _place_of(request.leader)
        try:
            revision = await contention.proclaim(self._store, place, request.value)
        except LeaseLost as error:
            raise _not_leader() from error
        return ProclaimResponse(header=self._headers.at(revision))

    async def resign(self, request: ResignRequest) -> ResignResponse:
        """Done as well if there is nothing to give up any more."""
        revision = await contention.leave(self._store, _place_of(request.leader))
        return ResignResponse(header=self._headers.at(revision))

    async def leader(self, request: LeaderRequest) -> LeaderResponse:
        owner = await contention.owner(self._store, request.name)
        if owner is None:
            raise GrpcError(StatusCode.UNKNOWN, "election: no leader")
        return self._response(owner)

    async def observe(self, requests: AsyncIterator[LeaderRequest], send: Send[LeaderResponse]) -> None:
        request = await anext(aiter(requests))
        async with aclosing(contention.observe(self._store, request.name)) as owners:
            async for owner in owners:
                await send(self._response(owner))

    def _response(self, owner: Owner) -> LeaderResponse:
        return LeaderResponse(
            header=self._headers.at(owner.revision), kv=translate.as_message(owner.kv)
        )


def _place_of(leader: LeaderKey | None) -> Place:
    if leader is None:
        raise GrpcError(StatusCode.UNKNOWN, '"leader" field must be provided')
    return Place(
        leader.name,
        leader.key,
        leader.lease,
        leader.rev,
        value=b"",
        revision=Revision(0),
        was_first=True,
    )


def _not_leader() -> GrpcError:
    return GrpcError(StatusCode.UNKNOWN, "election: not leader")
