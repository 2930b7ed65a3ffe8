"""A shared token bucket, as arithmetic: no store, no clock, every method takes the time.

The state of the bucket is the number of tokens that were taken and have not been refilled yet
(`level`), and the time of that (`at`, in *bucket time*).  `rate` tokens are refilled in a second; up to
`burst` may be out at once.  A client that takes more reserves: its tokens are out from now on, and it
continues when enough were refilled.

Bucket time is the wall clock of the client that is furthest ahead.  It only goes forward.  Each client
judges by its own wall clock how much of it has passed since a state was written, within the limits of
what it has observed on its monotonic clock:

    at least: the time for which it has known this very state
    at most:  the time since a moment at which the state was not written yet

A wall clock that is behind therefore never blocks a client: time passes as it is observed.  A clock
that jumps ahead can move bucket time once, which lets at most one more burst through.

Invariants
    * With wall clocks that agree, at most `rate * t + burst` tokens are granted in any t seconds.  With
      clocks that differ by at most e seconds: `rate * (t + e) + burst`.
    * One client alone is granted at most that, whatever its wall clock shows.
    * `at` never goes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

__all__ = ["Bucket", "Grant", "Level", "ObservedState"]


class Level(msgspec.Struct, frozen=True):
    """The number of tokens that were out at a moment in bucket time."""

    at: float
    level: float


@dataclass(frozen=True, slots=True)
class ObservedState:
    """A state as one client has observed it.

    known_from: the time on its monotonic clock since which it has known the state.
    unknown_until: the last time at which it knew the state not to be written yet; minus infinity: none.
    """

    state: Level
    known_from: float
    unknown_until: float = -math.inf

    def elapsed(self, *, now: float, wall: float) -> float:
        """The bucket time that has passed since the state was written."""
        least_s, most_s = max(0.0, now - self.known_from), max(0.0, now - self.unknown_until)
        return min(max(wall - self.state.at, least_s), most_s)


@dataclass(frozen=True, slots=True)
class Grant:
    """The result of taking tokens: how long to wait for them, and the state that follows."""

    wait_s: float
    state: Level


class Bucket:
    """The refill rate, and the number of tokens that may be out.

    ahead_s: how far into the future tokens may be reserved.
    """

    def __init__(self, rate: float, burst: float, *, ahead_s: float) -> None:
        self.rate, self.burst, self.ahead_s = rate, burst, ahead_s

    def take(self, n: float, seen: ObservedState | None, *, now: float, wall: float) -> Grant:
        """Take `n` tokens, at once or reserved; with no state yet, the bucket is full."""
        at, level = wall, 0.0
        if seen is not None:
            elapsed_s = seen.elapsed(now=now, wall=wall)
            at, level = seen.state.at + elapsed_s, self._left(seen.state, elapsed_s)
        level += n
        return Grant(max(0.0, level - self.burst) / self.rate, Level(at, level))

    def free(self, seen: ObservedState | None, *, now: float, wall: float) -> float:
        """The number of tokens that are free; a negative number is reserved."""
        if seen is None:
            return self.burst
        return self.burst - self._left(seen.state, seen.elapsed(now=now, wall=wall))

    def _left(self, state: Level, elapsed_s: float) -> float:
        # A level beyond what can be reserved was written with another rate or burst, or by another
        # program: it must not block clients for longer than a reservation can.
        out_max = self.burst + self.rate * self.ahead_s
        return max(0.0, min(state.level, out_max) - elapsed_s * self.rate)
