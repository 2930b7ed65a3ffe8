"""How long a message takes: distributions, each a value with one method.

`draw(rng)` gives seconds and uses no randomness but that of `rng`, so the same generator gives the same
delays.  No draw is negative.
"""

from __future__ import annotations

import math
import random
from typing import Protocol

import msgspec

from quoracy.errors import InvalidRequest

__all__ = ["Constant", "Latency", "LogNormal", "Normal", "Pareto", "Uniform"]


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
    """A bell around the mean; what would be less than `least_s` is `least_s`.

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
