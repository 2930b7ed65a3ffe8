"""The small print of the protobuf codec, input made to break it, and the numbers of etcd's fields."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from enum import IntEnum
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pytest

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.store import model
from quoracy.wire.etcd import auth, election, health, kv, lock, maintenance, rpc
from quoracy.wire.protobuf import (
    INT32,
    INT64,
    UINT32,
    UINT64,
    Field,
    Kind,
    Message,
    fields_of,
)
from quoracy.wire.protobuf.message import source_of
from tests.support.protos import (
    ALL,
    RANGES,
    TYPES,
    official_of,
    official_verdict,
    plain,
)


class Hue(IntEnum):
    RED = 0
    BLUE = 1


class Zoo(Message, kw_only=True):
    """Kinds and shapes that etcd's own messages do not have."""

    small: Annotated[int, Field(1, INT32)] = 0
    smalls: Annotated[Sequence[int], Field(2, INT32)] = ()
    flags: Annotated[Sequence[bool], Field(3)] = ()
    larges: Annotated[Sequence[int], Field(4, UINT64)] = ()
    hash: Annotated[int, Field(5, UINT32)] = 0
    far_away: Annotated[int, Field(100_000, INT64)] = 0
    flag: Annotated[bool | None, Field(7, oneof="choice")] = None
    hue: Annotated[Hue | int | None, Field(8, oneof="choice")] = None
    text: Annotated[str | None, Field(9, oneof="choice")] = None
    txn: Annotated[rpc.TxnRequest | None, Field(10)] = None
    data: Annotated[bytes, Field(11)] = b""  # as the decoder's own names
    pos: Annotated[int, Field(12, INT64)] = 0
    value: Annotated[int, Field(13, INT64)] = 0
    hues: Annotated[Sequence[Hue | int], Field(14)] = ()


ZOO = Zoo(
    small=-(1 << 31),
    smalls=[0, -1, 1, (1 << 31) - 1],
    flags=[True, False, True],
    larges=[0, 1, (1 << 64) - 1],
    hash=(1 << 32) - 1,
    far_away=-1,
    hue=Hue.RED,
    txn=rpc.TxnRequest(success=[rpc.RequestOp(request_txn=rpc.TxnRequest())]),
    data=b"d",
    pos=300,
    value=-5,
    hues=[Hue.BLUE, 77, Hue.RED],
)


# -- encoding ------------------------------------------------------------------------------------


def test_defaults_are_not_sent() -> None:
    for cls in ALL:
        assert cls().encode() == b""
        assert cls.decode(b"") == cls()


def test_all_kinds_round_trip_and_agree_with_the_official_encoder() -> None:
    assert ZOO.encode() == official_of(ZOO).SerializeToString(deterministic=True)
    assert Zoo.decode(ZOO.encode()) == ZOO


@pytest.mark.parametrize(
    ("kind", "value", "field"),
    [
        (kind, value, field)
        for kind, field in (
            (Kind.INT32, "small"),
            (Kind.UINT32, "hash"),
            (Kind.INT64, "far_away"),
            (Kind.UINT64, "larges"),
            (Kind.ENUM, "hue"),
        )
        for value in (RANGES[kind][0] - 1, RANGES[kind][1] + 1)
    ],
)
def test_number_out_of_range_is_refused(kind: Kind, value: int, field: str) -> None:
    message = Zoo(**{field: [value] if field == "larges" else value})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=str(value)):
        message.encode()


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="surrogates"):
        auth.AuthenticateRequest(name="\ud800").encode()


def test_oneof_member_is_sent_even_at_its_default() -> None:
    assert rpc.Compare(version=0).encode() == b"\x20\x00"
    assert rpc.Compare(value=b"").encode() == b"\x3a\x00"
    assert Zoo(flag=False).encode() == b"\x38\x00"
    assert rpc.Compare.decode(b"\x20\x00") == rpc.Compare(version=0)


def test_two_members_of_a_oneof_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="target_union"):
        rpc.Compare(version=0, lease=1).encode()


def test_nesting_no_parser_would_take_is_refused() -> None:
    def nested(levels: int) -> rpc.TxnRequest:
        txn = rpc.TxnRequest()
        for _ in range(levels):
            txn = rpc.TxnRequest(success=[rpc.RequestOp(request_txn=txn)])
        return txn

    assert rpc.TxnRequest.decode(nested(50).encode()) == nested(50)
    for levels in (51, 5_000):
        with pytest.raises(InvalidRequest, match="nests more than 100"):
            nested(levels).encode()


