"""A server to ask about, without sockets: real counters, watches and store, and a tree made by hand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from quoracy.clock import ManualClock
from quoracy.faces.zookeeper.admin.report import WatchesView
from quoracy.faces.zookeeper.admin.stats import ConnectionStats, ServerStats
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.watches import WatchKind, WatchTable
from quoracy.store.api import Store
from quoracy.store.model import ClusterHealth
from quoracy.wire.zookeeper.codes import Op
from quoracy.wire.zookeeper.requests import Acl

__all__ = ["SESSION", "FixedSession", "FixedTree", "FixedView", "Onlooker", "busy_view"]

SESSION = 0x1000153652B0000
ALL = ZooKeeperSettings(commands_whitelist=frozenset({"*"}))


@dataclass
class FixedSession:
    ephemerals: Collection[bytes] = ()


@dataclass
class FixedTree:
    zxid: int = 4
    nodes: dict[bytes, object] = field(default_factory=lambda: {b"/": None})
    data_bytes: int = 0
    sessions: dict[int, FixedSession] = field(default_factory=dict)

    def get(self, _: bytes) -> None:
        return None


class Onlooker:
    """A watcher that only has to be there."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id

    def event(self, frame: bytes, acl: tuple[Acl, ...]) -> None:
        raise AssertionError("nothing was fired")


@dataclass
class FixedView:
    store: Store
    clock: ManualClock
    settings: ZooKeeperSettings = ALL
    running: bool = True
    is_read_only: bool = False
    health: ClusterHealth | None = None
    tree: FixedTree = field(default_factory=FixedTree)
    client_port: int = 2181
    secure_client_port: int = -1
    stats: ServerStats = field(init=False)
    table: WatchTable = field(init=False)

    def __post_init__(self) -> None:
        self.stats = ServerStats(now=self.clock.now())
        self.table = WatchTable(self.tree)

    @property
    def watches(self) -> WatchesView:
        return self.table

    def connect(self, port: int = 51772, host: str = "127.0.0.1", **options: bool) -> ConnectionStats:
        now, wall = self.clock.now(), self.clock.wall()
        return self.stats.connected(host, port, now=now, wall=wall, **options)


async def busy_view(store: Store, clock: ManualClock) -> FixedView:
    """One client with a session, two ephemerals and three watches, which did three things."""
    view = FixedView(store, clock)
    await store.grant(10.0, id=SESSION)  # type: ignore[arg-type]
    view.tree.nodes = dict.fromkeys((b"/", b"/a", b"/b", b"/b/c", b"/zookeeper"))
    view.tree.data_bytes = 3
    view.tree.sessions = {SESSION: FixedSession({b"/a", b"/b/c"})}
    client = Onlooker(SESSION)
    view.table.add(b"/a", client, WatchKind.DATA)
    view.table.add(b"/b", client, WatchKind.DATA)
    view.table.add(b"/b", client, WatchKind.CHILD)
    stats = view.connect()
    stats.session_id, stats.timeout_ms = SESSION, 10_000
    clock.jump(1.0)
    for xid, (op, took_s, wrote) in enumerate(
        [(Op.CREATE2, 0.009, True), (Op.GET_DATA, 0.001, False), (Op.EXISTS, 0.0015, False)], 1
    ):
        stats.received(1, 40)
        stats.answered(op, xid, 4, 80 + xid, clock.now(), clock.now() + took_s, wrote)
    return view
