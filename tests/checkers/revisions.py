"""Revisions tell the order, so most histories need no search: sort, replay, done.

A write's revision is its own; a read (or a compare that failed) was answered from the state of the
revision it carries.  That gives one order, and where it explains every answer and agrees with real time
it is a proof of linearizability, found in the time of a sort.

The other way round revisions are promises of their own: no two writes share one, they do not go back
in real time, and a read sees the value that was current at its revision.  A store may break these while
the values alone could still be explained, which is a bug all the same.

Operations without known outcome may stand anywhere after their call, or nowhere.  A deletion that
finds nothing makes no revision and changes nothing, so deletions may share one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from tests.checkers.history import Op, Verdict
from tests.checkers.telling import told

__all__ = ["check_store_revisions", "is_proved", "order_problem", "sequential"]


class _Placed(NamedTuple):
    """An operation that carries a revision and has an answer."""

    revision: int
    rank: int  # among those of one revision: who made it, who may have (deletions), who did not
    call: float
    done: float
    op: Op


def check_store_revisions(ops: Iterable[Op]) -> Verdict:
    """Where every revision is the store's own: they agree with real time across all keys."""
    everything = list(ops)
    problem = order_problem(everything)
    return Verdict(not problem, len(everything), problem)


def is_proved(ops: Sequence[Op], initial: bytes | None) -> bool:
    """Whether the order of revisions explains one key's history; if not, that proves nothing yet."""
    if any(op.revision is None and op.done is not None for op in ops):
        return False
    spare = _Spare(ops)
    state, latest_call, newest = initial, float("-inf"), -1
    for revision, rank, call, done, op in _by_revision(ops):
        if not _fits(op, state):
            unknown = spare.take(op, state)
            if unknown is None:
                return False
            state, latest_call = unknown.value, max(latest_call, unknown.call)
        if done < latest_call or (rank == 0 and revision == newest):
            return False
        latest_call = max(latest_call, call)
        if rank == 0:
            newest = revision
        if _changes(op):
            state = op.value
    return True


def order_problem(ops: Iterable[Op]) -> str:
    """Revisions given to two writes, or going back in real time; empty if there are none."""
    placed = _by_revision(ops)
    for one, other in pairwise(placed):
        if one.rank == other.rank == 0 and one.revision == other.revision:
            return f"revision {one.revision} was given to two writes:\n{told([one.op, other.op])}"
    answered = sorted(placed, key=lambda each: each.done)
    newest: _Placed | None = None
    at = 0
    for each in sorted(placed, key=lambda each: each.call):
        while answered[at].done < each.call:
            if newest is None or answered[at].revision > newest.revision:
                newest = answered[at]
            at += 1
        if newest is None or each.revision > newest.revision:
            continue
        if each.revision < newest.revision:
            return f"the revision went back in time:\n{told([newest.op, each.op])}"
        if each.rank == 0:
            return f"a write got a revision that had been seen before:\n{told([newest.op, each.op])}"
    return ""


def sequential(ops: Sequence[Op]) -> list[Op]:
    """One key's history as if the operations had come one by one, in the order of their revisions.

    Times are places in that order.  A write that carries no revision may stand anywhere real time
    allows, or nowhere; a read that carries none is left out.  So this asks less than the truth, never
    more.
    """
    placed = _by_revision(ops)
    order = [replace(each.op, call=float(at), done=float(at)) for at, each in enumerate(placed)]
    earliest_answer = [each.done for each in placed]  # of this one and all that follow
    for at in range(len(placed) - 2, -1, -1):
        earliest_answer[at] = min(earliest_answer[at], earliest_answer[at + 1])
    for op in ops:
        if (op.done is None and op.kind != "read") or (op.revision is None and _changes(op)):
            place = bisect_left(earliest_answer, op.call)
            order.append(replace(op, call=float(place), done=None))
    return order


class _Spare:
    """Operations of unknown outcome: one of them may have come right before one that does not fit.

    It takes the likely one and never thinks again, which is enough for a proof that is only tried.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        unknown = [op for op in ops if op.done is None and op.kind != "read"]
        unknown.sort(key=lambda op: op.call, reverse=True)
        self._writing: dict[bytes | None, list[Op]] = defaultdict(list)
        for op in unknown:
            self._writing[op.value].append(op)
        self._asked = {_asked(op) for op in ops if op.kind != "write"} if unknown else set()

    def take(self, misfit: Op, state: bytes | None) -> Op | None:
        if misfit.kind == "cas" and not misfit.ok:
            # Any other value will do, best one that nobody asks for.
            values = [value for value, same in self._writing.items() if same and value != state]
            values.sort(key=lambda value: (value in self._asked, self._writing[value][-1].call))
        else:
            values = [_asked(misfit)]
        for value in values:
            same = self._writing.get(value)
            if same and (same[-1].kind == "write" or same[-1].expected == state):
                return same.pop()
        return None


def _by_revision(ops: Iterable[Op]) -> list[_Placed]:
    placed = [
        _Placed(op.revision, _rank(op), op.call, op.done, op)
        for op in ops
        if op.revision is not None and op.done is not None
    ]
    placed.sort(key=lambda each: each[:3])
    return placed


def _rank(op: Op) -> int:
    if not _changes(op) or (op.kind == "cas" and op.expected is op.value is None):
        return 2
    return 1 if op.kind == "write" and op.value is None else 0


def _changes(op: Op) -> bool:
    return op.kind == "write" or (op.kind == "cas" and op.ok)


def _asked(op: Op) -> bytes | None:
    return op.value if op.kind == "read" else op.expected


def _fits(op: Op, state: bytes | None) -> bool:
    if op.kind == "read":
        return op.value == state
    return op.kind == "write" or (op.expected == state) == op.ok
