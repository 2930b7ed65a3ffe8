"""Nothing is believed twice: the age of a sealed message, and the nonces that were seen lately.

A recorded message can be sent again by anyone who saw it pass.  Its age (the wall clock of its sender,
inside the authenticated part) limits for how long that could work, and within that time its nonce is
remembered, so that it does not work at all.

Only what carried a valid seal comes here, so rubbish cannot fill the memory.

Invariants
    * What was admitted once is not admitted again as long as this process lives and its wall clock does
      not jump ahead and back by more than `age_max_s`.  A restarted process remembers nothing: what was
      recorded in the `age_max_s` before its start can be played back to it once.
    * At most `nonces_max` nonces are kept.  At the bound the oldest second of them is forgotten, and
      from then on nothing as old as that second is admitted: the window gets shorter, never leaky.
      What is lost are messages of members whose clocks lag.
"""

from __future__ import annotations

import math

from quoracy.errors import InvalidRequest
from quoracy.membership.runtime.drops import DropReason

__all__ = ["ReplayWindow"]


class ReplayWindow:
    """The nonces of the last minute.

    age_max_s: how far the sender's clock may be from ours, either way; it is the age and the difference
    of the clocks together.  `math.inf` leaves it to the bound alone.

    >>> window = ReplayWindow(age_max_s=60.0, nonces_max=1_000)
    >>> window.admit(b"nonce", sent_ms=5_000, now_ms=5_020) is None
    True
    >>> window.admit(b"nonce", sent_ms=5_000, now_ms=5_040).value
    'replayed'
    >>> window.admit(b"other", sent_ms=5_000, now_ms=65_001).value
    'too old'
    """

    __slots__ = ("_age_max_ms", "_count", "_floor_ms", "_nonces_max", "_seconds")

    def __init__(self, *, age_max_s: float, nonces_max: int) -> None:
        if not age_max_s > 0:
            raise InvalidRequest(f"age_max_s must be more than 0, not {age_max_s}")
        if nonces_max < 1:
            raise InvalidRequest(f"nonces_max must be at least 1, not {nonces_max}")
        self._age_max_ms = age_max_s * 1_000
        self._nonces_max = nonces_max
        self._seconds: dict[int, set[bytes]] = {}  # second of sending -> nonces
        self._count = 0
        self._floor_ms = -math.inf

    def __len__(self) -> int:
        return self._count

    def admit(self, nonce: bytes, *, sent_ms: int, now_ms: int) -> DropReason | None:
        """None if it is new and of an acceptable age, and remember it; else why it is not."""
        if sent_ms < self._floor_ms or abs(now_ms - sent_ms) > self._age_max_ms:
            return DropReason.TOO_OLD
        second = sent_ms // 1_000
        nonces = self._seconds.get(second)
        if nonces is None:
            self._forget_aged(now_ms)
            nonces = self._seconds[second] = set()
        elif nonce in nonces:
            return DropReason.REPLAYED
        nonces.add(nonce)
        self._count += 1
        if self._count > self._nonces_max:
            oldest = min(self._seconds)
            self._count -= len(self._seconds.pop(oldest))
            self._floor_ms = (oldest + 1) * 1_000
        return None

    def _forget_aged(self, now_ms: int) -> None:
        # Once per second of sending, so what it costs does not depend on how much arrives.
        too_old_ms = now_ms - self._age_max_ms
        for second in [each for each in self._seconds if (each + 1) * 1_000 <= too_old_ms]:
            self._count -= len(self._seconds.pop(second))
