"""Values of the store as etcd's messages, and etcd's answers as values of the store.  Pure.

Where zero means "not given" on the wire and the store knows None, or the wire has no word for something
the store can say, it is put here as the wire can say it:
    * A range without end, or from the very first key, has `\\0` there; a range that can have no keys
      becomes one that etcd, too, finds empty, never one of those special forms.
    * A revision bound of 0 is a bound: a lower one lets everything pass, an upper one nothing.
    * Seconds are whole numbers on the wire; a time to live is rounded up, never down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from quoracy.errors import ProtocolError
from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    DeleteResult,
    Event,
    KeyRange,
    Keys,
    KeyValue,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
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
)
from quoracy.wire.etcd import kv as wire_kv
from quoracy.wire.etcd import rpc
from quoracy.wire.etcd.fast_codec import decode_put_revision, decode_range_result, decode_txn_result
from quoracy.wire.protobuf.primitives import DEPTH_MAX, int64, nested_too_deep, varint

__all__ = [
    "by_revision",
    "delete_request",
    "delete_result",
    "events_of",
    "grant_result",
    "lease_status",
    "put_payload",
    "put_result",
    "range_request",
    "range_result",
    "read_put",
    "read_range",
    "read_txn",
    "revision_of",
    "ttl_seconds",
    "txn_payload",
    "txn_result",
    "watch_request",
    "wire_keys",
]

# A range that etcd finds empty.  (`\0` as an end, and an empty one, mean other things.)
_NOTHING = (b"\x01", b"\x01")


def wire_keys(keys: Keys) -> tuple[bytes, bytes]:
    """`key` and `range_end` for a key or a range."""
    if isinstance(keys, bytes):
        return keys, b""
    start, end = keys.start, keys.end
    if end is None:
        return start or b"\0", b"\0"
    if end <= b"\0":
        return _NOTHING
    if keys.is_single:
        return start, b""
    return start or b"\0", end


def _has_no_keys(keys: Keys) -> bool:
    return isinstance(keys, KeyRange) and keys.end is not None and keys.end <= max(keys.start, b"\0")


# -- requests --------------------------------------------------------------------------------

_SORT_TARGET = {
    SortTarget.KEY: rpc.SortTarget.KEY,
    SortTarget.VERSION: rpc.SortTarget.VERSION,
    SortTarget.CREATE: rpc.SortTarget.CREATE,
    SortTarget.MOD: rpc.SortTarget.MOD,
    SortTarget.VALUE: rpc.SortTarget.VALUE,
}
_COMPARE_TARGET = {
    CompareTarget.VALUE: rpc.CompareTarget.VALUE,
    CompareTarget.VERSION: rpc.CompareTarget.VERSION,
    CompareTarget.CREATE: rpc.CompareTarget.CREATE,
    CompareTarget.MOD: rpc.CompareTarget.MOD,
    CompareTarget.LEASE: rpc.CompareTarget.LEASE,
}
_RELATION = {
    Relation.EQUAL: rpc.CompareResult.EQUAL,
    Relation.NOT_EQUAL: rpc.CompareResult.NOT_EQUAL,
    Relation.LESS: rpc.CompareResult.LESS,
    Relation.GREATER: rpc.CompareResult.GREATER,
}


def range_request(op: Range) -> rpc.RangeRequest:
    key, range_end = wire_keys(op.keys)
    # etcd sorts by key, ascending, by itself.
    plain = op.sort_by is SortTarget.KEY and not op.descending
    order = rpc.SortOrder.DESCEND if op.descending else rpc.SortOrder.ASCEND
    return rpc.RangeRequest(
        key=key,
        range_end=range_end,
        limit=op.limit or 0,
        revision=op.at or 0,
        sort_order=rpc.SortOrder.NONE if plain else order,
        sort_target=_SORT_TARGET[op.sort_by],
        serializable=op.serializable,
        keys_only=op.keys_only,
        count_only=op.count_only,
        min_mod_revision=_lower(op.mod_revision_min),
        max_mod_revision=_upper(op.mod_revision_max),
        min_create_revision=_lower(op.create_revision_min),
        max_create_revision=_upper(op.create_revision_max),
    )


def _lower(bound: int | None) -> int:
    return max(bound or 0, 0)


def _upper(bound: int | None) -> int:
    if bound is None:
        return 0
    return bound if bound > 0 else -1


def put_payload(op: Put) -> bytes:
    """A `PutRequest`, encoded.  Raises `InvalidRequest` for a number that it cannot have."""
    key, value, lease = op.key, op.value, op.lease
    parts: list[bytes] = []
    if key:
        parts += (b"\x0a", varint(len(key)), key)
    if value:
        parts += (b"\x12", varint(len(value)), value)
    if lease:
        parts += (b"\x18", int64(lease))
    if op.prev_kv:
        parts.append(b"\x20\x01")
    if op.ignore_value:
        parts.append(b"\x28\x01")
    if op.ignore_lease:
        parts.append(b"\x30\x01")
    return b"".join(parts)


def delete_request(op: Delete) -> rpc.DeleteRangeRequest:
    key, range_end = wire_keys(op.keys)
    return rpc.DeleteRangeRequest(key=key, range_end=range_end, prev_kv=op.prev_kv)


# A transaction is written without messages for its parts: each would be made, read once, and freed.

_COMPARE, _THEN, _OTHERWISE = b"\x0a", b"\x12", b"\x1a"
_RANGE_OP, _PUT_OP, _DELETE_OP, _TXN_OP = b"\x0a", b"\x12", b"\x1a", b"\x22"
_COMPARED_KEY, _COMPARED_VALUE, _COMPARED_END = b"\x1a", b"\x3a", b"\x82\x04"
# Compared one by one, not looked up: hashing a member of an Enum takes longer than the rest of it.
_VERSION, _CREATE, _MOD = CompareTarget.VERSION, CompareTarget.CREATE, CompareTarget.MOD
_LEASE, _EQUAL = CompareTarget.LEASE, Relation.EQUAL


def txn_payload(txn: Txn, *, depth: int = DEPTH_MAX) -> bytes:
    """A `TxnRequest`, encoded.  Raises `InvalidRequest` for a number or nesting that it cannot have."""
    if depth <= 0:
        raise nested_too_deep("TxnRequest")
    parts: list[bytes] = []
    for compare in txn.compares:
        body = _compare(compare)
        parts += (_COMPARE, varint(len(body)), body)
    for tag, ops in ((_THEN, txn.then), (_OTHERWISE, txn.otherwise)):
        for op in ops:
            kind, body = _op(op, depth)
            size = varint(len(body))
            parts += (tag, varint(len(size) + len(body) + 1), kind, size, body)
    return b"".join(parts)


def _op(op: Op, depth: int) -> tuple[bytes, bytes]:
    match op:
        case Put():
            return _PUT_OP, put_payload(op)
        case Delete():
            return _DELETE_OP, _delete(op)
        case Range():
            return _RANGE_OP, range_request(op).encode()
        case Txn():
            return _TXN_OP, txn_payload(op, depth=depth - 2)


def _delete(op: Delete) -> bytes:
    keys = op.keys
    if op.prev_kv or not isinstance(keys, bytes):
        return delete_request(op).encode()
    return b"\x0a" + varint(len(keys)) + keys if keys else b""


def _compare(compare: Compare) -> bytes:
    key, range_end = wire_keys(compare.keys)
    target, operand = compare.target, compare.operand
    body = b"" if compare.relation is _EQUAL else b"\x08%c" % _RELATION[compare.relation]
    if target is _CREATE:
        body += b"\x10\x01"
    elif target is not _VERSION:
        body += b"\x10%c" % _COMPARE_TARGET[target]
    if key:
        body += _COMPARED_KEY + varint(len(key)) + key
    if isinstance(operand, bytes):
        body += _COMPARED_VALUE + varint(len(operand)) + operand
    elif target is _CREATE:
        body += b"\x28" + int64(operand)
    elif target is _MOD:
        body += b"\x30" + int64(operand)
    elif target is _VERSION:
        body += b"\x20" + int64(operand)
    else:
        assert target is _LEASE, "the rules let no number be compared with a value"
        body += b"\x40" + int64(operand)
    if range_end:
        body += _COMPARED_END + varint(len(range_end)) + range_end
    return body


def watch_request(
    keys: Keys, *, after: int, puts: bool, deletes: bool, prev_kv: bool
) -> rpc.WatchCreateRequest:
    filters = []
    if _has_no_keys(keys):
        # etcd refuses a range without keys.  A key with every event filtered out is as silent.
        key, range_end = b"\0", b""
        puts = deletes = False
    else:
        key, range_end = wire_keys(keys)
    if not puts:
        filters.append(rpc.FilterType.NOPUT)
    if not deletes:
        filters.append(rpc.FilterType.NODELETE)
    return rpc.WatchCreateRequest(
        key=key,
        range_end=range_end,
        start_revision=after + 1,
        filters=filters,
        prev_kv=prev_kv,
        # Now and then the server says how far it is, so that a watch of quiet keys can go on after a
        # lost connection even if the history it slept through was compacted.
        progress_notify=True,
        fragment=True,
    )


def ttl_seconds(ttl_s: float) -> int:
    return math.ceil(ttl_s)


# -- answers ---------------------------------------------------------------------------------


def read_put(data: bytes) -> PutResult:
    """The result in an encoded `PutResponse`.  Raises `ProtocolError`."""
    revision = decode_put_revision(data)
    if revision is None:
        return put_result(rpc.PutResponse.decode(data))
    return PutResult(Revision(revision))


def read_range(data: bytes) -> RangeResult:
    """The result in an encoded `RangeResponse`.  Raises `ProtocolError`."""
    return decode_range_result(data) or range_result(rpc.RangeResponse.decode(data))


def read_txn(data: bytes) -> TxnResult:
    """The result in an encoded `TxnResponse`.  Raises `ProtocolError`."""
    return decode_txn_result(data) or txn_result(rpc.TxnResponse.decode(data))


def revision_of(header: rpc.ResponseHeader | None) -> Revision:
    if header is None:
        raise ProtocolError("the server's answer has no header, so no revision")
    return Revision(header.revision)


def _key_value(kv: wire_kv.KeyValue) -> KeyValue:
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def _key_values(kvs: Sequence[wire_kv.KeyValue]) -> tuple[KeyValue, ...]:
    return tuple([_key_value(kv) for kv in kvs])


def range_result(answer: rpc.RangeResponse, revision: Revision | None = None) -> RangeResult:
    if revision is None:
        revision = revision_of(answer.header)
    return RangeResult(revision, _key_values(answer.kvs), answer.count, answer.more)


def put_result(answer: rpc.PutResponse, revision: Revision | None = None) -> PutResult:
    if revision is None:
        revision = revision_of(answer.header)
    return PutResult(revision, None if answer.prev_kv is None else _key_value(answer.prev_kv))


def delete_result(answer: rpc.DeleteRangeResponse, revision: Revision | None = None) -> DeleteResult:
    if revision is None:
        revision = revision_of(answer.header)
    return DeleteResult(revision, answer.deleted, _key_values(answer.prev_kvs))


def txn_result(answer: rpc.TxnResponse, revision: Revision | None = None) -> TxnResult:
    # What is inside happened at the revision of the whole: etcd fills the inner headers in unevenly.
    if revision is None:
        revision = revision_of(answer.header)
    results = tuple([_op_result(part, revision) for part in answer.responses])
    return TxnResult(revision, answer.succeeded, results)


def _op_result(part: rpc.ResponseOp, revision: Revision) -> OpResult:
    if part.response_range is not None:
        return range_result(part.response_range, revision)
    if part.response_put is not None:
        return put_result(part.response_put, revision)
    if part.response_delete_range is not None:
        return delete_result(part.response_delete_range, revision)
    if part.response_txn is not None:
        return txn_result(part.response_txn, revision)
    raise ProtocolError("the server's answer to a transaction has a part that is no answer to anything")


def grant_result(lease: int, ttl_s: int) -> LeaseGrant:
    return LeaseGrant(LeaseId(lease), float(ttl_s))


def lease_status(answer: rpc.LeaseTimeToLiveResponse) -> LeaseStatus:
    return LeaseStatus(
        LeaseId(answer.ID), float(answer.grantedTTL), float(answer.TTL), tuple(sorted(answer.keys))
    )


def events_of(events: Iterable[wire_kv.Event]) -> list[Event]:
    """Events as values of the store."""
    return [_event(event) for event in events]


def by_revision(events: Iterable[Event]) -> Iterator[tuple[int, list[Event]]]:
    """Those of each revision together; they arrive in that order."""
    together: list[Event] = []
    revision = 0
    for event in events:
        if event.kv.mod_revision != revision:
            if together:
                yield revision, together
            together, revision = [], event.kv.mod_revision
        together.append(event)
    if together:
        yield revision, together


def _event(event: wire_kv.Event) -> Event:
    kv = event.kv
    if kv is None:
        raise ProtocolError("the server sent a change of no key")
    if event.type == wire_kv.EventType.DELETE:
        now = KeyValue(kv.key, b"", 0, kv.mod_revision, 0)
    else:
        now = _key_value(kv)
    return Event(now, None if event.prev_kv is None else _key_value(event.prev_kv))
