"""Gossiped heartbeat counters: every peer passes on the latest counters of all peers.

Each peer has a counter that only it raises.  In every interval it raises its own and sends all counters
that it knows to one peer at random, which keeps the larger of each two.  A peer whose counter did not
grow for `fail_s` is suspected (van Renesse, Minsky and Hayden, 1998).  No peer has to reach every
other, so a lost packet or a broken link between two does no harm.

A suspected peer is kept for another `fail_s` before it is forgotten, and its counter is no longer
passed on.  By then peers that learnt of its last heartbeat later than we did suspect it as well, so
none of them can bring it back with a number that we have forgotten.

A restarted peer begins at zero again, which would look old.  Therefore (generation, counter) is
compared: give each start a larger generation, from a file or from the wall clock.  A peer that begins
too low learns this when it receives a later heartbeat of its own, and skips ahead.

Invariants
    * The counter known for a peer never decreases while the peer is remembered; only growth ends a
      suspicion.
    * The table has at most `peers_max` peers.  When it is full, new peers are refused, and counted.
    * A packet has at most `packet_bytes_max` bytes: the own counter, and a random part of the others if
      not all fit.  So news spreads in about log n intervals if a table of n fits, and later in
      proportion if not: `fail_s` must leave time for that.
    * Packets are not authenticated here: without a seal below, a stranger can invent peers.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.detectors.detector import FixedDetector
from quoracy.membership.detectors.heartbeat_messages import (
    ADDRESS_BYTES_MAX,
    NUMBER_MAX,
    Beat,
    HeartbeatChange,
    HeartbeatChangeKind,
    HeartbeatSettings,
    HeartbeatStatistics,
    Row,
    packed,
    rows_that_fit_max,
    unpacked,
)
from quoracy.membership.machine import Address, Effect, SendPacket, Tell

__all__ = ["CounterDetector", "HeartbeatGossip"]


class _Known:
    """The latest heartbeat of a peer, and when it arrived here."""

    __slots__ = ("beat", "grew_at")

    def __init__(self, beat: Beat, grew_at: float) -> None:
        self.beat = beat
        self.grew_at = grew_at


class HeartbeatGossip:
    """One peer that gossips heartbeat counters: a `Machine` (see quoracy.membership.machine).

    seeds: peers to begin with; they are also tried when they are not in the table, which heals long
    partitions.  generation: larger than at the start before, if there was one.

    >>> settings = HeartbeatSettings(interval_s=1.0, fail_s=5.0)
    >>> a = HeartbeatGossip("a", rng=random.Random(1), seeds=["b"], settings=settings)
    >>> b = HeartbeatGossip("b", rng=random.Random(2), settings=settings)
    >>> a.start(0.0), b.start(0.0)
    ([], [])
    >>> [packet] = a.tick(1.0)
    >>> [told] = b.receive(packet.data, "a", 1.0)
    >>> told.event.kind.name, told.event.peer
    ('APPEARED', 'a')
    >>> view = b.detector("a")
    >>> view.is_suspected(5.9), view.is_suspected(6.0)
    (False, True)
    """

    def __init__(
        self,
        address: Address,
        *,
        rng: random.Random,
        seeds: Iterable[Address] = (),
        settings: HeartbeatSettings | None = None,
        generation: int = 0,
    ) -> None:
        self.settings = settings or HeartbeatSettings()
        self.address = address
        self.next_due = math.inf
        self._seeds = tuple(dict.fromkeys(seed for seed in seeds if seed != address))
        if len(self._seeds) > self.settings.peers_max:
            raise InvalidRequest(
                f"{len(self._seeds)} seeds are more than the {self.settings.peers_max} peers of a full "
                "table; name fewer, or raise peers_max"
            )
        for each in (address, *self._seeds):
            if not 0 < len(each.encode()) <= ADDRESS_BYTES_MAX:
                raise InvalidRequest(f"an address has 1 to {ADDRESS_BYTES_MAX} bytes, not {each!r}")
        if not 0 <= generation < NUMBER_MAX:
            raise InvalidRequest(f"a generation is between 0 and 2**53, not {generation}")
        self._rng = rng
        self._beat = Beat(generation, 0)
        # Both in the order of `grew_at`: the first is the next to be suspected, or to be forgotten.
        self._present: OrderedDict[Address, _Known] = OrderedDict()
        self._suspected: OrderedDict[Address, _Known] = OrderedDict()
        self._gossip_due = math.inf
        self._counts = HeartbeatStatistics()

    @property
    def beat(self) -> Beat:
        """The own heartbeat, as last sent."""
        return self._beat

    @property
    def present(self) -> tuple[Address, ...]:
        """The peers in the table that are not suspected, as of the last call."""
        return tuple(self._present)

    @property
    def suspected(self) -> tuple[Address, ...]:
        """The peers that are suspected and not forgotten yet, as of the last call."""
        return tuple(self._suspected)

    def detector(self, peer: Address) -> CounterDetector:
        """The detector of one peer, known or not: a view on this table."""
        return CounterDetector(self, peer)

    def grew_at(self, peer: Address) -> float | None:
        """When the counter of a peer last grew here; None if it is not in the table."""
        known = self._present.get(peer) or self._suspected.get(peer)
        return None if known is None else known.grew_at

    def statistics(self) -> HeartbeatStatistics:
        """Counters since the start."""
        return msgspec.structs.replace(
            self._counts,
            peers=len(self._present) + len(self._suspected),
            suspected=len(self._suspected),
        )

    def start(self, now: float) -> list[Effect]:
        """Begin.  The first table is sent at a random time, so that peers do not beat in step."""
        self._gossip_due = now + self._rng.random() * self.settings.interval_s
        self._plan()
        return []

    def tick(self, now: float) -> list[Effect]:
        """Suspect and forget the peers that are due; raise the own counter and send the table."""
        effects: list[Effect] = list(self._expire(now))
        if now >= self._gossip_due:
            self._gossip_due += self.settings.interval_s
            if self._gossip_due <= now:
                # After a pause the missed rounds are left out: one table is enough.
                self._gossip_due = now + self.settings.interval_s
            self._beat = Beat(self._beat.generation, self._beat.counter + 1)
            if targets := self._targets():
                data, rows_count = packed(self._rows(), self.settings.packet_bytes_max)
                effects += [SendPacket(target, data) for target in targets]
                self._counts.packets_sent += len(targets)
                self._counts.rows_sent += rows_count * len(targets)
        self._plan()
        return effects

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """Merge a table.  Raises `ProtocolError` for anything else."""
        rows = unpacked(data, sender)
        effects: list[Effect] = list(self._expire(now))
        self._counts.packets_received += 1
        for row in rows:
            if row.peer == self.address:
                self._skip_ahead(row.beat)
            elif (kind := self._merge(row.peer, row.beat, now)) is not None:
                effects.append(Tell(HeartbeatChange(kind, row.peer)))
        self._plan()
        return effects

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """Always raises: tables come as datagrams."""
        del now
        raise ProtocolError(
            f"{len(data)} bytes came from {sender} as a reliable message; heartbeats are datagrams"
        )

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """Nothing reliable is ever sent, so there is nothing to learn from this."""
        del to, now
        return []

    def _merge(self, peer: Address, beat: Beat, now: float) -> HeartbeatChangeKind | None:
        known = self._present.get(peer)
        was_suspected = known is None and (known := self._suspected.get(peer)) is not None
        if known is None:
            if len(self._present) + len(self._suspected) >= self.settings.peers_max:
                self._counts.refused_by_full_table += 1
                return None
            self._present[peer] = _Known(beat, now)
            self._counts.rows_grown += 1
            return HeartbeatChangeKind.APPEARED
        if beat <= known.beat:
            return None
        restarted = beat.generation > known.beat.generation
        known.beat, known.grew_at = beat, now
        self._counts.rows_grown += 1
        if was_suspected:
            self._present[peer] = self._suspected.pop(peer)
            self._counts.recoveries += 1
        else:
            self._present.move_to_end(peer)
        if restarted:
            return HeartbeatChangeKind.RESTARTED
        return HeartbeatChangeKind.RECOVERED if was_suspected else None

    def _skip_ahead(self, claimed: Beat) -> None:
        """A peer knows a heartbeat of an earlier life of ours: begin above that."""
        if claimed > self._beat and claimed.generation + 1 < NUMBER_MAX:
            self._beat = Beat(claimed.generation + 1, 0)

    def _expire(self, now: float) -> list[Tell]:
        told = []
        while self._present:
            peer, known = next(iter(self._present.items()))
            if now < known.grew_at + self.settings.fail_s:
                break
            self._suspected[peer] = self._present.pop(peer)
            self._counts.suspicions += 1
            told.append(Tell(HeartbeatChange(HeartbeatChangeKind.SUSPECTED, peer)))
        while self._suspected:
            peer, known = next(iter(self._suspected.items()))
            if now < known.grew_at + self.settings.cleanup_s:
                break
            del self._suspected[peer]
            told.append(Tell(HeartbeatChange(HeartbeatChangeKind.FORGOTTEN, peer)))
        return told

    def _targets(self) -> list[Address]:
        """A present peer, and sometimes a suspected or missing one: it may have come back."""
        present = list(self._present)
        absent = list(self._suspected)
        absent += [each for each in self._seeds if self.grew_at(each) is None]
        targets = [self._rng.choice(present)] if present else []
        if absent and self._rng.random() * (len(present) + 1) < len(absent):
            targets.append(self._rng.choice(absent))
        return targets

    def _rows(self) -> Iterator[Row]:
        """The own heartbeat, then the others in a random order, as many as could fit."""
        yield Row(self.address, self._beat)
        count = min(len(self._present), rows_that_fit_max(self.settings.packet_bytes_max))
        for peer in self._rng.sample(list(self._present), count):
            yield Row(peer, self._present[peer].beat)

    def _plan(self) -> None:
        due = self._gossip_due
        if self._present:
            due = min(due, next(iter(self._present.values())).grew_at + self.settings.fail_s)
        if self._suspected:
            due = min(due, next(iter(self._suspected.values())).grew_at + self.settings.cleanup_s)
        self.next_due = due


class CounterDetector(FixedDetector):
    """One peer of a table, as a `Detector`: the level is the silence as a part of `fail_s`.

    Growth of the counter comes from the table.  `heartbeat` is for messages that arrive on another way:
    it counts in this view only.  The view remembers a peer that the table forgets, so that the level
    goes on growing.
    """

    __slots__ = ("_gossip", "_ignored", "_peer")

    def __init__(self, gossip: HeartbeatGossip, peer: Address) -> None:
        super().__init__(timeout_s=gossip.settings.fail_s)
        self._gossip, self._peer = gossip, peer
        self._ignored: float | None = None

    @property
    def heard_at(self) -> float | None:
        """When its counter last grew, or it was heard from directly; None before the first time."""
        grew_at = self._gossip.grew_at(self._peer)
        if grew_at is not None and grew_at != self._ignored:
            self._last = grew_at if self._last is None else max(self._last, grew_at)
        return self._last

    def reset(self) -> None:
        """Forget what was heard so far, in this view; the table goes by generations."""
        self._ignored = self._gossip.grew_at(self._peer)
        self._last = None
