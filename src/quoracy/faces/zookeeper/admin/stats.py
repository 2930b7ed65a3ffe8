"""Counters: what the server and each of its connections did, for `srvr`, `mntr`, `cons` and the like.

How a connection uses it
    server = ServerStats(now=clock.now())                    # one per server
    stats = server.connected("10.0.0.7", 51772, now=..., wall=...)   # one per accepted connection
    stats.received(len(frames), len(data))                   # once per batch of input, whole requests
    stats.answered(op, xid, zxid, len(reply), started, now, wrote)   # once per reply
    stats.notified(len(frame))                               # once per watch event
    stats.session_id, stats.timeout_ms = ...                 # when the session is known
    server.disconnected(stats)                               # once, when the connection is gone

    `started` and `now` are readings of `Clock.now()`, in seconds; one reading may serve a whole batch.
    Rare things have no method: count them in place, as in `server.auth_failed_count += 1`.

Invariants
    * One call per reply, a fixed number of additions in it, nothing allocated: it is on the hot path.
      What follows from the numbers is computed when it is asked for.
    * Memory is bounded: a server keeps the newest `_RECENT_MAX` latencies of reads and of writes for
      its percentiles, and no trace of a connection that is gone.
    * Latencies are kept in seconds and shown in whole milliseconds, as ZooKeeper shows them.
"""

from __future__ import annotations

import ipaddress
import math
from array import array
from collections.abc import Sequence

__all__ = ["ConnectionStats", "Latency", "ServerStats", "java_host"]

_RECENT_MAX = 4096  # a power of two
_RECENT_MASK = _RECENT_MAX - 1


