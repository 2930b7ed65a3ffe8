"""What the client says is what the server hears, for every request; and answers likewise.

The other end of the wire is Quoracy's own face, which is compared with a real etcd elsewhere.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.faces.etcd.services import translate as face
from quoracy.remote import translate
from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    EventKind,
    KeyRange,
    Keys,
    Op,
    Put,
    Range,
    Relation,
    SortTarget,
    Txn,
)
from quoracy.store.rules import as_range
from quoracy.wire.etcd import kv as wire_kv
from quoracy.wire.etcd import rpc
from tests.properties.requests import txns

_KEY = st.binary(min_size=1, max_size=4)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_REVISION = st.none() | st.integers(1, 2**63 - 1)
_BOUND = st.none() | st.integers(-5, 2**63 - 1)
_KEYS: st.SearchStrategy[Keys] = (
    _KEY
    | st.builds(KeyRange, st.binary(max_size=3), st.none() | st.binary(max_size=3))
    | st.builds(KeyRange.prefix, st.binary(max_size=3))
    | st.builds(KeyRange.exactly, _KEY)
)
_RANGES = st.builds(
    Range,
    _KEYS,
    at=_REVISION,
    limit=_REVISION,
    sort_by=st.sampled_from(SortTarget),
    descending=st.booleans(),
    keys_only=st.booleans(),
    count_only=st.booleans(),
    mod_revision_min=_BOUND,
    mod_revision_max=_BOUND,
    create_revision_min=_BOUND,
    create_revision_max=_BOUND,
    serializable=st.booleans(),
)
_PUTS = st.builds(
    Put,
    _KEY,
    st.binary(max_size=4),
    lease=_INT64,
    prev_kv=st.booleans(),
)
_DELETES = st.builds(Delete, _KEYS, prev_kv=st.booleans())
_COMPARES = st.builds(
    Compare, _KEYS, st.just(CompareTarget.VALUE), st.sampled_from(Relation), st.binary(max_size=4)
) | st.builds(
    Compare,
    _KEYS,
    st.sampled_from([target for target in CompareTarget if target is not CompareTarget.VALUE]),
    st.sampled_from(Relation),
    _INT64,
)
_OPS: st.SearchStrategy[Op] = st.recursive(
    _RANGES | _PUTS | _DELETES,
    lambda ops: st.builds(
        Txn,
        st.lists(_COMPARES, max_size=2).map(tuple),
        st.lists(ops, max_size=3).map(tuple),
        st.lists(ops, max_size=3).map(tuple),
    ),
    max_leaves=8,
)


def _means(op: Op | Compare) -> object:
    """A request in a form in which those that mean the same are equal."""
    match op:
        case Put():
            return op
        case Delete():
            return ("delete", _keys(op.keys), op.prev_kv)
        case Compare():
            return ("compare", _keys(op.keys), op.target, op.relation, op.operand)
        case Txn():
            return (
                [_means(compare) for compare in op.compares],
                [_means(inner) for inner in op.then],
                [_means(inner) for inner in op.otherwise],
            )
        case Range():
            return (
                _keys(op.keys),
                op.at,
                op.limit,
                (op.sort_by, op.descending),
                (op.keys_only, op.count_only, op.serializable),
                [max(bound or 0, 0) for bound in (op.mod_revision_min, op.create_revision_min)],
                [
                    None if bound is None else max(bound, 0)
                    for bound in (op.mod_revision_max, op.create_revision_max)
                ],
            )


def _keys(keys: Keys) -> object:
    keys = as_range(keys)
    start = max(keys.start, b"\0")  # there is no key before it
    return "nothing" if keys.end is not None and keys.end <= start else (start, keys.end)


@given(_OPS)
def test_the_server_hears_what_the_client_says(op: Op) -> None:
    heard = face.txn_of(rpc.TxnRequest.decode(translate.txn_payload(Txn(then=(op,)))), 100)
    assert [_means(inner) for inner in heard.then] == [_means(op)]


@given(txns)
def test_a_transaction_is_written_as_its_message_is(txn: Txn) -> None:
    payload = translate.txn_payload(txn)
    assert rpc.TxnRequest.decode(payload).encode() == payload


@given(st.builds(Put, _KEY, st.binary(), _INT64, *[st.booleans()] * 3))
def test_a_put_is_written_as_its_message_is(op: Put) -> None:
    request = rpc.PutRequest(
        key=op.key,
        value=op.value,
        lease=op.lease,
        prev_kv=op.prev_kv,
        ignore_value=op.ignore_value,
        ignore_lease=op.ignore_lease,
    )
    assert translate.put_payload(op) == request.encode()


def test_what_no_message_can_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="does not fit"):
        translate.put_payload(Put(b"k", lease=2**63))
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(InvalidRequest, match="does not fit"):
            translate.txn_payload(Txn((Compare.create_revision(b"k", "=", number),)))
    deep = Txn(then=(Put(b"k"),))
    for _ in range(48):
        deep = Txn(then=(deep,))
    payload = translate.txn_payload(deep)
    assert rpc.TxnRequest.decode(payload).encode() == payload
    with pytest.raises(InvalidRequest, match="nests more than 100"):
        translate.txn_payload(Txn(then=(Txn(then=(deep,)),)))


@given(st.lists(_COMPARES, max_size=3).map(tuple))
def test_the_server_compares_what_the_client_wants_compared(compares: tuple[Compare, ...]) -> None:
    heard = face.txn_of(rpc.TxnRequest.decode(translate.txn_payload(Txn(compares))), 100)
    assert [_means(compare) for compare in heard.compares] == [_means(each) for each in compares]


@pytest.mark.parametrize(
    "keys", [KeyRange(b"", b""), KeyRange(b"", b"\0"), KeyRange(b"b", b""), KeyRange(b"b", b"\0")]
)
def test_a_range_without_keys_becomes_none_of_the_special_forms(keys: KeyRange) -> None:
    key, range_end = translate.wire_keys(keys)
    assert range_end not in (b"", b"\0")
    assert range_end <= key


@pytest.mark.parametrize("keys", [KeyRange(b"b", b"a"), KeyRange(b"k", b"k"), KeyRange(b"", b"")])
def test_a_watch_of_a_range_without_keys_is_one_that_tells_nothing(keys: KeyRange) -> None:
    request = translate.watch_request(keys, after=0, puts=True, deletes=True, prev_kv=False)
    assert set(request.filters) == {rpc.FilterType.NOPUT, rpc.FilterType.NODELETE}
    assert request.range_end == b""


@pytest.mark.parametrize(("ttl_s", "seconds"), [(0.0, 0), (0.1, 1), (2.0, 2), (2.000001, 3)])
def test_a_time_to_live_is_never_rounded_down(ttl_s: float, seconds: int) -> None:
    assert translate.ttl_seconds(ttl_s) == seconds


def _event(revision: int, *, kind: wire_kv.EventType = wire_kv.EventType.PUT) -> wire_kv.Event:
    kv = wire_kv.KeyValue(key=b"k%d" % revision, mod_revision=revision, version=1)
    return wire_kv.Event(type=kind, kv=kv)


def test_events_are_put_together_by_revision() -> None:
    events = [_event(revision) for revision in (2, 2, 3, 7, 7, 7)]
    told = translate.events_of(events)
    grouped = [(revision, len(group)) for revision, group in translate.by_revision(told)]
    assert grouped == [(2, 2), (3, 1), (7, 3)]


def test_a_delete_event_is_one_whatever_else_it_carries() -> None:
    (event,) = translate.events_of([_event(2, kind=wire_kv.EventType.DELETE)])
    assert event.kind is EventKind.DELETE
    assert event.kv.mod_revision == 2


def test_answers_that_are_none_are_refused() -> None:
    with pytest.raises(ProtocolError):
        translate.range_result(rpc.RangeResponse())
    with pytest.raises(ProtocolError):
        translate.events_of([wire_kv.Event()])
    header = rpc.ResponseHeader(revision=2)
    with pytest.raises(ProtocolError):
        translate.txn_result(rpc.TxnResponse(header=header, responses=[rpc.ResponseOp()]))
