"""No acknowledged write is lost: what was added to a set is there at the end, once, and nothing else.

Clients add elements that are unique in their set (one key each, or one znode each).  When all faults
are healed the set is read once.  Every acknowledged element must be in it, none that was surely
refused, none that nobody added, none twice.  An element whose outcome is not known may be there or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.checkers.history import Verdict

__all__ = ["Add", "Outcome", "check_acknowledged"]

Outcome = Literal["acknowledged", "unknown", "refused"]
_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Add:
    """One element that a client tried to add to the set called `name`."""

    name: str
    element: bytes
    outcome: Outcome


def check_acknowledged(adds: Iterable[Add], final: Mapping[str, Sequence[bytes]]) -> Verdict:
    """Compare what clients were told with what each set holds at the end; a set not named is empty."""
    told: dict[str, dict[bytes, Outcome]] = {}
    checked = 0
    for add in adds:
        elements = told.setdefault(add.name, {})
        if add.element in elements:
            raise ValueError(f"{add.element!r} was added to {add.name} twice: elements must be unique")
        elements[add.element] = add.outcome
        checked += 1
    problems = [
        problem
        for name in sorted(told.keys() | final.keys())
        for problem in _differences(name, told.get(name, {}), final.get(name, ()))
    ]
    return Verdict(not problems, checked, "\n".join(problems))


def _differences(name: str, told: Mapping[bytes, Outcome], final: Sequence[bytes]) -> Iterable[str]:
    there = Counter(final)
    lost = [each for each, outcome in told.items() if outcome == "acknowledged" and each not in there]
    refused = [each for each in there if told.get(each) == "refused"]
    strange = [each for each in there if each not in told]
    twice = [each for each, count in there.items() if count > 1]
    if lost:
        yield f"{name}: acknowledged, but gone: {_some(lost)}"
    if refused:
        yield f"{name}: refused, but there: {_some(refused)}"
    if strange:
        yield f"{name}: there, but added by nobody: {_some(strange)}"
    if twice:
        yield f"{name}: there more than once: {_some(twice)}"


def _some(elements: Collection[bytes]) -> str:
    shown = ", ".join(repr(element) for element in sorted(elements)[:_SHOWN_MAX])
    more = len(elements) - _SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown
