"""The Lock service: package v3lockpb, etcd's v3lock.proto."""

from __future__ import annotations

from typing import Annotated

from quoracy.wire.etcd.rpc import ResponseHeader
from quoracy.wire.protobuf import INT64, Field, Message

__all__ = [
    "LockRequest",
    "LockResponse",
    "UnlockRequest",
    "UnlockResponse",
]


class LockRequest(Message, kw_only=True):
    """Acquire the lock `name` for a lease, waiting for it."""

    name: Annotated[bytes, Field(1)] = b""
    lease: Annotated[int, Field(2, INT64)] = 0


class LockResponse(Message, kw_only=True):
    """The lock is held as long as `key` exists."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    key: Annotated[bytes, Field(2)] = b""


class UnlockRequest(Message, kw_only=True):
    """Release the lock; `key` is that of the LockResponse."""

    key: Annotated[bytes, Field(1)] = b""


class UnlockResponse(Message, kw_only=True):
    """The lock was released."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
