"""How much history is kept before it is compacted away without anybody asking."""

from __future__ import annotations

from collections import deque

import msgspec

__all__ = ["Ages", "Retention"]


class Retention(msgspec.Struct, frozen=True, gc=False):
    """Auto-compaction: what is beyond either bound goes; None turns a bound off.

    revisions_max: how many revisions before the newest can be read and watched from.
    age_max_s: how old they may be, counted while the store is open.

    Besides, history gives way to data: when the store is three quarters full, all of it is compacted,
    unless both bounds are off.
    """

    revisions_max: int | None = 100_000
    age_max_s: float | None = 3600.0

    @property
    def enabled(self) -> bool:
        return self.revisions_max is not None or self.age_max_s is not None


class Ages:
    """Which revision was the newest so long ago?  A few samples answer, however many revisions.

    The answer is off by at most a tenth of `age_max_s`, always towards keeping more.
    """

    __slots__ = ("_age_max_s", "_samples")

    def __init__(self, age_max_s: float) -> None:
        self._age_max_s = age_max_s
        self._samples: deque[tuple[float, int]] = deque()

    def expired(self, revision: int, *, now: float) -> int:
        """Note the newest revision; return the newest one that is too old, 0 if none is."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._age_max_s / 10:
            samples.append((now, revision))
        while len(samples) > 1 and samples[1][0] <= now - self._age_max_s:
            samples.popleft()
        at, oldest = samples[0]
        return oldest if at <= now - self._age_max_s else 0
