"""Calls of the KV service that need no task are answered as those that have one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.opening import open_embedded
from quoracy.errors import QuoracyError
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.methods import Unary, WithMetadata
from quoracy.faces.etcd.services.all import etcd_methods
from quoracy.faces.etcd.services.header import Identity
from quoracy.store.model import LeaseId
from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import GrpcError, StatusCode
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


_requests = st.lists(st.one_of(_puts, _ranges, _txns(0), _txns(1)), min_size=1, max_size=10)
_METHODS = {rpc.PutRequest: "Put", rpc.RangeRequest: "Range", rpc.TxnRequest: "Txn"}


@given(_requests)
def test_answers_in_bytes_are_the_messages_of_the_handlers(requests: Sequence[Message]) -> None:
    async def run() -> None:
        async with open_embedded("memory:") as one, open_embedded("memory:") as other:
            await one.grant(60, id=LeaseId(1))
            await other.grant(60, id=LeaseId(1))
            prompt, handled = etcd_methods(one, _IDENTITY), etcd_methods(other, _IDENTITY)
            for request in requests:
                path = f"/etcdserverpb.KV/{_METHODS[type(request)]}"
                expected = await _handled(handled[path], request)
                assert await _prompt(prompt[path], request) == expected

    asyncio.run(run())


_Outcome = bytes | tuple[StatusCode, str]


async def _handled(method: Any, request: Message) -> _Outcome:
    assert isinstance(method, Unary)
    try:
        response = await method.handle(request)
    except QuoracyError as error:
        return _status(error)
    assert not isinstance(response, WithMetadata)
    encoded: bytes = response.encode()
    return encoded


async def _prompt(method: Any, request: Message) -> _Outcome:
    """Without a task; what that leaves to the handler must be an error there."""
    assert isinstance(method, Unary)
    assert method.prompt is not None
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_done(answer: bytes | None, error: BaseException | None) -> None:
        assert answer is not None, error
        done.set_result(answer)

    try:
        if method.prompt(request, on_done, None):
            return await done
    except QuoracyError as error:
        return _status(error)
    refused = await _handled(method, request)
    assert isinstance(refused, tuple)
    return refused


def _status(error: QuoracyError) -> tuple[StatusCode, str]:
    return (error.code, error.message) if isinstance(error, GrpcError) else status_of(error)
