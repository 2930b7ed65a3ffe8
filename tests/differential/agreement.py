"""Whether two answers to one request say the same.  Pure.

etcd promises no order among keys that are equal in what they are sorted by, and which of those a limit
cuts off.  So sorted answers are compared class by class: the same classes in the same order, each with
the same keys, except that of a class the limit cut through only the number can be compared.
"""

from __future__ import annotations

from itertools import groupby

from quoracy.store.model import (
    Event,
    EventKind,
    KeyValue,
    Op,
    OpResult,
    Range,
    RangeResult,
    SortTarget,
    Txn,
    TxnResult,
)
from tests.differential.asking import Done, LeaseKeys, Outcome, Refused, Request, Watched

__all__ = ["agree", "order_is_exact", "watches_agree"]

# Time to live counts down between the two questions, and etcd rounds it to whole seconds.
_REMAINING_S_APART_MAX = 60.0


def agree(request: Request, ours: Outcome, theirs: Outcome) -> bool:
    match ours, theirs:
        case Refused(), Refused():
            return ours.kind is theirs.kind
        case LeaseKeys(), LeaseKeys():
            return (
                (ours.id, ours.ttl_s, ours.keys) == (theirs.id, theirs.ttl_s, theirs.keys)
                and 0 < ours.remaining_s <= ours.ttl_s
                and abs(ours.remaining_s - theirs.remaining_s) <= _REMAINING_S_APART_MAX
            )
        case Done(), Done():
            return ours.revision is None or ours.revision == theirs.revision
        case RangeResult(), RangeResult():
            assert isinstance(request, Range)
            return _ranges_agree(request, ours, theirs)
        case TxnResult(), TxnResult():
            assert isinstance(request, Txn)
            return ours.revision == theirs.revision and _txns_agree(request, ours, theirs)
        case _:
            return ours == theirs


def order_is_exact(op: Range) -> bool:
    """Whether the request says in which order the keys come, all of them."""
    return op.sort_by is SortTarget.KEY


def watches_agree(ours: Watched, theirs: Watched, *, compact_revision: int) -> bool:
    """Whether two stores compacted to that revision delivered the same.

    Deletes of the compaction revision itself do not count.  Both stores let a watch start there, but
    compaction takes these events away in etcd before 3.6, and keeps them in ours.  [etcd#19179]
    """
    return ours.compacted_to == theirs.compacted_to and (
        _plain(ours, compact_revision) == _plain(theirs, compact_revision)
    )


def _txns_agree(txn: Txn, ours: TxnResult, theirs: TxnResult) -> bool:
    """All but the revision: etcd gives only the outermost transaction one."""
    ops = txn.then if ours.succeeded else txn.otherwise
    return (
        ours.succeeded == theirs.succeeded
        and len(ours.results) == len(theirs.results) == len(ops)
        and all(map(_results_agree, ops, ours.results, theirs.results))
    )


def _results_agree(op: Op, ours: OpResult, theirs: OpResult) -> bool:
    match op, ours, theirs:
        case Range(), RangeResult(), RangeResult():
            return _ranges_agree(op, ours, theirs)
        case Txn(), TxnResult(), TxnResult():
            return _txns_agree(op, ours, theirs)
        case _:
            return ours == theirs


def _ranges_agree(op: Range, ours: RangeResult, theirs: RangeResult) -> bool:
    if (ours.revision, ours.count, ours.more) != (theirs.revision, theirs.count, theirs.more):
        return False
    if order_is_exact(op):
        return ours.kvs == theirs.kvs
    our_classes, their_classes = _classes(op, ours.kvs), _classes(op, theirs.kvs)
    if [(of, len(kvs)) for of, kvs in our_classes] != [(of, len(kvs)) for of, kvs in their_classes]:
        return False
    whole = len(our_classes) - 1 if ours.more else len(our_classes)
    return [kvs for _, kvs in our_classes[:whole]] == [kvs for _, kvs in their_classes[:whole]]


def _classes(op: Range, kvs: tuple[KeyValue, ...]) -> list[tuple[object, list[KeyValue]]]:
    """Runs of keys that are equal in what they are sorted by, the keys of each run in key order."""

    def sorted_by(kv: KeyValue) -> object:
        if op.sort_by is SortTarget.VALUE and op.keys_only:
            return None  # blanked after sorting, so any two may have been equal
        return getattr(kv, op.sort_by.value)

    return [(of, sorted(run, key=lambda kv: kv.key)) for of, run in groupby(kvs, key=sorted_by)]


def _plain(watched: Watched, compact_revision: int) -> list[tuple[int, list[Event]]]:
    plain = [
        (revision, [_plain_event(event) for event in events if not _is_lost(event, compact_revision)])
        for revision, events in watched.batches
    ]
    return [(revision, events) for revision, events in plain if events]


def _is_lost(event: Event, compact_revision: int) -> bool:
    return event.kv.mod_revision == compact_revision and event.kind is EventKind.DELETE


def _plain_event(event: Event) -> Event:
    """A delete says which key and when; the other fields of its KeyValue mean nothing."""
    if event.kind is EventKind.PUT:
        return event
    return Event(KeyValue(event.kv.key, b"", 0, event.kv.mod_revision, 0), event.prev_kv)