def test_values_of_the_store_stand_in_for_messages() -> None:
    stored = model.KeyValue(b"k", b"v", 2, 3, 1, 4)
    response = rpc.RangeResponse(kvs=[cast(kv.KeyValue, stored)], count=1)
    assert rpc.RangeResponse.decode(response.encode()).kvs == [
        kv.KeyValue(key=b"k", value=b"v", create_revision=2, mod_revision=3, version=1, lease=4)
    ]
    event = cast(kv.Event, SimpleNamespace(type=1, kv=stored, prev_kv=None))
    (decoded,) = rpc.WatchResponse.decode(rpc.WatchResponse(events=[event]).encode()).events
    assert decoded.type is kv.EventType.DELETE


# -- decoding ------------------------------------------------------------------------------------


def test_decoded_bytes_are_bytes_and_repeated_fields_are_lists() -> None:
    decoded = rpc.LeaseTimeToLiveResponse.decode(b"\x2a\x01a\x2a\x00")
    assert decoded.keys == [b"a", b""]
    assert rpc.LeaseTimeToLiveResponse.decode(b"").keys == ()


def test_known_numbers_of_an_enum_become_members_and_others_stay_numbers() -> None:
    assert rpc.RangeRequest.decode(b"\x28\x02").sort_order is rpc.SortOrder.DESCEND
    assert rpc.RangeRequest.decode(b"").sort_order is rpc.SortOrder.NONE
    unknown = rpc.RangeRequest.decode(b"\x28\x07").sort_order
    assert type(unknown) is int
    assert unknown == 7
    assert rpc.RangeRequest.decode(b"\x28" + b"\xff" * 9 + b"\x01").sort_order == -1


@pytest.mark.parametrize(
    ("cls", "data", "expected"),
    [
        (rpc.PutRequest, b"\x20\x80\x00", rpc.PutRequest(prev_kv=False)),
        (rpc.PutRequest, b"\x20\x80\x80\x80\x80\x10", rpc.PutRequest(prev_kv=True)),
        (rpc.PutRequest, b"\x20\x02", rpc.PutRequest(prev_kv=True)),
        (rpc.PutRequest, b"\x18" + b"\xff" * 9 + b"\x7f", rpc.PutRequest(lease=-1)),
        (rpc.PutRequest, b"\x0a\x01a\x0a\x01b", rpc.PutRequest(key=b"b")),
        (rpc.PutRequest, b"\x8a\x00\x01a", rpc.PutRequest(key=b"a")),
        (maintenance.HashResponse, b"\x10\x81\x80\x80\x80\x10", maintenance.HashResponse(hash=1)),
        (Zoo, b"\x08\xff\xff\xff\xff\x1f", Zoo(small=-1)),
        (Zoo, b"\x10\x01\x12\x02\x02\x03\x10\x04", Zoo(smalls=[1, 2, 3, 4])),
        (Zoo, b"\x1a\x03\x00\x80\x01\x18\x00", Zoo(flags=[False, True, False])),
        (Zoo, b"\x12\x00", Zoo()),
        (rpc.Compare, b"\x82\x04\x01z", rpc.Compare(range_end=b"z")),
    ],
)
def test_unusual_but_valid_data_is_understood(
    cls: type[Message], data: bytes, expected: Message
) -> None:
    assert cls.decode(data) == expected
    assert official_verdict(cls, data) == plain(expected)


def test_last_member_of_a_oneof_counts() -> None:
    assert rpc.Compare.decode(b"\x20\x05\x28\x06\x3a\x01v") == rpc.Compare(value=b"v")
    put, range_ = b"\x12\x03\x0a\x01a", b"\x0a\x03\x0a\x01r"
    assert rpc.RequestOp.decode(put + range_) == rpc.RequestOp(request_range=rpc.RangeRequest(key=b"r"))
    # The first put is gone when the second begins, so nothing of it is merged.
    assert rpc.RequestOp.decode(put + range_ + b"\x12\x03\x12\x01v") == rpc.RequestOp(
        request_put=rpc.PutRequest(value=b"v")
    )


