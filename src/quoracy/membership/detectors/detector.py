"""The interface of failure detectors, the detector with a fixed timeout, and detectors by peer.

A detector watches one peer.  It is called when the peer was heard from, and answers how suspicious the
silence since then is: a level that starts at 0 and grows.  When the level reaches a threshold, the peer
is suspected.  What the level measures differs (a part of a timeout, or how improbable the silence is);
the invariants hold for every detector.

Invariants of every detector
    * No IO and no clock: every method takes `now`, a monotonic reading in seconds.  The same calls
      give the same answers.
    * While nothing arrives the level never falls; a heartbeat never raises it.  It is always finite.
    * `is_suspected(now)` exactly when `level(now) >= threshold`, and exactly from `suspected_at()` on.
    * A peer that was never heard from is not suspected: begin with a heartbeat when it is made known.
    * A suspicion is no proof.  No detector can distinguish a dead peer from a slow network.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from quoracy.errors import InvalidRequest

__all__ = [
    "TIMEOUT_MIN_S", "Detector", "FixedDetector", "PeerDetectors", "part_of_timeout",
    "refuse_backwards", "silence_s",
]  # fmt: skip

# Thirty million years: results that are computed from a silence stay far below the largest float.
SILENCE_MAX_S = 1e15
# Beyond this a float cannot represent milliseconds; no clock in seconds shows such a time.
CLOCK_MAX_S = 1e12
# Long enough that a timeout ends later than it begins on any clock.
TIMEOUT_MIN_S = 1e-3


class Detector(Protocol):
    """How suspicious the silence of one peer is.

    >>> from quoracy.membership.detectors import FixedDetector
    >>> detector: Detector = FixedDetector(timeout_s=2.0)
    >>> detector.heartbeat(10.0)
    >>> detector.level(11.0), detector.is_suspected(11.0), detector.suspected_at()
    (0.5, False, 12.0)
    """

    @property
    def threshold(self) -> float:
        """The level from which on the peer is suspected."""
        ...

    @property
    def heard_at(self) -> float | None:
        """When the peer was last heard from; None before the first time."""
        ...

    def heartbeat(self, now: float) -> None:
        """The peer was heard from.  Raises `InvalidRequest` if that is before the last time."""
        ...

    def level(self, now: float) -> float:
        """How suspicious the silence is: 0 at a heartbeat and before the first, then growing."""
        ...

    def is_suspected(self, now: float) -> bool:
        """Whether the level has reached the threshold."""
        ...

    def suspected_at(self) -> float | None:
        """When the peer will be suspected if nothing arrives: set a timer for then.

        It moves with every heartbeat.  None before the first.
        """
        ...

    def reset(self) -> None:
        """The peer was restarted: forget what was learnt before."""
        ...


def silence_s(last: float | None, now: float) -> float:
    """How long nothing was heard; 0 before the first heartbeat, and for a moment before the last."""
    if last is None or not now > last:
        return 0.0
    return min(now - last, SILENCE_MAX_S)


def refuse_backwards(last: float | None, now: float) -> None:
    """A heartbeat can be at the time of the one before, not earlier, and on a clock of seconds only."""
    if not -CLOCK_MAX_S <= now <= CLOCK_MAX_S:
        raise InvalidRequest(f"a heartbeat at {now}: pass the reading of a monotonic clock, in seconds")
    if last is not None and now < last:
        raise InvalidRequest(
            f"a heartbeat at {now} after one at {last}: time went backwards. "
            "Pass the reading of a monotonic clock, or reset the detector if the clock is a new one."
        )


_ALMOST_ONE = math.nextafter(1.0, 0.0)


class FixedDetector:
    """Suspects a peer after a fixed time of silence.

    The level is the part of the timeout that has gone by, so 1 is the threshold.  Nothing is learnt:
    the timeout must suit the slowest healthy peer, and all others are suspected as late as that one.
    `suspected_at` is exactly the last heartbeat plus the timeout, and the level agrees with it.

    >>> detector = FixedDetector(timeout_s=5.0)
    >>> detector.heartbeat(100.0)
    >>> detector.level(102.5)
    0.5
    >>> detector.is_suspected(105.0)
    True
    """

    __slots__ = ("_last", "_timeout_s")

    def __init__(self, *, timeout_s: float) -> None:
        if not TIMEOUT_MIN_S <= timeout_s < math.inf:
            raise InvalidRequest(
                f"timeout_s must be at least {TIMEOUT_MIN_S} and finite, not {timeout_s}"
            )
        self._timeout_s = timeout_s
        self._last: float | None = None

    @property
    def threshold(self) -> float:
        """Always 1: the whole timeout has gone by."""
        return 1.0

    @property
    def heard_at(self) -> float | None:
        """When the peer was last heard from; None before the first time."""
        return self._last

    def heartbeat(self, now: float) -> None:
        """The peer was heard from; the timeout begins anew."""
        refuse_backwards(self.heard_at, now)
        self._last = now

    def level(self, now: float) -> float:
        """The part of the timeout that has gone by in silence; more than 1 when it is over."""
        return part_of_timeout(self.heard_at, now, self._timeout_s)

    def is_suspected(self, now: float) -> bool:
        """Whether the timeout is over."""
        return self.level(now) >= 1.0

    def suspected_at(self) -> float | None:
        """When the timeout will be over; None before the first heartbeat."""
        return None if (heard_at := self.heard_at) is None else heard_at + self._timeout_s

    def reset(self) -> None:
        """As before the first heartbeat."""
        self._last = None


def part_of_timeout(last: float | None, now: float, timeout_s: float) -> float:
    """1 or more exactly from `last + timeout_s` on.

    The plain quotient does not guarantee that, since the sum and the difference of floats are rounded:
    a timer set for the sum would find a level just below 1.

    >>> ((10.1 + 0.7) - 10.1) / 0.7
    0.999999999999999
    >>> part_of_timeout(10.1, 10.1 + 0.7, 0.7)
    1.0
    """
    level = silence_s(last, now) / timeout_s
    if last is not None and now >= last + timeout_s:
        return max(level, 1.0)
    return min(level, _ALMOST_ONE)


class PeerDetectors:
    """A detector for each of many peers, made when a peer is first heard from.

    At most `peers_max` are kept.  Beyond, the peer heard from longest ago makes room: it is suspected
    already, or will be next.  A peer without a detector has level 0 and is not suspected.

    factory: makes the detector of a peer, `PhiDetector` for instance.

    >>> from quoracy.membership.detectors import FixedDetector
    >>> peers = PeerDetectors(lambda: FixedDetector(timeout_s=2.0))
    >>> peers.heartbeat("a", 0.0)
    >>> peers.heartbeat("b", 1.0)
    >>> peers.levels(2.0)
    {'a': 1.0, 'b': 0.5}
    >>> peers.suspected(2.0), peers.next_suspicion(2.0)
    (['a'], 3.0)
    """

    __slots__ = ("_detectors", "_factory", "_peers_max")

    def __init__(self, factory: Callable[[], Detector], *, peers_max: int = 65_536) -> None:
        if peers_max < 1:
            raise InvalidRequest(f"peers_max must be at least 1, not {peers_max}")
        self._factory = factory
        self._peers_max = peers_max
        # In the order of their last heartbeats, the oldest first.
        self._detectors: OrderedDict[str, Detector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._detectors)

    def __contains__(self, peer: str) -> bool:
        return peer in self._detectors

    def __iter__(self) -> Iterator[str]:
        """The peers that have a detector, in the order of their last heartbeats, the oldest first."""
        return iter(tuple(self._detectors))

    def heartbeat(self, peer: str, now: float) -> None:
        """A peer was heard from."""
        detector = self._detectors.get(peer)
        if detector is None:
            detector = self._factory()
            detector.heartbeat(now)
            if len(self._detectors) >= self._peers_max:
                self._detectors.popitem(last=False)
            self._detectors[peer] = detector
            return
        detector.heartbeat(now)
        self._detectors.move_to_end(peer)

    def get(self, peer: str) -> Detector | None:
        """The detector of a peer, if it was heard from."""
        return self._detectors.get(peer)

    def level(self, peer: str, now: float) -> float:
        """How suspicious the silence of a peer is."""
        detector = self._detectors.get(peer)
        return 0.0 if detector is None else detector.level(now)

    def is_suspected(self, peer: str, now: float) -> bool:
        """Whether the level of a peer has reached its threshold."""
        detector = self._detectors.get(peer)
        return detector is not None and detector.is_suspected(now)

    def levels(self, now: float) -> dict[str, float]:
        """The levels of all peers that were heard from."""
        return {peer: detector.level(now) for peer, detector in self._detectors.items()}

    def suspected(self, now: float) -> list[str]:
        """The peers that are suspected."""
        return [peer for peer, detector in self._detectors.items() if detector.is_suspected(now)]

    def next_suspicion(self, now: float) -> float | None:
        """When the next peer that is not suspected yet will be, if nothing arrives; None for never."""
        moments = (detector.suspected_at() for detector in self._detectors.values())
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def reset(self, peer: str) -> None:
        """A peer was restarted: forget what was learnt before.  Does nothing for an unknown peer."""
        if (detector := self._detectors.get(peer)) is not None:
            detector.reset()

    def forget(self, peer: str) -> None:
        """Remove the detector of a peer, if there is one."""
        self._detectors.pop(peer, None)
