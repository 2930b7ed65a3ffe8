"""What those who ask a server about itself may look at: the four-letter words and the admin commands.

`ServerView` is the face as they see it.  They change nothing in it but counters (`srst`, `crst`), and
take nothing of it away: a real face satisfies it by having these attributes, a test by setting them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from quoracy.clock import Clock
from quoracy.faces.zookeeper.admin.stats import ServerStats
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.store.api import Store
from quoracy.store.model import ClusterHealth

__all__ = ["ServerView", "SessionView", "TreeView", "WatchesView"]


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
    """One server, as those see it who ask about it."""

    @property
    def running(self) -> bool:
        """Whether requests are served: the tree is there and follows the store."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written, and only those are served who asked for that."""
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
