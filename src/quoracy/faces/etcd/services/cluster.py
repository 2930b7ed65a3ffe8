"""etcd's Cluster service: a cluster of one, which is what this server is to etcd's clients.

That is so on a cell too: a client that learns of members connects to them, but the keys under the
cell's prefix have their own names at nodes only.  A node does not know of the other nodes; clients are
configured with all their addresses.

Differs from etcd: members are not added, removed or moved by clients.  What etcd refuses in a cluster
of one is refused with its words; what it would do is unimplemented, with a text that says what to do.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from quoracy.faces.etcd.methods import Method, awaited
from quoracy.faces.etcd.services.member import Headers, Identity, Standing
from quoracy.wire.etcd.maintenance import (
    Member,
    MemberAddRequest,
    MemberAddResponse,
    MemberListRequest,
    MemberListResponse,
    MemberPromoteRequest,
    MemberPromoteResponse,
    MemberRemoveRequest,
    MemberRemoveResponse,
    MemberUpdateRequest,
    MemberUpdateResponse,
)
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["ClusterService"]

_URL_SCHEMES = ("http", "https", "unix", "unixs")


class ClusterService:
    def __init__(self, headers: Headers, identity: Identity, standing: Standing) -> None:
        self._headers = headers
        self._identity = identity
        self._standing = standing

    def methods(self) -> list[Method]:
        service, route = "/etcdserverpb.Cluster/Member", "/v3/cluster/member/"
        return [
            awaited(service + "Add", MemberAddRequest, MemberAddResponse, self.add, (route + "add",)),
            awaited(
                service + "Remove",
                MemberRemoveRequest,
                MemberRemoveResponse,
                self.remove,
                (route + "remove",),
            ),
            awaited(
                service + "Update",
                MemberUpdateRequest,
                MemberUpdateResponse,
                self.update,
                (route + "update",),
            ),
            awaited(
                service + "List", MemberListRequest, MemberListResponse, self.list, (route + "list",)
            ),
            awaited(
                service + "Promote",
                MemberPromoteRequest,
                MemberPromoteResponse,
                self.promote,
                (route + "promote",),
            ),
        ]

    async def list(self, _: MemberListRequest) -> MemberListResponse:
        identity = self._identity
        member = Member(
            ID=identity.member_id,
            name=identity.name,
            # There are no peers; clients that want an address here (etcdctl's tables) get the one.
            peerURLs=identity.client_urls,
            clientURLs=identity.client_urls,
        )
        # As etcd's, this header has no revision.
        return MemberListResponse(header=self._headers.at(0), members=[member])

    async def add(self, request: MemberAddRequest) -> MemberAddResponse:
        if not request.peerURLs or not all(map(_is_peer_url, request.peerURLs)):
            raise GrpcError(StatusCode.INVALID_ARGUMENT, "etcdserver: given member URLs are invalid")
        self._refuse_if_on_cluster("adding a member", "add")
        raise _fixed_membership()

    async def remove(self, request: MemberRemoveRequest) -> MemberRemoveResponse:
        self._check_member(request.ID)
        self._refuse_if_on_cluster("removing a member", "remove")
        # The code is what etcd answers with too, though its own table has another for this text.
        raise GrpcError(
            StatusCode.UNKNOWN,
            "etcdserver: re-configuration failed due to not enough started members",
        )

    async def update(self, request: MemberUpdateRequest) -> MemberUpdateResponse:
        self._check_member(request.ID)
        self._refuse_if_on_cluster("changing a member", "update")
        raise _fixed_membership()

    async def promote(self, request: MemberPromoteRequest) -> MemberPromoteResponse:
        self._check_member(request.ID)
        self._refuse_if_on_cluster("promoting a member", "promote")
        raise GrpcError(StatusCode.FAILED_PRECONDITION, "etcdserver: can only promote a learner member")

    def _refuse_if_on_cluster(self, what: str, verb: str) -> None:
        self._standing.refuse_if_on_cluster(what, f"member {verb}")

    def _check_member(self, id: int) -> None:
        if id != self._identity.member_id:
            raise GrpcError(StatusCode.NOT_FOUND, "etcdserver: member not found")


def _fixed_membership() -> GrpcError:
    return GrpcError(
        StatusCode.UNIMPLEMENTED,
        "this server is a cluster of one and has no peers. For several machines, run Quoracy on an "
        "etcd cluster and change the members there.",
    )


def _is_peer_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        has_port = url.port is not None
    except ValueError:
        return False
    if url.scheme not in _URL_SCHEMES or not url.netloc or url.path:
        return False
    return has_port or url.scheme.startswith("unix")
