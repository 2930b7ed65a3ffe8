"""Sequence numbers: each is given once per parent, and they grow in the order of the changes.

ZooKeeper appends ten digits to the name of a sequential znode.  Under one parent no number is given
twice, whatever the names before the digits; a later change (a larger zxid) gives larger numbers; and
a node asked for after another was acknowledged has the larger number.  The creations of one multi share
a zxid.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from tests.checkers.history import Verdict

__all__ = ["Created", "check_sequences"]

_NUMBER = re.compile(r"\d{10}\Z")


class Created(NamedTuple):
    """A sequential znode that was surely created; what is not known of it is None."""

    parent: str
    name: str  # without the parent's path
    zxid: int | None = None  # the zxid that created it
    call: float | None = None
    done: float | None = None

    @property
    def number(self) -> int:
        digits = _NUMBER.search(self.name)
        if digits is None:
            raise ValueError(f"{self.parent}: {self.name!r} does not end with ten digits")
        return int(digits[0])


def check_sequences(
    created: Iterable[Created | tuple[str, str, int | None]],
) -> Verdict:
    """Judge all creations; each is recorded once."""
    parents: dict[str, list[Created]] = defaultdict(list)
    for each in created:
        node = Created(*each)
        parents[node.parent].append(node)
    problems = []
    for parent, nodes in sorted(parents.items()):
        for check in (_unique, _grow_with_zxid, _grow_with_time):
            problems += [f"{parent}: {problem}" for problem in check(nodes)]
    return Verdict(not problems, sum(map(len, parents.values())), "\n".join(problems))


def _unique(nodes: list[Created]) -> Iterator[str]:
    first: dict[int, Created] = {}
    for node in nodes:
        other = first.setdefault(node.number, node)
        if other is not node:
            yield f"number {node.number} was given twice: to {_shown(other)} and to {_shown(node)}"


def _grow_with_zxid(nodes: list[Created]) -> Iterator[str]:
    known = [(node.zxid, node.number, node) for node in nodes if node.zxid is not None]
    known.sort(key=lambda each: each[:2])
    largest: Created | None = None
    for _, group in groupby(known, key=lambda each: each[0]):
        same = [node for _, _, node in group]
        if largest is not None and same[0].number < largest.number:
            yield f"{_shown(same[0])} came after {_shown(largest)}, with a smaller number"
        if largest is None or same[-1].number > largest.number:
            largest = same[-1]


def _grow_with_time(nodes: list[Created]) -> Iterator[str]:
    timed = [(node.call, node.done, node) for node in nodes if node.call is not None]
    by_done = sorted(
        ((done, node) for _, done, node in timed if done is not None), key=lambda pair: pair[0]
    )
    largest: Created | None = None
    before = 0
    for call, _, node in sorted(timed, key=lambda each: each[0]):
        while before < len(by_done) and by_done[before][0] < call:
            ended = by_done[before][1]
            if largest is None or ended.number > largest.number:
                largest = ended
            before += 1
        if largest is not None and node.number < largest.number:
            yield f"{_shown(node)} was asked for after {_shown(largest)} was acknowledged"


def _shown(node: Created) -> str:
    return node.name if node.zxid is None else f"{node.name} (zxid {node.zxid:#x})"
