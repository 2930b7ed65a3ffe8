"""The KV service answers with the messages that the general codec makes of the store's results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.opening import open_embedded
from quoracy.errors import QuoracyError
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.methods import Method, Unary, answer_of
from quoracy.faces.etcd.services import translate
from quoracy.faces.etcd.services.all import etcd_methods
from quoracy.faces.etcd.services.member import Headers, Identity
from quoracy.store.api import Store
from quoracy.store.model import LeaseId
from quoracy.store.rules import Limits
from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import StatusCode
from quoracy.wire.protobuf import Message

_IDENTITY = Identity(cluster_id=2**64 - 1, member_id=7)

_keys = st.sampled_from([b"", b"a", b"a", b"b", b"b", b"c"])
_ends = st.sampled_from([b"", b"", b"c", b"\0"])
_revisions = st.integers(0, 5)
_values = st.sampled_from([b"", b"1", b"2"])

_puts = st.builds(
    rpc.PutRequest,
    key=_keys,
    value=_values,
    lease=st.sampled_from([0, 0, 0, 1, 9]),
    prev_kv=st.booleans(),
    ignore_value=st.sampled_from([False, False, False, True]),
)
_ranges = st.one_of(
    st.builds(rpc.RangeRequest, key=_keys, serializable=st.booleans()),
    st.builds(
        rpc.RangeRequest,
        key=_keys,
        range_end=_ends,
        limit=st.integers(-1, 2),
        revision=st.one_of(st.just(0), _revisions),
        sort_order=st.sampled_from([*rpc.SortOrder, 9]),
        sort_target=st.sampled_from([*rpc.SortTarget, 9]),
        keys_only=st.booleans(),
        count_only=st.sampled_from([False, False, True]),
        min_mod_revision=_revisions,
    ),
)
_deletes = st.builds(rpc.DeleteRangeRequest, key=_keys, range_end=_ends, prev_kv=st.booleans())
_compares = st.builds(
    rpc.Compare,
    result=st.sampled_from([*rpc.CompareResult, 9]),
    target=st.sampled_from([rpc.CompareTarget.VERSION, rpc.CompareTarget.LEASE, 9]),
    key=_keys,
    version=st.integers(0, 2),
    range_end=_ends,
)


def _txns(depth: int) -> st.SearchStrategy[rpc.TxnRequest]:
    kinds = [
        st.builds(rpc.RequestOp, request_put=_puts),
        st.builds(rpc.RequestOp, request_range=_ranges),
        st.builds(rpc.RequestOp, request_delete_range=_deletes),
        st.just(rpc.RequestOp()),
    ]
    if depth:
        kinds.append(st.builds(rpc.RequestOp, request_txn=_txns(depth - 1)))
    ops = st.lists(st.one_of(kinds), max_size=2)
    return st.builds(rpc.TxnRequest, compare=st.lists(_compares, max_size=2), success=ops, failure=ops)


_requests = st.lists(st.one_of(_puts, _ranges, _deletes, _txns(0), _txns(1)), min_size=1, max_size=10)
_METHODS = {
    rpc.PutRequest: "Put",
    rpc.RangeRequest: "Range",
    rpc.DeleteRangeRequest: "DeleteRange",
    rpc.TxnRequest: "Txn",
}
_Outcome = bytes | tuple[StatusCode, str]


@given(_requests)
def test_answers_are_the_messages_of_the_results(requests: Sequence[Message]) -> None:
    async def run() -> None:
        async with open_embedded("memory:") as one, open_embedded("memory:") as other:
            await one.grant(60, id=LeaseId(1))
            await other.grant(60, id=LeaseId(1))
            methods = etcd_methods(one, _IDENTITY)
            headers = Headers(other, _IDENTITY)
            for request in requests:
                method = methods[f"/etcdserverpb.KV/{_METHODS[type(request)]}"]
                expected = await _outcome(_by_messages(other, headers, request))
                assert await _outcome(_by_method(method, request)) == expected

    asyncio.run(run())


async def _outcome(call: Awaitable[bytes]) -> _Outcome:
    try:
        return await call
    except QuoracyError as error:
        return status_of(error)


async def _by_method(method: Method, request: Message) -> bytes:
    assert isinstance(method, Unary)
    answer, metadata = await answer_of(method, request.encode())
    assert not metadata
    return answer


async def _by_messages(store: Store, headers: Headers, request: Message) -> bytes:
    """The long way: the request as a value, the result as a message, and that encoded."""
    response: Message
    if isinstance(request, rpc.PutRequest):
        put = translate.put_of(request)
        written = await store.put(
            put.key, put.value, lease=put.lease, prev_kv=put.prev_kv, ignore_value=put.ignore_value
        )
        header = headers.at(written.revision)
        response = rpc.PutResponse(header=header, prev_kv=translate.as_message(written.prev_kv))
    elif isinstance(request, rpc.RangeRequest):
        op = translate.range_of(request)
        options = {name: getattr(op, name) for name in op.__struct_fields__ if name != "keys"}
        found = await store.range(op.keys, **options)
        response = translate.range_response(request, found, headers.at(found.revision))
    elif isinstance(request, rpc.DeleteRangeRequest):
        delete = translate.delete_of(request)
        gone = await store.delete(delete.keys, prev_kv=delete.prev_kv)
        response = rpc.DeleteRangeResponse(
            header=headers.at(gone.revision),
            deleted=gone.deleted,
            prev_kvs=translate.as_messages(gone.prev_kvs),
        )
    else:
        assert isinstance(request, rpc.TxnRequest)
        result = await store.txn(translate.txn_of(request, Limits().txn_ops_max))
        response = translate.txn_response(request, result, headers.at(result.revision))
    return response.encode()
