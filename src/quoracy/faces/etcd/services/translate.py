"""Between etcd's messages and the store's values.  Pure: no store is asked here.

Checks are made where and in the order etcd makes them, so that of several faults in one request the
same one is reported  [server/etcdserver/api/v3rpc/key.go].  What has a meaning on the wire only (0 or
less for "not given", an empty range_end for one key) ends here.

Differs from etcd: a negative revision means the newest everywhere; etcd takes it so outside of
transactions, and refuses it inside of one as compacted.

Invariants
    * A transaction is checked level by level as it is translated: `operations_max` counts down with
      each level, so however deep a request nests, the recursion is no deeper than that.
    * Key-values are not copied.  The encoder reads attributes, and `store.model.KeyValue` has those of
      the message, so the store's own objects stand in for it: that is what `as_messages` says to mypy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from quoracy.faces.etcd.errors import EtcdFault
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
    SortTarget,
    Txn,
    TxnResult,
)
from quoracy.wire.etcd import kv as kv_messages
from quoracy.wire.etcd import rpc

__all__ = [
    "as_message",
    "as_messages",
    "check_put",
    "delete_of",
    "event_message",
    "keys_of",
    "put_of",
    "range_of",
    "range_response",
    "txn_of",
    "txn_response",
]

_EVERYTHING_FROM = b"\0"
_INT64_MAX = 2**63 - 1

_SORT_TARGETS = {
    rpc.SortTarget.KEY: SortTarget.KEY,
    rpc.SortTarget.VERSION: SortTarget.VERSION,
    rpc.SortTarget.CREATE: SortTarget.CREATE,
    rpc.SortTarget.MOD: SortTarget.MOD,
    rpc.SortTarget.VALUE: SortTarget.VALUE,
}
_SORT_KEYS: dict[int, Callable[[KeyValue], bytes | int]] = {
    rpc.SortTarget.VERSION: lambda kv: kv.version,
    rpc.SortTarget.CREATE: lambda kv: kv.create_revision,
    rpc.SortTarget.MOD: lambda kv: kv.mod_revision,
    rpc.SortTarget.VALUE: lambda kv: kv.value,
}
_SORT_ORDERS = frozenset(rpc.SortOrder)

_RELATIONS = {
    rpc.CompareResult.EQUAL: Relation.EQUAL,
    rpc.CompareResult.GREATER: Relation.GREATER,
    rpc.CompareResult.LESS: Relation.LESS,
    rpc.CompareResult.NOT_EQUAL: Relation.NOT_EQUAL,
}


def as_message(kv: KeyValue | None) -> kv_messages.KeyValue | None:
    return cast("kv_messages.KeyValue | None", kv)


def as_messages(kvs: Sequence[KeyValue]) -> Sequence[kv_messages.KeyValue]:
    return cast("Sequence[kv_messages.KeyValue]", kvs)


def keys_of(key: bytes, range_end: bytes) -> Keys:
    """The keys that `key` and `range_end` mean; none at all if the end is not after the key."""
    if not range_end:
        return key
    return KeyRange(key, None if range_end == _EVERYTHING_FROM else range_end)


# -- requests --------------------------------------------------------------------------------


def range_of(request: rpc.RangeRequest) -> Range:
    if not request.key:
        raise EtcdFault.empty_key()
    # Nearly every one asks for a key and nothing more.
    if request == rpc.RangeRequest(key=request.key, serializable=request.serializable):
        return Range(request.key, serializable=request.serializable)
    target = _SORT_TARGETS.get(request.sort_target)  # type: ignore[call-overload]
    if target is None or request.sort_order not in _SORT_ORDERS:
        raise EtcdFault.sort_option()
    limit = request.limit
    keys_only = request.keys_only
    if _is_sorted_after_limit(request):
        # etcd's way with a target and no order: take that many in order of the keys, one more to know
        # whether there are, and sort these.  `range_response` does the rest.
        target, limit, keys_only = SortTarget.KEY, min(limit + 1, _INT64_MAX), False
    return Range(
        keys_of(request.key, request.range_end),
        at=request.revision if request.revision > 0 else None,
        limit=limit if limit > 0 else None,
        sort_by=target,
        descending=request.sort_order == rpc.SortOrder.DESCEND,
        keys_only=keys_only,
        count_only=request.count_only,
        # 0 is not given, and what is less than 0 is a bound like any other.
        mod_revision_min=request.min_mod_revision or None,
        mod_revision_max=request.max_mod_revision or None,
        create_revision_min=request.min_create_revision or None,
        create_revision_max=request.max_create_revision or None,
        serializable=request.serializable,
    )


def _is_sorted_after_limit(request: rpc.RangeRequest) -> bool:
    return (
        request.limit > 0
        and request.sort_order == rpc.SortOrder.NONE
        and request.sort_target != rpc.SortTarget.KEY
        and not (
            request.min_mod_revision
            or request.max_mod_revision
            or request.min_create_revision
            or request.max_create_revision
        )
    )


def check_put(request: rpc.PutRequest) -> None:
    if not request.key:
        raise EtcdFault.empty_key()
    if request.ignore_value and request.value:
        raise EtcdFault.value_provided()
    if request.ignore_lease and request.lease:
        raise EtcdFault.lease_provided()


def put_of(request: rpc.PutRequest) -> Put:
    check_put(request)
    return Put(
        request.key,
        request.value,
        request.lease,
        request.prev_kv,
        request.ignore_value,
        request.ignore_lease,
    )


def delete_of(request: rpc.DeleteRangeRequest) -> Delete:
    if not request.key:
        raise EtcdFault.empty_key()
    return Delete(keys_of(request.key, request.range_end), request.prev_kv)


def txn_of(request: rpc.TxnRequest, operations_max: int) -> Txn:
    longest = max(len(request.compare), len(request.success), len(request.failure))
    if longest > operations_max:
        raise EtcdFault.too_many_operations()
    nested_max = operations_max - longest
    return Txn(
        tuple([_compare_of(compare) for compare in request.compare]),
        tuple([_op_of(op, nested_max) for op in request.success]),
        tuple([_op_of(op, nested_max) for op in request.failure]),
    )


def _op_of(op: rpc.RequestOp, operations_max: int) -> Op:
    if op.request_put is not None:
        return put_of(op.request_put)
    if op.request_range is not None:
        return range_of(op.request_range)
    if op.request_delete_range is not None:
        return delete_of(op.request_delete_range)
    if op.request_txn is not None:
        return txn_of(op.request_txn, operations_max)
    raise EtcdFault.empty_operation()


def _compare_of(compare: rpc.Compare) -> Compare:
    """A compare whose operand is of another kind than its target compares with nothing: b"" or 0.

    Of what etcd's protocol does not define: a target nobody knows counts as equal, and a relation
    nobody knows always holds  [apply.go, compareKV].
    """
    if not compare.key:
        raise EtcdFault.empty_key()
    keys = keys_of(compare.key, compare.range_end)
    target: CompareTarget
    operand: bytes | int
    match compare.target:
        case rpc.CompareTarget.VERSION:
            target, operand = CompareTarget.VERSION, compare.version or 0
        case rpc.CompareTarget.CREATE:
            target, operand = CompareTarget.CREATE, compare.create_revision or 0
        case rpc.CompareTarget.MOD:
            target, operand = CompareTarget.MOD, compare.mod_revision or 0
        case rpc.CompareTarget.VALUE:
            target, operand = CompareTarget.VALUE, compare.value or b""
        case rpc.CompareTarget.LEASE:
            target, operand = CompareTarget.LEASE, compare.lease or 0
        case _:
            holds = compare.result not in (
                rpc.CompareResult.GREATER,
                rpc.CompareResult.LESS,
                rpc.CompareResult.NOT_EQUAL,
            )
            return _always(keys, holds)
    relation = _RELATIONS.get(compare.result)  # type: ignore[call-overload]
    if relation is None:
        # A value of nothing is not compared at all: that fails, whatever the relation.
        if target is CompareTarget.VALUE:
            return Compare.create_revision(keys, ">", 0)
        return _always(keys, holds=True)
    return Compare(keys, target, relation, operand)


def _always(keys: Keys, holds: bool) -> Compare:
    # No version is less than 0.
    return Compare(keys, CompareTarget.VERSION, Relation.GREATER if holds else Relation.LESS, -1)


# -- responses -------------------------------------------------------------------------------


def range_response(
    request: rpc.RangeRequest, result: RangeResult, header: rpc.ResponseHeader | None
) -> rpc.RangeResponse:
    kvs: Sequence[KeyValue] = result.kvs
    more = result.more
    if _is_sorted_after_limit(request):
        in_order = sorted(kvs, key=_SORT_KEYS[request.sort_target])
        more = len(kvs) > request.limit
        kvs = in_order[: request.limit]
        if request.keys_only:
            kvs = [msgspec.structs.replace(kv, value=b"") for kv in kvs]
    return rpc.RangeResponse(header=header, kvs=as_messages(kvs), more=more, count=result.count)


def txn_response(
    request: rpc.TxnRequest, result: TxnResult, header: rpc.ResponseHeader | None
) -> rpc.TxnResponse:
    ops = request.success if result.succeeded else request.failure
    return rpc.TxnResponse(
        header=header,
        succeeded=result.succeeded,
        responses=[_response_op(op, each) for op, each in zip(ops, result.results, strict=True)],
    )


def _response_op(op: rpc.RequestOp, result: OpResult) -> rpc.ResponseOp:
    # Inside a transaction a header has the revision only, and a nested transaction's not even that.
    header = rpc.ResponseHeader(revision=result.revision)
    match result:
        case PutResult():
            response = rpc.PutResponse(header=header, prev_kv=as_message(result.prev_kv))
            return rpc.ResponseOp(response_put=response)
        case RangeResult():
            assert op.request_range is not None
            return rpc.ResponseOp(response_range=range_response(op.request_range, result, header))
        case DeleteResult():
            return rpc.ResponseOp(
                response_delete_range=rpc.DeleteRangeResponse(
                    header=header, deleted=result.deleted, prev_kvs=as_messages(result.prev_kvs)
                )
            )
        case TxnResult():
            assert op.request_txn is not None
            nested = txn_response(op.request_txn, result, rpc.ResponseHeader())
            return rpc.ResponseOp(response_txn=nested)


def event_message(event: Event) -> kv_messages.Event:
    return kv_messages.Event(
        type=kv_messages.EventType.PUT if event.kv.version else kv_messages.EventType.DELETE,
        kv=as_message(event.kv),
        prev_kv=as_message(event.prev_kv),
    )
