"""etcd's Lock service: the queue of `store.contention`, one call to wait in it and one to leave.

Differs from etcd: a fault of the store (such as a lease that is not there) has the status it has in
every other service; etcd's lock and election services say the same text with the status UNKNOWN.
"""

from __future__ import annotations

from quoracy.errors import LeaseLost
from quoracy.faces.etcd.errors import EtcdFault
from quoracy.faces.etcd.methods import Method, Unary
from quoracy.faces.etcd.services.contenders import contending
from quoracy.faces.etcd.services.header import Headers
from quoracy.store import contention
from quoracy.store.api import Store
from quoracy.wire.etcd.lock import LockRequest, LockResponse, UnlockRequest, UnlockResponse
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["LockService"]


class LockService:
    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        service, route = "/v3lockpb.Lock/", "/v3/lock/"
        return [
            Unary(service + "Lock", LockRequest, LockResponse, self.lock, (route + "lock",)),
            Unary(service + "Unlock", UnlockRequest, UnlockResponse, self.unlock, (route + "unlock",)),
        ]

    async def lock(self, request: LockRequest) -> LockResponse:
        """Waits until the lock is held.  A lease that holds it already is answered at once."""
        try:
            async with contending(self._store, request.name, request.lease) as place:
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
