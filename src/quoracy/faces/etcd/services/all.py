"""Every remote procedure of the etcd face, by its gRPC path."""

from __future__ import annotations

from quoracy.clock import Clock, SystemClock
from quoracy.faces.etcd.methods import Method
from quoracy.faces.etcd.services.auth import AuthService
from quoracy.faces.etcd.services.cluster import ClusterService
from quoracy.faces.etcd.services.concurrency import ElectionService, LockService
from quoracy.faces.etcd.services.extensions import (
    ClusterHealthService,
    HistoryService,
    QueueService,
)
from quoracy.faces.etcd.services.health import HealthService
from quoracy.faces.etcd.services.kv import KvService
from quoracy.faces.etcd.services.lease import LeaseService
from quoracy.faces.etcd.services.maintenance import MaintenanceService, Snapshot
from quoracy.faces.etcd.services.member import Headers, Identity, Standing
from quoracy.faces.etcd.services.watch import WATCHES_MAX, WatchService
from quoracy.store.api import Store
from quoracy.store.rules import Limits

__all__ = ["etcd_methods"]


def etcd_methods(
    store: Store,
    identity: Identity,
    *,
    limits: Limits | None = None,
    snapshot: Snapshot | None = None,
    clock: Clock | None = None,
    progress_notify_s: float = 600.0,
    watches_max: int = WATCHES_MAX,
) -> dict[str, Method]:
    """The procedures on a store.

    limits: those of the store; what the face answers with before the store is asked depends on them.
    snapshot: writes a backup to a path, such as `EmbeddedStore.backup`; without it, none is offered.
    progress_notify_s: how long a watch with progress_notify is silent before it says where it is.
    watches_max: the most watches on one stream.
    """
    limits = limits or Limits()
    headers = Headers(store, identity)
    standing = Standing(store, identity)
    methods = [
        *KvService(store, headers, limits, standing).methods(),
        *WatchService(
            store, headers, limits, progress_notify_s=progress_notify_s, watches_max=watches_max
        ).methods(),
        *LeaseService(store, headers, limits).methods(),
        *MaintenanceService(store, headers, identity, standing, snapshot=snapshot).methods(),
        *ClusterService(headers, identity, standing).methods(),
        *AuthService(headers).methods(),
        *LockService(store, headers).methods(),
        *ElectionService(store, headers).methods(),
        *HealthService(store, clock or SystemClock(), standing).methods(),
        *ClusterHealthService(store, headers, standing).methods(),
        *HistoryService(store, headers).methods(),
        *QueueService(store, headers).methods(),
    ]
    return {method.path: method for method in methods}
