"""Who is alive, without anybody to ask: SWIM with Lifeguard, gossip, and what is built on them.

    async with membership.join(bind="0.0.0.0:7946", seeds=["10.0.0.1"], meta={"zone": "a"}) as cluster:
        print([member.name for member in cluster.members])
        async for event in cluster.events():
            print(event)

The cores (`swim`, `gossip`, `detectors`, `elections`) are machines without input or output; the runtime
and the simulator drive the very same ones.  What is offered here is imported when it is first used, so
that whoever takes a core alone loads no sockets and no cryptography.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from quoracy.membership.gossip.model import StateChanged as StateChanged
    from quoracy.membership.gossip.settings import GossipSettings as GossipSettings
    from quoracy.membership.model import Conflict as Conflict
    from quoracy.membership.model import MemberChangeKind as MemberChangeKind
    from quoracy.membership.model import MemberState as MemberState
    from quoracy.membership.runtime.cluster import Cluster as Cluster
    from quoracy.membership.runtime.cluster import ClusterStatistics as ClusterStatistics
    from quoracy.membership.runtime.events import Changed as Changed
    from quoracy.membership.runtime.events import ClusterEvent as ClusterEvent
    from quoracy.membership.runtime.events import ClusterState as ClusterState
    from quoracy.membership.runtime.events import Health as Health
    from quoracy.membership.runtime.events import HealthChange as HealthChange
    from quoracy.membership.runtime.events import Received as Received
    from quoracy.membership.runtime.events import Snapshot as Snapshot
    from quoracy.membership.runtime.events import StateMissed as StateMissed
    from quoracy.membership.runtime.join import join as join
    from quoracy.membership.runtime.keyring import KeyRing as KeyRing
    from quoracy.membership.runtime.keyring import generate_key as generate_key
    from quoracy.membership.runtime.member_view import MemberView as MemberView
    from quoracy.membership.settings import SwimSettings as SwimSettings

_HOMES = {
    "Changed": "runtime.events",
    "Cluster": "runtime.cluster",
    "ClusterEvent": "runtime.events",
    "ClusterState": "runtime.events",
    "ClusterStatistics": "runtime.cluster",
    "Conflict": "model",
    "GossipSettings": "gossip.settings",
    "Health": "runtime.events",
    "HealthChange": "runtime.events",
    "KeyRing": "runtime.keyring",
    "MemberChangeKind": "model",
    "MemberState": "model",
    "MemberView": "runtime.member_view",
    "Received": "runtime.events",
    "Snapshot": "runtime.events",
    "StateChanged": "gossip.model",
    "StateMissed": "runtime.events",
    "SwimSettings": "settings",
    "generate_key": "runtime.keyring",
    "join": "runtime.join",
}

__all__ = [
    "Changed",
    "Cluster",
    "ClusterEvent",
    "ClusterState",
    "ClusterStatistics",
    "Conflict",
    "GossipSettings",
    "Health",
    "HealthChange",
    "KeyRing",
    "MemberChangeKind",
    "MemberState",
    "MemberView",
    "Received",
    "Snapshot",
    "StateChanged",
    "StateMissed",
    "SwimSettings",
    "generate_key",
    "join",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
