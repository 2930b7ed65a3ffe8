"""Ephemerals: gone soon after their session's last sign of life, and never before its time is up.

Nobody but the store knows when it heard a session last, so both bounds take the times that prove it:

    * Never early: the store heard the last acknowledged request no sooner than it was sent (`acked`).
      A node that is known to be missing before `acked` + timeout, with nobody having closed the session
      or deleted the node, was removed early.
    * Not late: the store heard nothing after `alive`, the last moment at which anything of the session
      can have reached it (the last request was sent, acknowledged or not; the process was killed).  By
      `alive` + timeout + slack the node must be gone.
    * While a cluster has no leader nothing can expire, and a new leader gives every session its whole
      timeout again (etcd renews all leases; ZooKeeper's leader touches all sessions).  Such an outage
      that begins before the deadline moves it: the clock starts again at the outage's end.

An observer polls, or watches.  A node it saw before the deadline and looked for again only much later
is not judged: that is "unknown", and counts as failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.checkers.history import Verdict

__all__ = ["Ephemeral", "check_ephemerals"]


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """The life of one ephemeral node; times are monotonic seconds."""

    path: str
    session: int
    timeout_s: float  # as the server agreed to it
    acked: float  # the last request of the session that was acknowledged: when it was sent
    alive: float  # nothing of the session can have reached the store later than this
    seen: float  # the last look that found the node: when it began
    missing: float | None  # the first that did not, or the event that told so: when it was answered
    ended: float | None = None  # the client asked to close the session or to delete the node
    sure_s: float | None = None  # so long after `acked` it is promised, if not for the whole timeout


def check_ephemerals(
    records: Iterable[Ephemeral],
    *,
    slack_s: float = 2.0,
    outages: Sequence[tuple[float, float]] = (),
) -> Verdict:
    """Judge every node; `outages` are the times without a leader, as (from, to)."""
    checked = 0
    problems = []
    for record in records:
        checked += 1
        if record.alive < record.acked:
            raise ValueError(f"{record.path}: alive until {record.alive}, yet heard at {record.acked}")
        problem = _early(record) or _late(record, _deadline(record, slack_s, outages))
        if problem:
            problems.append(f"{record.path} of session {record.session:#x}: {problem}")
    # A violation is worse news than a node nobody looked at, so it stands first.
    problems.sort(key=lambda problem: "unknown" in problem)
    if problems and all("unknown" in problem for problem in problems):
        problems.insert(0, "unknown: some nodes could not be judged")
    return Verdict(not problems, checked, "\n".join(problems))


def _early(record: Ephemeral) -> str:
    sure_s = record.timeout_s if record.sure_s is None else record.sure_s
    due = record.acked + sure_s
    if record.missing is None or record.missing >= due:
        return ""
    if record.ended is not None and record.ended <= record.missing:
        return ""
    return (
        f"early by {due - record.missing:.3f} s: missing {record.missing - record.acked:.3f} s after a "
        f"request that was acknowledged, with a timeout of {record.timeout_s:.3f} s"
        + ("" if record.sure_s is None else f", of which {sure_s:.3f} s were promised")
    )


def _deadline(record: Ephemeral, slack_s: float, outages: Sequence[tuple[float, float]]) -> float:
    deadline = record.alive + record.timeout_s + slack_s
    for begin, end in sorted(outages):
        if begin <= deadline and end > record.alive:
            deadline = max(deadline, end + record.timeout_s + slack_s)
    return deadline


def _late(record: Ephemeral, deadline: float) -> str:
    if record.missing is not None and record.missing <= deadline:
        return ""
    if record.seen > deadline:
        return f"late: still there {record.seen - deadline:.3f} s after its deadline"
    return f"unknown: last seen {deadline - record.seen:.3f} s before its deadline, and then " + (
        "never looked for again" if record.missing is None else "not looked for until after it"
    )
