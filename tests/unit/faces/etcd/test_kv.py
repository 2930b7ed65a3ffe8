"""The KV service: etcd's shapes, defaults, quirks and refusals."""

from __future__ import annotations

import pytest

from quoracy.store.api import Store
from quoracy.wire.etcd.kv import KeyValue
from quoracy.wire.etcd.rpc import (
    CompactionRequest,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRangeRequest,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    SortOrder,
    SortTarget,
    TxnRequest,
    TxnResponse,
)
from quoracy.wire.grpc import StatusCode

from .conftest import Face

RANGE = "/etcdserverpb.KV/Range"
PUT = "/etcdserverpb.KV/Put"
DELETE = "/etcdserverpb.KV/DeleteRange"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"

INVALID = StatusCode.INVALID_ARGUMENT


def header(revision: int) -> ResponseHeader:
    return ResponseHeader(cluster_id=11, member_id=22, revision=revision, raft_term=2)


def put_op(key: bytes, value: bytes = b"") -> RequestOp:
    return RequestOp(request_put=PutRequest(key=key, value=value))


def range_op(key: bytes) -> RequestOp:
    return RequestOp(request_range=RangeRequest(key=key))


async def filled(store: Store) -> None:
    """Keys a to e; versions 3 2 1 1 1, so that order by version is not order by key."""
    for key in (b"a", b"b", b"c", b"d", b"e"):
        await store.put(key, b"v" + key)
    for key in (b"a", b"a", b"b"):
        await store.put(key, b"w" + key)


async def keys_found(face: Face, request: RangeRequest) -> list[bytes]:
    return [kv.key for kv in (await face.call(RANGE, request)).kvs]


# -- put, range, delete ----------------------------------------------------------------------


async def test_put_then_range(face: Face) -> None:
    assert await face.call(PUT, PutRequest(key=b"a", value=b"1")) == PutResponse(header=header(2))
    assert await face.call(RANGE, RangeRequest(key=b"a")) == RangeResponse(
        header=header(2),
        kvs=[KeyValue(key=b"a", value=b"1", create_revision=2, mod_revision=2, version=1)],
        count=1,
    )


async def test_put_answers_with_the_version_before_if_asked(face: Face) -> None:
    await face.call(PUT, PutRequest(key=b"a", value=b"1"))
    response = await face.call(PUT, PutRequest(key=b"a", value=b"2", prev_kv=True))
    assert response.prev_kv.value == b"1"


async def test_range_end(face: Face, store: Store) -> None:
    await filled(store)
    assert await keys_found(face, RangeRequest(key=b"b", range_end=b"d")) == [b"b", b"c"]
    assert await keys_found(face, RangeRequest(key=b"d", range_end=b"\0")) == [b"d", b"e"]
    assert len(await keys_found(face, RangeRequest(key=b"\0", range_end=b"\0"))) == 5
    assert await keys_found(face, RangeRequest(key=b"d", range_end=b"b")) == []
    assert await keys_found(face, RangeRequest(key=b"d", range_end=b"d")) == []


async def test_negative_limit_and_revision_are_none(face: Face, store: Store) -> None:
    await filled(store)
    request = RangeRequest(key=b"a", range_end=b"\0", limit=-3, revision=-1)
    assert len(await keys_found(face, request)) == 5


async def test_negative_revision_bound_is_a_bound(face: Face, store: Store) -> None:
    await filled(store)
    response = await face.call(RANGE, RangeRequest(key=b"a", max_mod_revision=-5))
    assert (response.kvs, response.count) == ((), 1)
    assert await keys_found(face, RangeRequest(key=b"a", min_mod_revision=-5)) == [b"a"]


async def test_limit_cuts_and_count_does_not(face: Face, store: Store) -> None:
    await filled(store)
    response = await face.call(RANGE, RangeRequest(key=b"a", range_end=b"\0", limit=2))
    assert ([kv.key for kv in response.kvs], response.count, response.more) == ([b"a", b"b"], 5, True)


