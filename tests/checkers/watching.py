"""Watches: every watcher's history is a gapless piece of the one true history.

The truth is what a plain etcd tells a watch from the first revision on: one batch for each revision.
A watcher sees the part of it that its prefix names, starting after a revision of its choice, in order,
each revision once, whole and unchanged.  It may stop anywhere, unless it is said to have reached a
revision: then it must have seen everything up to there.  A watch opened again is another watcher.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.checkers.history import Verdict

__all__ = ["Batch", "Change", "check_watches"]


class Change(NamedTuple):
    """One event, in the words of whoever recorded both the truth and the watchers."""

    kind: str
    key: str
    value: bytes | None = None


class Batch(NamedTuple):
    """All events of one revision, in their order."""

    revision: int
    changes: Sequence[Change]


# Plain tuples of the same shape will do as well.
AnyChange = Change | tuple[str, str, bytes | None]
AnyBatch = Batch | tuple[int, Sequence[AnyChange]]


def check_watches(
    histories: Mapping[str, Sequence[AnyBatch]],
    truth: Sequence[AnyBatch],
    *,
    began_after: Mapping[str, int] | None = None,
    reached: Mapping[str, int] | None = None,
    prefixes: Mapping[str, str] | None = None,
) -> Verdict:
    """Judge every watcher; one that `began_after` does not name began with its first batch."""
    began_after, reached, prefixes = began_after or {}, reached or {}, prefixes or {}
    whole = [Batch(revision, _plain(changes)) for revision, changes in truth]
    for earlier, later in pairwise(whole):
        if earlier.revision >= later.revision:
            raise ValueError(f"not the truth: revision {later.revision} after {earlier.revision}")
    views: dict[str, list[Batch]] = {}
    problems = []
    for watcher, history in histories.items():
        prefix = prefixes.get(watcher, "")
        if prefix not in views:
            views[prefix] = _under(prefix, whole)
        seen = [Batch(revision, _plain(changes)) for revision, changes in history]
        problem = _difference(views[prefix], seen, began_after.get(watcher), reached.get(watcher))
        if problem:
            problems.append(f"watcher {watcher}: {problem}")
    return Verdict(not problems, sum(map(len, histories.values())), "\n".join(problems))


def _plain(changes: Sequence[AnyChange]) -> tuple[Change, ...]:
    return tuple(Change(*change) for change in changes)


def _under(prefix: str, truth: Sequence[Batch]) -> list[Batch]:
    """The part of the truth that a watch of a prefix shows."""
    if not prefix:
        return list(truth)
    parts = (
        (revision, tuple(change for change in changes if change[1].startswith(prefix)))
        for revision, changes in truth
    )
    return [Batch(revision, changes) for revision, changes in parts if changes]


def _difference(
    truth: Sequence[Batch], seen: Sequence[Batch], began_after: int | None, reached: int | None
) -> str:
    """The first place where the watcher's history is not the truth; empty if there is none."""
    if began_after is None:
        began_after = seen[0].revision - 1 if seen else None
    if began_after is None:
        return ""
    revisions = [batch.revision for batch in truth]
    at = bisect_right(revisions, began_after)
    previous = began_after
    for batch in seen:
        wanted = truth[at] if at < len(truth) else None
        if wanted is None or batch != wanted:
            known = batch.revision in set(revisions)
            return _named(batch, wanted, previous, first=batch is seen[0], known=known)
        previous = batch.revision
        at += 1
    if reached is not None and at < len(truth) and truth[at].revision <= reached:
        return (
            f"stopped after revision {previous}, though it is past {reached}: it never showed "
            f"revision {truth[at].revision}"
        )
    return ""


def _named(batch: Batch, wanted: Batch | None, previous: int, *, first: bool, known: bool) -> str:
    """What kind of difference it is, in a sentence."""
    revision = batch.revision
    if first and revision <= previous:
        return f"revision {revision} was shown, though the watch began after revision {previous}"
    if revision == previous:
        return f"revision {revision} came twice, or in two parts"
    if revision < previous:
        return f"revision {revision} came after revision {previous}"
    if not known:
        return f"revision {revision} changed nothing here, but the watch shows {batch.changes}"
    assert wanted is not None, "it is known, and still to come"
    if wanted.revision < revision:
        return f"after revision {previous} came {revision}: revision {wanted.revision} is missing"
    if Counter(batch.changes) == Counter(wanted.changes):
        return f"revision {revision} has another order: {batch.changes}, not {wanted.changes}"
    if not Counter(batch.changes) - Counter(wanted.changes):
        return f"revision {revision} came by halves: {batch.changes} of {wanted.changes}"
    return f"revision {revision} is {batch.changes} instead of {wanted.changes}"
