"""The head of a gRPC call: a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from quoracy.wire.grpc import GrpcError

__all__ = ["RequestHead"]


class RequestHead(msgspec.Struct, frozen=True):
    """What a server needs of a call's headers.

    `fault` says why the call cannot be served as it is, before anything of it is read.
    """

    path: str
    timeout_s: float | None = None
    encoding: bytes | None = None
    authorization: bytes | None = None
    fault: GrpcError | None = None
