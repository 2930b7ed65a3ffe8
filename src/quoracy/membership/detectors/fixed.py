"""The plain detector: a peer that is silent for longer than a timeout is suspected.

The level is the part of the timeout that has gone by, so 1 is the threshold.  It learns nothing: the
timeout must suit the slowest healthy peer, and everyone else is found out as late as that one.

Invariants
    * `suspected_at` is the last heartbeat plus the timeout, to the last bit; the level agrees with it.
"""

from __future__ import annotations

import math

from quoracy.errors import InvalidRequest
from quoracy.membership.detectors.interface import TIMEOUT_MIN_S, refuse_backwards, silence_s

__all__ = ["FixedDetector", "part_of_timeout"]

_ALMOST_ONE = math.nextafter(1.0, 0.0)


class FixedDetector:
    """Suspects a peer after a fixed time of silence.

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
        refuse_backwards(self._last, now)
        self._last = now

    def level(self, now: float) -> float:
        """The part of the timeout that has gone by in silence; more than 1 when it is over."""
        return part_of_timeout(self._last, now, self._timeout_s)

    def is_suspected(self, now: float) -> bool:
        """Whether the timeout is over."""
        return self.level(now) >= 1.0

    def suspected_at(self) -> float | None:
        """When the timeout will be over; None before the first heartbeat."""
        return None if self._last is None else self._last + self._timeout_s

    def reset(self) -> None:
        """As before the first heartbeat."""
        self._last = None


def part_of_timeout(last: float | None, now: float, timeout_s: float) -> float:
    """1 or more exactly from `last + timeout_s` on.

    The bare quotient is not quite that: a sum of two floats is rounded, and so is the difference that
    gives the silence.  A timer set for the sum would find the verdict missing by the last bit.

    >>> ((10.1 + 0.7) - 10.1) / 0.7
    0.999999999999999
    >>> part_of_timeout(10.1, 10.1 + 0.7, 0.7)
    1.0
    """
    level = silence_s(last, now) / timeout_s
    if last is not None and now >= last + timeout_s:
        return max(level, 1.0)
    return min(level, _ALMOST_ONE)
