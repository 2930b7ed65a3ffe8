"""How well a member thinks it is doing itself: Lifeguard's local health multiplier.

A member that gets no answers may be the one that is ill.  Each sign of that raises the score, each
answered probe lowers it, and the higher it is, the longer the member waits before it blames another.
"""

from __future__ import annotations

__all__ = ["LocalHealth"]


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
        """Worse by so much; better, if negative."""
        self.score = min(max(self.score + change, 0), self._score_max)

    def scale(self, seconds: float) -> float:
        return seconds * (self.score + 1)
