"""The store's contract once more, as plainly as it can be said: dicts, lists, and O(n) everywhere.

It keeps a full copy of the contents and the list of events for every revision there ever was, so that
nothing here is clever enough to be wrong in the same way as an engine.  Compaction only moves a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from quoracy.errors import (
    Compacted,
    DuplicateKey,
    FutureRevision,
    InvalidRequest,
    KeyNotFound,
    LeaseExists,
    LeaseNotFound,
    QuoracyError,
    TooLarge,
)
from quoracy.store.digest import Digest
from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    DeleteResult,
    Event,
    KeyRange,
    Keys,
    KeyValue,
    Op,
    OpResult,
    Put,
    PutResult,
    Range,
    RangeResult,
    Relation,
    Revision,
    SortTarget,
    Txn,
    TxnResult,
    WatchBatch,
)

__all__ = ["NaiveLease", "NaiveStore", "Refused", "is_in", "is_written_twice"]

Contents = dict[bytes, KeyValue]


class Refused(Exception):
    """The request must be refused with one of these errors, and change nothing."""

    def __init__(self, *kinds: type[QuoracyError]) -> None:
        super().__init__(", ".join(kind.__name__ for kind in kinds))
        self.kinds = kinds


@dataclass(frozen=True)
class NaiveLease:
    """A lease, and how long ago it was granted or kept alive: at least, and at most."""

    ttl_s: float
    age_min_s: float = 0.0
    age_max_s: float = 0.0

    def older(self, at_least_s: float, at_most_s: float) -> NaiveLease:
        return replace(
            self, age_min_s=self.age_min_s + at_least_s, age_max_s=self.age_max_s + at_most_s
        )


class NaiveStore:
    """What the store under test is compared with."""

    def __init__(self, *, txn_ops_max: int, lease_ttl_min_s: float) -> None:
        self.revision = 1
        self.compact_revision = 0
        self.contents: dict[int, Contents] = {1: {}}
        self.events: dict[int, list[Event]] = {1: []}
        self.leases: dict[int, NaiveLease] = {}
        self._txn_ops_max = txn_ops_max
        self._lease_ttl_min_s = lease_ttl_min_s

    @property
    def now(self) -> Contents:
        return self.contents[self.revision]

    # -- requests ----------------------------------------------------------------------------

    def range(self, op: Range) -> RangeResult:
        result = self.txn(Txn(then=(op,))).results[0]
        assert isinstance(result, RangeResult)
        return result

    def put(self, op: Put) -> PutResult:
        result = self.txn(Txn(then=(op,))).results[0]
        assert isinstance(result, PutResult)
        return result

    def delete(self, op: Delete) -> DeleteResult:
        result = self.txn(Txn(then=(op,))).results[0]
        assert isinstance(result, DeleteResult)
        return result

    def txn(self, txn: Txn) -> TxnResult:
        self._check_size(txn, self._txn_ops_max)
        _check_shape(txn)
        if is_written_twice(txn):
            raise Refused(DuplicateKey)
        # Of several reasons to refuse it, which is told is not promised.
        if reasons := [kind for op in self._taken(txn) for kind in self._wrong_now(op)]:
            raise Refused(*reasons)
        working, events = dict(self.now), list[Event]()
        result = self._carry_out(txn, working, events)
        if events:
            self._append(working, events)
        return result

    def compact(self, at: int) -> None:
        if at <= self.compact_revision:
            raise Refused(Compacted)
        if at > self.revision:
            raise Refused(FutureRevision)
        self.compact_revision = at

    def digest(self, at: int) -> str:
        digest = Digest()
        digest.update(kv for _, kv in sorted(self.contents[at].items()))
        return digest.hexdigest()

    # -- leases ------------------------------------------------------------------------------

    def grant(self, id: int, ttl_s: float) -> float:
        if id in self.leases:
            raise Refused(LeaseExists)
        self.leases[id] = NaiveLease(max(ttl_s, self._lease_ttl_min_s))
        return self.leases[id].ttl_s

    def keep_alive(self, id: int) -> float:
        self._check_lease(id)
        self.leases[id] = NaiveLease(self.leases[id].ttl_s)
        return self.leases[id].ttl_s

    def revoke(self, id: int) -> int:
        self._check_lease(id)
        keys = self.keys_of(id)
        del self.leases[id]
        working, events = dict(self.now), list[Event]()
        for key in keys:
            self._delete(Delete(key), working, events)
        if events:
            self._append(working, events)
        return self.revision

    def keys_of(self, id: int) -> tuple[bytes, ...]:
        self._check_lease(id)
        return tuple(sorted(key for key, kv in self.now.items() if kv.lease == id))

    def pass_time(self, at_least_s: float, at_most_s: float) -> None:
        for id, lease in self.leases.items():
            self.leases[id] = lease.older(at_least_s, at_most_s)

    def restart(self) -> None:
        """Every lease has its full time again; nothing else changes."""
        self.leases = {id: NaiveLease(lease.ttl_s) for id, lease in self.leases.items()}

    # -- watches -----------------------------------------------------------------------------

    def batches(
        self, keys: KeyRange, *, after: int, puts: bool, deletes: bool, prev_kv: bool
    ) -> Iterator[WatchBatch]:
        """What a watch that starts after a revision should have told by now."""
        for revision in range(max(after, 1) + 1, self.revision + 1):
            events = tuple(
                event if prev_kv else Event(event.kv)
                for event in self.events[revision]
                if is_in(keys, event.kv.key) and (puts if event.kv.version else deletes)
            )
            if events:
                yield WatchBatch(Revision(revision), events)

    # -- checks ------------------------------------------------------------------------------

    def _check_lease(self, id: int) -> None:
        if id not in self.leases:
            raise Refused(LeaseNotFound)

    def _check_size(self, txn: Txn, ops_max: int) -> None:
        longest = max(len(txn.compares), len(txn.then), len(txn.otherwise))
        if longest > ops_max:
            # Its shape may be wrong as well; which of the two is told first is not promised.
            raise Refused(TooLarge, InvalidRequest)
        for op in txn.then + txn.otherwise:
            if isinstance(op, Txn):
                self._check_size(op, ops_max - longest)

    def _wrong_now(self, op: Op) -> Iterator[type[QuoracyError]]:
        """Why the store, as it is, cannot carry out the operation."""
        if isinstance(op, Range) and op.at is not None:
            if op.at > self.revision:
                yield FutureRevision
            if op.at < self.compact_revision:
                yield Compacted
        if isinstance(op, Put):
            if op.lease and op.lease not in self.leases:
                yield LeaseNotFound
            if (op.ignore_value or op.ignore_lease) and op.key not in self.now:
                yield KeyNotFound

    # -- transactions ------------------------------------------------------------------------

    def _holds(self, txn: Txn) -> bool:
        return all(_compare_holds(compare, self.now) for compare in txn.compares)

    def _taken(self, txn: Txn) -> Iterator[Op]:
        """The operations that will run, nested ones too, in order."""
        for op in txn.then if self._holds(txn) else txn.otherwise:
            if isinstance(op, Txn):
                yield from self._taken(op)
            else:
                yield op

    def _carry_out(self, txn: Txn, working: Contents, events: list[Event]) -> TxnResult:
        succeeded = self._holds(txn)
        results: list[OpResult] = []
        for op in txn.then if succeeded else txn.otherwise:
            match op:
                case Txn():
                    results.append(self._carry_out(op, working, events))
                case Range():
                    seen = working if op.at is None else self.contents[op.at]
                    results.append(_read(op, seen, self._revision_with(events)))
                case Put():
                    results.append(self._put(op, working, events))
                case Delete():
                    results.append(self._delete(op, working, events))
        return TxnResult(Revision(self._revision_with(events)), succeeded, tuple(results))

    def _put(self, op: Put, working: Contents, events: list[Event]) -> PutResult:
        revision = self.revision + 1
        old = working.get(op.key)
        value = old.value if old and op.ignore_value else op.value
        lease = old.lease if old and op.ignore_lease else op.lease
        if old:
            new = KeyValue(op.key, value, old.create_revision, revision, old.version + 1, lease)
        else:
            new = KeyValue(op.key, value, revision, revision, 1, lease)
        working[op.key] = new
        events.append(Event(new, old))
        return PutResult(Revision(revision), old if op.prev_kv else None)

    def _delete(self, op: Delete, working: Contents, events: list[Event]) -> DeleteResult:
        gone = [working.pop(key) for key in sorted(working) if is_in(op.keys, key)]
        events += [Event(KeyValue(kv.key, b"", 0, self.revision + 1, 0, 0), kv) for kv in gone]
        revision = Revision(self._revision_with(events))
        return DeleteResult(revision, len(gone), tuple(gone) if op.prev_kv else ())

    def _revision_with(self, events: list[Event]) -> int:
        return self.revision + 1 if events else self.revision

    def _append(self, contents: Contents, events: list[Event]) -> None:
        self.revision += 1
        self.contents[self.revision] = contents
        self.events[self.revision] = events


def is_in(keys: Keys, key: bytes) -> bool:
    if isinstance(keys, bytes):
        return key == keys
    return keys.start <= key and (keys.end is None or key < keys.end)


def is_written_twice(txn: Txn) -> bool:
    """Whether on any path through the transaction a key is put twice, or put and deleted."""

    def paths(ops: tuple[Op, ...]) -> Iterator[list[Put | Delete]]:
        if not ops:
            yield []
            return
        first, rest = ops[0], ops[1:]
        heads: list[list[Put | Delete]] = [[]]
        if isinstance(first, Txn):
            heads = [*paths(first.then), *paths(first.otherwise)]
        elif not isinstance(first, Range):
            heads = [[first]]
        for tail in paths(rest):
            for head in heads:
                yield head + tail

    for path in (*paths(txn.then), *paths(txn.otherwise)):
        puts = [op.key for op in path if isinstance(op, Put)]
        deletes = [op.keys for op in path if isinstance(op, Delete)]
        if len(set(puts)) < len(puts) or any(is_in(keys, key) for keys in deletes for key in puts):
            return True
    return False


_TARGETS: dict[SortTarget | CompareTarget, Callable[[KeyValue], bytes | int]] = {
    SortTarget.KEY: lambda kv: kv.key,
    SortTarget.VERSION: lambda kv: kv.version,
    SortTarget.CREATE: lambda kv: kv.create_revision,
    SortTarget.MOD: lambda kv: kv.mod_revision,
    SortTarget.VALUE: lambda kv: kv.value,
    CompareTarget.VERSION: lambda kv: kv.version,
    CompareTarget.CREATE: lambda kv: kv.create_revision,
    CompareTarget.MOD: lambda kv: kv.mod_revision,
    CompareTarget.VALUE: lambda kv: kv.value,
    CompareTarget.LEASE: lambda kv: kv.lease,
}


def _compare_holds(compare: Compare, contents: Contents) -> bool:
    found = [kv for key, kv in contents.items() if is_in(compare.keys, key)]
    if not found:
        if compare.target is CompareTarget.VALUE:
            return False
        found = [KeyValue(b"", b"", 0, 0, 0, 0)]
    for kv in found:
        # Both are bytes or both are numbers; the order of either is that of the pair.
        order = sorted([_TARGETS[compare.target](kv), compare.operand])
        same = order[0] == order[1]
        less = not same and order[1] == compare.operand
        holds = {
            Relation.EQUAL: same,
            Relation.NOT_EQUAL: not same,
            Relation.LESS: less,
            Relation.GREATER: not same and not less,
        }
        if not holds[compare.relation]:
            return False
    return True


def _read(op: Range, contents: Contents, revision: int) -> RangeResult:
    found = [contents[key] for key in sorted(contents) if is_in(op.keys, key)]
    if op.count_only:
        return RangeResult(Revision(revision), (), len(found))
    kept = [
        kv
        for kv in found
        if (op.mod_revision_min is None or op.mod_revision_min <= kv.mod_revision)
        and (op.mod_revision_max is None or kv.mod_revision <= op.mod_revision_max)
        and (op.create_revision_min is None or op.create_revision_min <= kv.create_revision)
        and (op.create_revision_max is None or kv.create_revision <= op.create_revision_max)
    ]
    kept.sort(key=_TARGETS[op.sort_by], reverse=op.descending)
    shown = kept if op.limit is None else kept[: op.limit]
    if op.keys_only:
        shown = [
            KeyValue(kv.key, b"", kv.create_revision, kv.mod_revision, kv.version, kv.lease)
            for kv in shown
        ]
    return RangeResult(Revision(revision), tuple(shown), len(found), len(shown) < len(kept))


def _check_shape(op: Op) -> None:
    """Refuse what makes no sense whatever the store holds."""
    match op:
        case Put():
            wrong = (
                not op.key
                or (op.ignore_value and bool(op.value))
                or (op.ignore_lease and bool(op.lease))
            )
        case Delete():
            wrong = op.keys == b""
        case Range():
            bad_limit = op.limit is not None and op.limit < 1
            wrong = op.keys == b"" or bad_limit or (op.at is not None and op.at < 1)
        case Txn():
            wrong = any(compare.keys == b"" for compare in op.compares)
            for part in op.then + op.otherwise:
                _check_shape(part)
    if wrong:
        raise Refused(InvalidRequest)
