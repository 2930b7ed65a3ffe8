"""The store's keys inside a larger key space: every key has a prefix there and none here.  Pure.

    outward: what we ask of the cluster      b"jobs" -> b"/quoracy/jobs"
    inward:  what the cluster answers        b"/quoracy/jobs" -> b"jobs"

Invariants
    * Nothing outside the prefix is ever named: a range without end ends where the prefix does.
    * An empty range stays an empty one.
    * What comes inward that is not under the prefix was not asked for, and is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.store.model import (
    Compare,
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
    Txn,
    TxnResult,
)

__all__ = ["DEFAULT_PREFIX", "Prefix"]

DEFAULT_PREFIX = b"/quoracy/"


class Prefix:
    """One prefix, and the two ways through it."""

    __slots__ = ("_size", "everything", "text")

    def __init__(self, text: bytes) -> None:
        if not text:
            raise InvalidRequest("the prefix is empty. Give the store keys of its own: /quoracy/, say.")
        self.text = text
        # No key of ours is empty, so the prefix itself is somebody else's key.
        self.everything = KeyRange(text + b"\0", KeyRange.prefix(text).end)
        self._size = len(text)

    def __repr__(self) -> str:
        return f"Prefix({self.text!r})"

    # -- outward ---------------------------------------------------------------------------

    def keys(self, keys: Keys) -> Keys:
        if isinstance(keys, bytes):
            return self.text + keys
        start = self.text + (keys.start or b"\0")
        return KeyRange(start, self.everything.end if keys.end is None else self.text + keys.end)

    def txn(self, txn: Txn) -> Txn:
        return Txn(
            tuple([self._compare(compare) for compare in txn.compares]),
            tuple([self.op(op) for op in txn.then]),
            tuple([self.op(op) for op in txn.otherwise]),
        )

    def put(self, op: Put) -> Put:
        return Put(self.text + op.key, op.value, op.lease, op.prev_kv, op.ignore_value, op.ignore_lease)

    def _compare(self, compare: Compare) -> Compare:
        return Compare(self.keys(compare.keys), compare.target, compare.relation, compare.operand)

    def op(self, op: Op) -> Op:
        """An operation, with its keys under the prefix."""
        if isinstance(op, Put):
            return self.put(op)
        if isinstance(op, Delete):
            return Delete(self.keys(op.keys), op.prev_kv)
        if isinstance(op, Range):
            return msgspec.structs.replace(op, keys=self.keys(op.keys))
        return self.txn(op)

    # -- inward ----------------------------------------------------------------------------

    def key(self, key: bytes) -> bytes:
        if not key.startswith(self.text):
            raise ProtocolError(f"the cluster sent {key!r}, which is not under {self.text!r}")
        return key[self._size :]

    def kv(self, kv: KeyValue) -> KeyValue:
        return KeyValue(
            self.key(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease
        )

    def kvs(self, kvs: Sequence[KeyValue]) -> tuple[KeyValue, ...]:
        return tuple([self.kv(kv) for kv in kvs])

    def changes(self, events: Sequence[Event]) -> tuple[KeyValue, ...]:
        """The new versions in these events."""
        return tuple([self.kv(event.kv) for event in events])

    def event(self, event: Event) -> Event:
        return Event(self.kv(event.kv), None if event.prev_kv is None else self.kv(event.prev_kv))

    def range_result(self, result: RangeResult) -> RangeResult:
        return RangeResult(result.revision, self.kvs(result.kvs), result.count, result.more)

    def put_result(self, result: PutResult) -> PutResult:
        if result.prev_kv is None:
            return result
        return PutResult(result.revision, self.kv(result.prev_kv))

    def delete_result(self, result: DeleteResult) -> DeleteResult:
        return DeleteResult(result.revision, result.deleted, self.kvs(result.prev_kvs))

    def txn_result(self, result: TxnResult) -> TxnResult:
        return TxnResult(
            result.revision,
            result.succeeded,
            tuple([self.result(part) for part in result.results]),
        )

    def result(self, result: OpResult) -> OpResult:
        """The result of an operation."""
        if isinstance(result, PutResult):
            return self.put_result(result)
        if isinstance(result, DeleteResult):
            return self.delete_result(result)
        if isinstance(result, RangeResult):
            return self.range_result(result)
        return self.txn_result(result)
