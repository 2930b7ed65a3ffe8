"""Quick reading gives what reading in full gives, or leaves it alone; it never raises."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.remote import translate
from quoracy.remote.fast_messages import put_revision, range_result, txn_result, watch_events
from quoracy.remote.translate import events_of
from quoracy.wire.etcd import kv, rpc

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
    _agree(response.encode())


@given(st.binary(max_size=80))
@example(b"")
@example(b"\n\x02\x18\x07" + b"Z\x04\x12\x02\x18\x05")
def test_whatever_comes_is_read_as_in_full_or_left(data: bytes) -> None:
    _agree(data)


@given(_RESPONSES, st.data())
def test_damaged_messages_are_read_as_in_full_or_left(
    response: rpc.WatchResponse, data: st.DataObject
) -> None:
    whole = bytearray(response.encode())
    if whole:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    _agree(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def _agree(message: bytes) -> None:
    quick = watch_events(message)
    if quick is None:
        return
    full = rpc.WatchResponse.decode(message)
    assert (full.created, full.canceled, full.fragment, full.cancel_reason) == (False, False, False, "")
    assert quick == (full.watch_id, events_of(full.events))


def test_plain_events_are_not_left() -> None:
    event = kv.Event(kv=kv.KeyValue(key=b"k", mod_revision=7, create_revision=7, version=1, value=b"v"))
    gone = kv.Event(type=kv.EventType.DELETE, kv=kv.KeyValue(key=b"k", mod_revision=8))
    header = rpc.ResponseHeader(cluster_id=2**63, member_id=2**62, revision=8, raft_term=3)
    response = rpc.WatchResponse(header=header, watch_id=3, events=[event, gone])
    quick = watch_events(response.encode())
    assert quick is not None
    assert [told.kv.mod_revision for told in quick[1]] == [7, 8]


@given(_HEADERS, st.none() | _KVS)
def test_revision_is_read_as_in_full_or_left(
    header: rpc.ResponseHeader, prev: kv.KeyValue | None
) -> None:
    quick = put_revision(rpc.PutResponse(header=header, prev_kv=prev).encode())
    if prev is None and header.revision:
        assert quick == header.revision
    else:
        assert quick is None


@given(st.binary(max_size=40))
def test_revision_of_whatever_comes_is_read_as_in_full_or_left(data: bytes) -> None:
    quick = put_revision(data)
    if quick is None:
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
    found = range_result(message)
    if found is not None:
        assert found == translate.range_result(rpc.RangeResponse.decode(message))
    became = txn_result(message)
    if became is not None:
        assert became == translate.txn_result(rpc.TxnResponse.decode(message))


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


def test_plain_results_are_not_left() -> None:
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
        became = txn_result(response.encode())
        assert became is not None
        assert became.succeeded
        assert len(became.results) == 3
    assert range_result(rpc.RangeResponse(header=header, kvs=found.kvs, count=1).encode()) is not None