def test_message_that_comes_in_parts_is_merged() -> None:
    parts = rpc.PutResponse.decode(b"\x0a\x02\x08\x01\x0a\x04\x10\x02\x08\x00")
    assert parts == rpc.PutResponse(header=rpc.ResponseHeader(cluster_id=0, member_id=2))
    txn = rpc.RequestOp.decode(b"\x22\x02\x12\x00\x22\x02\x12\x00").request_txn
    assert txn is not None
    assert txn.success == [rpc.RequestOp(), rpc.RequestOp()]


def test_unknown_fields_are_dropped() -> None:
    unknown = (
        b"\x78\x05"  # varint
        b"\x79" + bytes(8) + b"\x7a\x03abc"  # 8 bytes, counted bytes
        b"\x7b\x78\x01\x83\x01\x84\x01\x7c"  # a group with a field and a group in it
        b"\x7d" + bytes(4) + b"\xfa\xff\xff\xff\x0f\x00"  # 4 bytes, the largest field number
    )
    assert rpc.PutRequest.decode(unknown + b"\x0a\x01k" + unknown) == rpc.PutRequest(key=b"k")
    assert rpc.LeaseLeasesRequest.decode(unknown) == rpc.LeaseLeasesRequest()


def test_field_of_an_unexpected_wire_type_is_an_unknown_field() -> None:
    for data in (b"\x08\x05", b"\x09" + bytes(8), b"\x0b\x0c", b"\x0d" + bytes(4), b"\x1a\x01a"):
        assert rpc.PutRequest.decode(data) == rpc.PutRequest()


# -- hostile -------------------------------------------------------------------------------------

MALFORMED = {
    "tag alone": b"\x0a",
    "length without content": b"\x0a\x05abc",
    "length beyond 2 GiB": b"\x0a\xff\xff\xff\xff\x0f",
    "length of ten bytes": b"\x0a" + b"\xff" * 9 + b"\x01",
    "length written too long": b"\x0a\x81\x80\x80\x80\x80\x00x",
    "varint cut": b"\x18\x80",
    "varint of 11 bytes": b"\x18" + b"\x80" * 10 + b"\x01",
    "unknown varint of 11 bytes": b"\x78" + b"\x80" * 10 + b"\x01",
    "tag cut": b"\x80",
    "tag of 6 bytes": b"\x8a\x80\x80\x80\x80\x00\x01x",
    "tag beyond 32 bits": b"\x8a\x80\x80\x80\x10\x01x",
    "field number 0": b"\x00\x00",
    "field number 0 in a group": b"\x7b\x00\x00\x7c",
    "fixed64 cut": b"\x79\x00",
    "fixed32 cut": b"\x7d\x00",
    "wire type 6": b"\x7e",
    "wire type 7": b"\x7f",
    "group that does not begin": b"\x7c",
    "group that does not end": b"\x7b\x78\x01",
    "group that ends as another": b"\x7b\x74",
    "group cut in a tag": b"\x7b\x80",
    "groups nested too deep": b"\x7b" * 101 + b"\x7c" * 101,
    "many groups that do not end": b"\x7b" * 1_000_000,
    "10 MB of varint padding": b"\x18" + b"\x80" * 10_000_000 + b"\x00",
    "10 MB of padding in a tag": b"\x80" * 10_000_000,
    "10 MB of padding in a length": b"\x0a" + b"\x80" * 10_000_000,
    "10 MB of padding in an unknown field": b"\x78" + b"\x80" * 10_000_000,
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_data_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"PutRequest|field|varint|groups"):
        rpc.PutRequest.decode(data)
    with pytest.raises(ProtocolError):  # The same inside of another message.
        rpc.RequestOp.decode(b"\x12" + sized(data))


def sized(payload: bytes) -> bytes:
    return auth.User(name=payload).encode()[1:] or b"\x00"


def test_field_may_not_reach_beyond_its_own_message() -> None:
    """Bytes follow, but they belong to the message around."""
    for inner in (b"\x0a\x02k", b"\x0a", b"\x18\x80", b"\x79" + bytes(7), b"\x18"):
        with pytest.raises(ProtocolError):
            rpc.RequestOp.decode(b"\x12" + sized(inner) + b"\x78\x01" * 10)
    with pytest.raises(ProtocolError):
        rpc.WatchRequest.decode(b"\x0a" + sized(b"\x2a\x02\x00\x81") + b"\x78\x01")
    with pytest.raises(ProtocolError):
        rpc.TxnRequest.decode(b"\x12\x04\x12\x03\x0a\x01")


