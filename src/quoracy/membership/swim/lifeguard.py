"""Lifeguard: how long a suspect has to answer, and how well a member thinks it is doing itself.

A suspect has a long time to say that it is alive while one member suspects it, a short one when many
do.  With c confirmations of k, the time is

    max - (max - min) * log(c + 1) / log(k + 1)

so the first confirmations weigh most.  A member whose own network is broken suspects everyone, and
nobody confirms it: its suspects get the longest time, in which its own doubt can grow.

A member that gets no answers may be the one that is ill.  Each sign of that raises its local health
score, each answered probe lowers it, and the higher the score, the longer the member waits before it
blames another.
"""

from __future__ import annotations

import math

__all__ = ["LocalHealth", "Suspicion"]


class Suspicion:
    """A suspicion that one member has of another.

    >>> doubt = Suspicion("a", confirmations_max=2, min_s=4.0, max_s=24.0, now=100.0)
    >>> doubt.deadline
    124.0
    >>> doubt.confirm("a"), doubt.confirm("b"), doubt.confirm("b"), doubt.confirm("c")
    (False, True, False, True)
    >>> doubt.deadline
    104.0
    """

    __slots__ = ("_accusers", "_confirmations_max", "_max_s", "_min_s", "_since", "deadline")

    def __init__(
        self, accuser: str, *, confirmations_max: int, min_s: float, max_s: float, now: float
    ) -> None:
        self._accusers = {accuser}
        self._confirmations_max = confirmations_max
        self._min_s, self._max_s = min_s, max_s
        self._since = now
        # If nobody can confirm it, waiting for confirmations would only cost time.
        self.deadline = now + (max_s if confirmations_max > 0 else min_s)

    @property
    def confirmations(self) -> int:
        """How many members besides the first accuser suspect it."""
        return len(self._accusers) - 1

    def confirm(self, accuser: str) -> bool:
        """Another member suspects it too.  Returns whether it counts: each once, up to a maximum."""
        if self.confirmations >= self._confirmations_max or accuser in self._accusers:
            return False
        self._accusers.add(accuser)
        part = math.log(self.confirmations + 1) / math.log(self._confirmations_max + 1)
        self.deadline = self._since + max(self._min_s, self._max_s - part * (self._max_s - self._min_s))
        return True

    def postpone(self, seconds: float, at_least: float) -> None:
        """We were stopped for some seconds: move the deadline by them, to `at_least` or later."""
        self._since += seconds
        self.deadline = max(self.deadline + seconds, at_least)


class LocalHealth:
    """A score from 0 (well) to `score_max`.

    >>> health = LocalHealth(7)
    >>> health.note(+3)
    >>> health.scale(1.0)
    4.0
    """

    __slots__ = ("_score_max", "score")

    def __init__(self, score_max: int) -> None:
        self.score = 0
        self._score_max = score_max

    def note(self, change: int) -> None:
        """Raise the score, or lower it if `change` is negative."""
        self.score = min(max(self.score + change, 0), self._score_max)

    def scale(self, seconds: float) -> float:
        return seconds * (self.score + 1)
