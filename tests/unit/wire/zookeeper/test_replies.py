"""Replies as kazoo reads them; what kazoo does not know is compared with the bytes it should be."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol import serialization as kazoo

from quoracy.wire.zookeeper import replies
from quoracy.wire.zookeeper.codes import Err, EventType, KeeperState, Op
from quoracy.wire.zookeeper.replies import encode_reply
from quoracy.wire.zookeeper.requests import Acl

from .jute_bytes import END, acl_entry, buf, i32, multi_header, vector

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
DATA = st.none() | st.binary(max_size=300)
NAME = st.text(min_size=1, max_size=20)
STAT_FIELDS = st.tuples(*[INT64] * 4, *[INT32] * 3, INT64, *[INT32] * 2, INT64)
STAT = tuple(range(1, 12))
STAT_RAW = replies.encode_stat(*STAT)


def body_of(frame: bytes) -> tuple[kazoo.ReplyHeader, bytes]:
    """The header and the body of a reply, once its length is right."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, at = kazoo.ReplyHeader.deserialize(frame, 4)
    return header, frame[at:]


@given(INT32, INT64, INT32, st.binary(max_size=100))
def test_reply_is_a_header_and_its_body(xid: int, zxid: int, err: int, body: bytes) -> None:
    header, read = body_of(encode_reply(xid, zxid, err, body))
    assert (header.xid, header.zxid, header.err, read) == (xid, zxid, err, body)
    assert body_of(encode_reply(xid, zxid, err)) == (header, b"")


@given(STAT_FIELDS)
def test_stat_is_read_field_by_field(fields: tuple[int, ...]) -> None:
    stat = replies.encode_stat(*fields)
    assert len(stat) == replies.STAT_BYTES == 68
    assert tuple(kazoo.SetData.deserialize(stat, 0)) == fields
    assert tuple(kazoo.Exists.deserialize(replies.encode_stat(0, *fields[1:]), 0))[1:] == fields[1:]


@given(DATA)
def test_data(data: bytes | None) -> None:
    assert kazoo.GetData.deserialize(replies.data_body(data, STAT_RAW), 0) == (data, STAT)


@given(NAME)
def test_created_paths(name: str) -> None:
    path = name.encode()
    assert kazoo.Create.deserialize(replies.path_body(path), 0) == name
    assert kazoo.Sync.deserialize(replies.path_body(path), 0) == name
    assert kazoo.Create2.deserialize(replies.created_body(path, STAT_RAW), 0) == (name, STAT)


def test_sync_echoes_a_null_path() -> None:
    assert replies.path_body(None) == i32(-1)


@given(st.lists(NAME | st.text(min_size=80, max_size=400)))
def test_children(names: list[str]) -> None:
    raw = [name.encode() for name in names]
    assert kazoo.GetChildren.deserialize(replies.children_body(raw, None), 0) == names
    assert kazoo.GetChildren2.deserialize(replies.children_body(raw, STAT_RAW), 0) == (names, STAT)
    assert kazoo.GetChildren.deserialize(replies.ephemerals_body(raw), 0) == names


def test_children_may_come_from_a_set() -> None:
    read = kazoo.GetChildren.deserialize(replies.children_body({b"a", b"b", b"c"}, None), 0)
    assert sorted(read) == ["a", "b", "c"]


@given(st.lists(st.builds(Acl, INT32, st.text(max_size=10), st.text(max_size=10)), max_size=5))
def test_acl(acls: list[Acl]) -> None:
    entries, stat = kazoo.GetACL.deserialize(replies.acl_body(acls, STAT_RAW), 0)
    assert [(entry.perms, entry.id.scheme, entry.id.id) for entry in entries] == [
        (acl.perms, acl.scheme, acl.id) for acl in acls
    ]
    assert stat == STAT


@given(st.sampled_from(EventType), st.sampled_from(KeeperState), NAME, INT64)
def test_event(type_: EventType, state: KeeperState, path: str, zxid: int) -> None:
    header, body = body_of(replies.encode_event(type_, state, path.encode(), zxid))
    assert (header.xid, header.zxid, header.err) == (-1, zxid, 0)
    watch, end = kazoo.Watch.deserialize(body, 0)
    assert (watch.type, watch.state, watch.path, end) == (type_, state, path, len(body))
    assert body_of(replies.encode_event(type_, state, path.encode()))[0].zxid == -1


@given(INT32, INT64, st.binary(max_size=20), st.booleans())
def test_connect_response(timeout_ms: int, session_id: int, password: bytes, read_only: bool) -> None:
    frame = replies.encode_connect_response(timeout_ms, session_id, password, read_only)
    read, end = kazoo.Connect.deserialize(frame, 4)
    assert end == len(frame) == 4 + struct.unpack_from(">i", frame)[0]
    assert (read.protocol_version, read.time_out, read.session_id) == (0, timeout_ms, session_id)
    assert (read.passwd, read.read_only) == (password, read_only)


def test_connect_response_to_an_old_client_has_no_read_only() -> None:
    short = replies.encode_connect_response(4000, 7, bytes(16), None)
    long = replies.encode_connect_response(4000, 7, bytes(16), False)
    assert (len(short), len(long)) == (40, 41)
    assert short[4:] == long[4:-1]


def test_results_of_a_multi_are_read_in_order() -> None:
    body = b"".join(
        [
            replies.multi_created(Op.CREATE, b"/a", None),
            replies.multi_deleted(),
            replies.multi_stat(STAT_RAW),
            replies.multi_checked(),
            replies.multi_error(Err.NO_NODE),
            replies.multi_error(Err.OK),
            replies.MULTI_END,
        ]
    )
    *results, missing, rolled_back = kazoo.Transaction.deserialize(body, 0)
    assert results == ["/a", True, STAT, True]
    assert isinstance(missing, NoNodeError)
    assert isinstance(rolled_back, EXCEPTIONS[0])


def test_results_that_kazoo_does_not_know_are_the_bytes_zookeeper_sends() -> None:
    created = multi_header(15, err=0) + buf(b"/a") + STAT_RAW
    for op in (Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL):
        assert replies.multi_created(op, b"/a", STAT_RAW) == created
    # A plain create has no stat in its result, also when the caller has one.
    assert replies.multi_created(Op.CREATE, b"/a", STAT_RAW) == multi_header(1, err=0) + buf(b"/a")
    assert (
        replies.multi_data(replies.data_body(b"x", STAT_RAW))
        == multi_header(4, err=0) + buf(b"x") + STAT_RAW
    )
    assert (
        replies.multi_data(replies.data_body(None, STAT_RAW))
        == multi_header(4, err=0) + buf(None) + STAT_RAW
    )
    names = vector([buf(b"a"), buf(b"b")])
    assert replies.multi_children([b"a", b"b"]) == multi_header(8, err=0) + names
    assert replies.multi_error(-101) == multi_header(-1, err=-101) + i32(-101)
    assert replies.MULTI_END == END


def test_rare_bodies() -> None:
    assert replies.number_body(7) == i32(7)
    assert replies.whoami_body([("ip", "127.0.0.1"), ("digest", "ü")]) == vector(
        [buf(b"ip") + buf(b"127.0.0.1"), buf(b"digest") + buf("ü".encode())]
    )
    assert replies.whoami_body([]) == i32(0)
    assert replies.token_body(None) == i32(-1)
    assert replies.token_body(b"t") == buf(b"t")
    assert replies.acl_body([Acl(31, "world", "anyone")], b"") == vector(
        [acl_entry(31, b"world", b"anyone")]
    )
