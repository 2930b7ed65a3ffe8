"""What surrounds a connection: its peer, and the server that it shares with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from quoracy.clock import Clock
from quoracy.faces.zookeeper.admin.stats import ServerStats
from quoracy.faces.zookeeper.serving.read_only import ReadOnlySessions
from quoracy.faces.zookeeper.serving.sessions import Sessions
from quoracy.faces.zookeeper.serving.throttle import Throttle
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.reads import Reads
from quoracy.faces.zookeeper.tree.replica import Replica

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.serving.connection import Connection

__all__ = ["Peer", "Surroundings"]


class Peer(Protocol):
    """The socket, as a connection uses it."""

    def send(self, data: bytes) -> None: ...

    def descriptor(self) -> int:
        """For another thread to send something that must not be split: negative if that cannot be now.

        It is good until the connection has been told that it is `lost`.
        """
        ...

    def close(self) -> None:
        """Hang up once what was sent has gone out."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Surroundings(Protocol):
    """What all connections of a server share."""

    @property
    def running(self) -> bool: ...

    @property
    def settings(self) -> ZooKeeperSettings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def replica(self) -> Replica: ...

    @property
    def reads(self) -> Reads: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def read_only(self) -> ReadOnlySessions | None:
        """Who has the sessions while nothing can be written; None while `sessions` has."""
        ...

    @property
    def stats(self) -> ServerStats: ...

    @property
    def throttle(self) -> Throttle: ...

    def answer_word(self, word: bytes, rest: bytes, connection: Connection) -> None:
        """Find the answer to a four-letter word and have the connection `say` it."""
        ...

    def flush_soon(self, connection: Connection) -> None:
        """Call its `flush` when whatever is going on now is done."""
        ...

    def go_on_soon(self, connection: Connection) -> None:
        """Call its `go_on` when the others have had their turn."""
        ...
