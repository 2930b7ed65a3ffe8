"""The Election service: package v3electionpb, etcd's v3election.proto."""

from __future__ import annotations

from typing import Annotated

from quoracy.wire.etcd.kv import KeyValue
from quoracy.wire.etcd.rpc import ResponseHeader
from quoracy.wire.protobuf import INT64, Field, Message

__all__ = [
    "CampaignRequest",
    "CampaignResponse",
    "LeaderKey",
    "LeaderRequest",
    "LeaderResponse",
    "ProclaimRequest",
    "ProclaimResponse",
    "ResignRequest",
    "ResignResponse",
]


class CampaignRequest(Message, kw_only=True):
    """Wait to be elected leader in the election `name`, with `value` as the proposal."""

    name: Annotated[bytes, Field(1)] = b""
    lease: Annotated[int, Field(2, INT64)] = 0
    value: Annotated[bytes, Field(3)] = b""


class CampaignResponse(Message, kw_only=True):
    """The caller is elected; `leader` identifies its leadership."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    leader: Annotated[LeaderKey | None, Field(2)] = None


class LeaderKey(Message, kw_only=True):
    """A claim to leadership: valid while `key` exists as created at `rev`."""

    name: Annotated[bytes, Field(1)] = b""
    key: Annotated[bytes, Field(2)] = b""
    rev: Annotated[int, Field(3, INT64)] = 0
    lease: Annotated[int, Field(4, INT64)] = 0


class LeaderRequest(Message, kw_only=True):
    """Ask for the leader, once or as a stream of changes."""

    name: Annotated[bytes, Field(1)] = b""


class LeaderResponse(Message, kw_only=True):
    """The leader's key and value."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    kv: Annotated[KeyValue | None, Field(2)] = None


class ResignRequest(Message, kw_only=True):
    """Give up leadership."""

    leader: Annotated[LeaderKey | None, Field(1)] = None


class ResignResponse(Message, kw_only=True):
    """Leadership was given up."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class ProclaimRequest(Message, kw_only=True):
    """Change the leader's value without a new election."""

    leader: Annotated[LeaderKey | None, Field(1)] = None
    value: Annotated[bytes, Field(2)] = b""


class ProclaimResponse(Message, kw_only=True):
    """The new value was written."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
