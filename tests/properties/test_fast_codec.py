"""The fast codec reads what the general one reads, and writes what that writes, or leaves it alone.

It never raises, whatever it is given.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.faces.etcd.services import translate as requests
from quoracy.remote import translate as answers
from quoracy.remote.translate import events_of, txn_payload
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
from quoracy.wire.etcd import kv, rpc
from quoracy.wire.etcd.fast_codec import (
    decode_put_revision,
    decode_range_result,
    decode_txn,
    decode_txn_result,
    decode_watch_events,
    encode_txn_result,
)
from quoracy.wire.grpc import GrpcError

# -- requests --------------------------------------------------------------------------------

_OPS_MAX = 4
_SHORT = st.binary(max_size=200)
_ANY_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 300)
_FLAGS = st.just(False) | st.booleans()
_COMPARES = st.builds(
    rpc.Compare,
    result=st.integers(0, 5),
    target=st.integers(0, 6),
    key=_SHORT,
    version=st.none() | _ANY_NUMBERS,
    range_end=st.just(b"") | st.just(b"\0") | _SHORT,
) | st.builds(
    rpc.Compare,
    result=st.integers(0, 3),
    target=st.just(rpc.CompareTarget.CREATE),
    key=_SHORT,
    create_revision=st.none() | _ANY_NUMBERS,
)
_PUT_REQUESTS = st.builds(
    rpc.PutRequest,
    key=_SHORT,
    value=_SHORT,
    lease=_ANY_NUMBERS,
    prev_kv=_FLAGS,
    ignore_value=_FLAGS,
    ignore_lease=_FLAGS,
)
_DELETIONS = st.builds(
    rpc.DeleteRangeRequest, key=_SHORT, range_end=st.just(b"") | _SHORT, prev_kv=_FLAGS
)
_OPS = (
    st.builds(rpc.RequestOp, request_put=_PUT_REQUESTS)
    | st.builds(rpc.RequestOp, request_delete_range=_DELETIONS)
    | st.builds(rpc.RequestOp, request_range=st.builds(rpc.RangeRequest, key=_SHORT))
    | st.just(rpc.RequestOp())
)
_REQUESTS = st.builds(
    rpc.TxnRequest,
    compare=st.lists(_COMPARES, max_size=2),
    success=st.lists(_OPS, max_size=_OPS_MAX + 1),
    failure=st.lists(_OPS, max_size=2),
)


def _agree_on_request(data: bytes) -> Txn | None:
    fast = decode_txn(data, _OPS_MAX)
    if fast is not None:
        try:
            full = requests.txn_of(rpc.TxnRequest.decode(data), _OPS_MAX)
        except (ProtocolError, GrpcError) as error:
            raise AssertionError(f"in full it is refused: {error}") from error
        assert fast == full
    return fast


@given(_REQUESTS)
def test_requests_are_read_as_in_full_or_left(request: rpc.TxnRequest) -> None:
    _agree_on_request(request.encode())


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x12\x00")
@example(b"\x12\x02\x12\x00")
def test_whatever_comes_as_a_request_is_read_as_in_full_or_left(data: bytes) -> None:
    _agree_on_request(data)


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
    _agree_on_request(bytes(encoded))


def test_the_two_of_a_lock_are_not_left() -> None:
    taking = joining_if_free(b"jobs", b"jobs/7f", 0x7F, b"host:12")
    giving = Txn((Compare.create_revision(b"jobs/7f", "=", 2**40),), (Delete(b"jobs/7f"),))
    assert (_agree_on_request(txn_payload(taking)), _agree_on_request(txn_payload(giving))) == (
        taking,
        giving,
    )


@given(
    st.booleans(),
    st.lists(st.just("put") | st.integers(0, 1), max_size=4),
    st.integers(1, 2**63 - 1) | st.integers(1, 300),
)
def test_an_answer_is_written_as_in_full(succeeded: bool, ops: list[str | int], revision: int) -> None:
    results = tuple(_result(op, Revision(revision)) for op in ops)
    result = TxnResult(Revision(revision), succeeded, results)
    parts = [rpc.RequestOp(request_put=rpc.PutRequest(key=b"k"))] * len(ops)
    request = rpc.TxnRequest(success=parts, failure=parts)
    assert encode_txn_result(result) == requests.txn_response(request, result, None).encode()


def _result(op: str | int, revision: Revision) -> OpResult:
    return PutResult(revision) if isinstance(op, str) else DeleteResult(revision, op)


def test_a_put_and_a_delete_are_written_as_their_messages() -> None:
    put, delete = Put(b"k", b"v" * 300, 2**62), Delete(b"k" * 200)
    request = rpc.TxnRequest.decode(txn_payload(Txn((), (put, delete))))
    assert [requests._op_of(op, 1) for op in request.success] == [put, delete]


# -- answers ---------------------------------------------------------------------------------

_NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
_HEADERS = st.builds(
    rpc.ResponseHeader,
    cluster_id=st.integers(0, 2**64 - 1),
    member_id=st.integers(0, 2**64 - 1),
    revision=_NUMBERS,
    raft_term=_NUMBERS,
)
_KVS = st.builds(
    kv.KeyValue,
    key=st.binary(max_size=200),
    create_revision=_NUMBERS,
    mod_revision=_NUMBERS,
    version=_NUMBERS,
    value=st.binary(max_size=200),
    lease=st.integers(-(2**63), 2**63 - 1),
)
_EVENTS = st.builds(
    kv.Event,
    type=st.sampled_from([kv.EventType.PUT, kv.EventType.DELETE]),
    kv=_KVS,
    prev_kv=st.none() | _KVS,
)
_RESPONSES = st.builds(
    rpc.WatchResponse,
    header=st.none() | _HEADERS,
    watch_id=st.integers(-1, 2**63 - 1),
    created=st.booleans(),
    canceled=st.booleans(),
    fragment=st.booleans(),
    events=st.lists(_EVENTS, max_size=4),
)


@given(_RESPONSES)
def test_events_are_read_as_in_full_or_left(response: rpc.WatchResponse) -> None:
    _agree_on_events(response.encode())


@given(st.binary(max_size=80))
@example(b"")
@example(b"\n\x02\x18\x07" + b"Z\x04\x12\x02\x18\x05")
def test_whatever_comes_as_events_is_read_as_in_full_or_left(data: bytes) -> None:
    _agree_on_events(data)


@given(_RESPONSES, st.data())
def test_damaged_events_are_read_as_in_full_or_left(
    response: rpc.WatchResponse, data: st.DataObject
) -> None:
    whole = bytearray(response.encode())
    if whole:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    _agree_on_events(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def _agree_on_events(message: bytes) -> None:
    fast = decode_watch_events(message)
    if fast is None:
        return
    full = rpc.WatchResponse.decode(message)
    assert (full.created, full.canceled, full.fragment, full.cancel_reason) == (False, False, False, "")
    assert fast == (full.watch_id, events_of(full.events))


def test_common_events_are_not_left() -> None:
    event = kv.Event(kv=kv.KeyValue(key=b"k", mod_revision=7, create_revision=7, version=1, value=b"v"))
    gone = kv.Event(type=kv.EventType.DELETE, kv=kv.KeyValue(key=b"k", mod_revision=8))
    header = rpc.ResponseHeader(cluster_id=2**63, member_id=2**62, revision=8, raft_term=3)
    response = rpc.WatchResponse(header=header, watch_id=3, events=[event, gone])
    fast = decode_watch_events(response.encode())
    assert fast is not None
    assert [told.kv.mod_revision for told in fast[1]] == [7, 8]


@given(_HEADERS, st.none() | _KVS)
def test_revision_is_read_as_in_full_or_left(
    header: rpc.ResponseHeader, prev: kv.KeyValue | None
) -> None:
    fast = decode_put_revision(rpc.PutResponse(header=header, prev_kv=prev).encode())
    if prev is None and header.revision:
        assert fast == header.revision
    else:
        assert fast is None


@given(st.binary(max_size=40))
def test_revision_of_whatever_comes_is_read_as_in_full_or_left(data: bytes) -> None:
    fast = decode_put_revision(data)
    if fast is None:
        return
    try:
        full = rpc.PutResponse.decode(data)
    except ProtocolError:
        return  # damage behind the revision; an answer is not judged by what nobody reads
    assert full.header is not None


# -- what was found, and what became of a transaction

_RANGES = st.builds(
    rpc.RangeResponse,
    header=st.none() | _HEADERS,
    kvs=st.lists(_KVS, max_size=3),
    more=st.booleans(),
    count=st.integers(-1, 2**63 - 1),
)
_PUTS = st.builds(rpc.PutResponse, header=st.none() | _HEADERS, prev_kv=st.none() | _KVS)
_DELETES = st.builds(
    rpc.DeleteRangeResponse,
    header=st.none() | _HEADERS,
    deleted=st.integers(-1, 2**63 - 1),
    prev_kvs=st.lists(_KVS, max_size=1),
)
_PARTS = (
    st.builds(rpc.ResponseOp, response_range=_RANGES)
    | st.builds(rpc.ResponseOp, response_put=_PUTS)
    | st.builds(rpc.ResponseOp, response_delete_range=_DELETES)
    | st.builds(rpc.ResponseOp, response_txn=st.builds(rpc.TxnResponse, header=_HEADERS))
)
_TXNS = st.builds(
    rpc.TxnResponse,
    header=st.none() | _HEADERS,
    succeeded=st.booleans(),
    responses=st.lists(_PARTS, max_size=4),
)


def _agree_on_results(message: bytes) -> None:
    found = decode_range_result(message)
    if found is not None:
        assert found == answers.range_result(rpc.RangeResponse.decode(message))
    became = decode_txn_result(message)
    if became is not None:
        assert became == answers.txn_result(rpc.TxnResponse.decode(message))


@given(_RANGES | _TXNS)
def test_results_are_read_as_in_full_or_left(response: rpc.RangeResponse | rpc.TxnResponse) -> None:
    _agree_on_results(response.encode())


@given(_RANGES | _TXNS, _RANGES | _TXNS)
def test_a_header_is_not_taken_for_the_one_before(
    one: rpc.RangeResponse | rpc.TxnResponse, other: rpc.RangeResponse | rpc.TxnResponse
) -> None:
    for response in (one, other, one):
        _agree_on_results(response.encode())


@given(st.binary(max_size=80))
@example(b"")
@example(b"\n\x02\x18\x07")
@example(b"\n\x02\x18\x07\x10\x01\x1a\x04\x12\x02\n\x00")
@example(b"\n\x02\x18\x07\x10\x01\x1a\x06\x12\x04\n\x02\x28\x00")
def test_whatever_comes_as_a_result_is_read_as_in_full_or_left(data: bytes) -> None:
    _agree_on_results(data)


@given(_RANGES | _TXNS, st.data())
def test_damaged_results_are_read_as_in_full_or_left(
    response: rpc.RangeResponse | rpc.TxnResponse, data: st.DataObject
) -> None:
    whole = bytearray(response.encode())
    if whole:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    _agree_on_results(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_common_results_are_not_left() -> None:
    header = rpc.ResponseHeader(cluster_id=2**63, member_id=2**62, revision=8, raft_term=3)
    inner = rpc.ResponseHeader(revision=8)
    found = rpc.RangeResponse(kvs=[kv.KeyValue(key=b"k", mod_revision=7, version=1)], count=1)
    parts = [
        rpc.ResponseOp(response_put=rpc.PutResponse(header=inner)),
        rpc.ResponseOp(response_delete_range=rpc.DeleteRangeResponse(header=inner, deleted=1)),
        rpc.ResponseOp(response_range=found),
    ]
    response = rpc.TxnResponse(header=header, succeeded=True, responses=parts)
    for _ in range(2):  # also with a header like the one before
        became = decode_txn_result(response.encode())
        assert became is not None
        assert became.succeeded
        assert len(became.results) == 3
    assert (
        decode_range_result(rpc.RangeResponse(header=header, kvs=found.kvs, count=1).encode())
        is not None
    )
