"""The shortest sequence that still shows a difference: steps are left out while it does.

Each attempt is made on two new servers, so that nothing of an attempt is left for the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.differential.zk_lockstep import Lockstep
from tests.differential.zk_steps import Ask, Step

__all__ = ["Pair", "explained", "shrunk"]

# Gives two new servers in step.
Pair = Callable[[], AbstractContextManager[Lockstep]]

_SHRINK_S_MAX = 60.0


def explained(
    error: AssertionError, steps: list[Step], pair: Pair, *, within_s: float = _SHRINK_S_MAX
) -> str:
    """The difference, and the fewest steps that were found to show it."""
    few, last = shrunk(error, steps, pair, within_s=within_s)
    if last is None:
        lines = ["new servers do not show it; after", *map(str, few)]
    else:
        lines = [*map(str, few), "", str(last), *getattr(last, "__notes__", [])]
    return "\n  ".join(
        [str(error), *getattr(error, "__notes__", []), "", f"shrunk to {len(few)} steps:", *lines]
    )


def shrunk(
    error: AssertionError, steps: list[Step], pair: Pair, *, within_s: float = _SHRINK_S_MAX
) -> tuple[list[Step], AssertionError | None]:
    """Fewer steps, and the error they end in; no error if even all of them end in none."""
    deadline = time.monotonic() + within_s
    steps = steps[: getattr(error, "step", len(steps)) + 1]
    last = _error_of(steps, pair)
    if last is None:
        return steps, None
    for attempt in (_one_by_one(steps), steps):
        found = _error_of(attempt, pair)
        if found is not None and _kind(found) == _kind(last):
            return _without_needless(attempt, found, pair, deadline)
    return steps, last


def _without_needless(
    steps: list[Step], last: AssertionError, pair: Pair, deadline: float
) -> tuple[list[Step], AssertionError]:
    """Leave out halves, then quarters, and in the end single steps, from the last to the first."""
    size = max(1, len(steps) // 2)
    while True:
        at = len(steps)
        while at > 0 and time.monotonic() < deadline:
            fewer = steps[: max(0, at - size)] + steps[at:]
            found = _error_of(fewer, pair)
            if found is not None and _kind(found) == _kind(last):
                steps, last = fewer[: getattr(found, "step", len(fewer)) + 1], found
            at = min(at - size, len(steps))
        if size == 1 or time.monotonic() >= deadline:
            return steps, last
        size //= 2


def _one_by_one(steps: list[Step]) -> list[Step]:
    """Each burst as requests that wait for one another."""
    alone: list[Step] = []
    for step in steps:
        if isinstance(step, Ask):
            alone += [Ask(step.client, (request,)) for request in step.requests]
        else:
            alone.append(step)
    return alone


def _error_of(steps: list[Step], pair: Pair) -> AssertionError | None:
    with pair() as lockstep:
        try:
            lockstep.take_all(steps)
        except AssertionError as error:
            return error
    return None


def _kind(error: AssertionError) -> str:
    return str(getattr(error, "what", str(error).splitlines()[0]))
