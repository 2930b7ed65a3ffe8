"""grpc.health.v1: whether this server takes calls, for load balancers and container platforms.

As in etcd there is one answer for the whole server, under the empty name.  A server whose quota is used
up is healthy to it, since reads and deletes work; one whose disk failed is not.

Differs from etcd: a node that has lost its cluster is not serving.  Another node may have it still, and
this is what a load balancer asks; etcd's members say that they serve as long as they run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from quoracy.clock import Clock
from quoracy.errors import Unavailable
from quoracy.faces.etcd.methods import Method, Send, Streaming, awaited
from quoracy.faces.etcd.services.member import Standing
from quoracy.store.api import Store
from quoracy.store.model import Alarm
from quoracy.wire.etcd.health import HealthCheckRequest, HealthCheckResponse, ServingStatus
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["HealthService"]

# The store has no event for its health, and watches of it are few and not urgent.
_LOOK_EVERY_S = 2.0


class HealthService:
    def __init__(self, store: Store, clock: Clock, standing: Standing) -> None:
        self._store = store
        self._standing = standing
        self._clock = clock

    def methods(self) -> list[Method]:
        service = "/grpc.health.v1.Health/"
        return [
            awaited(service + "Check", HealthCheckRequest, HealthCheckResponse, self.check),
            Streaming(
                service + "Watch",
                HealthCheckRequest,
                HealthCheckResponse,
                self.watch,
                client_streams=False,
            ),
        ]

    async def check(self, request: HealthCheckRequest) -> HealthCheckResponse:
        if request.service:
            raise GrpcError(StatusCode.NOT_FOUND, "unknown service")
        return HealthCheckResponse(status=await self._serving_status())

    async def watch(
        self, requests: AsyncIterator[HealthCheckRequest], send: Send[HealthCheckResponse]
    ) -> None:
        """The status now and each change of it; for an unknown name, that it is unknown."""
        request = await anext(aiter(requests))
        sent: ServingStatus | None = None
        while True:
            status = ServingStatus.SERVICE_UNKNOWN
            if not request.service:
                status = await self._serving_status()
            if status != sent:
                sent = status
                await send(HealthCheckResponse(status=status))
            await self._clock.sleep(_LOOK_EVERY_S)

    async def _serving_status(self) -> ServingStatus:
        cluster = self._standing.health
        if cluster is not None and not cluster.is_serving:
            return ServingStatus.NOT_SERVING
        try:
            status = await self._store.status()
        except Unavailable:
            return ServingStatus.NOT_SERVING
        if Alarm.STORAGE_FAILED in status.alarms:
            return ServingStatus.NOT_SERVING
        return ServingStatus.SERVING