async def test_count_only_and_keys_only(face: Face, store: Store) -> None:
    await filled(store)
    response = await face.call(RANGE, RangeRequest(key=b"a", range_end=b"\0", count_only=True))
    assert response == RangeResponse(header=header(9), count=5)
    response = await face.call(RANGE, RangeRequest(key=b"a", keys_only=True))
    assert response.kvs[0] == KeyValue(key=b"a", create_revision=2, mod_revision=8, version=3)


async def test_past_revision_has_the_header_of_now(face: Face, store: Store) -> None:
    await filled(store)
    response = await face.call(RANGE, RangeRequest(key=b"a", revision=2))
    assert (response.header.revision, response.kvs[0].value) == (9, b"va")


@pytest.mark.parametrize(
    ("order", "target", "limit", "found"),
    [
        (SortOrder.DESCEND, SortTarget.VERSION, 2, [b"a", b"b"]),
        (SortOrder.DESCEND, SortTarget.KEY, 2, [b"e", b"d"]),
        (SortOrder.ASCEND, SortTarget.CREATE, 1, [b"a"]),
        (SortOrder.NONE, SortTarget.MOD, 0, [b"c", b"d", b"e", b"a", b"b"]),
        (SortOrder.DESCEND, SortTarget.VALUE, 3, [b"wb", b"wa", b"ve"]),
    ],
)
async def test_sort(
    face: Face, store: Store, order: SortOrder, target: SortTarget, limit: int, found: list[bytes]
) -> None:
    await filled(store)
    request = RangeRequest(key=b"a", range_end=b"\0", sort_order=order, sort_target=target, limit=limit)
    kvs = (await face.call(RANGE, request)).kvs
    assert [kv.value if target is SortTarget.VALUE else kv.key for kv in kvs] == found


async def test_target_without_order_sorts_what_the_limit_left(face: Face, store: Store) -> None:
    """etcd fetches one more than the limit in order of the keys, sorts these, and cuts."""
    await filled(store)
    request = RangeRequest(
        key=b"a", range_end=b"\0", limit=2, sort_target=SortTarget.VERSION, keys_only=True
    )
    response = await face.call(RANGE, request)
    assert [(kv.key, kv.value) for kv in response.kvs] == [(b"c", b""), (b"b", b"")]
    assert (response.more, response.count) == (True, 5)


async def test_delete_range(face: Face, store: Store) -> None:
    await filled(store)
    response = await face.call(DELETE, DeleteRangeRequest(key=b"a", range_end=b"c", prev_kv=True))
    assert (response.deleted, [kv.key for kv in response.prev_kvs]) == (2, [b"a", b"b"])
    response = await face.call(DELETE, DeleteRangeRequest(key=b"c", range_end=b"a"))
    assert (response.deleted, response.header.revision) == (0, 10)


async def test_put_may_keep_value_and_lease(face: Face, store: Store) -> None:
    lease = await store.grant(60)
    await face.call(PUT, PutRequest(key=b"a", value=b"1", lease=lease.id))
    await face.call(PUT, PutRequest(key=b"a", ignore_value=True, ignore_lease=True))
    kv = (await face.call(RANGE, RangeRequest(key=b"a"))).kvs[0]
    assert (kv.value, kv.lease, kv.version) == (b"1", lease.id, 2)


async def test_compaction(face: Face, store: Store) -> None:
    await filled(store)
    response = await face.call(COMPACT, CompactionRequest(revision=5, physical=True))
    assert response.header == header(9)
    gone = (
        StatusCode.OUT_OF_RANGE,
        "etcdserver: mvcc: required revision has been compacted",
    )
    future = (
        StatusCode.OUT_OF_RANGE,
        "etcdserver: mvcc: required revision is a future revision",
    )
    assert await face.refused(COMPACT, CompactionRequest(revision=5)) == gone
    assert await face.refused(COMPACT, CompactionRequest(revision=-1)) == gone
    assert await face.refused(COMPACT, CompactionRequest(revision=99)) == future
    assert await face.refused(RANGE, RangeRequest(key=b"a", revision=4)) == gone
    assert await face.refused(RANGE, RangeRequest(key=b"a", revision=99)) == future


