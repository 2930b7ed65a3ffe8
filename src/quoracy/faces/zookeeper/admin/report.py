"""What a server knows of itself, under the names ZooKeeper has for it.

The four-letter words write these as text and the admin commands as JSON.  Of ZooKeeper's 500 metrics
those are here that mean something here too; what only a Java server or an ensemble has (snapshots,
proposals, garbage collection) is left out rather than shown as 0.

Invariants
    * No name is made up: every key is one that ZooKeeper 3.8 has as well, apart from `python.version`
      and, on a cluster, those that begin with `quoracy_`.
    * What is said of the cluster is what the store knows: nothing is asked over the network.
    * No name is looked up: addresses are shown as they are, never as what DNS calls them.
"""

from __future__ import annotations

import asyncio
import getpass
import math
import os
import platform
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from quoracy.clock import Clock
from quoracy.errors import LeaseNotFound, QuoracyError
from quoracy.faces.zookeeper.admin.stats import ConnectionStats, Latency, ServerStats
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.store.api import Store
from quoracy.store.model import ClusterHealth, LeaseId
from quoracy.wire.zookeeper.codes import Op

__all__ = [
    "FULL_VERSION",
    "ZOOKEEPER_VERSION",
    "Figure",
    "ServerView",
    "SessionView",
    "TreeView",
    "WatchesView",
    "data_size",
    "environment",
    "hex64",
    "last_operation",
    "mode",
    "monitor",
    "properties",
    "session_deadlines_ms",
    "zoo_cfg",
]

# The version whose protocol this face speaks: clients and monitors ask for it.
ZOOKEEPER_VERSION: Final = "3.8.4"
# Tools read the digits before the hyphen; after it ZooKeeper has its commit and its day of birth.
FULL_VERSION: Final = f"{ZOOKEEPER_VERSION}-quoracy, built on Python {platform.python_version()}"

Figure: TypeAlias = str | int | float

STATUS_S_MAX = 5.0
# Leases that are asked about at a time: a store far away would take long one by one.
_LEASES_AT_ONCE = 100
_PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p999": 0.999}

# FinalRequestProcessor has these names for what a connection did last; whatever has none is NA.
_OPERATIONS: Mapping[int, str] = {
    Op.CREATE_SESSION: "SESS",
    Op.CLOSE_SESSION: "CLOS",
    Op.PING: "PING",
    Op.CREATE: "CREA",
    Op.CREATE2: "CREA",
    Op.CREATE_CONTAINER: "CREA",
    Op.CREATE_TTL: "CREA",
    Op.DELETE: "DELE",
    Op.EXISTS: "EXIS",
    Op.GET_DATA: "GETD",
    Op.SET_DATA: "SETD",
    Op.GET_ACL: "GETA",
    Op.SET_ACL: "SETA",
    Op.GET_CHILDREN: "GETC",
    Op.GET_CHILDREN2: "GETC",
    Op.GET_ALL_CHILDREN_NUMBER: "GETACN",
    Op.GET_EPHEMERALS: "GETE",
    Op.SYNC: "SYNC",
    Op.CHECK: "CHEC",
    Op.MULTI: "MULT",
    Op.MULTI_READ: "MLTR",
    Op.RECONFIG: "RECO",
    Op.SET_WATCHES: "SETW",
    Op.SET_WATCHES2: "STW2",
    Op.ADD_WATCH: "ADDW",
    Op.CHECK_WATCHES: "CHKW",
    Op.REMOVE_WATCHES: "REMW",
    Op.WHO_AM_I: "HOMI",
}


# -- the server, as the four-letter words and the admin commands see it


class SessionView(Protocol):
    @property
    def ephemerals(self) -> Collection[bytes]: ...


class TreeView(Protocol):
    @property
    def zxid(self) -> int: ...

    @property
    def nodes(self) -> Mapping[bytes, object]:
        """By path."""
        ...

    @property
    def data_bytes(self) -> int:
        """What the data of all of them take."""
        ...

    @property
    def sessions(self) -> Mapping[int, SessionView]: ...


class WatchesView(Protocol):
    @property
    def count(self) -> int:
        """All watches there are: a watcher that has two kinds on a path counts twice."""
        ...

    def by_path(self) -> Iterable[tuple[bytes, Iterable[int]]]:
        """Each watched path, with the sessions that watch it."""
        ...

    def by_session(self) -> Iterable[tuple[int, Iterable[bytes]]]:
        """Each watching session, with the paths it watches."""
        ...


