"""What this server is to etcd's clients: a member of a cluster, with ids, a version, and a leader.

On its own it is the one member, and leads itself.  Some clients ask their member who leads, how far
behind it is, or to work on the data it keeps.  A node of a cell keeps none and takes no part in
elections; what it says instead is what its store knows already: nothing is asked for it.

What a node says
    * Its leader is itself while the member it talks to leads, so that of several nodes etcdctl shows
      those that are nearest to the leader; otherwise an id made from the leader's name, the same at
      every node; and 0, as in etcd, while there is no service.
    * Work on the members of the cluster (snapshots, defragmentation, alarms, membership) is for the
      cluster's own tools: a refusal names the addresses to use them with.
"""

from __future__ import annotations

import msgspec

from quoracy.store.api import Store
from quoracy.store.model import ClusterHealth
from quoracy.wire.etcd.rpc import ResponseHeader
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.protobuf.primitives import int64

__all__ = ["CLUSTER_VERSION", "ETCD_VERSION", "NO_LEADER", "STALE", "Headers", "Identity", "Standing"]

# The version of etcd whose protocol is spoken: clients decide by it what they may ask for.
ETCD_VERSION = "3.5.21"
# What every member of a cluster understands: its oldest minor version, always with patch level 0.
CLUSTER_VERSION = "3.5.0"

NO_LEADER = "etcdserver: no leader"
# Beside a serializable read that may not show the newest: for how many seconds that was not known.
STALE = b"quoracy-stale"

# Field 1, a message, in every response that has a header; of four varints, so one byte has its length.
_HEADER_TAG = b"\x0a"
_REVISION_TAG = b"\x18"


class Identity(msgspec.Struct, frozen=True):
    """Who this server is to etcd's clients.

    Clients compare `cluster_id` to notice that they were led to another cluster, and `member_id` to
    tell servers apart: both are made once for the data and then stay.  `raft_term` grows with each
    leader; a server that is its own and only leader has had one.
    """

    cluster_id: int
    member_id: int
    name: str = "default"
    client_urls: tuple[str, ...] = ()
    raft_term: int = 2


class Headers:
    """Makes headers: as messages, and as the bytes that an answer begins with."""

    __slots__ = (
        "_cluster_id",
        "_last",
        "_last_revision",
        "_member_id",
        "_raft_term",
        "_store",
        "_who",
        "_whose_term",
    )

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._cluster_id = identity.cluster_id
        self._member_id = identity.member_id
        self._raft_term = identity.raft_term
        who = ResponseHeader(cluster_id=identity.cluster_id, member_id=identity.member_id)
        self._who = who.encode()
        self._whose_term = ResponseHeader(raft_term=identity.raft_term).encode()
        self._last_revision = -1
        self._last = b""

    def at(self, revision: int) -> ResponseHeader:
        return ResponseHeader(
            cluster_id=self._cluster_id,
            member_id=self._member_id,
            revision=revision,
            raft_term=self._raft_term,
        )

    def encoded(self, revision: int) -> bytes:
        """The header as the first field of any answer, before what else that has.

        Only the revision is new, and for reads mostly not even that, so the rest is kept encoded.
        """
        if revision != self._last_revision:  # (which is never 0: that would not be written)
            header = self._who + _REVISION_TAG + int64(revision) + self._whose_term
            self._last = _HEADER_TAG + len(header).to_bytes(1, "big") + header
            self._last_revision = revision
        return self._last

    async def revision(self) -> int:
        """The store's revision now, by the cheapest read there is: one key that need not exist."""
        found = await self._store.range(b"\0", count_only=True, serializable=True)
        return found.revision

    async def now(self) -> ResponseHeader:
        return self.at(await self.revision())


class Standing:
    """Where this server stands: on a cluster, or on its own.  Then `health` is None."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._cluster = store.cluster
        self._identity = identity

    @property
    def health(self) -> ClusterHealth | None:
        return None if self._cluster is None else self._cluster.health()

    @property
    def leader_id(self) -> int:
        """Who leads, as an id; 0 for nobody."""
        health = self.health
        if health is None or (health.is_serving and health.role == "leader"):
            return self._identity.member_id
        if not health.is_serving:
            return 0
        import hashlib  # brings OpenSSL, which a server on its own can do without

        named = b"%d/%b" % (self._identity.cluster_id, health.leader.encode())
        # Neither 0 nor, but for an accident in 2**63, our own.
        return int.from_bytes(hashlib.sha256(named).digest()[:8], "big") | 1

    @property
    def complaints(self) -> list[str]:
        """What is wrong with the cluster, one sentence each."""
        health = self.health
        if health is None:
            return []
        wrong = [] if health.is_serving else [NO_LEADER, health.reason]
        return [*filter(None, wrong), *health.warnings]

    def refuse_if_on_cluster(self, what: str, command: str) -> None:
        """Raise what is said to a client that wants work done which is for the members."""
        health = self.health
        if health is None:
            return
        addresses = ",".join(member.address for member in health.members)
        where = f"etcdctl --endpoints={addresses}" if addresses else "etcdctl against the cluster"
        raise GrpcError(
            StatusCode.UNIMPLEMENTED,
            f"{what} is for the members of the cluster that this node stands on: use {where} {command}",
        )

    def stale_metadata(self) -> tuple[tuple[bytes, bytes], ...]:
        """What goes beside a read that is stale."""
        health = self.health
        stale_s = 0.0 if health is None else health.stale_s
        return ((STALE, b"%.3f" % stale_s),)
