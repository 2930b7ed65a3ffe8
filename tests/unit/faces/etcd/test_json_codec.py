"""Messages as JSON: etcd's forms out, everybody's forms in, and a precise no to everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.faces.etcd.serving.json_codec import (
    ObjectSplitter,
    decode_first_json,
    decode_json,
    encode_json,
)
from quoracy.store.model import KeyValue as StoredKeyValue
from quoracy.wire.etcd.kv import Event, EventType, KeyValue
from quoracy.wire.etcd.rpc import (
    Compare,
    FilterType,
    LeaseTimeToLiveResponse,
    PutRequest,
    RangeRequest,
    RangeResponse,
    ResponseHeader,
    SortOrder,
    TxnRequest,
    WatchCreateRequest,
    WatchRequest,
)
from quoracy.wire.grpc import GrpcError, StatusCode


def written(message: Any) -> Any:
    return json.loads(encode_json(type(message), message))


def read_range(**fields: Any) -> RangeRequest:
    return decode_json(RangeRequest, json.dumps({"key": "Zm9v", **fields}).encode())


# -- writing


def test_defaults_are_left_out() -> None:
    assert written(RangeResponse()) == {}
    assert written(RangeResponse(header=ResponseHeader())) == {"header": {}}


def test_names_are_those_of_the_proto_files() -> None:
    message = LeaseTimeToLiveResponse(ID=7, TTL=-1, grantedTTL=60, keys=[b"a"])
    assert written(message) == {"ID": "7", "TTL": "-1", "grantedTTL": "60", "keys": ["YQ=="]}


def test_64_bit_numbers_are_strings_and_bytes_are_padded_base64() -> None:
    kv = KeyValue(key=b"f", value=b"\xff\xfe\xfb", mod_revision=2**63 - 1)
    assert written(kv) == {"key": "Zg==", "value": "//77", "mod_revision": str(2**63 - 1)}


def test_enums_go_by_name_and_unknown_ones_by_number() -> None:
    assert written(Event(type=EventType.DELETE))["type"] == "DELETE"
    assert written(RangeRequest(sort_order=77)) == {"sort_order": 77}


def test_member_of_a_oneof_is_written_at_its_default_too() -> None:
    assert written(Compare(version=0)) == {"version": "0"}


def test_object_with_the_same_attributes_may_stand_in() -> None:
    stored: Any = StoredKeyValue(
        key=b"a", value=b"b", create_revision=2, mod_revision=3, version=2, lease=0
    )
    assert written(RangeResponse(kvs=[stored]))["kvs"] == [
        {"key": "YQ==", "value": "Yg==", "create_revision": "2", "mod_revision": "3", "version": "2"}
    ]


# -- reading


@pytest.mark.parametrize("name", ["range_end", "rangeEnd"])
def test_either_name_of_a_field_is_understood(name: str) -> None:
    assert read_range(**{name: "Zm9w"}).range_end == b"fop"


def test_camel_case_counts_if_both_names_are_there() -> None:
    assert read_range(rangeEnd="Yg==", range_end="Yw==").range_end == b"b"


@pytest.mark.parametrize("value", [5, "5", " 5 "])
def test_integers_are_numbers_or_strings(value: object) -> None:
    assert read_range(limit=value).limit == 5


@pytest.mark.parametrize("value", ["DESCEND", 2])
def test_enums_are_names_or_numbers(value: object) -> None:
    order = read_range(sort_order=value).sort_order
    assert order is SortOrder.DESCEND


def test_unknown_number_of_an_enum_stays_a_number() -> None:
    assert read_range(sort_order=77).sort_order == 77


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Zm9v", b"foo"),
        ("Zg==", b"f"),
        ("Zg", b"f"),
        ("//77", b"\xff\xfe\xfb"),
        ("__77", b"\xff\xfe\xfb"),
        ("-_8", b"\xfb\xff"),
        ("Zm\n9v", b"foo"),
        ("", b""),
    ],
)
def test_bytes_are_base64_of_either_alphabet_padded_or_not(text: str, value: bytes) -> None:
    assert read_range(range_end=text).range_end == value


def test_null_is_absent() -> None:
    assert read_range(limit=None, range_end=None) == RangeRequest(key=b"foo")
    assert decode_json(TxnRequest, b'{"success":null}') == TxnRequest()
    assert decode_json(RangeRequest, b"null") == RangeRequest()


def test_unknown_fields_are_ignored() -> None:
    assert read_range(nonsense={"deep": [1.5, None]}, KEY="!") == RangeRequest(key=b"foo")


def test_last_of_equal_keys_counts() -> None:
    assert decode_json(RangeRequest, b'{"key":"YQ==","key":"Yg=="}').key == b"b"


def test_later_member_of_a_oneof_counts() -> None:
    compare = decode_json(Compare, b'{"value":"YQ==","version":"1"}')
    assert (compare.value, compare.version) == (b"a", None)


def test_messages_nest() -> None:
    text = b'{"createRequest":{"key":"YQ==","filters":["NODELETE",0]}}'
    filters = FilterType
    assert decode_json(WatchRequest, text) == WatchRequest(
        create_request=WatchCreateRequest(key=b"a", filters=[filters.NODELETE, filters.NOPUT])
    )


@given(
    key=st.binary(),
    limit=st.integers(-(2**63), 2**63 - 1),
    order=st.sampled_from(SortOrder),
    keys_only=st.booleans(),
)
def test_what_is_written_reads_as_the_same(
    key: bytes, limit: int, order: SortOrder, keys_only: bool
) -> None:
    request = RangeRequest(key=key, limit=limit, sort_order=order, keys_only=keys_only)
    assert decode_json(RangeRequest, encode_json(RangeRequest, request)) == request


# -- refusing


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"limit": 1.5}, "RangeRequest.limit is an int64, not 1.5"),
        ({"limit": 1.0}, "not 1.0"),
        ({"limit": True}, "not true"),
        ({"limit": "x"}, "not 'x'"),
        ({"limit": ""}, "not ''"),
        ({"limit": "+1"}, "not '+1'"),
        ({"limit": "01"}, "not '01'"),
        ({"limit": 2**63}, f"not {2**63}"),
        ({"limit": str(2**63)}, f"not '{2**63}'"),
        ({"limit": 10**1000}, "a number that large"),
        ({"limit": [1]}, "not an array"),
        ({"key": 17}, "RangeRequest.key is bytes as a base64 string, not 17"),
        ({"key": "!!!"}, "RangeRequest.key is base64, not '!!!'"),
        ({"key": "Zg==Zg=="}, "is base64"),
        ({"key": "Zm9vY"}, "is base64"),
        ({"key": "\u00e9"}, "is base64"),
        ({"key": "!" * 10_000}, f"{'!' * 40}..."),
        ({"keys_only": 1}, "RangeRequest.keys_only is true or false, not 1"),
        ({"keys_only": "true"}, "not 'true'"),
        ({"sort_order": "SIDEWAYS"}, "one of NONE, ASCEND, DESCEND, not 'SIDEWAYS'"),
        ({"sort_order": 2**31}, "an int32"),
        ({"sort_order": True}, "not true"),
    ],
)
def test_wrong_value_is_refused_with_the_name_of_its_field(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtocolError) as refusal:
        read_range(**fields)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("text", [b"[]", b'"x"', b"17", b"true"])
def test_message_is_an_object(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="RangeRequest is a JSON object"):
        decode_json(RangeRequest, text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"key":NaN}',
        b'{"key":"Zm9v",}',
        b"{'key':1}",
        b'{"key":"\\ud800"}',
        b'{"key":"\xff"}',
        b'{"\xff":1}',
        b"\xff",
        b"\xef\xbb\xbf{}",
        b'{"limit":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"success":[{"request_txn":' * 5_000,
        b'{"success":[{"request_txn":' * 5_000 + b"{}" + b"}]}" * 5_000,
        b'{"success":[{"request_txn":' * 90 + b"{}" + b"}]}" * 90,
    ],
)
def test_hostile_text_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_first_json(TxnRequest, text)
    with pytest.raises(ProtocolError):
        decode_json(TxnRequest, text)


@given(st.binary())
def test_no_text_raises_anything_else(text: bytes) -> None:
    for decode in (decode_json, decode_first_json):
        try:
            decode(TxnRequest, text)
        except ProtocolError:
            continue


@pytest.mark.parametrize("text", [b"{", b'{"key":"Zm9v"', b'{"key"', b'{"key":"Zm'])
def test_text_that_ends_early_is_called_that(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="unexpected EOF"):
        decode_first_json(RangeRequest, text)


@pytest.mark.parametrize("rest", [b"", b" \n", b" trailing", b'{"key":"Yg=="}', b"]", "é".encode()])
def test_first_object_counts_whatever_comes_after_it(rest: bytes) -> None:
    text = '{"key":"YQ==","x":"é"}'.encode()
    assert decode_first_json(PutRequest, text + rest) == PutRequest(key=b"a")


@pytest.mark.parametrize("text", [b"", b" \r\n\t"])
def test_no_text_is_a_message_without_fields(text: bytes) -> None:
    assert decode_first_json(RangeRequest, text) == RangeRequest()


# -- streams of objects

STREAM = rb'{"a":"}\"{"} {"b":[{"c":"\\"}]}' + b'\n\n{}null{"d":1}'
OBJECTS = [rb'{"a":"}\"{"}', rb'{"b":[{"c":"\\"}]}', b"{}", b"null", b'{"d":1}']


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_stream_is_cut_into_its_objects_however_it_arrives(size: int) -> None:
    splitter = ObjectSplitter(1000)
    found: list[bytes] = []
    for start in range(0, len(STREAM), size):
        found += splitter.feed(STREAM[start : start + size])
    splitter.finish()
    assert found == OBJECTS


def test_object_is_there_as_soon_as_it_is_complete() -> None:
    splitter = ObjectSplitter(1000)
    assert list(splitter.feed(b'{"a":')) == []
    assert list(splitter.feed(b'1}{"b"')) == [b'{"a":1}']


def test_objects_before_the_place_where_it_goes_wrong_are_there() -> None:
    objects = ObjectSplitter(1000).feed(b'{"a":1}{"b":1}x')
    assert [next(objects), next(objects)] == [b'{"a":1}', b'{"b":1}']
    with pytest.raises(ProtocolError):
        next(objects)


@pytest.mark.parametrize("text", [b"{", b'{"a":"}', b"nul", b'{}{"a":1'])
def test_stream_that_ends_inside_an_object_is_refused(text: bytes) -> None:
    splitter = ObjectSplitter(1000)
    list(splitter.feed(text))
    with pytest.raises(ProtocolError, match="unexpected EOF"):
        splitter.finish()


@pytest.mark.parametrize("text", [b"[]", b"17", b"x", b"nothing", b"{}]", b"\xff"])
def test_stream_of_anything_but_objects_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="JSON object starts with"):
        list(ObjectSplitter(1000).feed(text))


@pytest.mark.parametrize(
    "pieces", [[b'{"a":"' + b"x" * 100 + b'"}'], [b'{"a":"', b"x" * 60, b"x" * 60]]
)
def test_object_over_the_limit_is_refused(pieces: list[bytes]) -> None:
    splitter = ObjectSplitter(100)
    with pytest.raises(GrpcError) as refusal:
        for piece in pieces:
            list(splitter.feed(piece))
    assert refusal.value.code is StatusCode.RESOURCE_EXHAUSTED


def test_limit_is_on_each_object_not_on_the_stream() -> None:
    splitter = ObjectSplitter(100)
    assert len(list(splitter.feed(b'{"a":1}' * 1000))) == 1000
