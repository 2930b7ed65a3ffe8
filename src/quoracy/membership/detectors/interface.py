"""One small interface for every way of telling that a peer has failed.

A detector watches one peer.  It is told when the peer was heard from, and says how suspicious the
silence since then is: a level that starts at 0 and grows.  Where the level reaches a threshold there
is a verdict.  What the level measures differs (a part of a timeout, or how improbable the silence is);
that it behaves as below does not.

Invariants of every detector
    * No IO and no clock: every method is told `now`, a monotonic reading in seconds.  The same calls
      give the same answers.
    * While nothing arrives the level never falls; a heartbeat never raises it.  It is always finite.
    * `is_suspected(now)` exactly when `level(now) >= threshold`, and exactly from `suspected_at()` on.
    * A peer that was never heard from is not suspected: begin with a heartbeat when it is made known.
    * A suspicion is an opinion.  No detector can tell a dead peer from a slow network.
"""

from __future__ import annotations

from typing import Protocol

from quoracy.errors import InvalidRequest

__all__ = ["TIMEOUT_MIN_S", "Detector", "refuse_backwards", "silence_s"]

# Thirty million years.  Whatever is computed from a silence stays far from the largest float.
SILENCE_MAX_S = 1e15
# Beyond this a float cannot tell milliseconds apart; no clock that counts seconds has come so far.
CLOCK_MAX_S = 1e12
# What a timeout must be at least, so that it ends later than it begins on any clock.
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
        """The verdict: whether the level has reached the threshold."""
        ...

    def suspected_at(self) -> float | None:
        """When the peer will be suspected if nothing arrives: set a timer for then.

        It moves with every heartbeat.  None before the first.
        """
        ...

    def reset(self) -> None:
        """The peer was restarted: forget what was learnt of the one before."""
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
