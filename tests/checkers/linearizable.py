"""Linearizability of registers: reads, writes and compare-and-swap, judged key by key.

Registers are independent, so a history is linearizable if it is for each key alone (Herlihy and Wing,
1990).  Where every answer carries a revision, the order these give is usually the proof; the search
decides the rest.  So whatever is reported as not linearizable was confirmed by the search.  Revisions
that contradict real time or the values are reported as well, even if the values could be explained.

A history that could not be judged within its bounds is not linearizable as far as anyone knows: the
verdict is a failure that begins with "unknown".
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.checkers.history import Op, Verdict
from tests.checkers.revisions import is_proved, order_problem, sequential
from tests.checkers.search import OutOfReach, is_explained
from tests.checkers.telling import told

__all__ = ["check_registers", "shortest_unexplained"]

_PROBLEMS_MAX = 3  # keys; more would hide the first
_SHOWN_MAX = 24  # operations of a prefix


def check_registers(
    ops: Iterable[Op], *, limit_s: float = 60.0, initial: bytes | None = None
) -> Verdict:
    """Judge registers that all hold `initial` at first.

    `limit_s` is this thread's own time, so that a busy machine does not change the verdict.
    """
    give_up_at = time.thread_time() + limit_s
    keys: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.done is not None and op.done < op.call:
            raise ValueError(f"answered before it was called: {op}")
        keys[op.key].append(op)
    problems: list[str] = []
    unknown: list[str] = []
    for key, history in sorted(keys.items()):
        try:
            problem = _problem(history, initial, give_up_at)
        except OutOfReach as why:
            unknown.append(f"{key}, {len(history)} operations: {why}")
            continue
        if problem:
            problems.append(f"{key}: {problem}")
            if len(problems) == _PROBLEMS_MAX:
                break
    if unknown:
        shown = "; ".join(unknown[:_PROBLEMS_MAX])
        problems.append(f"unknown: {len(unknown)} of {len(keys)} keys could not be judged ({shown})")
    return Verdict(not problems, sum(map(len, keys.values())), "\n".join(problems))


def _problem(ops: Sequence[Op], initial: bytes | None, give_up_at: float) -> str:
    """What is wrong with the history of one key."""
    if is_proved(ops, initial):
        return ""
    if time.thread_time() > give_up_at:
        raise OutOfReach("out of time before it was looked at")
    if not is_explained(ops, initial=initial, give_up_at=give_up_at):
        prefix = shortest_unexplained(ops, initial=initial, give_up_at=give_up_at)
        return f"not linearizable\n{_shown(prefix)}"
    if problem := order_problem(ops):
        return f"linearizable, but {problem}"
    if not is_explained(in_order := sequential(ops), initial=initial, give_up_at=give_up_at):
        prefix = shortest_unexplained(in_order, initial=initial, give_up_at=give_up_at)
        return (
            "linearizable, but the values do not fit the revisions "
            f"(times are places in the order of revisions)\n{_shown(prefix)}"
        )
    return ""


def shortest_unexplained(ops: Sequence[Op], *, initial: bytes | None, give_up_at: float) -> list[Op]:
    """The history of one key up to the first answer that cannot be explained; that one comes last.

    What was called by then and answered later has no outcome yet.  A longer prefix of what is not
    linearizable is not linearizable either, so halving finds the shortest.
    """
    dones = sorted(op.done for op in ops if op.done is not None)
    explained, unexplained = -1, len(dones) - 1
    while unexplained - explained > 1:
        middle = (explained + unexplained) // 2
        try:
            fits = is_explained(_until(ops, dones[middle]), initial=initial, give_up_at=give_up_at)
        except OutOfReach:
            break  # what is known not to fit is longer than need be, but true
        if fits:
            explained = middle
        else:
            unexplained = middle
    prefix = _until(ops, dones[unexplained])
    prefix.sort(key=lambda op: (op.done == dones[unexplained], op.call))
    return prefix


def _until(ops: Iterable[Op], when: float) -> list[Op]:
    """What was known at that time.  A read without answer says nothing."""
    called = [op for op in ops if op.call <= when]
    return [
        op if answered else replace(op, done=None, revision=None)
        for op in called
        if (answered := op.done is not None and op.done <= when) or op.kind != "read"
    ]


def _shown(prefix: Sequence[Op]) -> str:
    """The end of a prefix, with whatever else names the values of its last operation."""
    last = prefix[-1]
    named = {last.value, last.expected} - {None}
    recent = {id(op) for op in prefix[-_SHOWN_MAX:]}
    kin = [op for op in prefix if id(op) not in recent and {op.value, op.expected} & named]
    shown = [*kin[-_SHOWN_MAX:], *prefix[-_SHOWN_MAX:-1]]
    since = min(op.call for op in prefix)
    left_out = len(prefix) - len(shown) - 1
    return "\n".join(
        [
            *([f"  ({left_out} operations left out)"] if left_out else []),
            *([told(shown, since=since)] if shown else []),
            "  and then there is no way to explain:",
            told([last], since=since),
        ]
    )
