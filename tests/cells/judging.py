"""Everything the clients of one schedule were told, before all checkers at once."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.cells.load import Refused
from tests.cells.load_sessions import Life
from tests.cells.load_watches import Watched
from tests.cells.truth import Truth
from tests.checkers.acknowledged import Add, check_acknowledged
from tests.checkers.ephemerals import Ephemeral, check_ephemerals
from tests.checkers.history import Op, Verdict, read_records
from tests.checkers.linearizable import check_registers
from tests.checkers.locking import Grant, GuardedWrite, check_locking
from tests.checkers.sequences import Created, check_sequences
from tests.checkers.watching import check_watches

__all__ = ["Evidence", "judge"]

T = TypeVar("T")

_SHOWN_MAX = 5
_LIMIT_S = 60.0
_SILENCE_S = 0.7
_ELECTION_S = 1.0  # what a new leader of etcd adds to every lease
# A leader that was stopped and goes on takes every lease for overdue; what it asks to be revoked is
# passed on to whoever leads now, and done (etcd#15247, before 3.4.31 and 3.5.13).
_REVOKES_S = 2.0
_LOOKS_LIKE_A_DEFECT = re.compile(r"^Traceback|^\S+ error ", re.MULTILINE)
_SHOWN_CHARACTERS = 1500


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the runner saw itself; the loads' books are in the directory.

    pinned: the store clients that know one node.
    final: what the sets held at the end, as each host told it: by host, then by set.
    faults: when there were any.
    outages: those after which a session may rightly live longer than its timeout says.
    woken: when members of etcd went on that had been stopped while they led.
    digests: what each node holds at the end, in one word; with those of the members themselves.
    gone: when each ephemeral node was seen to be deleted.
    """

    directory: Path
    truth: Truth
    pinned: frozenset[int]
    final: dict[str, dict[str, list[bytes]]]
    digests: dict[str, str]
    faults: tuple[tuple[float, float], ...]
    outages: tuple[tuple[float, float], ...]
    woken: tuple[float, ...]
    gone: dict[str, float]
    observed_until: float


def judge(evidence: Evidence) -> dict[str, Verdict]:
    """Every verdict, by what was judged."""
    directory = evidence.directory
    ops = _records(directory, "ops", Op)
    stale = _records(directory, "stale", Op)
    adds = _records(directory, "adds", Add)
    verdicts = {
        "registers": check_registers(ops, limit_s=_LIMIT_S),
        "answers": _check_answers(ops, stale, _records(directory, "refused", Refused), evidence.truth),
        "stale reads": _check_time_goes_on(ops, stale, evidence.pinned),
        "acknowledged": _check_final(adds, evidence.final),
        "replicas": _check_digests(evidence.digests),
        "logs": _check_logs(sorted(directory.glob("*-node.log"))),
        "watches": _check_watched(_records(directory, "watched", Watched), evidence.truth),
        "sequences": check_sequences(_records(directory, "created", Created)),
        "locks": check_locking(
            _records(directory, "grants", Grant), _records(directory, "writes", GuardedWrite)
        ),
        "ephemerals": _check_lives(
            _records(directory, "lives", Life), evidence, [*evidence.outages, *_silences(ops)]
        ),
    }
    return {what: verdict for what, verdict in verdicts.items() if verdict.checked or not verdict.ok}


def _records(directory: Path, what: str, shape: type[T]) -> list[T]:
    paths = sorted(directory.glob(f"*.{what}.jsonl"))
    return [record for path in paths for record in read_records(path, shape)]


# -- answers, by etcd's own history ----------------------------------------------------------------


def _check_answers(
    ops: Sequence[Op], stale: Sequence[Op], refused: Sequence[Refused], truth: Truth
) -> Verdict:
    """Every answer with a revision is what etcd had at that revision; no refused write is there.

    (Registers of ZooKeeper's clients are inside znodes; their order is judged elsewhere.)
    """
    values = truth.values()
    checked, problems = 0, []
    for op in [*ops, *stale]:
        if op.key.startswith("/"):
            continue
        checked += 1
        problem = _difference(op, values.get(op.key, []))
        if problem:
            problems.append(f"{op}: {problem}")
    for each in refused:
        checked += 1
        if any(value == each.value for _, value in values.get(each.key, [])):
            problems.append(f"{each.key} was refused {each.value!r}, and has had it")
    return _verdict(checked, problems)


def _difference(op: Op, changes: Sequence[tuple[int, bytes | None]]) -> str:
    if op.done is None:
        times = sum(value == op.value for _, value in changes)
        written = op.value is not None and times > 1
        return f"it was carried out {times} times" if written else ""
    assert op.revision is not None
    at = bisect_right(changes, op.revision, key=lambda change: change[0])
    now = changes[at - 1] if at else (0, None)
    before = changes[at - 2][1] if at > 1 else None
    if op.kind == "read":
        return "" if now[1] == op.value else f"etcd had {now[1]!r} at that revision"
    if op.kind == "cas" and not op.ok:
        return "" if now[1] != op.expected else "etcd had just that value at that revision"
    if now != (op.revision, op.value):
        return f"etcd's last change up to that revision is {now}"
    if op.kind == "cas" and before != op.expected:
        return f"etcd had {before!r} before that"
    return ""


