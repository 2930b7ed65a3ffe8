"""The standard health check of gRPC servers: package grpc.health.v1."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from quoracy.wire.protobuf import Field, Message

__all__ = [
    "HealthCheckRequest",
    "HealthCheckResponse",
    "ServingStatus",
]


class ServingStatus(IntEnum):
    """Whether a service accepts calls.  SERVICE_UNKNOWN is for watching an unknown service."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class HealthCheckRequest(Message, kw_only=True):
    """Ask about one service, or about the server if the name is empty."""

    service: Annotated[str, Field(1)] = ""


class HealthCheckResponse(Message, kw_only=True):
    """Whether it accepts calls."""

    status: Annotated[ServingStatus | int, Field(1)] = ServingStatus.UNKNOWN
