"""Whether to wait a moment for writers that were just answered: most of them write again at once.

Sixteen clients, each with one write at a time, are answered by one commit and come back within some
hundred microseconds, one after the other.  To sleep between them takes longer than any of them needs,
and to commit what the first few wrote makes the others wait for a sync that is not theirs.  So the loop
stays awake for some turns, in which it does whatever else there is to do, and the next commit leaves
when all are back, or when none came for a while.  Decision 0012 has the figures.

Only for clients of a face.  Writers in this process are back in the same turn, and gain more by being
two groups that take turns at the disk.

Invariants
    * No clock: it counts turns of the loop.
    * It waits only for a number of writers that a commit has just answered, and never for a single one,
      which has its commit to itself, nor for many, of which some are always there.
    * What it costs is bounded: by turns since the last writer came, and by turns for each in all.
    * Where most did not come, it waits for fewer and fewer of those that follow.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CommitDelay"]

_WRITERS_MIN: Final = 2
_WRITERS_MAX: Final = 64
_TURNS: Final = 24  # since the last writer came
_TURNS_EACH: Final = 4  # in all, for each writer that is awaited
_SKIPPED_MAX: Final = 63


class CommitDelay:
    """The writers that are awaited; `awaited` is how many."""

    __slots__ = ("_count", "_skip", "_skipped", "_turns_left", "_turns_left_in_all", "awaited")

    def __init__(self) -> None:
        self.awaited = 0
        self._count = 0  # awaited at first
        self._turns_left = self._turns_left_in_all = 0
        self._skip = 0  # commits not to wait after
        self._skipped = 0  # what that was the last time

    def answered(self, count: int) -> bool:
        """`count` writers are being answered: whether to wait for them."""
        if not _WRITERS_MIN <= count <= _WRITERS_MAX:
            return False
        if self._skip:
            self._skip -= 1
            return False
        self.awaited = self._count = count
        self._turns_left = _TURNS
        self._turns_left_in_all = _TURNS + _TURNS_EACH * count
        return True

    def came(self) -> bool:
        """One has written; whether there are others to wait for."""
        self.awaited -= 1
        self._turns_left = _TURNS
        if not self.awaited:
            self._skipped = 0
            return False
        return True

    def turn(self) -> bool:
        """A turn of the loop has passed; whether to wait for another."""
        if not self.awaited:
            return False
        self._turns_left -= 1
        self._turns_left_in_all -= 1
        if self._turns_left > 0 and self._turns_left_in_all > 0:
            return True
        if 2 * self.awaited > self._count:
            self._skipped = self._skip = min(2 * self._skipped + 1, _SKIPPED_MAX)
        else:
            self._skipped = 0
        self.awaited = 0
        return False
