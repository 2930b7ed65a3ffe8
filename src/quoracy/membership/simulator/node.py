"""One member of a simulation: its machine, its clock, its buffer and its counters.

Invariants
    * `timers` holds the true times of this member's timers in the heap, the earliest last, after an
      infinite one; so a timer that moves costs nothing until it pops.
    * The clock of a member never goes backwards, whatever its rate.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from quoracy.membership.machine import Address, Effect, Machine, SendPacket, SendStream
from quoracy.membership.simulator.network import Counters

__all__ = ["Counters", "Factory", "Node", "Then"]

# Makes the machine of a member that starts again; the generator is its own, new for each life.
Factory: TypeAlias = Callable[[random.Random], Machine]
# What a member does right after its start, such as joining.
Then: TypeAlias = Callable[[Machine, float], list[Effect]]

# About what Linux adds to the size of a datagram in a receive buffer.
_DATAGRAM_OVERHEAD = 512


class Node:
    """The state of one member in a simulation; used by the world only.

    is_up: its process runs (stopped or not).  is_host_up: its machine answers, if only to refuse.
    is_plain: up, not stopped or held up, with a true clock and no cost per packet: the fast case.
    generation: how often it was started.
    """

    __slots__ = (
        "address", "backlog", "backlog_bytes", "backlog_streams", "base_local", "base_true",
        "busy_until", "bytes_received", "bytes_sent", "factory", "generation", "holds",
        "is_draining", "is_host_up", "is_plain", "is_up", "last_local", "machine", "outbox",
        "outbox_bytes", "outbox_streams", "overflowed", "packets_received", "packets_sent", "rate",
        "rejected", "service_s", "stops", "stream_bytes_received", "stream_bytes_sent",
        "streams_received", "streams_sent", "then", "tick_again", "tick_at", "ticks", "timers",
        "wanted",
    )  # fmt: skip

    def __init__(self, address: Address, machine: Machine, *, drift: float, offset: float) -> None:
        self.address = address
        self.machine = machine
        self.factory: Factory | None = None
        self.then: Then | None = None
        self.is_up = self.is_host_up = self.is_plain = False
        self.is_draining = False
        self.generation = 0
        self.stops = 0  # how many faults stop it,
        self.holds = 0  # and how many hold up its messages
        self.timers: list[float] = [math.inf]
        self.tick_at, self.tick_again = -1.0, 0
        self.rate, self.base_local, self.base_true, self.last_local = (
            1.0 + drift,
            offset,
            0.0,
            -math.inf,
        )
        self.service_s, self.busy_until = 0.0, 0.0
        # What arrived while it was stopped or busy: (kind, data, other).
        self.backlog: deque[tuple[int, bytes, Address]] = deque()
        self.backlog_bytes = self.backlog_streams = 0
        # What it sent while its messages were held up.
        self.outbox: list[Effect] = []
        self.outbox_bytes = self.outbox_streams = 0
        # Calls of its owner, which is in the same process and so is stopped, too.
        self.wanted: list[Then] = []
        self.packets_sent = self.packets_received = self.bytes_sent = self.bytes_received = 0
        self.streams_sent = self.streams_received = 0
        self.stream_bytes_sent = self.stream_bytes_received = 0
        self.overflowed = self.rejected = self.ticks = 0

    def look(self) -> None:
        """Update `is_plain`; called after any change that it depends on."""
        is_true_clock = self.rate == 1.0 and self.base_local == self.base_true
        is_free = self.is_up and not (self.stops or self.holds)
        self.is_plain = is_free and is_true_clock and not self.service_s

    def local(self, true: float) -> float:
        """What its clock shows at a true time; it never goes backwards."""
        shown = self.base_local + (true - self.base_true) * self.rate
        if shown < self.last_local:
            return self.last_local
        self.last_local = shown
        return shown

    def true(self, local: float) -> float:
        """When its clock will show this."""
        return self.base_true + (local - self.base_local) / self.rate

    def set_rate(self, rate: float, now: float) -> None:
        """Run faster or slower from now on."""
        self.base_local, self.base_true = self.local(now), now
        self.rate = rate
        self.look()

    def keep_packet(self, kind: int, data: bytes, sender: Address, bytes_max: int) -> bool:
        """Leave a datagram in the receive buffer; False: it is full, and the datagram is lost."""
        size = len(data) + _DATAGRAM_OVERHEAD
        if self.backlog_bytes + size > bytes_max:
            self.overflowed += 1
            return False
        self.backlog_bytes += size
        self.backlog.append((kind, data, sender))
        return True

    def take(self, packet_kind: int, stream_kind: int) -> tuple[int, bytes, Address]:
        """The oldest of what waits."""
        item = self.backlog.popleft()
        if item[0] == packet_kind:
            self.backlog_bytes -= len(item[1]) + _DATAGRAM_OVERHEAD
        elif item[0] == stream_kind:
            self.backlog_streams -= 1
        return item

    def hold_back(self, effect: SendPacket | SendStream, bytes_max: int, streams_max: int) -> bool:
        """Keep what it wants to send until it can; False: there is no room, and it is lost."""
        if isinstance(effect, SendPacket):
            size = len(effect.data) + _DATAGRAM_OVERHEAD
            if self.outbox_bytes + size > bytes_max:
                return False
            self.outbox_bytes += size
        else:
            if self.outbox_streams >= streams_max:
                return False
            self.outbox_streams += 1
        self.outbox.append(effect)
        return True

    def take_outbox(self) -> list[Effect]:
        """The effects that were held back; empties the outbox."""
        effects, self.outbox = self.outbox, []
        self.outbox_bytes = self.outbox_streams = 0
        return effects

    def forget_backlog(self) -> None:
        """Empty the buffers, since the process has ended."""
        self.backlog.clear()
        self.wanted.clear()
        self.take_outbox()
        self.backlog_bytes = self.backlog_streams = 0
        self.busy_until = 0.0

    def counters(self) -> Counters:
        """What it sent and got, in all its lives."""
        return Counters(*(getattr(self, name) for name in Counters.__struct_fields__))
