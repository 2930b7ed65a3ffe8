"""Where this server stands: alone and its own leader, or a node on a cluster that has one.

To etcd's clients a server is a member, and some ask it who leads, how far behind it is, or to work on
the data it keeps.  A node of a cell keeps none and takes no part in elections; here is what it says
instead, all of it from what its store knows already: nobody is asked.

What a node says
    * Its leader is itself while the member it talks to leads, so that of several nodes etcdctl shows
      those that are nearest to the leader; otherwise an id made from the leader's name, the same at
      every node; and 0, as in etcd, while there is no service.
    * Work on the members of the cluster (snapshots, defragmentation, alarms, membership) is for the
      cluster's own tools: a refusal names the addresses to use them with.
"""

from __future__ import annotations

from quoracy.faces.etcd.services.header import Identity
from quoracy.store.api import Store
from quoracy.store.legacy import OnCluster
from quoracy.store.model import ClusterHealth
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["NO_LEADER", "STALE", "Standing"]

NO_LEADER = "etcdserver: no leader"
# Beside a serializable read that may not show the newest: for how many seconds that was not known.
STALE = b"quoracy-stale"


class Standing:
    """Alone if the store stands on no cluster: then `health` is None."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._cluster = store if isinstance(store, OnCluster) else None
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
