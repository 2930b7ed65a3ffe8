"""A transaction that is read quickly is the one that reading in full gives, and so is its answer."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.faces.etcd.services import translate
from quoracy.faces.etcd.services.quick import answer_of, txn_of
from quoracy.remote.translate import txn_payload
from quoracy.store.contention import joining_if_free
from quoracy.store.model import (
    Compare,
    Delete,
    DeleteResult,
    OpResult,
    Put,
    PutResult,
    Revision,
    Txn,
    TxnResult,
)
from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import GrpcError

_OPS_MAX = 4
_KEYS = st.binary(max_size=200)
_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 300)
_FLAGS = st.just(False) | st.booleans()
_COMPARES = st.builds(
    rpc.Compare,
    result=st.integers(0, 5),
    target=st.integers(0, 6),
    key=_KEYS,
    version=st.none() | _NUMBERS,
    range_end=st.just(b"") | st.just(b"\0") | _KEYS,
) | st.builds(
    rpc.Compare,
    result=st.integers(0, 3),
    target=st.just(rpc.CompareTarget.CREATE),
    key=_KEYS,
    create_revision=st.none() | _NUMBERS,
)
_PUTS = st.builds(
    rpc.PutRequest,
    key=_KEYS,
    value=_KEYS,
    lease=_NUMBERS,
    prev_kv=_FLAGS,
    ignore_value=_FLAGS,
    ignore_lease=_FLAGS,
)
_DELETES = st.builds(rpc.DeleteRangeRequest, key=_KEYS, range_end=st.just(b"") | _KEYS, prev_kv=_FLAGS)
_OPS = (
    st.builds(rpc.RequestOp, request_put=_PUTS)
    | st.builds(rpc.RequestOp, request_delete_range=_DELETES)
    | st.builds(rpc.RequestOp, request_range=st.builds(rpc.RangeRequest, key=_KEYS))
    | st.just(rpc.RequestOp())
)
_REQUESTS = st.builds(
    rpc.TxnRequest,
    compare=st.lists(_COMPARES, max_size=2),
    success=st.lists(_OPS, max_size=_OPS_MAX + 1),
    failure=st.lists(_OPS, max_size=2),
)


def _agree(data: bytes) -> Txn | None:
    quick = txn_of(data, _OPS_MAX)
    if quick is not None:
        try:
            full = translate.txn_of(rpc.TxnRequest.decode(data), _OPS_MAX)
        except (ProtocolError, GrpcError) as error:
            raise AssertionError(f"in full it is refused: {error}") from error
        assert quick == full
    return quick


@given(_REQUESTS)
def test_requests_are_read_as_in_full_or_left(request: rpc.TxnRequest) -> None:
    _agree(request.encode())


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x12\x00")
@example(b"\x12\x02\x12\x00")
def test_whatever_comes_is_read_as_in_full_or_left(data: bytes) -> None:
    _agree(data)


@given(_REQUESTS, st.data())
def test_what_was_cut_or_changed_is_read_as_in_full_or_left(
    request: rpc.TxnRequest, data: st.DataObject
) -> None:
    encoded = bytearray(request.encode())
    if encoded:
        at = data.draw(st.integers(0, len(encoded) - 1))
        if data.draw(st.booleans()):
            encoded[at] = data.draw(st.integers(0, 255))
        else:
            del encoded[at : at + data.draw(st.integers(1, 4))]
    _agree(bytes(encoded))


def test_the_two_of_a_lock_are_plain() -> None:
    taking = joining_if_free(b"jobs", b"jobs/7f", 0x7F, b"host:12")
    giving = Txn((Compare.create_revision(b"jobs/7f", "=", 2**40),), (Delete(b"jobs/7f"),))
    assert (_agree(txn_payload(taking)), _agree(txn_payload(giving))) == (taking, giving)


@given(
    st.booleans(),
    st.lists(st.just("put") | st.integers(0, 1), max_size=4),
    st.integers(1, 2**63 - 1) | st.integers(1, 300),
)
def test_an_answer_is_written_as_in_full(succeeded: bool, ops: list[str | int], revision: int) -> None:
    results = tuple(_result(op, Revision(revision)) for op in ops)
    result = TxnResult(Revision(revision), succeeded, results)
    requests = [rpc.RequestOp(request_put=rpc.PutRequest(key=b"k"))] * len(ops)
    request = rpc.TxnRequest(success=requests, failure=requests)
    assert answer_of(result) == translate.txn_response(request, result, None).encode()


def _result(op: str | int, revision: Revision) -> OpResult:
    return PutResult(revision) if isinstance(op, str) else DeleteResult(revision, op)


def test_a_put_and_a_delete_are_written_as_their_messages() -> None:
    put, delete = Put(b"k", b"v" * 300, 2**62), Delete(b"k" * 200)
    request = rpc.TxnRequest.decode(txn_payload(Txn((), (put, delete))))
    assert [translate._op_of(op, 1) for op in request.success] == [put, delete]
