"""The model's values to the JSON of etcd's gateway and back.  Pure.

The gateway's JSON: bytes are base64, 64-bit integers are strings, fields with default values are left
out of answers, and a stream is a sequence of `{"result": …}` lines.

Some values of the model have no direct form in etcd
    * An empty `start` is sent as the byte 0: no key is smaller, and etcd wants one.
    * An `end` of nothing or of the byte 0 leaves no keys in the model, but means "only this key" and
      "no end" to etcd; another range without keys is sent instead.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from itertools import groupby
from typing import Any, TypeAlias, assert_never

from quoracy.errors import (
    Compacted,
    DuplicateKey,
    FutureRevision,
    InvalidRequest,
    KeyNotFound,
    LeaseExists,
    LeaseNotFound,
    NoSpace,
    QuoracyError,
    TooLarge,
)
from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    DeleteResult,
    Event,
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
)
from tests.differential.asking import (
    Answer,
    Compact,
    Done,
    Grant,
    Granted,
    KeepAlive,
    LeaseKeys,
    Leases,
    LeasesHeld,
    Outcome,
    Refused,
    Request,
    Revoke,
    TimeToLive,
    Watch,
)

__all__ = ["Json", "events_by_revision", "outcome", "post", "watch_create"]

Json: TypeAlias = dict[str, Any]

# etcd's texts are its API: its client libraries tell errors apart by them.  [etcd rpctypes/error.go]
_REFUSALS: dict[str, type[QuoracyError]] = {
    "etcdserver: key is not provided": InvalidRequest,
    "etcdserver: value is provided": InvalidRequest,
    "etcdserver: lease is provided": InvalidRequest,
    "etcdserver: too large lease TTL": InvalidRequest,
    "etcdserver: key not found": KeyNotFound,
    "etcdserver: duplicate key given in txn request": DuplicateKey,
    "etcdserver: too many operations in txn request": TooLarge,
    "etcdserver: request is too large": TooLarge,
    "etcdserver: mvcc: required revision has been compacted": Compacted,
    "etcdserver: mvcc: required revision is a future revision": FutureRevision,
    "etcdserver: mvcc: database space exceeded": NoSpace,
    "etcdserver: requested lease not found": LeaseNotFound,
    "etcdserver: lease already exists": LeaseExists,
}

_SORT_TARGETS = {
    SortTarget.KEY: "KEY",
    SortTarget.VERSION: "VERSION",
    SortTarget.CREATE: "CREATE",
    SortTarget.MOD: "MOD",
    SortTarget.VALUE: "VALUE",
}
_COMPARE_TARGETS = {
    CompareTarget.VALUE: "VALUE",
    CompareTarget.VERSION: "VERSION",
    CompareTarget.CREATE: "CREATE",
    CompareTarget.MOD: "MOD",
    CompareTarget.LEASE: "LEASE",
}
_RELATIONS = {
    Relation.EQUAL: "EQUAL",
    Relation.NOT_EQUAL: "NOT_EQUAL",
    Relation.LESS: "LESS",
    Relation.GREATER: "GREATER",
}
_NO_KEYS = (b"\xff", b"\x01")


def post(request: Request) -> tuple[str, Json]:
    """Where to post the request, and its body."""
    match request:
        case Range():
            return "/v3/kv/range", _range(request)
        case Put():
            return "/v3/kv/put", _put(request)
        case Delete():
            return "/v3/kv/deleterange", _delete(request)
        case Txn():
            return "/v3/kv/txn", _txn(request)
        case Compact(at):
            # Physical: answered when history is gone, not when its removal was put on a list.
            return "/v3/kv/compaction", {"revision": str(at), "physical": True}
        case Grant(lease, ttl_s):
            return "/v3/lease/grant", {"ID": str(lease), "TTL": str(ttl_s)}
        case KeepAlive(lease):
            return "/v3/lease/keepalive", {"ID": str(lease)}
        case Revoke(lease):
            return "/v3/lease/revoke", {"ID": str(lease)}
        case TimeToLive(lease, keys):
            return "/v3/lease/timetolive", {"ID": str(lease), "keys": keys}
        case Leases():
            return "/v3/lease/leases", {}
        case _:
            assert_never(request)


def outcome(request: Request, answer: Json) -> Outcome:
    """What etcd's answer to the request means."""
    error = answer.get("error")
    if error is not None:
        text = error if isinstance(error, str) else str(error["message"])  # streams nest it
        return Refused(_REFUSALS[text], text)
    if isinstance(request, KeepAlive):
        answer = answer["result"]
    # etcd answers these two for an unknown lease, with no time to live, instead of refusing them.
    if isinstance(request, KeepAlive | TimeToLive) and int(answer.get("TTL", 0)) <= 0:
        return Refused(LeaseNotFound, f"TTL is {answer.get('TTL', 0)}")
    return _answer(request, answer)


def watch_create(watch: Watch) -> Json:
    filters = [
        name for name, wanted in (("NOPUT", watch.puts), ("NODELETE", watch.deletes)) if not wanted
    ]
    return {
        "create_request": {
            **_keys(watch.keys),
            "start_revision": str(watch.after + 1),
            "filters": filters,
            "prev_kv": watch.prev_kv,
        }
    }


def events_by_revision(events: Iterable[Json]) -> tuple[tuple[int, tuple[Event, ...]], ...]:
    """One batch for each revision: etcd may put the events of several in one message."""
    return tuple(
        (revision, tuple(group))
        for revision, group in groupby(map(_event, events), key=lambda event: event.kv.mod_revision)
    )


# -- requests --------------------------------------------------------------------------------


def _bytes(value: bytes) -> str:
    return b64encode(value).decode()


