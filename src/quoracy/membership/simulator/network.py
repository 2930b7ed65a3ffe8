"""The simulated network: latencies, its settings, its state during a run, and counters of members.

`Network` is a value: how every link behaves.  `Links` is the network of one run: which links are cut,
which have a quality of their own, and the draws that decide about each message.  A latency is a
distribution: `draw(rng)` gives seconds, never negative, and uses no other randomness.

Invariants
    * A datagram that is not lost arrives once, or twice where it is duplicated; never across a cut.
    * Messages under way when a cut begins still arrive: a cut matters at the moment of sending.
    * Loss never loses a stream.  A lost segment is sent again after `retransmit_s`, then after twice
      that, and so on, so that loss shows as delay; a stream fails when it took `stream_timeout_s`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address

__all__ = [
    "Constant", "Counters", "Cut", "Latency", "Link", "Links", "LogNormal", "Network", "Normal",
    "Pareto", "Uniform",
]  # fmt: skip


class Latency(Protocol):
    """A distribution of delays."""

    def draw(self, rng: random.Random) -> float:
        """Seconds, not negative."""
        ...


class Constant(msgspec.Struct, frozen=True, gc=False):
    """Always the same.

    >>> Constant(0.001).draw(random.Random(1))
    0.001
    """

    s: float

    def __post_init__(self) -> None:
        _require(self.s >= 0, f"a latency of {self.s} s: it cannot be negative")

    def draw(self, rng: random.Random) -> float:  # noqa: ARG002 (every latency takes it)
        """Seconds, not negative."""
        return self.s


class Uniform(msgspec.Struct, frozen=True, gc=False):
    """Anything between two bounds, equally likely.

    >>> 0.001 <= Uniform(0.001, 0.002).draw(random.Random(1)) <= 0.002
    True
    """

    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        _require(0 <= self.low_s <= self.high_s, f"{self!r}: give 0 <= low_s <= high_s")

    def draw(self, rng: random.Random) -> float:
        """Seconds, not negative."""
        return self.low_s + (self.high_s - self.low_s) * rng.random()


class Normal(msgspec.Struct, frozen=True, gc=False):
    """A normal distribution, with a minimum of `least_s`.

    >>> Normal(0.01, 0.0).draw(random.Random(1))
    0.01
    """

    mean_s: float
    deviation_s: float
    least_s: float = 0.0

    def __post_init__(self) -> None:
        sound = self.mean_s >= 0 and self.deviation_s >= 0 and self.least_s >= 0
        _require(sound, f"{self!r}: nothing in it can be negative")

    def draw(self, rng: random.Random) -> float:
        """Seconds, not negative."""
        drawn = rng.gauss(self.mean_s, self.deviation_s)
        return drawn if drawn > self.least_s else self.least_s


class LogNormal(msgspec.Struct, frozen=True, gc=False):
    """Half of all below the median and a tail to the right, as round trips are in most networks.

    >>> LogNormal(0.01, 0.0).draw(random.Random(1))
    0.01
    """

    median_s: float
    sigma: float

    def __post_init__(self) -> None:
        _require(self.median_s > 0 and self.sigma >= 0, f"{self!r}: give median_s > 0 and sigma >= 0")

    def draw(self, rng: random.Random) -> float:
        """Seconds, not negative."""
        return self.median_s * math.exp(rng.gauss(0.0, self.sigma))


class Pareto(msgspec.Struct, frozen=True, gc=False):
    """A heavy tail: with a shape of 1.5, one in a thousand takes a hundred times the least.

    >>> Pareto(0.001, 1.5, most_s=2.0).draw(random.Random(1)) >= 0.001
    True
    """

    least_s: float
    shape: float
    most_s: float = math.inf

    def __post_init__(self) -> None:
        sound = 0 < self.least_s <= self.most_s and self.shape > 0
        _require(sound, f"{self!r}: give 0 < least_s <= most_s and shape > 0")

    def draw(self, rng: random.Random) -> float:
        """Seconds, not negative."""
        drawn = self.least_s * rng.paretovariate(self.shape)
        return drawn if drawn < self.most_s else self.most_s


def _require(sound: bool, otherwise: str) -> None:
    if not sound:
        raise InvalidRequest(otherwise)


_SEGMENT_BYTES = 1_400
# A large stream is drawn as this many segments at most, since only the number of rounds matters.
_SEGMENTS_MAX = 64


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """How the way from one member to another differs from the rest; None: it does not.

    >>> Link(loss=0.5).latency is None
    True
    """

    latency: Latency | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        if self.loss is not None:
            _check_chance("loss", self.loss)


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """How every link behaves unless something else is said of it.

    latency: how long a message takes, one way.
    loss, duplicate: the chance that a datagram is lost; that it arrives twice.
    reorder, reorder_s: the chance that a datagram is held back for up to `reorder_s`.  Without it,
    datagrams overtake each other only as far as latency varies.
    stream_timeout_s: a reliable message that is not through by then has failed.
    retransmit_s: a lost segment of a stream is sent again after this time, then after twice this time.
    receive_buffer_bytes: the datagrams that can wait for a member that is stopped or busy; those beyond
    are lost.  The default is that of Linux.
    streams_waiting_max: the reliable messages that can wait for such a member; those beyond fail.

    >>> Network(loss=0.05).loss
    0.05
    """

    latency: Latency = Uniform(0.0003, 0.0015)
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_s: float = 0.05
    stream_timeout_s: float = 10.0
    retransmit_s: float = 0.2
    receive_buffer_bytes: int = 212_992
    streams_waiting_max: int = 128

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder"):
            _check_chance(name, getattr(self, name))
        for name in ("stream_timeout_s", "retransmit_s"):
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"{name} must be more than 0, not {getattr(self, name)}")
        for name in ("reorder_s", "receive_buffer_bytes", "streams_waiting_max"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} must not be negative, not {getattr(self, name)}")


class Cut:
    """A partition or a blocked way, until it is healed."""

    __slots__ = ("_from", "_sides", "_to")

    def __init__(
        self,
        *,
        groups: Iterable[Collection[Address]] = (),
        senders: Collection[Address] = (),
        receivers: Collection[Address] = (),
    ) -> None:
        self._sides: dict[Address, int] = {}
        for number, group in enumerate(groups):
            for address in group:
                if address in self._sides:
                    raise InvalidRequest(
                        f"{address} is in two groups of one partition: leave it in one"
                    )
                self._sides[address] = number
        self._from, self._to = frozenset(senders), frozenset(receivers)

    def blocks(self, sender: Address, receiver: Address) -> bool:
        """Whether nothing gets through from the sender to the receiver."""
        sides = self._sides
        if sides and sides.get(sender, -1) != sides.get(receiver, -1):
            return True
        return sender in self._from and receiver in self._to


class Links:
    """The network of one run.

    is_plain: nothing is cut, no link or member differs and no datagram is doubled or held back.

    >>> links = Links(Network(loss=1.0), random.Random(1))
    >>> links.delays("a", "b")
    ()
    """

    __slots__ = ("_cuts", "_member_loss", "_overrides", "_rng", "is_plain", "loss", "network")

    def __init__(self, network: Network, rng: random.Random) -> None:
        self.network = network
        self.loss = network.loss
        self._rng = rng
        self._cuts: list[Cut] = []
        self._overrides: dict[tuple[Address, Address], Link] = {}
        self._member_loss: dict[Address, float] = {}
        self.is_plain = False
        self._look()

    def cut(self, cut: Cut) -> None:
        """Add a cut to those that there are."""
        self._cuts.append(cut)
        self._look()

    def heal(self, cut: Cut | None = None) -> None:
        """End one cut, or all."""
        if cut is None:
            self._cuts.clear()
        elif cut in self._cuts:
            self._cuts.remove(cut)
        self._look()

    def override(self, sender: Address, receiver: Address, link: Link | None) -> None:
        """Set the quality of one way; None resets it."""
        if link is None:
            self._overrides.pop((sender, receiver), None)
        else:
            self._overrides[sender, receiver] = link
        self._look()

    def set_loss(self, loss: float, members: Collection[Address] = ()) -> None:
        """Set the loss of datagrams: of all, or in and out of these members, besides other loss."""
        _check_chance("loss", loss)
        if not members:
            self.loss = loss
        for address in members:
            if loss:
                self._member_loss[address] = loss
            else:
                self._member_loss.pop(address, None)
        self._look()

    def is_blocked(self, sender: Address, receiver: Address) -> bool:
        """Whether the way from the sender to the receiver is cut."""
        return any(cut.blocks(sender, receiver) for cut in self._cuts)

    def delays(self, sender: Address, receiver: Address) -> tuple[float, ...]:
        """The delays after which a datagram arrives: one, two if duplicated, none if lost."""
        if self._cuts and self.is_blocked(sender, receiver):
            return ()
        rng, network = self._rng, self.network
        if self._is_lost(sender, receiver):
            return ()
        latency = self._latency(sender, receiver)
        delay = latency.draw(rng)
        if network.reorder and rng.random() < network.reorder:
            delay += rng.random() * network.reorder_s
        if network.duplicate and rng.random() < network.duplicate:
            return delay, latency.draw(rng)
        return (delay,)

    def one_way_s(self, sender: Address, receiver: Address) -> float:
        """The latency of something that is not lost."""
        return self._latency(sender, receiver).draw(self._rng)

    def stream_s(self, sender: Address, receiver: Address, size: int) -> float:
        """The time of a reliable message on an open way: two trips to connect, and one for it."""
        total_s = 0.0
        segments = min(_SEGMENTS_MAX, 1 + size // _SEGMENT_BYTES)
        for source, target, count in (
            (sender, receiver, 1),
            (receiver, sender, 1),
            (sender, receiver, segments),
        ):
            total_s += self.one_way_s(source, target)
            again_s = self.network.retransmit_s
            while count := sum(self._is_lost(source, target) for _ in range(count)):
                total_s += again_s
                again_s *= 2
                if total_s >= self.network.stream_timeout_s:
                    return total_s
        return total_s

    def _is_lost(self, sender: Address, receiver: Address) -> bool:
        loss, random_ = self.loss, self._rng.random
        link = self._overrides.get((sender, receiver))
        if link is not None and link.loss is not None:
            loss = link.loss
        if loss and random_() < loss:
            return True
        if self._member_loss:
            for address in (sender, receiver):
                own = self._member_loss.get(address)
                if own is not None and random_() < own:
                    return True
        return False

    def _latency(self, sender: Address, receiver: Address) -> Latency:
        if self._overrides:
            link = self._overrides.get((sender, receiver))
            if link is not None and link.latency is not None:
                return link.latency
        return self.network.latency

    def _look(self) -> None:
        network = self.network
        differs = self._cuts or self._overrides or self._member_loss
        self.is_plain = not (differs or network.duplicate or network.reorder)


def _check_chance(name: str, chance: float) -> None:
    if not 0 <= chance <= 1:
        raise InvalidRequest(f"{name} is a chance from 0 to 1, not {chance}")


class Counters(msgspec.Struct, frozen=True):
    """What one member, or all of them, sent and received so far.

    Sent counts what left the member, lost or not; received counts what its machine was given.
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