class ServerView(Protocol):
    """One server, as the four-letter words and the admin commands see it."""

    @property
    def running(self) -> bool:
        """Whether requests are served: the tree is there and follows the store."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written, and only clients that accept that are served."""
        ...

    @property
    def health(self) -> ClusterHealth | None:
        """Of the cluster the store stands on, if it does."""
        ...

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settings(self) -> ZooKeeperSettings: ...

    @property
    def stats(self) -> ServerStats:
        """Its `connections` are those that are open now."""
        ...

    @property
    def tree(self) -> TreeView: ...

    @property
    def watches(self) -> WatchesView: ...

    @property
    def client_port(self) -> int:
        """-1 if there is none."""
        ...

    @property
    def secure_client_port(self) -> int:
        """-1 if there is none."""
        ...


def last_operation(connection: ConnectionStats) -> str:
    return "NA" if connection.last_op is None else _OPERATIONS.get(connection.last_op, "NA")


def hex64(number: int) -> str:
    """As Java writes a long, which may be below zero."""
    return f"0x{number & 0xFFFF_FFFF_FFFF_FFFF:x}"


def mode(view: ServerView) -> str:
    """What ZooKeeper calls the state of a server."""
    health = view.health
    if health is None:
        return "standalone"
    if view.is_read_only:
        return "read-only"
    return {"leader": "leader", "learner": "observer"}.get(health.role, "follower")


# -- mntr


def monitor(view: ServerView) -> dict[str, Figure]:
    """Everything `mntr` shows, without its `zk_`."""
    stats, tree = view.stats, view.tree
    figures: dict[str, Figure] = {
        "version": FULL_VERSION,
        "server_state": mode(view),
        "ephemerals_count": sum(len(each.ephemerals) for each in tree.sessions.values()),
        "num_alive_connections": len(stats.connections),
        "avg_latency": stats.latency_avg_ms,
        "outstanding_requests": stats.outstanding,
        "znode_count": len(tree.nodes),
        "global_sessions": len(tree.sessions),
        "non_mtls_remote_conn_count": 0,
        "last_client_response_size": stats.last_response_bytes,
        "packets_sent": stats.packets_sent,
        "packets_received": stats.packets_received,
        "max_client_response_size": stats.max_response_bytes,
        "connection_drop_probability": 0.0,
        "watch_count": view.watches.count,
        "auth_failed_count": stats.auth_failed_count,
        "min_latency": stats.latency_min_ms,
        **_file_descriptors(),
        "approximate_data_size": tree.data_bytes + sum(map(len, tree.nodes)),
        "local_sessions": 0,
        "uptime": stats.uptime_ms(view.clock.now()),
        "max_latency": stats.latency_max_ms,
        "min_client_response_size": stats.min_response_bytes,
        "non_mtls_local_conn_count": 0,
        "bytes_received_count": stats.bytes_received_count,
        "response_bytes": stats.response_bytes,
        "connection_request_count": stats.connection_request_count,
        "connection_revalidate_count": stats.connection_revalidate_count,
        "connection_rejected": stats.connection_rejected,
        "large_requests_rejected": stats.large_requests_rejected,
        "request_throttle_wait_count": stats.request_throttle_wait_count,
        "sessionless_connections_expired": stats.sessionless_connections_expired,
        "unrecoverable_error_count": stats.unrecoverable_error_count,
    }
    figures |= _latency("readlatency", stats.read_latency)
    figures |= _latency("updatelatency", stats.update_latency)
    if view.health is not None:
        figures |= _cluster(view, view.health)
    return figures


def _cluster(view: ServerView, health: ClusterHealth) -> dict[str, Figure]:
    state = mode(view)
    figures: dict[str, Figure] = {}
    if not view.is_read_only:
        doing = {"leader": "leading", "observer": "observing"}.get(state, "following")
        figures["peer_state"] = f"{doing} - broadcast"
        figures["quorum_size"] = len(health.members)
    if state == "leader":
        figures["synced_followers"] = sum(
            1 for member in health.members if not member.is_leader and not member.error
        )
    figures["quoracy_serving"] = int(health.is_serving)
    figures["quoracy_lag"] = health.lag
    figures["quoracy_stale_ms"] = int(1000 * health.stale_s)
    figures["quoracy_revision"] = health.revision
    return figures