def _keys(keys: Keys) -> Json:
    if isinstance(keys, bytes):
        return {"key": _bytes(keys)}
    start, end = keys.start or b"\0", keys.end
    if end is None:
        end = b"\0"
    elif end in (b"", b"\0"):
        start, end = _NO_KEYS
    return {"key": _bytes(start), "range_end": _bytes(end)}


def _range(op: Range) -> Json:
    numbers = {
        "revision": op.at,
        "limit": op.limit,
        "min_mod_revision": op.mod_revision_min,
        "max_mod_revision": op.mod_revision_max,
        "min_create_revision": op.create_revision_min,
        "max_create_revision": op.create_revision_max,
    }
    # To etcd 0 is "not given", so it cannot be asked for what the model asks for with it.
    assert 0 not in numbers.values(), op
    return {
        **_keys(op.keys),
        **{name: str(number) for name, number in numbers.items() if number is not None},
        "sort_target": _SORT_TARGETS[op.sort_by],
        # Always said: without an order, etcd cuts to the limit before it sorts by anything but the key.
        "sort_order": "DESCEND" if op.descending else "ASCEND",
        "keys_only": op.keys_only,
        "count_only": op.count_only,
        "serializable": op.serializable,
    }


def _put(op: Put) -> Json:
    return {
        "key": _bytes(op.key),
        "value": _bytes(op.value),
        "lease": str(op.lease),
        "prev_kv": op.prev_kv,
        "ignore_value": op.ignore_value,
        "ignore_lease": op.ignore_lease,
    }


def _delete(op: Delete) -> Json:
    return {**_keys(op.keys), "prev_kv": op.prev_kv}


def _txn(txn: Txn) -> Json:
    return {
        "compare": [_compare(compare) for compare in txn.compares],
        "success": [_op(op) for op in txn.then],
        "failure": [_op(op) for op in txn.otherwise],
    }


def _op(op: Op) -> Json:
    match op:
        case Range():
            return {"request_range": _range(op)}
        case Put():
            return {"request_put": _put(op)}
        case Delete():
            return {"request_delete_range": _delete(op)}
        case Txn():
            return {"request_txn": _txn(op)}
        case _:
            assert_never(op)


def _compare(compare: Compare) -> Json:
    operand = compare.operand
    return {
        **_keys(compare.keys),
        "target": _COMPARE_TARGETS[compare.target],
        "result": _RELATIONS[compare.relation],
        compare.target.value: _bytes(operand) if isinstance(operand, bytes) else str(operand),
    }


# -- answers ---------------------------------------------------------------------------------


def _answer(request: Request, answer: Json) -> Answer:
    revision = _revision(answer)
    match request:
        case Range():
            return _range_result(answer, revision)
        case Put():
            return _put_result(answer, revision)
        case Delete():
            return _delete_result(answer, revision)
        case Txn():
            return _txn_result(answer, revision)
        case Compact() | Revoke():
            return Done(revision)
        case Grant() | KeepAlive():
            return Granted(int(answer["ID"]), float(answer["TTL"]))
        case TimeToLive():
            keys = sorted(b64decode(key) for key in answer.get("keys", ()))  # etcd gives any order
            return LeaseKeys(
                int(answer["ID"]), float(answer["grantedTTL"]), float(answer["TTL"]), tuple(keys)
            )
        case Leases():
            return LeasesHeld(tuple(sorted(int(lease["ID"]) for lease in answer.get("leases", ()))))
        case _:
            assert_never(request)


def _revision(answer: Json) -> Revision:
    return Revision(int(answer["header"].get("revision", 0)))


def _range_result(answer: Json, revision: Revision) -> RangeResult:
    kvs = tuple(_key_value(kv) for kv in answer.get("kvs", ()))
    return RangeResult(revision, kvs, int(answer.get("count", 0)), answer.get("more", False))


def _put_result(answer: Json, revision: Revision) -> PutResult:
    return PutResult(revision, _key_value_if_any(answer))


def _delete_result(answer: Json, revision: Revision) -> DeleteResult:
    prev_kvs = tuple(_key_value(kv) for kv in answer.get("prev_kvs", ()))
    return DeleteResult(revision, int(answer.get("deleted", 0)), prev_kvs)


def _txn_result(answer: Json, revision: Revision) -> TxnResult:
    results = tuple(_op_result(response, revision) for response in answer.get("responses", ()))
    return TxnResult(revision, answer.get("succeeded", False), results)


def _op_result(response: Json, txn_revision: Revision) -> OpResult:
    [(name, answer)] = response.items()
    match name:
        case "response_range":
            return _range_result(answer, _revision(answer))
        case "response_put":
            return _put_result(answer, _revision(answer))
        case "response_delete_range":
            return _delete_result(answer, _revision(answer))
        case "response_txn":
            # etcd fills in the header of the outermost transaction only.  [etcd apply.go, applyTxn]
            assert not answer["header"], answer
            return _txn_result(answer, txn_revision)
        case _:
            raise AssertionError(f"etcd answered with {name}")


def _key_value_if_any(answer: Json) -> KeyValue | None:
    return _key_value(answer["prev_kv"]) if "prev_kv" in answer else None


def _key_value(kv: Json) -> KeyValue:
    return KeyValue(
        key=b64decode(kv["key"]),
        value=b64decode(kv.get("value", "")),
        create_revision=int(kv.get("create_revision", 0)),
        mod_revision=int(kv.get("mod_revision", 0)),
        version=int(kv.get("version", 0)),
        lease=int(kv.get("lease", 0)),
    )


def _event(event: Json) -> Event:
    kv = _key_value(event["kv"])
    assert (event.get("type", "PUT") == "DELETE") == (kv.version == 0), event
    return Event(kv, _key_value_if_any(event))
