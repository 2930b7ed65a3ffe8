"""Memory that nothing needs at the moment is given back: see docs/decisions/0013.

Most of what a process that has just started counts as resident is code that ran once; and most of what
one counts that was busy and has nothing to do any more is code that runs when it is busy.

Invariants
    * Only where nothing happens: with less to do than `_QUIET` of a processor, for `_LOOK_S`.
    * Once when all has started, once when it is quiet after that, and then after every time that was
      not quiet, but no more often than every `_PAUSE_S`.
    * Code that is used again is found in the system's cache of files.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from quoracy.clock import Clock, SystemClock, Timer

__all__ = ["GivingBack", "give_back"]

_LOOK_S = 2.0
_QUIET = 0.01
_PAUSE_S = 60.0


def give_back() -> int:
    """How many bytes of code this process no longer counts as its own; 0 where nothing was compiled.

    It takes about a millisecond.
    """
    try:
        from quoracy.server import _resident
    except ImportError:
        return 0
    return _resident.give_back()


class GivingBack:
    """Does so from now on, until it is closed.  `processor_s` is what this process has used so far."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        processor_s: Callable[[], float] = time.process_time,
        give_back: Callable[[], object] = give_back,
    ) -> None:
        self._clock = clock or SystemClock()
        self._processor_s, self._give_back = processor_s, give_back
        self._give_back()
        self._is_due = True  # whoever was told of the start comes now
        self._not_before = self._looked_at = self._clock.now()
        self._used_s = self._processor_s()
        self._timer: Timer = self._clock.call_later(_LOOK_S, self._look)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now, used_s = self._clock.now(), self._processor_s()
        is_quiet = used_s - self._used_s < _QUIET * (now - self._looked_at)
        if not is_quiet:
            self._is_due = True
        elif self._is_due and now >= self._not_before:
            self._give_back()
            self._is_due = False
            self._not_before = now + _PAUSE_S
            used_s = self._processor_s()
        self._looked_at, self._used_s = now, used_s
        self._timer = self._clock.call_later(_LOOK_S, self._look)
