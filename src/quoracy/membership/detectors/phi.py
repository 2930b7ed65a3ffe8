"""Phi accrual failure detection: how improbable is this silence, for this peer?

A peer that beats every 200 ms and is 900 ms late is suspicious; one that beats every 5 s is not.  The
detector learns the rhythm of one peer from its last intervals and answers with a level,

    phi = -log10(probability that a heartbeat still comes after a silence as long as this)

so that suspecting at 1 is wrong once in ten such silences, at 2 once in a hundred, at 8 once in 10**8 -
if intervals follow the model, which they never quite do: see docs/guides/failure-detectors.md.
Published by Hayashibara, Défago, Yared and Katayama (SRDS 2004); the safeguards are those of Akka, the
exponential model is that of Cassandra.

Where this goes beyond them
    * An interval cannot be negative, so the normal distribution is truncated at 0.  That makes phi 0 at
      a heartbeat also where the deviation is large compared with the mean.
    * A peer that changed its interval permanently is learnt anew: several long intervals in a row are
      no longer taken for interruptions.

Invariants
    * Those of every detector (detector.py).  Phi is finite and accurate for any silence.
    * Memory is bounded by `window_max`, and every heartbeat costs the same.
    * What is learnt does not depend on the threshold: one detector can serve several.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Literal

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.detectors.detector import refuse_backwards, silence_s

__all__ = [
    "INTERVAL_MAX_S", "LN_10", "THRESHOLD_MAX", "THRESHOLD_MIN", "IntervalWindow", "PhiDetector",
    "PhiSettings", "phi_of_normal",
]  # fmt: skip

INTERVAL_MAX_S = 1e6  # eleven days
_NANOSECONDS = 1_000_000_000


class IntervalWindow:
    """The last intervals between heartbeats, with their mean and deviation, in constant time.

    Running sums of floats drift: what is added and later subtracted leaves its rounding error behind,
    and the difference of two large squares can even become negative.  Here intervals are whole
    nanoseconds and the sums are integers, which Python keeps exact.

    Invariants
        * At most `size_max` intervals are kept; a new one takes the place of the oldest.
        * An interval is between 0 and INTERVAL_MAX_S; a longer one counts as INTERVAL_MAX_S.

    >>> window = IntervalWindow(2)
    >>> for interval_s in (100.0, 1.0, 2.0):
    ...     window.add(interval_s)
    >>> window.mean_s, window.deviation_s, len(window)
    (1.5, 0.5, 2)
    """

    __slots__ = ("_next", "_ring", "_size_max", "_squares", "_sum")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._ring = array("q")
        self._next = 0  # the oldest, once the window is full
        self._sum = 0
        self._squares = 0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, interval_s: float) -> None:
        """Take in an interval, in place of the oldest if the window is full."""
        interval = round(min(max(interval_s, 0.0), INTERVAL_MAX_S) * _NANOSECONDS)
        if len(self._ring) < self._size_max:
            self._ring.append(interval)
        else:
            oldest = self._ring[self._next]
            self._sum -= oldest
            self._squares -= oldest * oldest
            self._ring[self._next] = interval
            self._next = (self._next + 1) % self._size_max
        self._sum += interval
        self._squares += interval * interval

    def clear(self) -> None:
        """Forget all intervals."""
        del self._ring[:]
        self._next = self._sum = self._squares = 0

    @property
    def mean_s(self) -> float:
        """The mean; there must be an interval."""
        return self._sum / (len(self._ring) * _NANOSECONDS)

    @property
    def deviation_s(self) -> float:
        """The standard deviation of these very intervals (not of those they may be a sample of)."""
        count = len(self._ring)
        return math.sqrt(count * self._squares - self._sum * self._sum) / (count * _NANOSECONDS)


LN_10 = math.log(10.0)

_SQRT_2 = math.sqrt(2.0)
_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_EXPANSION_FROM = 20.0
# (2k-1)!! with alternating signs, k = 7 down to 1, for Horner's scheme in 1/z².
_TERMS = (-135_135.0, 10_395.0, -945.0, 105.0, -15.0, 3.0, -1.0)


def phi_of_normal(z: float) -> float:
    """-log10 of the probability that a standard normal variable exceeds z.

    The obvious formula, -log10(1 - F(z)), ends at phi 16, where F(z) is 1 in a float; with erfc it ends
    at phi 307.  Three formulas that stay within the range of floats:

        z <= 0         -log1p(-erfc(-z/√2) / 2)     keeps its digits where phi is almost 0
        0 < z <= 20    -log(erfc(z/√2) / 2)
        z > 20         z²/2 + log(z √2π) - log1p(-1/z² + 3/z⁴ - 15/z⁶ …)

    The last is the asymptotic expansion of Mills' ratio (Abramowitz and Stegun 26.2.12).  It
    alternates, so its error is below the first term left out: 3e-15 at z = 20, less beyond.

    Finite and never negative for every |z| up to 1e150.  Where the formulas meet, phi does not fall:
    each stays on its side of the common value.

    >>> round(phi_of_normal(0.0), 6)  # one in two
    0.30103
    >>> round(phi_of_normal(5.612), 3)  # about one in 10**8
    8.0
    >>> round(phi_of_normal(1_000.0), 3)  # where erfc is 0
    217150.64
    """
    if z <= 0.0:
        return -math.log1p(-0.5 * math.erfc(-z / _SQRT_2)) / LN_10
    if z <= _EXPANSION_FROM:
        return min(-math.log(0.5 * math.erfc(z / _SQRT_2)) / LN_10, _PHI_WHERE_THEY_MEET)
    return max(_by_expansion(z), _PHI_WHERE_THEY_MEET)


def _by_expansion(z: float) -> float:
    inverse_square = 1.0 / (z * z)
    series = 0.0
    for term in _TERMS:
        series = (series + term) * inverse_square
    return (0.5 * z * z + math.log(z) + _LOG_SQRT_2_PI - math.log1p(series)) / LN_10


_PHI_WHERE_THEY_MEET = _by_expansion(_EXPANSION_FROM)


THRESHOLD_MIN, THRESHOLD_MAX = 1e-6, 1e6

# An interval longer than the acceptable pause is an interruption, from which nothing is learnt.  Since
# the pause may be 0, it must also be longer than this many expected intervals.
_INTERRUPTION_INTERVALS = 4.0
# This many interruptions in a row are a new rhythm.
_INTERRUPTIONS_MAX = 8


class PhiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a phi detector judges.

    threshold: suspected from this phi on.
    first_interval_s: how far apart heartbeats are expected to be until some were seen; the deviation is
    taken to be a quarter of it.
    window_max: how many intervals are remembered.
    deviation_min_s: the least deviation that is assumed; otherwise the first late packet after a steady
    hour would give a very high phi.
    acceptable_pause_s: added to the mean, to tolerate pauses such as garbage collections.
    distribution: "normal", or "exponential" for heartbeats that come at random, as gossip does.

    >>> PhiSettings(threshold=10.0).window_max
    200
    """

    threshold: float = 8.0
    first_interval_s: float = 1.0
    window_max: int = 200
    deviation_min_s: float = 0.1
    acceptable_pause_s: float = 3.0
    distribution: Literal["normal", "exponential"] = "normal"

    def __post_init__(self) -> None:
        for name, least, most in _LIMITS:
            if not least <= getattr(self, name) <= most:
                raise InvalidRequest(
                    f"{name} must be between {least:g} and {most:g}, not {getattr(self, name)}"
                )
        if self.distribution not in ("normal", "exponential"):
            raise InvalidRequest(
                f"distribution must be 'normal' or 'exponential', not {self.distribution!r}"
            )


