"""What of an answer is compared: all of it, except what no promise covers.  Pure.

Left out or put in order
    * the ids of cluster and member in headers;
    * the order of keys that are equal in what a range is sorted by, and which of them a limit cut off;
    * the order of a lease's keys and of the leases (a map's, in etcd), and leases that are about to
      expire or were given an id by the server;
    * the time a lease has left, as long as it is no more than it was granted and not much less;
    * the id of a lease that the server chose.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from quoracy.wire.etcd import rpc
from quoracy.wire.protobuf import Message
from tests.differential.grpc_requests import LEASES
from tests.differential.grpc_sides import Answer, Fields, Refusal

__all__ = ["comparable", "without_ids"]

# Far longer than a sequence takes, far shorter than any lease that is asked for.
_SINCE_GRANTED_S_MAX = 600
_SORTED_BY = {
    rpc.SortTarget.VERSION: "version",
    rpc.SortTarget.CREATE: "create_revision",
    rpc.SortTarget.MOD: "mod_revision",
    rpc.SortTarget.VALUE: "value",
}


def comparable(request: Message, answer: Answer) -> Any:
    if isinstance(answer, Refusal):
        return answer
    fields = without_ids(answer)
    match request:
        case rpc.RangeRequest():
            return _range(request, fields)
        case rpc.TxnRequest():
            return _txn(request, fields)
        case rpc.LeaseGrantRequest() if not request.ID:
            assert fields["ID"] > 0
            return {**fields, "ID": "chosen"}
        case rpc.LeaseTimeToLiveRequest():
            return _time_to_live(fields)
        case rpc.LeaseLeasesRequest():
            ids = sorted(each.get("ID", 0) for each in fields.get("leases", ()))
            return {**fields, "leases": [id for id in ids if id in LEASES]}
        case _:
            return fields


def without_ids(fields: Fields) -> Fields:
    if "header" not in fields:
        return fields
    header = {name: each for name, each in fields["header"].items() if not name.endswith("_id")}
    return {**fields, "header": header}


def _time_to_live(fields: Fields) -> Fields:
    granted, left = fields.get("grantedTTL", 0), fields.get("TTL", 0)
    if not granted:
        return fields
    plausible = granted - _SINCE_GRANTED_S_MAX <= left <= granted
    return {
        **fields,
        "TTL": "some" if plausible else left,
        "keys": sorted(fields.get("keys", ())),
    }


def _txn(request: rpc.TxnRequest, fields: Fields) -> Fields:
    ops = request.success if fields.get("succeeded", False) else request.failure
    responses = fields.get("responses", [])
    if len(ops) != len(responses):
        return fields
    return {**fields, "responses": [_response(*each) for each in zip(ops, responses, strict=True)]}


def _response(op: rpc.RequestOp, fields: Fields) -> Fields:
    if op.request_range is not None and "response_range" in fields:
        return {"response_range": _range(op.request_range, fields["response_range"])}
    if op.request_txn is not None and "response_txn" in fields:
        return {"response_txn": _txn(op.request_txn, fields["response_txn"])}
    return fields


def _range(request: rpc.RangeRequest, fields: Fields) -> Fields:
    if request.sort_target == rpc.SortTarget.KEY or "kvs" not in fields:
        return fields
    return {**fields, "kvs": _classes(request, fields["kvs"], cut=fields.get("more", False))}


def _classes(request: rpc.RangeRequest, kvs: list[Fields], *, cut: bool) -> list[Any]:
    """Runs of keys equal in what they are sorted by; of the run the limit cut through, how many."""

    def sorted_by(kv: Fields) -> object:
        if request.sort_target == rpc.SortTarget.VALUE and request.keys_only:
            return None  # blanked after sorting, so any two may have been equal
        return kv.get(_SORTED_BY[rpc.SortTarget(request.sort_target)])

    runs: list[tuple[object, Any]] = [
        (of, sorted(run, key=lambda kv: bytes(kv["key"]))) for of, run in groupby(kvs, key=sorted_by)
    ]
    if cut and runs:
        of, last = runs[-1]
        runs[-1] = of, len(last)
    return runs
