"""Cluster membership without a central service: SWIM with Lifeguard, gossip, detectors and elections.

    async with membership.join(bind="0.0.0.0:7946", seeds=["10.0.0.1"], meta={"zone": "a"}) as cluster:
        print([member.name for member in cluster.members])
        async for event in cluster.events():
            print(event)

The cores (`swim`, `gossip`, `detectors`, `elections`) are machines without input or output; the runtime
and the simulator drive the same ones.  Names are imported from here on first use, so that a program
that uses one core loads neither sockets nor cryptography.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from quoracy.membership.gossip import GossipSettings, StateChanged
    from quoracy.membership.model import Conflict, MemberChangeKind, MemberState
    from quoracy.membership.runtime.cluster import Cluster, ClusterStatistics
    from quoracy.membership.runtime.events import (
        Changed,
        ClusterEvent,
        ClusterState,
        Health,
        HealthChange,
        Received,
        Snapshot,
        StateMissed,
    )
    from quoracy.membership.runtime.join import join
    from quoracy.membership.runtime.keyring import KeyRing, generate_key
    from quoracy.membership.runtime.member_view import MemberView
    from quoracy.membership.settings import SwimSettings

_MODULES = {
    "gossip": ("GossipSettings", "StateChanged"),
    "model": ("Conflict", "MemberChangeKind", "MemberState"),
    "runtime.cluster": ("Cluster", "ClusterStatistics"),
    "runtime.events": (
        "Changed", "ClusterEvent", "ClusterState", "Health", "HealthChange", "Received", "Snapshot",
        "StateMissed",
    ),
    "runtime.join": ("join",),
    "runtime.keyring": ("KeyRing", "generate_key"),
    "runtime.member_view": ("MemberView",),
    "settings": ("SwimSettings",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Changed", "Cluster", "ClusterEvent", "ClusterState", "ClusterStatistics", "Conflict",
    "GossipSettings", "Health", "HealthChange", "KeyRing", "MemberChangeKind", "MemberState",
    "MemberView", "Received", "Snapshot", "StateChanged", "StateMissed", "SwimSettings", "generate_key",
    "join",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
