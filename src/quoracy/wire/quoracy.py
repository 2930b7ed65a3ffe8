"""Quoracy's own procedures, beside etcd's: package quoracy.v1.

service History {
  rpc RevisionAt(RevisionAtRequest) returns (RevisionAtResponse);
}

service Cluster {
  rpc Health(ClusterHealthRequest) returns (ClusterHealthResponse);
}

service Queue {
  rpc WaitFirst(WaitFirstRequest) returns (stream WaitFirstResponse);
}

A server that stands on no cluster does not offer the second.  The third answers once, when there is
something to say; like a stream it has no deadline, and ends with the server that serves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from quoracy.wire.etcd.rpc import ResponseHeader
from quoracy.wire.protobuf import INT64, Field, Message

__all__ = [
    "CLUSTER_HEALTH",
    "WAIT_FIRST",
    "ClusterHealthRequest",
    "ClusterHealthResponse",
    "ClusterMember",
    "RevisionAtRequest",
    "RevisionAtResponse",
    "WaitFirstRequest",
    "WaitFirstResponse",
]

CLUSTER_HEALTH = "/quoracy.v1.Cluster/Health"
WAIT_FIRST = "/quoracy.v1.Queue/WaitFirst"


class RevisionAtRequest(Message, kw_only=True):
    """Which revision was the newest so many milliseconds ago?"""

    age_ms: Annotated[int, Field(1, INT64)] = 0


class RevisionAtResponse(Message, kw_only=True):
    """This one: made at that time or before."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    revision: Annotated[int, Field(2, INT64)] = 0


class ClusterHealthRequest(Message, kw_only=True):
    """How is the cluster that this server stands on, as the server sees it?"""


class ClusterMember(Message, kw_only=True):
    """One member of the cluster; `error` says why it did not answer."""

    name: Annotated[str, Field(1)] = ""
    address: Annotated[str, Field(2)] = ""
    version: Annotated[str, Field(3)] = ""
    is_leader: Annotated[bool, Field(4)] = False
    revision: Annotated[int, Field(5, INT64)] = 0
    size_bytes: Annotated[int, Field(6, INT64)] = 0
    error: Annotated[str, Field(7)] = ""


class ClusterHealthResponse(Message, kw_only=True):
    """`store.model.ClusterHealth` on the wire, and which engine it is of."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    engine: Annotated[str, Field(2)] = ""
    is_serving: Annotated[bool, Field(3)] = False
    reason: Annotated[str, Field(4)] = ""
    stale_ms: Annotated[int, Field(5, INT64)] = 0
    lag: Annotated[int, Field(6, INT64)] = 0
    leader: Annotated[str, Field(7)] = ""
    role: Annotated[str, Field(8)] = ""
    members: Annotated[Sequence[ClusterMember], Field(9)] = ()
    warnings: Annotated[Sequence[str], Field(10)] = ()


class WaitFirstRequest(Message, kw_only=True):
    """When is this key, created at revision `token`, the oldest of those below the name?"""

    name: Annotated[bytes, Field(1)] = b""
    key: Annotated[bytes, Field(2)] = b""
    token: Annotated[int, Field(3, INT64)] = 0


class WaitFirstResponse(Message, kw_only=True):
    """It is, at the revision of the header; or it is gone."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    is_gone: Annotated[bool, Field(2)] = False
