"""etcd's Lock and Election services: queues of `store.contention`, whose first holds a name.

A call that fails or is given up leaves no place in a queue behind, or nobody could have the name until
the lease ends.  So what is begun is finished whatever happens to the call: cancelled while it joins, it
joins and leaves again; cancelled while it waits, it leaves; and only then it is cancelled.

Differs from etcd: a fault of the store (such as a lease that is not there) has the status it has in
every other service; etcd's lock and election services give the same text the status UNKNOWN.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from quoracy.errors import LeaseLost, QuoracyError
from quoracy.faces.etcd.errors import EtcdFault
from quoracy.faces.etcd.methods import Method, Send, Streaming, awaited
from quoracy.faces.etcd.services import translate
from quoracy.faces.etcd.services.member import Headers
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
from quoracy.wire.etcd.lock import LockRequest, LockResponse, UnlockRequest, UnlockResponse
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["ElectionService", "LockService", "finished"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# What etcd grants to a caller that brings no lease.  Nobody keeps it alive.
_LEASE_TTL_S = 60


class LockService:
    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        service, route = "/v3lockpb.Lock/", "/v3/lock/"
        return [
            awaited(service + "Lock", LockRequest, LockResponse, self.lock, (route + "lock",)),
            awaited(
                service + "Unlock", UnlockRequest, UnlockResponse, self.unlock, (route + "unlock",)
            ),
        ]

    async def lock(self, request: LockRequest) -> LockResponse:
        """Waits until the lock is held.  A lease that holds it already is answered at once."""
        try:
            async with _contending(self._store, request.name, request.lease) as place:
                revision = place.revision
                if not place.was_first:
                    revision = await contention.wait_first(self._store, place)
        except LeaseLost as error:
            raise GrpcError(StatusCode.UNKNOWN, "mutex: session is expired") from error
        return LockResponse(header=self._headers.at(revision), key=place.key)

    async def unlock(self, request: UnlockRequest) -> UnlockResponse:
        """Deletes the key, whosever it is: it is the key that `lock` answered with that proves it."""
        if not request.key:
            raise EtcdFault.empty_key()
        result = await self._store.delete(request.key)
        return UnlockResponse(header=self._headers.at(result.revision))


class ElectionService:
    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        service, route = "/v3electionpb.Election/", "/v3/election/"
        return [
            awaited(
                service + "Campaign",
                CampaignRequest,
                CampaignResponse,
                self.campaign,
                (route + "campaign",),
            ),
            awaited(
                service + "Proclaim",
                ProclaimRequest,
                ProclaimResponse,
                self.proclaim,
                (route + "proclaim",),
            ),
            awaited(
                service + "Leader", LeaderRequest, LeaderResponse, self.leader, (route + "leader",)
            ),
            Streaming(
                service + "Observe",
                LeaderRequest,
                LeaderResponse,
                self.observe,
                client_streams=False,
                routes=(route + "observe",),
            ),
            awaited(
                service + "Resign", ResignRequest, ResignResponse, self.resign, (route + "resign",)
            ),
        ]

    async def campaign(self, request: CampaignRequest) -> CampaignResponse:
        """Waits until elected.

        Differs from etcd: a candidate whose key was lost while it waited learns that, where etcd lets
        it believe that it leads.
        """
        store = self._store
        try:
            async with _contending(store, request.name, request.lease, request.value) as place:
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


# -- a place in a queue, taken by one call -----------------------------------------------------


class _Contender:
    """What one call took, as far as it came."""

    def __init__(self, store: Store, name: bytes, lease: int) -> None:
        self._store = store
        self._name = name
        self._lease = lease
        self._is_own_lease = not lease
        self._place: Place | None = None

    async def join(self, value: bytes) -> Place:
        if self._is_own_lease:
            self._lease = (await self._store.grant(_LEASE_TTL_S)).id
        self._place = await contention.join(self._store, self._name, self._lease, value)
        return self._place

    async def leave(self) -> None:
        try:
            if self._place is not None:
                await contention.leave(self._store, self._place)
            if self._is_own_lease and self._lease:
                await self._store.revoke(self._lease)
        except QuoracyError as error:
            # The call has failed already and says why; the end of the lease frees the name.
            logger.warning(
                "a place in the queue for %r stays until lease %x ends: %s",
                self._name,
                self._lease,
                error,
            )


@asynccontextmanager
async def _contending(
    store: Store, name: bytes, lease: int, value: bytes = b""
) -> AsyncIterator[Place]:
    """The place in the queue that a lease has or now gets; given up if the block fails.

    Lease 0 is one of its own, for a minute, as etcd grants it.
    """
    contender = _Contender(store, name, lease)
    try:
        yield await finished(contender.join(value))
    except BaseException:
        await finished(contender.leave())
        raise


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Await something to its end; if this task is cancelled meanwhile, it is so only after that."""
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        if not task.cancelled():
            task.exception()  # counts as seen: nobody waits for the outcome any more
        raise asyncio.CancelledError
    return task.result()
