"""What members of a simulation sent and got: a value."""

from __future__ import annotations

import msgspec

__all__ = ["Counters"]


class Counters(msgspec.Struct, frozen=True):
    """What one member, or all of them, sent and got so far.

    Sent is what left the member, whatever the network made of it; received is what its machine got.
    overflowed: datagrams that found its buffer full.  rejected: messages that its machine refused.

    >>> Counters(packets_sent=2) + Counters(packets_sent=3, rejected=1)  # doctest: +ELLIPSIS
    Counters(packets_sent=5, ..., rejected=1, ticks=0)
    """

    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    streams_sent: int = 0
    streams_received: int = 0
    stream_bytes_sent: int = 0
    stream_bytes_received: int = 0
    overflowed: int = 0
    rejected: int = 0
    ticks: int = 0

    def __add__(self, other: Counters) -> Counters:
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Counters(*(a + b for a, b in zip(mine, theirs, strict=True)))

    def __sub__(self, other: Counters) -> Counters:
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Counters(*(a - b for a, b in zip(mine, theirs, strict=True)))