# -- refusals --------------------------------------------------------------------------------


async def test_key_must_be_given(face: Face) -> None:
    empty = (INVALID, "etcdserver: key is not provided")
    assert await face.refused(RANGE, RangeRequest(range_end=b"\0")) == empty
    assert await face.refused(PUT, PutRequest(value=b"1", ignore_value=True)) == empty
    assert await face.refused(DELETE, DeleteRangeRequest()) == empty
    assert await face.refused(TXN, TxnRequest(compare=[Compare()], success=[RequestOp()])) == empty
    assert await face.refused(TXN, TxnRequest(failure=[put_op(b"")])) == empty


async def test_put_with_something_to_ignore_that_is_given(face: Face) -> None:
    both = PutRequest(key=b"a", value=b"1", lease=5, ignore_value=True, ignore_lease=True)
    assert await face.refused(PUT, both) == (INVALID, "etcdserver: value is provided")
    lease = PutRequest(key=b"a", lease=5, ignore_lease=True)
    assert await face.refused(PUT, lease) == (INVALID, "etcdserver: lease is provided")
    missing = PutRequest(key=b"a", ignore_value=True)
    assert await face.refused(PUT, missing) == (INVALID, "etcdserver: key not found")


async def test_value_to_ignore_wins_over_size(small_face: Face) -> None:
    request = PutRequest(key=b"a", value=b"x" * 5000, ignore_value=True)
    assert await small_face.refused(PUT, request) == (INVALID, "etcdserver: value is provided")
    request = PutRequest(key=b"a", value=b"x" * 5000)
    assert await small_face.refused(PUT, request) == (INVALID, "etcdserver: request is too large")


@pytest.mark.parametrize(("order", "target"), [(9, 0), (0, 9), (-1, 0)])
async def test_unknown_sort_option(face: Face, order: int, target: int) -> None:
    request = RangeRequest(key=b"a", sort_order=order, sort_target=target)
    assert await face.refused(RANGE, request) == (INVALID, "etcdserver: invalid sort option")


async def test_put_with_unknown_lease(face: Face) -> None:
    refused = await face.refused(PUT, PutRequest(key=b"a", lease=99))
    assert refused == (StatusCode.NOT_FOUND, "etcdserver: requested lease not found")


# -- transactions ----------------------------------------------------------------------------


async def test_txn_responses_have_etcds_headers(face: Face) -> None:
    """Seen on etcd 3.5.1: nested headers have the revision only, a nested transaction's is empty."""
    await face.call(PUT, PutRequest(key=b"a", value=b"1"))
    response: TxnResponse = await face.call(
        TXN,
        TxnRequest(
            success=[
                range_op(b"a"),
                RequestOp(request_put=PutRequest(key=b"a", value=b"2", prev_kv=True)),
                RequestOp(request_delete_range=DeleteRangeRequest(key=b"b")),
                RequestOp(request_txn=TxnRequest(success=[range_op(b"a")])),
            ]
        ),
    )
    assert (response.header, response.succeeded) == (header(3), True)
    before, put, delete, nested = response.responses
    assert before.response_range is not None
    assert before.response_range.header == ResponseHeader(revision=2)
    assert put.response_put is not None
    assert put.response_put.header == ResponseHeader(revision=3)
    assert put.response_put.prev_kv is not None
    assert put.response_put.prev_kv.value == b"1"
    assert delete.response_delete_range is not None
    assert delete.response_delete_range.header == ResponseHeader(revision=3)
    assert nested.response_txn is not None
    assert nested.response_txn.header == ResponseHeader()
    inner = nested.response_txn.responses[0].response_range
    assert inner is not None
    assert inner.header == ResponseHeader(revision=3)
    assert inner.kvs[0].value == b"2"


async def test_failure_branch(face: Face) -> None:
    response = await face.call(
        TXN,
        TxnRequest(
            compare=[Compare(key=b"a", target=CompareTarget.CREATE, result=CompareResult.GREATER)],
            success=[put_op(b"a")],
            failure=[put_op(b"b"), range_op(b"b")],
        ),
    )
    assert not response.succeeded
    assert response.responses[1].response_range.count == 1


