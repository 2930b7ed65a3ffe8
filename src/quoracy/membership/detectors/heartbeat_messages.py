"""The values of gossiped heartbeat counters, and the packet that holds a table of them.

A packet is a msgpack array of the tag "hb1" and rows of [address, [generation, counter]].

Invariants
    * What `unpacked` returns is within limits: addresses of 1 to 255 bytes, numbers of 0 to 2**53.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.codec import decode
from quoracy.membership.detectors.detector import TIMEOUT_MIN_S
from quoracy.membership.machine import Address

__all__ = [
    "ADDRESS_BYTES_MAX", "NUMBER_MAX", "Beat", "HeartbeatChange", "HeartbeatChangeKind",
    "HeartbeatSettings", "HeartbeatStatistics", "Row", "packed", "rows_that_fit_max", "unpacked",
]  # fmt: skip

ADDRESS_BYTES_MAX = 255
NUMBER_MAX = 2**53
_ROW_BYTES_MIN = 5
_FRAME_BYTES_MAX = 1 + 4 + 3  # an array of the tag and an array of rows


class HeartbeatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often to gossip, and when to suspect.

    interval_s: how often the own counter is raised and the table sent.
    fail_s: a peer whose counter did not grow for this time is suspected.
    packet_bytes_max, peers_max: the bounds of a packet and of the table.

    >>> HeartbeatSettings(fail_s=4.0).cleanup_s
    8.0
    """

    interval_s: float = 1.0
    fail_s: float = 10.0
    packet_bytes_max: int = 1_350
    peers_max: int = 4_096

    def __post_init__(self) -> None:
        if not TIMEOUT_MIN_S <= self.interval_s < math.inf:
            raise InvalidRequest(
                f"interval_s must be at least {TIMEOUT_MIN_S} and finite, not {self.interval_s}"
            )
        if not self.interval_s < self.fail_s < math.inf:
            raise InvalidRequest(
                f"fail_s ({self.fail_s}) must be more than interval_s ({self.interval_s}), or every "
                "peer is suspected between two of its heartbeats"
            )
        if self.packet_bytes_max < 1_200:
            raise InvalidRequest(f"packet_bytes_max must be at least 1200, not {self.packet_bytes_max}")
        if self.peers_max < 1:
            raise InvalidRequest(f"peers_max must be at least 1, not {self.peers_max}")

    @property
    def cleanup_s(self) -> float:
        """A peer whose counter did not grow for this time is forgotten."""
        return 2 * self.fail_s


class Beat(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """Which heartbeat of a peer: the larger is the later.

    >>> Beat(2, 0) > Beat(1, 999)
    True
    """

    generation: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0
    counter: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0


class HeartbeatChangeKind(enum.Enum):
    """What happened to a peer."""

    APPEARED = "appeared"  # heard of for the first time, or again after it was forgotten
    SUSPECTED = "suspected"
    RECOVERED = "recovered"  # was suspected, and its counter grew
    RESTARTED = "restarted"  # has a larger generation; suspected before or not
    FORGOTTEN = "forgotten"


class HeartbeatChange(msgspec.Struct, frozen=True):
    """Something changed about a peer; an event of `HeartbeatGossip`."""

    kind: HeartbeatChangeKind
    peer: Address


class HeartbeatStatistics(msgspec.Struct):
    """What a `HeartbeatGossip` has seen and done so far."""

    peers: int = 0
    suspected: int = 0
    packets_sent: int = 0
    rows_sent: int = 0
    packets_received: int = 0
    rows_grown: int = 0
    refused_by_full_table: int = 0
    suspicions: int = 0
    recoveries: int = 0


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of one peer, as it is sent."""

    peer: Annotated[str, Meta(min_length=1, max_length=ADDRESS_BYTES_MAX)]
    beat: Beat


class _Packet(msgspec.Struct, frozen=True, array_like=True, tag="hb1", gc=False):
    rows: list[Row]


class _PackedPacket(msgspec.Struct, frozen=True, array_like=True, tag="hb1", gc=False):
    """The same with rows that are encoded already, since their sizes had to be known."""

    rows: list[msgspec.Raw]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Packet)


def rows_that_fit_max(bytes_max: int) -> int:
    """An upper bound for the rows that fit; how many do depends on their addresses."""
    return bytes_max // _ROW_BYTES_MIN


def packed(rows: Iterable[Row], bytes_max: int) -> tuple[bytes, int]:
    """A packet of the first rows that fit, and how many these are.

    >>> data, count = packed([Row("a", Beat(1, 7)), Row("b", Beat(1, 3))], 100)
    >>> count, unpacked(data, "a")[1].beat.counter
    (2, 3)
    """
    room = bytes_max - _FRAME_BYTES_MAX
    parts = []
    for row in rows:
        part = _encode(row)
        room -= len(part)
        if room < 0:
            break
        parts.append(msgspec.Raw(part))
    return _encode(_PackedPacket(parts)), len(parts)


def unpacked(data: bytes, sender: Address) -> list[Row]:
    """The rows of a packet.  Raises `ProtocolError` if it is none."""
    rows = decode(_decoder, data, f"{len(data)} bytes from {sender} are no table of heartbeats").rows
    for row in rows:
        if len(row.peer.encode()) > ADDRESS_BYTES_MAX:
            raise ProtocolError(
                f"an address in a table of heartbeats from {sender} has more than "
                f"{ADDRESS_BYTES_MAX} bytes"
            )
    return rows
