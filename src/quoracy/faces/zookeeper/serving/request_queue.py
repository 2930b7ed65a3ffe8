"""Requests of a connection that are not answered yet: received and pending ones, and their bounds.

    bytes -> ReceiveQueue -> frames -> PendingRequest -> answered in order

Of a peer at most one frame of jute.maxbuffer is kept in part.  Of whole frames that have to wait, once
there are `KEPT_BYTES_MAX`, the peer is not read from until half of that is taken; what was read by then
is kept as well.

What is pending is bounded for all connections of a server together (`Throttle`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from quoracy.faces.zookeeper.admin.stats import ConnectionStats
from quoracy.faces.zookeeper.writing.in_flight import OnOutcome, Outcome
from quoracy.store.completion import Reply
from quoracy.wire.zookeeper.jute import FrameSplitter
from quoracy.wire.zookeeper.requests import Request

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.serving.connection import Connection

__all__ = [
    "KEPT_BYTES_MAX",
    "OUTSTANDING_BYTES_MAX",
    "Peer",
    "PendingRequest",
    "ReceiveQueue",
    "Throttle",
]

# Enough for the pings of hours: a client that waits is heard to be alive.
KEPT_BYTES_MAX: Final = 64 * 1024
# ZooKeeper counts requests only (and large ones in bytes, where that is set up).  A request may be a
# megabyte long, so here the bytes of all of them are counted as well.
OUTSTANDING_BYTES_MAX = 64 << 20


class Peer(Protocol):
    """The socket, as a connection uses it."""

    def send(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Hang up once what was sent has gone out."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class PendingRequest(OnOutcome):
    """A request that waits to be answered."""

    __slots__ = (
        "connection",
        "is_pending",
        "op",
        "outcome",
        "ready_reply",
        "request",
        "size",
        "started",
        "xid",
    )

    def __init__(
        self,
        connection: Connection,
        xid: int,
        op: int,
        request: Request | None,
        size: int,
        started: float,
    ) -> None:
        self.connection = connection
        self.xid, self.op, self.request = xid, op, request
        self.size, self.started = size, started
        self.is_pending = False  # submitted, and not settled yet
        self.outcome: Outcome | None = None
        self.ready_reply: Reply | None = None  # that another thread may send, or has sent

    def reply(self, zxid: int, body: bytes) -> Reply | None:
        return self.connection.reply_ahead(self, zxid, body)

    def settled(self, outcome: Outcome | None) -> None:
        self.is_pending = False
        self.outcome = outcome
        self.connection.settled(self)


class ReceiveQueue:
    """Frames in their order.  A connection that keeps some has seen to it that they are taken later."""

    __slots__ = ("_can_read", "_kept_bytes", "_peer", "_stats", "kept", "split")

    def __init__(self, peer: Peer, stats: ConnectionStats, frame_bytes_max: int) -> None:
        self._peer, self._stats = peer, stats
        self.split = FrameSplitter(frame_bytes_max).feed  # the frames that these bytes complete
        self.kept: list[bytes] = []
        self._kept_bytes = 0
        self._can_read = True

    def keep(self, frames: list[bytes]) -> None:
        self.kept += frames
        self._kept_bytes += sum(map(len, frames))
        if self._can_read and self._kept_bytes > KEPT_BYTES_MAX:
            self._can_read = self._stats.reading = False
            self._peer.pause_reading()

    def taken(self, count: int) -> None:
        """The first `count` of those that were kept are not needed any more."""
        kept = self.kept
        self._kept_bytes -= sum(map(len, kept[:count]))
        del kept[:count]
        if not self._can_read and self._kept_bytes <= KEPT_BYTES_MAX // 2:
            self._can_read = self._stats.reading = True
            self._peer.resume_reading()


class Throttle:
    """What all connections of a server may have pending: globalOutstandingLimit.

    While too much is pending, a connection takes a request only if it has none pending itself; so it
    goes on, one by one, as its own are answered.  A server under load makes all clients slower and
    starves none, as ZooKeeper does.  Connections count in place.
    """

    __slots__ = ("bytes_max", "count", "count_max", "size")

    def __init__(self, count_max: int, bytes_max: int = OUTSTANDING_BYTES_MAX) -> None:
        self.count_max, self.bytes_max = count_max, bytes_max
        self.count = self.size = 0

    @property
    def is_full(self) -> bool:
        return self.count > self.count_max or self.size > self.bytes_max