def test_packed_numbers_end_where_their_length_says() -> None:
    assert rpc.WatchCreateRequest.decode(b"\x2a\x03\x00\x81\x00").filters == [0, 1]
    for data in (b"\x2a\x02\x00\x81\x00", b"\x2a\x02\x00\x81\x00\x20\x01", b"\x2a\x02\x00\x81"):
        assert official_verdict(rpc.WatchCreateRequest, data) is None
        with pytest.raises(ProtocolError):
            rpc.WatchCreateRequest.decode(data)


@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
)
def test_text_must_be_utf8(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        auth.AuthenticateRequest.decode(b"\x0a" + sized(text))
    assert auth.User.decode(b"\x0a" + sized(text)).name == text  # bytes may be anything


def nested_txn(levels: int) -> bytes:
    """TxnRequest.success[0].request_txn.success[0]...: `levels` messages in the outermost."""
    data = b""
    for level in reversed(range(levels)):
        data = (b"\x12" if level % 2 == 0 else b"\x22") + sized(data)
    return data


def test_nesting_stops_at_a_hundred() -> None:
    assert official_verdict(rpc.TxnRequest, nested_txn(100)) is not None
    assert rpc.TxnRequest.decode(nested_txn(100)).success
    for levels in (101, 10_000):
        with pytest.raises(ProtocolError, match="100"):
            rpc.TxnRequest.decode(nested_txn(levels))
    deep_group = b"\x12" + sized(b"\x7b" * 100 + b"\x7c" * 100)
    assert official_verdict(rpc.TxnRequest, deep_group) is None
    with pytest.raises(ProtocolError, match="100"):
        rpc.TxnRequest.decode(deep_group)


def test_a_message_in_very_many_parts_is_merged_in_linear_time() -> None:
    decoded = rpc.PutResponse.decode(b"\x0a\x02\x18\x07" * 300_000)
    assert decoded == rpc.PutResponse(header=rpc.ResponseHeader(revision=7))
    many = rpc.RequestOp.decode(b"\x22\x02\x12\x00" * 200_000).request_txn
    assert many is not None
    assert len(many.success) == 200_000


def test_noise_of_any_length_is_refused_or_understood() -> None:
    rng = random.Random(20_25)
    for _ in range(2_000):
        data = rng.randbytes(rng.randrange(200))
        for cls in (rpc.TxnRequest, rpc.WatchResponse, maintenance.StatusResponse):
            try:
                cls.decode(data)
            except ProtocolError as error:
                assert str(error)


# -- declarations --------------------------------------------------------------------------------

FOREIGN = {  # Descriptors written by others, by the module of ours
    "kv": ("aetcd.rpc.kv_pb2",),
    "rpc": ("aetcd.rpc.rpc_pb2",),
    "maintenance": ("aetcd.rpc.rpc_pb2",),
    "auth": ("aetcd.rpc.auth_pb2", "aetcd.rpc.rpc_pb2"),
    "health": ("grpc_health.v1.health_pb2",),
    "lock": (),
    "election": (),
}
# What those descriptors lack, from etcd's v3lock.proto, v3election.proto and rpc.proto (3.6).
BY_HAND: dict[type[Message], str] = {
    lock.LockRequest: "name=1 bytes, lease=2 int64",
    lock.LockResponse: "header=1 ResponseHeader, key=2 bytes",
    lock.UnlockRequest: "key=1 bytes",
    lock.UnlockResponse: "header=1 ResponseHeader",
    election.CampaignRequest: "name=1 bytes, lease=2 int64, value=3 bytes",
    election.CampaignResponse: "header=1 ResponseHeader, leader=2 LeaderKey",
    election.LeaderKey: "name=1 bytes, key=2 bytes, rev=3 int64, lease=4 int64",
    election.LeaderRequest: "name=1 bytes",
    election.LeaderResponse: "header=1 ResponseHeader, kv=2 KeyValue",
    election.ResignRequest: "leader=1 LeaderKey",
    election.ResignResponse: "header=1 ResponseHeader",
    election.ProclaimRequest: "leader=1 LeaderKey, value=2 bytes",
    election.ProclaimResponse: "header=1 ResponseHeader",
    maintenance.DowngradeInfo: "enabled=1 bool, targetVersion=2 string",
    maintenance.DowngradeVersionTestRequest: "ver=1 string",
}
NEWER = {
    maintenance.HashKVResponse: "hash_revision=4 int64",
    maintenance.SnapshotResponse: "version=4 string",
    maintenance.StatusResponse: (
        "storageVersion=11 string, dbSizeQuota=12 int64, downgradeInfo=13 DowngradeInfo"
    ),
}


def described(cls: type[Message]) -> Any:
    module = cls.__module__.rpartition(".")[2]
    for name in FOREIGN[module]:
        known = importlib.import_module(name).DESCRIPTOR.message_types_by_name
        if cls.__name__ in known:
            return known[cls.__name__]
    return None


def written(cls: type[Message], names: set[str] | None = None) -> str:
    return ", ".join(
        f"{spec.name}={spec.number} {spec.message.__name__ if spec.message else spec.kind.value}"
        for spec in fields_of(cls)
        if names is None or spec.name in names
    )


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_fields_have_the_names_numbers_and_types_of_etcd(cls: type[Message]) -> None:
    descriptor = described(cls)
    if descriptor is None:
        assert written(cls) == BY_HAND[cls]
        return
    ours = {spec.name: spec for spec in fields_of(cls)}
    theirs = {field.name: field for field in descriptor.fields}
    assert written(cls, ours.keys() - theirs.keys()) == NEWER.get(cls, "")
    for name, field in theirs.items():
        spec = ours[name]
        oneof = field.containing_oneof.name if field.containing_oneof else None
        assert (spec.number, TYPES[spec.kind], spec.oneof) == (field.number, field.type, oneof)
        assert spec.json_name == field.json_name
        assert spec.repeated == field.is_repeated
        assert (spec.message and spec.message.__name__) == (
            field.message_type and field.message_type.name
        )
        if spec.enum is not None:
            assert {member.name: int(member) for member in spec.enum} == {
                value.name: value.number for value in field.enum_type.values
            }


def test_every_message_of_the_foreign_descriptors_is_ours_too() -> None:
    ours = {cls.__name__ for cls in ALL}
    for name in {name for names in FOREIGN.values() for name in names}:
        messages = set(importlib.import_module(name).DESCRIPTOR.message_types_by_name)
        # A newer addition to the health check, which no server has to offer.
        assert messages - ours <= {"HealthListRequest", "HealthListResponse"}


def test_foreign_descriptors_lack_what_was_written_by_hand() -> None:
    assert all(described(cls) is None for cls in BY_HAND)
    assert {cls for cls in ALL if described(cls) is None} == set(BY_HAND)


def test_metadata_tells_names_kinds_and_types() -> None:
    by_name = {spec.name: spec for spec in fields_of(rpc.WatchCreateRequest)}
    assert by_name["range_end"].json_name == "rangeEnd"
    assert by_name["filters"].repeated
    assert by_name["filters"].enum is rpc.FilterType
    assert by_name["filters"].kind is Kind.ENUM
    assert [spec.number for spec in fields_of(rpc.WatchResponse)] == [1, 2, 3, 4, 5, 6, 7, 11]
    (status,) = fields_of(health.HealthCheckResponse)
    assert status.enum is health.ServingStatus
    assert {spec.oneof for spec in fields_of(rpc.RequestOp)} == {"request"}


def test_wrong_declarations_are_refused() -> None:
    class NoNumber(Message, kw_only=True):
        key: bytes = b""

    class NoWidth(Message, kw_only=True):
        count: Annotated[int, Field(1)] = 0

    class Twice(Message, kw_only=True):
        one: Annotated[bytes, Field(1)] = b""
        two: Annotated[bytes, Field(1)] = b""

    class Zero(Message, kw_only=True):
        none: Annotated[bytes, Field(0)] = b""

    for cls in (NoNumber, NoWidth, Twice, Zero):
        with pytest.raises(TypeError, match=cls.__name__):
            cls().encode()


def test_source_of_a_codec_can_be_read() -> None:
    source = source_of(rpc.PutRequest)
    assert "def encode(message):" in source
    assert "if tag == 10:" in source
