"""Quoracy's own gRPC services, beside etcd's: package quoracy.v1.

service History {
  rpc RevisionAt(RevisionAtRequest) returns (RevisionAtResponse);
}

service Cluster {
  rpc Health(ClusterHealthRequest) returns (ClusterHealthResponse);
}

service Queue {
  rpc WaitFirst(WaitFirstRequest) returns (stream WaitFirstResponse);
}

Only a server that stands on a cluster offers `Cluster`.  `WaitFirst` responds once, when the wait
is over; like any stream it has no deadline, and it ends when its server stops.
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
    """Ask for the newest revision of `age_ms` milliseconds ago."""

    age_ms: Annotated[int, Field(1, INT64)] = 0


class RevisionAtResponse(Message, kw_only=True):
    """The newest revision that was made at that time or earlier."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    revision: Annotated[int, Field(2, INT64)] = 0


class ClusterHealthRequest(Message, kw_only=True):
    """Ask for the health of the server's cluster, as the server sees it."""


class ClusterMember(Message, kw_only=True):
    """One member of the cluster; `error` says why it did not respond."""

    name: Annotated[str, Field(1)] = ""
    address: Annotated[str, Field(2)] = ""
    version: Annotated[str, Field(3)] = ""
    is_leader: Annotated[bool, Field(4)] = False
    revision: Annotated[int, Field(5, INT64)] = 0
    size_bytes: Annotated[int, Field(6, INT64)] = 0
    error: Annotated[str, Field(7)] = ""


class ClusterHealthResponse(Message, kw_only=True):
    """`store.model.ClusterHealth` on the wire, with the name of the engine."""

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
    """Wait until this key, created at revision `token`, is the oldest below the name."""

    name: Annotated[bytes, Field(1)] = b""
    key: Annotated[bytes, Field(2)] = b""
    token: Annotated[int, Field(3, INT64)] = 0


class WaitFirstResponse(Message, kw_only=True):
    """The key is first, at the header's revision, or it no longer exists."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    is_gone: Annotated[bool, Field(2)] = False
