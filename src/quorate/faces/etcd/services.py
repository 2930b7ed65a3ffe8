"""Every remote procedure of the etcd face, by its gRPC path."""

from __future__ import annotations

from quorate.clock import Clock, SystemClock
from quorate.faces.etcd.auth import AuthService
from quorate.faces.etcd.cell import CellService
from quorate.faces.etcd.cluster import ClusterService
from quorate.faces.etcd.election import ElectionService
from quorate.faces.etcd.header import Headers, Identity
from quorate.faces.etcd.health import HealthService
from quorate.faces.etcd.history import HistoryService
from quorate.faces.etcd.kv import KvService
from quorate.faces.etcd.lease import LeaseService
from quorate.faces.etcd.lock import LockService
from quorate.faces.etcd.maintenance import MaintenanceService, Snapshot
from quorate.faces.etcd.methods import Method
from quorate.faces.etcd.queue import QueueService
from quorate.faces.etcd.standing import Standing
from quorate.faces.etcd.watch import WATCHES_MAX, WatchService
from quorate.store.api import KnowsTimes, Store
from quorate.store.rules import Limits

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
        *CellService(store, headers, standing).methods(),
        *QueueService(store, headers).methods(),
    ]
    if isinstance(store, KnowsTimes):
        methods += HistoryService(store, headers).methods()
    return {method.path: method for method in methods}