def _latency(name: str, latency: Latency) -> dict[str, Figure]:
    shortest_s = 0.0 if latency.shortest_s == math.inf else latency.shortest_s
    figures: dict[str, Figure] = {
        f"avg_{name}": round(1000 * latency.total_s / latency.count, 4) if latency.count else 0.0,
        f"min_{name}": int(1000 * shortest_s),
        f"max_{name}": int(1000 * latency.longest_s),
        f"cnt_{name}": latency.count,
        f"sum_{name}": int(1000 * latency.total_s),
    }
    of_recent = latency.percentiles_ms(list(_PERCENTILES.values()))
    figures |= {f"{p}_{name}": value for p, value in zip(_PERCENTILES, of_recent, strict=True)}
    return figures


def _file_descriptors() -> dict[str, Figure]:
    """Nothing where the system does not tell."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return {
            "max_file_descriptor_count": most,
            "open_file_descriptor_count": len(os.listdir("/dev/fd")),
        }
    except (ImportError, OSError):
        return {}


# -- the surroundings


def environment() -> dict[str, str]:
    return {"zookeeper.version": FULL_VERSION, "host.name": socket.gethostname(), **properties()}


def properties() -> dict[str, str]:
    """What a Java server would have from its machine, as far as there is such a thing here."""
    import tempfile  # which takes half a megabyte, and few ask

    system = os.uname() if hasattr(os, "uname") else None
    return {
        "python.version": platform.python_version(),
        "java.io.tmpdir": tempfile.gettempdir(),
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": system.release if system is not None else platform.release(),
        "user.name": _told(getpass.getuser),
        "user.home": _told(Path.home),
        "user.dir": _told(Path.cwd),
    }


def _told(ask: Callable[[], object]) -> str:
    """A container may run as a number that has no name, and a directory may be gone."""
    try:
        return str(ask())
    except (KeyError, OSError, RuntimeError):
        return "?"


def zoo_cfg(view: ServerView) -> str:
    """The settings, as zoo.cfg would have them, without the super user's digest."""
    settings = view.settings
    lines = {
        "tickTime": settings.tick_time,
        "minSessionTimeout": settings.session_timeout_min,
        "maxSessionTimeout": settings.session_timeout_max,
        "maxClientCnxns": settings.max_client_cnxns,
        "maxCnxns": settings.max_cnxns,
        "jute.maxbuffer": settings.jute_maxbuffer,
        "globalOutstandingLimit": settings.global_outstanding_limit,
        "4lw.commands.whitelist": ",".join(sorted(settings.commands_whitelist)),
        "znode.container.checkIntervalMs": settings.container_check_interval,
        "znode.container.maxPerMinute": settings.container_max_per_minute,
        "znode.container.maxNeverUsedIntervalMs": settings.container_max_never_used,
        "extendedTypesEnabled": "true" if settings.extended_types_enabled else "false",
        "skipACL": "yes" if settings.skip_acl else "no",
        "clientPort": view.client_port,
        "secureClientPort": view.secure_client_port,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


# -- what only the store knows


async def data_size(view: ServerView) -> tuple[str, int]:
    """What keeps the data, and how many bytes they take; -1 when the store cannot say."""
    try:
        async with asyncio.timeout(STATUS_S_MAX):
            status = await view.store.status()
    except (TimeoutError, QuoracyError):
        return "?", -1
    return status.engine, status.size_bytes


async def session_deadlines_ms(view: ServerView) -> dict[int, list[int]]:
    """Sessions by when they end unless they are heard of, rounded up to the tick, earliest first.

    The times are those of the server's clock, which has nothing to do with the one on the wall.
    """
    sessions = list(view.tree.sessions)
    left_s: dict[int, float] = {}
    try:
        async with asyncio.timeout(STATUS_S_MAX):
            for begin in range(0, len(sessions), _LEASES_AT_ONCE):
                some = sessions[begin : begin + _LEASES_AT_ONCE]
                for session, seconds in zip(
                    some, await asyncio.gather(*(_left_s(view, each) for each in some)), strict=True
                ):
                    if seconds is not None:
                        left_s[session] = seconds
    except (TimeoutError, QuoracyError):
        pass  # those that are known by now are what there is to show
    now_ms, tick = int(1000 * view.clock.now()), view.settings.tick_time
    deadlines: dict[int, list[int]] = {}
    for session, seconds in sorted(left_s.items(), key=lambda item: item[1]):
        deadline_ms = ((now_ms + int(1000 * seconds)) // tick + 1) * tick
        deadlines.setdefault(deadline_ms, []).append(session)
    return deadlines


async def _left_s(view: ServerView, session: int) -> float | None:
    try:
        status = await view.store.time_to_live(LeaseId(session))
    except LeaseNotFound:
        return None  # it ended just now
    return status.remaining_s
