"""The MVCC state machine: every key, its history, and the leases that own keys.  All in memory.

Commands come in, results go out; no clock, no IO, no asyncio, so the same commands always give the
same state.  The engine makes them durable.

    _records  key -> its record: the version that exists now, and older ones that are still kept
    _live     the records of keys that exist, in order
    _dead     those of keys that were deleted but still have a history, in order
    _log      what each revision wrote, from the compaction revision on

Invariants
    * Everything about a request is checked before anything is changed: a write cannot fail halfway.
    * A deletion is a version too: `version` 0, and always in the past.
    * A record is in _live if it has a version now, and else in _dead, and has a past.
    * Reads take `newest`, the newest revision the reader may see; what lies beyond is as if it had not
      happened.  The engine passes the newest *durable* revision.
    * `compact` takes effect at once; the memory comes back through `trim`, in slices.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from quoracy.engines.embedded.memory.key_index import Record, SortedRecords, keep, key_of, version_at
from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.predicates import compares, has_filters, passes, without_value
from quoracy.engines.embedded.memory.revision_log import Changes, RevisionLog
from quoracy.engines.embedded.memory.versions import bytes_of, free_before, newest_by_key
from quoracy.errors import Compacted, DataUnreadable, FutureRevision, KeyNotFound, LeaseNotFound
from quoracy.store.model import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    Keys,
    KeyValue,
    OpResult,
    Put,
    PutResult,
    Range,
    RangeResult,
    Revision,
    SortTarget,
    Txn,
    TxnResult,
)

__all__ = ["FIRST_REVISION", "VERSION_OVERHEAD_BYTES", "State"]

FIRST_REVISION = Revision(1)

# What a kept version costs beyond its key and value, for the quota: the row's other columns on disk.
VERSION_OVERHEAD_BYTES = 64

_now = attrgetter("now")

_SORT_KEYS = {target: attrgetter(target.value) for target in SortTarget}


class State:
    """One store's contents.  Not thread-safe, and does not need to be."""

    __slots__ = (
        "_dead",
        "_live",
        "_log",
        "_records",
        "_trimmed",
        "_trimmed_in_first",
        "compact_revision",
        "history_bytes",
        "leases",
        "revision",
        "size_bytes",
    )

    def __init__(self, leases: LeaseTable) -> None:
        self.leases = leases
        self.revision: Revision = FIRST_REVISION
        self.compact_revision = 0
        self.size_bytes = 0  # all kept versions
        self.history_bytes = 0  # those of them that are not the newest of their key
        self._records: dict[bytes, Record] = {}
        self._live = SortedRecords()
        self._dead = SortedRecords()
        self._log = RevisionLog(FIRST_REVISION + 1)
        self._trimmed = 0  # the compaction revision that `trim` has finished
        self._trimmed_in_first = 0  # versions of the oldest revision that it has gone through

    # -- load ----------------------------------------------------------------------------

    def load(
        self, history: Iterable[Changes], *, revision: int, compact_revision: int, source: object
    ) -> list[KeyValue]:
        """Fill an empty state from what is kept of each revision, in order.

        `revision` is the least the store's revision can be (a restore raises it).  Returns what need
        not be kept: a compaction that was under way when the process ended goes on with these.
        """
        records = self._records
        garbage: list[KeyValue] = []
        self.compact_revision = self._trimmed = compact_revision
        self._log = log = RevisionLog(max(compact_revision, FIRST_REVISION + 1))
        for kv in itertools.chain.from_iterable(history):
            key, at = kv.key, kv.mod_revision
            if at >= log.first:
                log.note(kv)
            record = records.get(key)
            if record is None:
                record = records[key] = Record(key, None)
            older, record.now = record.now, None
            if at <= compact_revision:
                # Nothing before it can be read any more: neither a version nor a deletion.
                garbage.extend(record.past or ())
                record.past = None
                if older is not None:
                    garbage.append(older)
            elif older is not None:
                keep(record, older)
            if kv.version:
                record.now = kv
            elif at < compact_revision:
                garbage.append(kv)
                if record.past is None:
                    del records[key]
            else:
                keep(record, kv)
        log.filled()
        self._sort_records(source)
        self.revision = Revision(max(revision, log.newest, FIRST_REVISION))
        log.extend_to(self.revision)
        for gap in log.gaps(compact_revision):
            raise _damaged(source, f"revision {gap} is missing, though {self.revision} is there")
        return garbage

    def _sort_records(self, source: object) -> None:
        live: list[Record] = []
        dead: list[Record] = []
        leases = self.leases
        for record in self._records.values():
            kv = record.now
            if kv is None:
                dead.append(record)
            else:
                live.append(record)
                self.size_bytes += _size(kv)
                if kv.lease:
                    if kv.lease not in leases:
                        raise _damaged(source, f"lease {kv.lease:x} of key {kv.key!r} is missing")
                    leases.attach(kv.lease, kv.key)
            for old in record.past or ():
                self.history_bytes += _size(old)
        self.size_bytes += self.history_bytes
        self._live, self._dead = SortedRecords(live), SortedRecords(dead)

    # -- as a replica: what others wrote, with the revisions it has there -------------------

    def adopt(self, kvs: Iterable[KeyValue], *, revision: int) -> None:
        """Fill an empty state with what there is at a revision; what was before is not known here."""
        for kv in kvs:
            self._records[kv.key] = Record(kv.key, kv)
            self.size_bytes += _size(kv)
        self._live = SortedRecords(self._records.values())
        self.revision = Revision(revision)
        self.compact_revision = self._trimmed = revision
        # What this revision itself changed is not known either.
        self._log = RevisionLog(revision)
        self._log.extend_to(revision)

    def apply(self, revision: int, changes: Changes) -> None:
        """Write what a later revision changed; of those between, nothing is here."""
        self._log.extend_to(revision - 1)
        for kv in changes:
            self._apply(kv)
        self.revision = Revision(revision)
        self._log.append(changes)

    def _apply(self, kv: KeyValue) -> None:
        key = kv.key
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record(key, None)
        prev = record.now
        if prev is not None:
            keep(record, prev)
            self.history_bytes += _size(prev)
        self.size_bytes += _size(kv)
        if kv.version:
            if prev is None:
                self._appear(record)
            record.now = kv
        else:
            self.history_bytes += _size(kv)
            if prev is not None:
                self._live.remove(record)
            if prev is not None or record.past is None:
                self._dead.add(record)
            record.now = None
            keep(record, kv)

    def _appear(self, record: Record) -> None:
        """Its key exists from now on."""
        if record.past is not None:
            self._dead.remove(record)
        self._live.add(record)

    # -- reads ---------------------------------------------------------------------------

    @property
    def keys_count(self) -> int:
        return len(self._live)

    def count(self, *, newest: int) -> int:
        """How many keys there are for a reader that sees no further than `newest`."""
        return self._count(KeyRange.everything(), newest)

    def range(self, op: Range, *, newest: int) -> RangeResult:
        at = self._readable(op.at, newest)
        keys = op.keys
        if not isinstance(keys, bytes):
            if not keys.is_single:
                return self._range_many(op, keys, at, newest)
            keys = keys.start
        kv = self.get(keys, at)
        if kv is None:
            return RangeResult(Revision(newest), (), 0)
        if op.count_only or not passes(op, kv):
            return RangeResult(Revision(newest), (), 1)
        return RangeResult(Revision(newest), (without_value(kv) if op.keys_only else kv,), 1)

    def _range_many(self, op: Range, keys: KeyRange, at: int, newest: int) -> RangeResult:
        if op.count_only:
            return RangeResult(Revision(newest), (), self._count(keys, at))
        by_key = op.sort_by is SortTarget.KEY
        found = self._walk(keys, at, descending=by_key and op.descending)
        if by_key and not has_filters(op):
            # In order already: a limit stops the walk, and the count need not walk at all.
            kvs = list(itertools.islice(found, op.limit))
            count = len(kvs) if op.limit is None or len(kvs) < op.limit else self._count(keys, at)
            more = len(kvs) < count
        else:
            everything = list(found)
            count = len(everything)
            kvs = [kv for kv in everything if passes(op, kv)]
            if not by_key:
                kvs.sort(key=_SORT_KEYS[op.sort_by], reverse=op.descending)
            more = op.limit is not None and len(kvs) > op.limit
            kvs = kvs[: op.limit]
        if op.keys_only:
            kvs = [without_value(kv) for kv in kvs]
        return RangeResult(Revision(newest), tuple(kvs), count, more)

    def get(self, key: bytes, at: int) -> KeyValue | None:
        """The version of a key that was current at a kept revision."""
        record = self._records.get(key)
        return None if record is None else version_at(record, at)

    def last_created_before(self, keys: KeyRange, create_revision: int, *, at: int) -> KeyValue | None:
        """The youngest key of a range, at a kept revision, that is older than that."""
        last: KeyValue | None = None
        newest = 0
        for kv in self._walk(keys, at):
            if newest < kv.create_revision < create_revision:
                last, newest = kv, kv.create_revision
        return last

    def page(self, after: bytes | None, count: int, *, at: int) -> list[KeyValue]:
        """Up to `count` keys at a revision, following `after`: for work that goes on in slices."""
        start = b"" if after is None else after + b"\0"
        return list(itertools.islice(self._walk(KeyRange(start, None), self._readable(at, at)), count))

    def changes(self, revision: int) -> Changes:
        """What a kept revision wrote, in order."""
        return self._log.changes(revision)

    def before(self, kv: KeyValue) -> KeyValue | None:
        """The version that this one replaced, if there was one and it is still kept."""
        if kv.mod_revision <= self.compact_revision:
            return None
        return self.get(kv.key, kv.mod_revision - 1)

    def read_txn(self, txn: Txn, *, newest: int) -> TxnResult:
        """Carry out a transaction that has only reads, as of `newest`."""
        path = self._judge(txn, newest)
        self._check_ranges(txn, iter(path), newest)
        return self._run(txn, iter(path), newest)

    def _readable(self, at: int | None, newest: int) -> int:
        if at is None:
            return newest
        if at > newest:
            raise FutureRevision(wanted=at, newest=newest)
        if at < self.compact_revision:
            raise Compacted(wanted=at, oldest=self.compact_revision)
        return at

    def _walk(self, keys: KeyRange, at: int, *, descending: bool = False) -> Iterator[KeyValue]:
        records = self._live.walk(keys, descending=descending)
        if at >= self.revision:
            return map(_now, records)
        if self._dead.count(keys):
            dead = self._dead.walk(keys, descending=descending)
            records = heapq.merge(records, dead, key=key_of, reverse=descending)
        return self._that_exist(records, at)

    def _that_exist(self, records: Iterable[Record], at: int) -> Iterator[KeyValue]:
        for record in records:
            kv = version_at(record, at)
            if kv is not None:
                yield kv

    def _count(self, keys: KeyRange, at: int) -> int:
        count = self._live.count(keys)
        if at >= self.revision:
            return count
        if self.revision - at > count:
            return sum(1 for _ in self._walk(keys, at))
        # A recent revision (usually the newest durable one, while later ones are on their way to
        # disk): count what is there now and take back the few changes since.
        changed = {kv.key for kv in self._log.since(at) if keys.contains(kv.key)}
        for key in changed:
            count += (self.get(key, at) is not None) - (self._get(key) is not None)
        return count

    # -- writes --------------------------------------------------------------------------

    def execute(self, op: Put | Delete | Txn) -> PutResult | DeleteResult | TxnResult:
        """Carry out a write; what it changed is `changes(revision)`, if that is another one now."""
        changes: list[KeyValue] = []
        result: PutResult | DeleteResult | TxnResult
        if isinstance(op, Put):
            self._check_put(op)
            result = self._put(op, changes)
        elif isinstance(op, Delete):
            result = self._delete(op, changes)
        else:
            path = self._judge(op, self.revision)
            # Puts before ranges: of several errors the same one is reported as by etcd 3.4 and 3.5.
            self._check_puts(op, iter(path))
            self._check_ranges(op, iter(path), self.revision)
            result = self._run(op, iter(path), None, changes)
        self._seal(changes)
        return result

    def end_lease(self, lease: int) -> Revision:
        """End a lease and delete its keys, in one revision."""
        changes: list[KeyValue] = []
        for key in self.leases.end(lease):
            self._erase(key, changes)
        self._seal(changes)
        return self.revision

    def _put(self, op: Put, changes: list[KeyValue]) -> PutResult:
        revision = self._open(changes)
        key, value, lease = op.key, op.value, op.lease
        record = self._records.get(key)
        prev = None if record is None else record.now
        if prev is not None:
            if op.ignore_value:
                value = prev.value
            if op.ignore_lease:
                lease = prev.lease
        changes.append(self._replace(record, key, value, lease, revision))
        return PutResult(revision, prev if op.prev_kv else None)

    # (`revision` is Any because compiled code makes an object of an int wherever it meets a struct: so
    # there is one for all versions of a transaction, for as long as these are kept.)

    def _replace(
        self, record: Record | None, key: bytes, value: bytes, lease: int, revision: Any
    ) -> KeyValue:
        """A new version of a key, whose record this is if it has one."""
        if record is None or (prev := record.now) is None:
            if record is None:
                record = self._records[key] = Record(key, None)
            else:
                key = record.key  # one object for all versions: that is memory, and work to free it
            kv = KeyValue(key, value, revision, revision, 1, lease)
            self._appear(record)
            if lease:
                self.leases.attach(lease, key)
        else:
            key = record.key  # (as above)
            kv = KeyValue(key, value, prev.create_revision, revision, prev.version + 1, lease)
            keep(record, prev)
            self.history_bytes += len(key) + len(prev.value) + VERSION_OVERHEAD_BYTES
            prev_lease = prev.lease
            if prev_lease != lease:
                if prev_lease:
                    self.leases.detach(prev_lease, key)
                if lease:
                    self.leases.attach(lease, key)
        record.now = kv
        self.size_bytes += len(key) + len(value) + VERSION_OVERHEAD_BYTES
        return kv

    def _erase(self, key: bytes, changes: list[KeyValue]) -> KeyValue:
        record = self._records[key]
        prev = record.now
        assert prev is not None
        changes.append(self._remove(record, prev, self._open(changes)))
        return prev

    def _remove(self, record: Record, prev: KeyValue, revision: Any) -> KeyValue:
        """Delete a key; returns the version that says so.  `prev` is the version it had."""
        key, lease = prev.key, prev.lease
        gone = KeyValue(key, b"", 0, revision, 0, 0)
        self._live.remove(record)
        self._dead.add(record)
        record.now = None
        if record.past is None:
            record.past = (prev, gone)
        else:
            keep(record, prev)
            keep(record, gone)
        if lease:
            self.leases.detach(lease, key)
        size = len(key) + VERSION_OVERHEAD_BYTES
        self.size_bytes += size
        self.history_bytes += size + size + len(prev.value)
        return gone

    def _open(self, changes: list[KeyValue]) -> Revision:
        """The revision that this transaction's changes get: taken at the first change."""
        if not changes:
            self.revision = Revision(self.revision + 1)
            self._log.begin(changes)
        return self.revision

    def _seal(self, changes: list[KeyValue]) -> None:
        if changes:
            self._log.end()

    # -- transactions --------------------------------------------------------------------

    def _judge(self, txn: Txn, at: int) -> list[bool]:
        """Which branch is taken, here and in nested transactions, in the order they are met."""
        taken = True
        for compare in txn.compares:
            if not self._holds(compare, at):
                taken = False
                break
        path = [taken]
        for op in txn.then if taken else txn.otherwise:
            if isinstance(op, Txn):
                path += self._judge(op, at)
        return path

    def _holds(self, compare: Compare, at: int) -> bool:
        keys = compare.keys
        if isinstance(keys, bytes) or keys.is_single:
            kv = self.get(keys if isinstance(keys, bytes) else keys.start, at)
            return compares(compare, kv)
        found = self._walk(keys, at)
        first = next(found, None)
        return compares(compare, first) and all(compares(compare, kv) for kv in found)

    def _check_puts(self, txn: Txn, path: Iterator[bool]) -> None:
        for op in txn.then if next(path) else txn.otherwise:
            if isinstance(op, Put):
                self._check_kept(op)
                self._check_put(op)
            elif isinstance(op, Txn):
                self._check_puts(op, path)

    def _check_ranges(self, txn: Txn, path: Iterator[bool], newest: int) -> None:
        for op in txn.then if next(path) else txn.otherwise:
            if isinstance(op, Range):
                self._readable(op.at, newest)
            elif isinstance(op, Txn):
                self._check_ranges(op, path, newest)

    def _check_put(self, op: Put) -> None:
        if op.lease and op.lease not in self.leases:
            raise LeaseNotFound(op.lease)
        self._check_kept(op)

    def _check_kept(self, op: Put) -> None:
        if (op.ignore_value or op.ignore_lease) and self._get(op.key) is None:
            raise KeyNotFound(op.key)

    def _run(
        self,
        txn: Txn,
        path: Iterator[bool],
        newest: int | None,
        changes: list[KeyValue] | None = None,
    ) -> TxnResult:
        """Carry out the chosen branch; `newest` is None where the branch may write."""
        taken = next(path)
        results: list[OpResult] = []
        for op in txn.then if taken else txn.otherwise:
            if isinstance(op, Range):
                seen = self.revision if newest is None else newest
                results.append(self.range(op, newest=seen))
            elif isinstance(op, Txn):
                results.append(self._run(op, path, newest, changes))
            else:
                assert changes is not None
                results.append(
                    self._put(op, changes) if isinstance(op, Put) else self._delete(op, changes)
                )
        return TxnResult(self.revision if newest is None else Revision(newest), taken, tuple(results))

    def _delete(self, op: Delete, changes: list[KeyValue]) -> DeleteResult:
        found = self._existing(op.keys)
        gone = tuple(self._erase(key, changes) for key in found)
        return DeleteResult(self.revision, len(gone), gone if op.prev_kv else ())

    def _existing(self, keys: Keys) -> list[bytes]:
        if isinstance(keys, bytes):
            return [] if self._get(keys) is None else [keys]
        return [record.key for record in self._live.walk(keys)]

    def _get(self, key: bytes) -> KeyValue | None:
        """The version that exists now, durable or not."""
        record = self._records.get(key)
        return None if record is None else record.now

    # -- compaction ----------------------------------------------------------------------

    def check_compact(self, at: int, *, newest: int) -> None:
        if at <= self.compact_revision:
            raise Compacted(wanted=at, oldest=self.compact_revision)
        if at > newest:
            raise FutureRevision(wanted=at, newest=newest)

    def compact(self, at: int) -> None:
        """From now on nothing before `at` can be read; `trim` then frees what that leaves over."""
        self.compact_revision = at

    @property
    def trim_pending(self) -> bool:
        return self._trimmed < self.compact_revision

    @property
    def trimmed_until(self) -> int:
        """What was written up to this revision is trimmed.

        Never the compaction revision itself, which can be watched: its deletions, and the order in it,
        stay.
        """
        return min(self._log.first, self.compact_revision) - 1

    def trim(self, *, versions_max: int, newest: dict[bytes, KeyValue] | None = None) -> list[KeyValue]:
        """Free what compaction left over, going on from the last call; return what was freed.

        A call goes through `versions_max` versions, and ends inside of a revision if need be, since a
        transaction may have deleted many keys; `newest` gets the last of each key.

        The events of the compaction revision itself are kept, deletions too: it can still be
        watched from.  [etcd#19179]  So it is gone through as a whole, and again after the next
        compaction, when its deletions may go.
        """
        log, horizon = self._log, self.compact_revision
        # What one key leaves over goes at once: a key with many versions would otherwise be moved up in
        # memory for each of them.
        revisions_max = max(min(horizon - log.first, versions_max), 0)  # of at least a version each
        last, count, self._trimmed_in_first = newest_by_key(
            log.oldest(revisions_max), versions_max, self._trimmed_in_first
        )
        if log.first + count >= horizon:
            if log.first <= horizon <= log.newest:  # revision 1 is not there
                for kv in log.changes(horizon):
                    last[kv.key] = kv
            self._trimmed = horizon
        if newest is not None:
            newest.update(last)
        freed: list[KeyValue] = []
        for record in free_before(last.values(), self._records, horizon, freed):
            self._dead.remove(record)
            del self._records[record.key]
        log.drop(count)
        size = len(freed) * VERSION_OVERHEAD_BYTES + bytes_of(freed)
        self.size_bytes -= size
        self.history_bytes -= size
        return freed


def _damaged(source: object, what: str) -> DataUnreadable:
    return DataUnreadable(
        f"{source} is damaged: {what}. "
        f"Run `quoracy doctor {source}`, or restore a backup with `quoracy restore`."
    )


def _size(kv: KeyValue) -> int:
    return len(kv.key) + len(kv.value) + VERSION_OVERHEAD_BYTES