async def holds(face: Face, compare: Compare) -> bool:
    succeeded: bool = (await face.call(TXN, TxnRequest(compare=[compare]))).succeeded
    return succeeded


async def test_compare_targets(face: Face, store: Store) -> None:
    await filled(store)
    equal = CompareResult.EQUAL
    assert await holds(face, Compare(key=b"a", target=CompareTarget.VERSION, version=3, result=equal))
    assert await holds(face, Compare(key=b"a", target=CompareTarget.CREATE, create_revision=2))
    assert await holds(face, Compare(key=b"a", target=CompareTarget.MOD, mod_revision=8))
    assert await holds(face, Compare(key=b"a", target=CompareTarget.VALUE, value=b"wa"))
    assert await holds(face, Compare(key=b"a", target=CompareTarget.LEASE, lease=0))
    less = Compare(
        key=b"a", range_end=b"\0", target=CompareTarget.VERSION, version=4, result=CompareResult.LESS
    )
    assert await holds(face, less)


async def test_compare_with_an_operand_of_another_kind_compares_with_nothing(
    face: Face, store: Store
) -> None:
    await filled(store)
    assert not await holds(face, Compare(key=b"a", target=CompareTarget.VERSION, value=b"3"))
    assert await holds(face, Compare(key=b"zz", target=CompareTarget.VERSION, value=b"3"))
    assert not await holds(face, Compare(key=b"a", target=CompareTarget.VALUE, version=3))


async def test_compare_nobody_knows(face: Face, store: Store) -> None:
    """compareKV of etcd: an unknown target is equal, an unknown relation holds."""
    await filled(store)
    assert await holds(face, Compare(key=b"a", target=77))
    assert not await holds(face, Compare(key=b"a", target=77, result=CompareResult.LESS))
    assert not await holds(face, Compare(key=b"a", target=77, result=CompareResult.NOT_EQUAL))
    assert await holds(face, Compare(key=b"a", target=77, result=77))
    assert await holds(face, Compare(key=b"a", version=9, result=77))
    assert await holds(face, Compare(key=b"a", target=CompareTarget.VALUE, result=77))
    assert not await holds(face, Compare(key=b"zz", target=CompareTarget.VALUE, result=77))


async def test_txn_limits_and_the_order_of_checks(face: Face) -> None:
    many = (INVALID, "etcdserver: too many operations in txn request")
    most = [put_op(b"%d" % number) for number in range(128)]
    assert (await face.call(TXN, TxnRequest(success=most))).succeeded
    # The count comes before the empty key, the empty key of a compare before the operations.
    assert await face.refused(TXN, TxnRequest(success=[put_op(b"")] * 129)) == many
    request = TxnRequest(compare=[Compare()], success=[RequestOp()])
    assert (await face.refused(TXN, request))[1] == "etcdserver: key is not provided"
    # What a nested transaction has comes on top of the longest list of the level above.
    nested = RequestOp(request_txn=TxnRequest(success=[put_op(b"n")]))
    assert (await face.call(TXN, TxnRequest(success=[*most[:126], nested]))).succeeded
    assert await face.refused(TXN, TxnRequest(success=[*most[:127], nested])) == many
    assert await face.refused(TXN, TxnRequest(success=[nested], failure=most)) == many


async def test_operation_with_nothing_in_it(face: Face) -> None:
    refused = await face.refused(TXN, TxnRequest(success=[RequestOp()]))
    assert refused == (INVALID, "etcdserver: key not found")


async def test_key_written_twice(face: Face) -> None:
    refused = await face.refused(TXN, TxnRequest(success=[put_op(b"a"), put_op(b"a")]))
    assert refused == (INVALID, "etcdserver: duplicate key given in txn request")


async def test_deep_nesting_is_refused(face: Face) -> None:
    request = TxnRequest()
    for _ in range(40):
        request = TxnRequest(success=[RequestOp(request_txn=request), *[range_op(b"a")] * 3])
    refused = await face.refused(TXN, request)
    assert refused == (INVALID, "etcdserver: too many operations in txn request")