class Latency:
    """How long answers took: least, most, sum, and the newest ones for percentiles."""

    __slots__ = ("_recent", "count", "longest_s", "shortest_s", "total_s")

    def __init__(self) -> None:
        # No list: its floats would lie all over memory, each in the way of what is around it.
        self._recent = array("d", bytes(8 * _RECENT_MAX))
        self.reset()

    def reset(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.shortest_s = math.inf
        self.longest_s = 0.0

    def add(self, elapsed_s: float) -> None:
        self._recent[self.count & _RECENT_MASK] = elapsed_s
        self.count += 1
        self.total_s += elapsed_s
        if elapsed_s < self.shortest_s:
            self.shortest_s = elapsed_s
        if elapsed_s > self.longest_s:
            self.longest_s = elapsed_s

    def percentiles_ms(self, fractions: Sequence[float]) -> list[int]:
        """Of the newest answers, one per fraction; 0 when there were none."""
        recent = sorted(self._recent[: min(self.count, _RECENT_MAX)])
        if not recent:
            return [0] * len(fractions)
        return [_ms(recent[min(int(f * len(recent)), len(recent) - 1)]) for f in fractions]


class ServerStats:
    """What one server did since it started, or since `srst` reset it.

    The fields named `..._count` and so on after `mntr`'s keys are counted in place, where the
    thing happens; each says what that is.
    """

    __slots__ = (
        "auth_failed_count",
        "bytes_received_count",
        "connection_rejected",
        "connection_request_count",
        "connection_revalidate_count",
        "connections",
        "large_requests_rejected",
        "last_response_bytes",
        "max_response_bytes",
        "min_response_bytes",
        "outstanding",
        "packets_received",
        "packets_sent",
        "read_latency",
        "request_throttle_wait_count",
        "response_bytes",
        "sessionless_connections_expired",
        "started_s",
        "trace_mask",
        "unrecoverable_error_count",
        "update_latency",
    )

    def __init__(self, *, now: float) -> None:
        self.started_s = now
        self.connections: set[ConnectionStats] = set()
        self.outstanding = 0  # requests that were received and are not answered yet
        self.read_latency = Latency()
        self.update_latency = Latency()
        self.trace_mask = 306  # what `gtmk` shows and `stmk` sets; nothing is traced, whatever it is
        self.reset()

    def reset(self) -> None:
        """`srst`: everything that counts up starts again; what is under way now stays."""
        self.packets_received = 0
        self.packets_sent = 0
        self.bytes_received_count = 0
        self.response_bytes = 0
        self.last_response_bytes = -1  # none yet
        self.min_response_bytes = -1
        self.max_response_bytes = -1
        self.read_latency.reset()
        self.update_latency.reset()
        self.auth_failed_count = 0  # an addauth was refused
        self.connection_request_count = 0  # a ConnectRequest arrived
        self.connection_revalidate_count = 0  # ... that came back to a session
        self.connection_rejected = 0  # over maxClientCnxns or maxCnxns
        self.large_requests_rejected = 0  # longer than jute.maxbuffer
        self.request_throttle_wait_count = 0  # reading paused at globalOutstandingLimit
        self.sessionless_connections_expired = 0  # never sent a whole ConnectRequest
        self.unrecoverable_error_count = 0  # a bug of ours, or a store that failed

    def connected(
        self, host: str, port: int, *, now: float, wall: float, secure: bool = False
    ) -> ConnectionStats:
        stats = ConnectionStats(self, host, port, now=now, wall=wall, secure=secure)
        self.connections.add(stats)
        return stats

    def disconnected(self, stats: ConnectionStats) -> None:
        """What the connection had not been answered never will be."""
        self.connections.discard(stats)
        self.outstanding -= stats.queued
        stats.queued = 0

    # -- reads and writes together

    @property
    def latency_min_ms(self) -> int:
        shortest_s = min(self.read_latency.shortest_s, self.update_latency.shortest_s)
        return 0 if shortest_s == math.inf else _ms(shortest_s)

    @property
    def latency_max_ms(self) -> int:
        return _ms(max(self.read_latency.longest_s, self.update_latency.longest_s))

    @property
    def latency_avg_ms(self) -> float:
        count = self.read_latency.count + self.update_latency.count
        total_s = self.read_latency.total_s + self.update_latency.total_s
        return round(1000 * total_s / count, 4) if count else 0.0

    def uptime_ms(self, now: float) -> int:
        return _ms(now - self.started_s)


class ConnectionStats:
    """One connection: who it is, and what it did since it was made, or since `crst` reset it."""

    __slots__ = (
        "_server",
        "answers_count",
        "established_s",
        "established_wall_s",
        "host",
        "last_cxid",
        "last_latency_s",
        "last_op",
        "last_response_s",
        "last_zxid",
        "latency_max_s",
        "latency_min_s",
        "latency_total_s",
        "port",
        "queued",
        "reading",
        "received_count",
        "secure",
        "sent_count",
        "session_id",
        "timeout_ms",
    )

    def __init__(
        self, server: ServerStats, host: str, port: int, *, now: float, wall: float, secure: bool
    ) -> None:
        self._server = server
        self.host, self.port, self.secure = host, port, secure
        self.established_s, self.established_wall_s = now, wall
        self.session_id = 0  # none yet
        self.timeout_ms = 0
        self.queued = 0  # requests that were received and are not answered yet
        self.reading = True  # False while the connection is not read from
        self.reset()

    def reset(self) -> None:
        """`crst`; who it is and what is under way stays."""
        self.received_count = 0
        self.sent_count = 0
        self.last_op: int | None = None
        self.last_cxid = -1
        self.last_zxid = -1
        self.last_response_s = 0.0
        self.last_latency_s = 0.0
        self.latency_min_s = math.inf
        self.latency_max_s = 0.0
        self.latency_total_s = 0.0
        self.answers_count = 0

    # -- the hot path

    def received(self, count: int, size: int) -> None:
        """`count` whole requests arrived, all of which will be answered; `size` bytes in all."""
        self.received_count += count
        self.queued += count
        server = self._server
        server.packets_received += count
        server.outstanding += count
        server.bytes_received_count += size

    def answered(
        self, op: int, xid: int, zxid: int, size: int, started: float, now: float, wrote: bool
    ) -> None:
        """A reply of `size` bytes goes out.  A write that was refused has `op` Op.ERROR, as there."""
        elapsed_s = now - started
        self.sent_count += 1
        self.queued -= 1
        self.answers_count += 1
        self.latency_total_s += elapsed_s
        self.last_latency_s = elapsed_s
        if elapsed_s < self.latency_min_s:
            self.latency_min_s = elapsed_s
        if elapsed_s > self.latency_max_s:
            self.latency_max_s = elapsed_s
        self.last_op = op
        self.last_zxid = zxid
        self.last_response_s = now
        if xid >= 0:  # pings and the like have special ones, which say nothing about the client
            self.last_cxid = xid
        server = self._server
        server.packets_sent += 1
        server.outstanding -= 1
        server.response_bytes += size
        server.last_response_bytes = size
        if size > server.max_response_bytes:
            server.max_response_bytes = size
        if size < server.min_response_bytes or server.min_response_bytes < 0:
            server.min_response_bytes = size
        (server.update_latency if wrote else server.read_latency).add(elapsed_s)

    def notified(self, size: int) -> None:
        """A watch event of `size` bytes goes out."""
        self.sent_count += 1
        server = self._server
        server.packets_sent += 1
        server.response_bytes += size

    def abandoned(self, count: int) -> None:
        """`count` requests that were received get no answer: the session is being closed."""
        self.queued -= count
        self._server.outstanding -= count

    # -- what is shown

    @property
    def address(self) -> str:
        """As Java writes a peer that it has no name for: /10.0.0.7:51772, /[0:0:0:0:0:0:0:1]:51772."""
        return f"/{java_host(self.host)}:{self.port}"

    @property
    def established_ms(self) -> int:
        """When it was made, in milliseconds since 1970."""
        return _ms(self.established_wall_s)

    @property
    def last_response_ms(self) -> int:
        return _ms(self.last_response_s)

    @property
    def last_latency_ms(self) -> int:
        return _ms(self.last_latency_s)

    @property
    def latency_min_ms(self) -> int:
        return 0 if self.latency_min_s == math.inf else _ms(self.latency_min_s)

    @property
    def latency_avg_ms(self) -> int:
        return _ms(self.latency_total_s / self.answers_count) if self.answers_count else 0

    @property
    def latency_max_ms(self) -> int:
        return _ms(self.latency_max_s)


def java_host(host: str) -> str:
    """An address as Java prints it: IPv6 in brackets, every group, none with leading zeros."""
    if ":" not in host:
        return host
    groups = ipaddress.IPv6Address(host.partition("%")[0]).exploded.split(":")
    return "[" + ":".join(f"{int(group, 16):x}" for group in groups) + "]"


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