_LIMITS = (
    ("threshold", THRESHOLD_MIN, THRESHOLD_MAX),
    ("first_interval_s", 1e-6, INTERVAL_MAX_S),
    ("window_max", 2, 1_000_000),
    ("deviation_min_s", 1e-6, INTERVAL_MAX_S),
    ("acceptable_pause_s", 0.0, INTERVAL_MAX_S),
)

_DEFAULTS = PhiSettings()


class PhiDetector:
    """Suspicion level of one peer, learnt from its heartbeats.

    >>> detector = PhiDetector(PhiSettings(threshold=8.0, acceptable_pause_s=0.0))
    >>> for second in range(60):
    ...     detector.heartbeat(float(second))
    >>> round(detector.phi(60.0), 1), round(detector.phi(60.3), 1), round(detector.phi(60.8), 1)
    (0.3, 2.9, 15.2)
    >>> round(detector.suspected_at(), 2)
    60.56
    """

    __slots__ = (
        "_centre_s", "_deviation_s", "_expected_s", "_interruptions", "_last", "_phi_at_once",
        "_settings", "_suspected_at", "_window",
    )  # fmt: skip

    def __init__(self, settings: PhiSettings = _DEFAULTS) -> None:
        self._settings = settings
        self._window = IntervalWindow(settings.window_max)
        self._interruptions: list[float] = []
        self._last: float | None = None
        self._suspected_at: float | None = None
        self._expect(settings.first_interval_s)

    @property
    def threshold(self) -> float:
        """The phi from which on the peer is suspected."""
        return self._settings.threshold

    @property
    def mean_s(self) -> float:
        """The mean of the intervals in the window."""
        return self._window.mean_s

    @property
    def deviation_s(self) -> float:
        """The deviation with which phi is computed: that of the window, or `deviation_min_s`."""
        return self._deviation_s

    @property
    def heard_at(self) -> float | None:
        """When the peer was last heard from; None before the first time."""
        return self._last

    def heartbeat(self, now: float) -> None:
        """The peer was heard from."""
        refuse_backwards(self._last, now)
        if self._last is not None:
            self._learn(silence_s(self._last, now))
        self._last = now
        self._suspected_at = None

    def level(self, now: float) -> float:
        """Phi: 0 at a heartbeat and before the first."""
        return self._phi_after(silence_s(self._last, now))

    phi = level

    def is_suspected(self, now: float) -> bool:
        """Whether phi has reached the threshold."""
        return self.level(now) >= self._settings.threshold

    def suspected_at(self) -> float | None:
        """When phi will reach the threshold if nothing arrives; None before the first heartbeat."""
        if self._suspected_at is None:
            self._suspected_at = self.reaches_at(self._settings.threshold)
        return self._suspected_at

    def reaches_at(self, phi: float) -> float | None:
        """The first moment at which phi is this large, for a caller with a threshold of its own.

        None before the first heartbeat.

        >>> detector = PhiDetector()
        >>> detector.heartbeat(0.0)
        >>> moment = detector.reaches_at(5.0)
        >>> detector.phi(moment) >= 5.0 > detector.phi(moment - 1e-6)
        True
        """
        if not THRESHOLD_MIN <= phi <= THRESHOLD_MAX:
            raise InvalidRequest(
                f"phi must be between {THRESHOLD_MIN:g} and {THRESHOLD_MAX:g}, not {phi}"
            )
        if self._last is None:
            return None
        guess = self._last + self._silence_with(phi)
        return _first_moment(lambda now: self.level(now) >= phi, guess, not_before=self._last)

    def reset(self) -> None:
        """The peer was restarted: begin with the estimate again; phi is 0."""
        self._last = None
        self._suspected_at = None
        self._expect(self._settings.first_interval_s)

    def _learn(self, interval_s: float) -> None:
        if interval_s <= max(
            self._settings.acceptable_pause_s, _INTERRUPTION_INTERVALS * self._expected_s
        ):
            self._window.add(interval_s)
            self._interruptions.clear()
            self._measure()
            return
        self._interruptions.append(min(interval_s, INTERVAL_MAX_S))
        if len(self._interruptions) == _INTERRUPTIONS_MAX:
            self._expect(sorted(self._interruptions)[_INTERRUPTIONS_MAX // 2])

    def _expect(self, interval_s: float) -> None:
        """Begin anew with an estimate.

        Without history the first silence would be infinitely improbable, and every starting peer would
        be suspected at once.  Two intervals, a quarter below and above, have this mean and deviation.
        """
        self._expected_s = interval_s
        self._interruptions.clear()
        self._window.clear()
        self._window.add(0.75 * interval_s)
        self._window.add(1.25 * interval_s)
        self._measure()

    def _measure(self) -> None:
        self._centre_s = self._window.mean_s + self._settings.acceptable_pause_s
        self._deviation_s = max(self._window.deviation_s, self._settings.deviation_min_s)
        # The part of the distribution below 0 is cut off; phi is counted from there.
        self._phi_at_once = phi_of_normal(-self._centre_s / self._deviation_s)

    def _phi_after(self, silent_s: float) -> float:
        if self._settings.distribution == "exponential":
            late_s = max(0.0, silent_s - self._settings.acceptable_pause_s)
            return late_s / (self._exponential_mean_s * LN_10)
        z = (silent_s - self._centre_s) / self._deviation_s
        return max(0.0, phi_of_normal(z) - self._phi_at_once)

    def _silence_with(self, phi: float) -> float:
        """The silence after which phi is this large, apart from rounding."""
        if self._settings.distribution == "exponential":
            return self._settings.acceptable_pause_s + phi * self._exponential_mean_s * LN_10
        return self._centre_s + self._deviation_s * _normal_with(phi + self._phi_at_once)

    @property
    def _exponential_mean_s(self) -> float:
        # The deviation of an exponential distribution is its mean: the same minimum keeps a burst of
        # heartbeats from making every pause after it suspicious.
        return max(self._window.mean_s, self._settings.deviation_min_s)


def _normal_with(phi: float) -> float:
    """The z with this phi, by Newton's method.

    P(Z > z) is at most exp(-z²/2) / 2, so the first guess is not below the answer; phi is convex, so
    the steps approach it from above.
    """
    z = math.sqrt(2.0 * LN_10 * phi)
    for _ in range(60):
        reached = phi_of_normal(z)
        slope = math.exp(reached * LN_10 - 0.5 * z * z) / (math.sqrt(2.0 * math.pi) * LN_10)
        step = (reached - phi) / slope
        z -= step
        if abs(step) <= 1e-15 * max(1.0, abs(z)):
            break
    return z


def _first_moment(reached: Callable[[float], bool], guess: float, *, not_before: float) -> float:
    """The smallest float at which `reached` is true, near the guess; it is false at `not_before`.

    A timer that fires slightly too early would find nothing to do, and be set again and again.
    """
    late = early = max(guess, not_before)
    step = math.ulp(late)
    if reached(late):
        while early > not_before and reached(early):
            late, early, step = early, max(early - step, not_before), 2 * step
    else:
        while not reached(late):
            early, late, step = late, late + step, 2 * step
    while early < (middle := early + (late - early) / 2) < late:
        early, late = (early, middle) if reached(middle) else (middle, late)
    return late