def _check_time_goes_on(ops: Sequence[Op], stale: Sequence[Op], pinned: frozenset[int]) -> Verdict:
    """Who asks one node never sees an older state after a newer one, whatever it asks for.

    A client of ZooKeeper's protocol does not either, at whichever node; it is told the zxid of the
    znode's last change.
    """
    newest: dict[tuple[int, str], int] = {}
    problems = []
    for op in sorted([*ops, *stale], key=lambda op: op.call):
        is_znode = op.key.startswith("/")
        if op.revision is None or not (is_znode or op.client in pinned):
            continue
        seen = (op.client, op.key if is_znode else "")
        if op.revision < newest.get(seen, 0):
            problems.append(f"{op}: it had seen revision {newest[seen]}")
        newest[seen] = max(newest.get(seen, 0), op.revision)
    return _verdict(len(stale), problems)


# -- the end ---------------------------------------------------------------------------------------


def _check_final(adds: Sequence[Add], final: dict[str, dict[str, list[bytes]]]) -> Verdict:
    """As every host tells it."""
    problems = []
    for host, sets in final.items():
        verdict = check_acknowledged(adds, sets)
        if not verdict:
            problems.append(f"at {host}: {verdict.problem}")
    return _verdict(len(adds), problems)


def _check_digests(digests: dict[str, str]) -> Verdict:
    problems = [] if len(set(digests.values())) <= 1 else [f"replicas differ: {digests}"]
    return _verdict(len(digests), problems)


def _check_logs(logs: Sequence[Path]) -> Verdict:
    """Whatever happens to a node is no defect of it: nothing in its log may look like one."""
    problems = []
    for log in logs:
        words = log.read_text(errors="replace")
        found = _LOOKS_LIKE_A_DEFECT.search(words)
        if found is not None:
            problems.append(f"{log.name}: {words[found.start() : found.start() + _SHOWN_CHARACTERS]}")
    return _verdict(len(logs), problems)


# -- watches ---------------------------------------------------------------------------------------


def _check_watched(watched: Sequence[Watched], truth: Truth) -> Verdict:
    verdict = check_watches(
        {record.watcher: record.batches for record in watched},
        truth.batches,
        began_after={record.watcher: record.began_after for record in watched},
        reached={r.watcher: r.reached for r in watched if r.reached is not None},
        prefixes={record.watcher: record.prefix for record in watched},
    )
    problems = [verdict.problem] if verdict.problem else []
    for record in watched:
        # Its next revision would be this one; etcd keeps the compacted one itself.
        wanted = (record.batches[-1][0] if record.batches else record.began_after) + 1
        if record.compacted and wanted > truth.compacted:
            problems.append(
                f"watcher {record.watcher}: it was told that history is gone, at {wanted}; "
                f"it is kept from {truth.compacted} on"
            )
    return _verdict(verdict.checked, problems)


# -- sessions --------------------------------------------------------------------------------------


def _silences(ops: Sequence[Op]) -> Iterator[tuple[float, float]]:
    """When nobody's writes were acknowledged for as long as an election takes.

    etcd may lose its leader again after a fault is over: a member that could not hear the others comes
    back with a higher term, and unsettles them.
    """
    acked = sorted(op.done for op in ops if op.done is not None and op.kind != "read" and op.ok)
    for earlier, later in itertools.pairwise(acked):
        if later - earlier >= _SILENCE_S:
            yield earlier, later + _ELECTION_S


def _check_lives(
    lives: Sequence[Life], evidence: Evidence, outages: Sequence[tuple[float, float]]
) -> Verdict:
    return check_ephemerals(_ephemerals(lives, evidence, outages), outages=outages)


def _ephemerals(
    lives: Sequence[Life], evidence: Evidence, outages: Sequence[tuple[float, float]]
) -> Iterator[Ephemeral]:
    """Whoever watches sees a node go when it goes, so that it was there until then.

    What was still there when the observer left is not judged if it still had time.
    """
    for life in lives:
        gone = evidence.gone.get(life.path)
        # A node that has lost the cluster without knowing it acknowledges pings for a while.  A client
        # takes a connection for lost two thirds of the timeout after an answer, so that long is
        # promised for one in any case.
        near = any(
            since <= life.acked + life.timeout_s and until >= life.acked - life.timeout_s
            for since, until in [*evidence.faults, *outages]
        )
        # A session that etcd ended by mistake ended like one that was closed: at any time.
        mistaken = (at for at in evidence.woken if gone is not None and at <= gone <= at + _REVOKES_S)
        record = Ephemeral(
            life.path,
            life.session,
            life.timeout_s,
            life.acked,
            life.alive,
            evidence.observed_until if gone is None else gone,
            gone,
            ended=next(mistaken, None),
            sure_s=life.timeout_s * 2 / 3 if near else None,
        )
        if gone is not None or check_ephemerals([record], outages=outages).problem.startswith(
            f"{life.path} of session {life.session:#x}: late"
        ):
            yield record


def _verdict(checked: int, problems: Sequence[str]) -> Verdict:
    more = f"\nand {len(problems) - _SHOWN_MAX} more" if len(problems) > _SHOWN_MAX else ""
    return Verdict(not problems, checked, "\n".join(problems[:_SHOWN_MAX]) + more)
