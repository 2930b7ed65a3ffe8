"""A token bucket that many share, as arithmetic: no store, no clock, every method takes the time.

The bucket keeps how many tokens were taken and have not flowed back yet (`level`), and when that was so
(`at`, in *bucket time*).  `rate` tokens flow back in a second; up to `burst` may be out at once.
Whoever takes more than that reserves: its tokens are out from now on, and it goes on when enough have
flowed back.

Whose clock counts.  Bucket time is the wall clock of whoever is ahead.  It only goes forward.  How much
of it has passed since a state was written each taker judges by its own wall clock, within what it has
witnessed itself on its monotonic clock:

    not before: it has had this very state in hand for that long, so at least that much has passed
    not after:  at a moment so long ago the state was not written yet, so no more than that has passed

A wall clock that is behind therefore never locks anybody out: time passes as it is witnessed.  One that
jumps ahead can move bucket time once, which lets at most one more burst through.

Invariants
    * With wall clocks that agree, no more than `rate * t + burst` tokens are granted for any span of t
      seconds.  With clocks that differ by at most e seconds: `rate * (t + e) + burst`.
    * One taker alone is granted no more than that whatever its wall clock does.
    * `at` never goes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

__all__ = ["Bucket", "Grant", "Level", "Witness"]


class Level(msgspec.Struct, frozen=True):
    """The tokens that were out at a moment in bucket time."""

    at: float
    level: float


@dataclass(frozen=True, slots=True)
class Witness:
    """A state as one taker has it in hand.

    known_from: since when, on its monotonic clock, it knows the state to be written.
    unknown_until: when it last knew that the state was not written yet; minus infinity: never.
    """

    state: Level
    known_from: float
    unknown_until: float = -math.inf

    def elapsed(self, *, now: float, wall: float) -> float:
        """How much bucket time has passed since the state was written."""
        least_s, most_s = max(0.0, now - self.known_from), max(0.0, now - self.unknown_until)
        return min(max(wall - self.state.at, least_s), most_s)


@dataclass(frozen=True, slots=True)
class Grant:
    """What taking tokens now comes to: how long to wait for them, and the state that follows."""

    wait_s: float
    state: Level


class Bucket:
    """How fast tokens flow back, and how many may be out.

    ahead_s: how far into the future tokens may be reserved.
    """

    def __init__(self, rate: float, burst: float, *, ahead_s: float) -> None:
        self.rate, self.burst, self.ahead_s = rate, burst, ahead_s

    def take(self, n: float, seen: Witness | None, *, now: float, wall: float) -> Grant:
        """Take `n` tokens, at once or reserved; with no state yet, the bucket is full."""
        at, level = wall, 0.0
        if seen is not None:
            elapsed_s = seen.elapsed(now=now, wall=wall)
            at, level = seen.state.at + elapsed_s, self._left(seen.state, elapsed_s)
        level += n
        return Grant(max(0.0, level - self.burst) / self.rate, Level(at, level))

    def free(self, seen: Witness | None, *, now: float, wall: float) -> float:
        """How many tokens can be had at once; less than 0: that many are reserved."""
        if seen is None:
            return self.burst
        return self.burst - self._left(seen.state, seen.elapsed(now=now, wall=wall))

    def _left(self, state: Level, elapsed_s: float) -> float:
        # More than could be reserved was written by somebody with another rate or burst, or not by us
        # at all: it must not keep everyone waiting for longer than a reservation can.
        out_max = self.burst + self.rate * self.ahead_s
        return max(0.0, min(state.level, out_max) - elapsed_s * self.rate)
