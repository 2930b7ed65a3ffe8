"""How a Quoracy node sees the cluster it stands on: asked for `quoracy status`.

An etcd, and a Quoracy that stands on no cluster, do not know the question; that is an answer too.
"""

from __future__ import annotations

import msgspec

from quoracy.remote.dial import Channel
from quoracy.remote.error_mapping import error_of
from quoracy.store.model import ClusterHealth, MemberHealth, Revision
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.quoracy import CLUSTER_HEALTH, ClusterHealthRequest, ClusterHealthResponse

__all__ = ["CellHealth", "ask_cell_health"]


class CellHealth(msgspec.Struct, frozen=True):
    """What the node said; `engine` is empty if it could not tell which one that is."""

    engine: str
    health: ClusterHealth


async def ask_cell_health(
    channel: Channel, *, timeout_s: float, deadline: float, token: str | None
) -> CellHealth | None:
    """None from a server that stands on no cluster."""
    try:
        answer = await channel.unary(
            CLUSTER_HEALTH,
            ClusterHealthRequest().encode(),
            timeout_s=timeout_s,
            deadline=deadline,
            token=token,
        )
    except GrpcError as error:
        if error.code is StatusCode.UNIMPLEMENTED:
            return None
        raise error_of(error, "health of the cluster", write=False) from error
    return _cell_health(ClusterHealthResponse.decode(answer))


def _cell_health(said: ClusterHealthResponse) -> CellHealth:
    health = ClusterHealth(
        is_serving=said.is_serving,
        reason=said.reason,
        stale_s=said.stale_ms / 1000,
        revision=Revision(said.header.revision if said.header is not None else 0),
        lag=said.lag,
        leader=said.leader,
        role=said.role,
        members=tuple(
            MemberHealth(
                member.name,
                member.address,
                member.version,
                is_leader=member.is_leader,
                revision=member.revision,
                size_bytes=member.size_bytes,
                error=member.error,
            )
            for member in said.members
        ),
        warnings=tuple(said.warnings),
    )
    return CellHealth(said.engine, health)
