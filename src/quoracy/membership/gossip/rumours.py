"""Rumours: what is new enough to be sent unasked, and how many more times.

Every advance of an owner's replica is sent in a number of rounds, together with what followed it.
Those that were sent least come first, so that a flood of news does not hide the newest.

Invariants
    * At most `hot_max` owners have rumours; the one that was sent most makes room.
    * One owner has at most one step for each round of a rumour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

__all__ = ["Rumours"]


class _Hot:
    """The advances of one owner that are still sent: where each began, and how many rounds are left."""

    __slots__ = ("generation", "steps")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.steps: deque[list[int]] = deque()


class Rumours:
    """The rumours of one participant.

    >>> rumours = Rumours(hot_max=10)
    >>> rumours.heat("a", generation=1, after=4, times=1)
    >>> [(owner, after) for owner, generation, after in rumours]
    [('a', 4)]
    >>> rumours.told("a")
    >>> len(rumours)
    0
    """

    __slots__ = ("_hot", "_hot_max")

    def __init__(self, *, hot_max: int) -> None:
        self._hot_max = hot_max
        self._hot: dict[str, _Hot] = {}

    def __len__(self) -> int:
        return len(self._hot)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Owner, generation and the version after which it is sent; those sent least first."""
        order = sorted(self._hot.items(), key=lambda item: -item[1].steps[-1][1])
        return ((owner, hot.generation, hot.steps[0][0]) for owner, hot in order)

    def heat(self, owner: str, *, generation: int, after: int, times: int) -> None:
        """An owner advanced beyond version `after` (0: all is new), which is sent `times` times."""
        hot = self._hot.get(owner)
        if hot is None:
            if len(self._hot) >= self._hot_max:
                *_, (most_told, _, _) = self
                del self._hot[most_told]
            hot = self._hot[owner] = _Hot(generation)
        elif not after or hot.generation != generation:
            hot.generation = generation
            hot.steps.clear()
        # What was not sent yet goes with the same step.
        if not hot.steps or hot.steps[-1][1] < times:
            hot.steps.append([after, times])

    def told(self, owner: str) -> None:
        hot = self._hot[owner]
        for step in hot.steps:
            step[1] -= 1
        while hot.steps and hot.steps[0][1] <= 0:
            hot.steps.popleft()
        if not hot.steps:
            del self._hot[owner]

    def cool(self, owner: str) -> None:
        """Send no more about an owner."""
        self._hot.pop(owner, None)
