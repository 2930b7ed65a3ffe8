"""Requests that kazoo encodes read as the same fields, and no bytes at all do more than be refused."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, Id

from quoracy.wire.zookeeper import requests
from quoracy.wire.zookeeper.codes import Op
from quoracy.wire.zookeeper.jute import JuteError
from quoracy.wire.zookeeper.requests import Acl, Request, decode_connect, decode_request

from .jute_bytes import END, OPEN, buf, i32, i64, multi_header, vector

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# kazoo writes an empty string as null, so what it sends is never empty.
TEXT = st.text(min_size=1, max_size=40)
PATH = st.builds("/{}".format, TEXT)
DATA = st.none() | st.binary(max_size=200)
ACLS = st.lists(st.builds(ACL, INT32, st.builds(Id, TEXT | st.just("world"), TEXT)), max_size=4)


def read(kazoo_request: object) -> Request:
    serialized = bytes(kazoo_request.serialize())  # type: ignore[attr-defined]
    op = int(kazoo_request.type)  # type: ignore[attr-defined]
    return decode_request(op, i32(1) + i32(op) + serialized, 8)


def ours(acls: list[ACL]) -> tuple[Acl, ...]:
    return tuple(Acl(acl.perms, acl.id.scheme, acl.id.id) for acl in acls)


@given(PATH, DATA, ACLS, INT32)
def test_create(path: str, data: bytes | None, acls: list[ACL], flags: int) -> None:
    for record, op in ((kazoo.Create, Op.CREATE), (kazoo.Create2, Op.CREATE2)):
        expected = requests.Create(op, path.encode(), data, ours(acls), flags)
        for _ in range(2):  # the second time with the ACL list in the cache
            assert read(record(path, data, acls, flags)) == expected


@given(PATH, DATA, ACLS, INT32)
def test_requests_with_a_version(path: str, data: bytes | None, acls: list[ACL], version: int) -> None:
    raw = path.encode()
    assert read(kazoo.Delete(path, version)) == requests.Delete(raw, version)
    assert read(kazoo.SetData(path, data, version)) == requests.SetData(raw, data, version)
    assert read(kazoo.SetACL(path, acls, version)) == requests.SetAcl(raw, ours(acls), version)
    assert read(kazoo.CheckVersion(path, version)) == requests.Check(raw, version)


@given(PATH, st.booleans())
def test_requests_that_read(path: str, watch: bool) -> None:
    raw = path.encode()
    assert read(kazoo.GetData(path, watch)) == requests.GetData(raw, watch)
    assert read(kazoo.Exists(path, watch)) == requests.Exists(raw, watch)
    assert read(kazoo.GetChildren(path, watch)) == requests.GetChildren(raw, watch, False)
    assert read(kazoo.GetChildren2(path, watch)) == requests.GetChildren(raw, watch, True)
    assert read(kazoo.GetACL(path)) == requests.GetAcl(raw)
    assert read(kazoo.Sync(path)) == requests.Sync(raw)


@given(INT32, TEXT, TEXT, st.binary(max_size=50))
def test_authentication(kind: int, scheme: str, auth: str, token: bytes) -> None:
    assert read(kazoo.Auth(kind, scheme, auth)) == requests.Auth(kind, scheme, auth.encode())
    assert read(kazoo.SASL(token)) == requests.Sasl(token)


@given(*[st.none() | TEXT] * 3, INT64)
def test_reconfig(
    joining: str | None, leaving: str | None, members: str | None, config_id: int
) -> None:
    raw = [None if part is None else part.encode() for part in (joining, leaving, members)]
    expected = requests.Reconfig(raw[0], raw[1], raw[2], config_id)
    assert read(kazoo.Reconfig(joining, leaving, members, config_id)) == expected


def test_requests_without_fields() -> None:
    assert read(kazoo.PingInstance) == requests.Ping()
    assert read(kazoo.CloseInstance) == requests.CloseSession()


OPERATION = st.one_of(
    st.builds(kazoo.Create, PATH, DATA, ACLS, st.integers(0, 3)),
    st.builds(kazoo.Delete, PATH, INT32),
    st.builds(kazoo.SetData, PATH, DATA, INT32),
    st.builds(kazoo.CheckVersion, PATH, INT32),
)


@given(st.lists(OPERATION, max_size=8))
def test_multi_is_its_operations_in_order(operations: list[object]) -> None:
    assert read(kazoo.Transaction(operations)) == requests.Multi(
        tuple(read(operation) for operation in operations)  # type: ignore[misc]
    )


@given(INT32, INT64, INT32, INT64, st.none() | st.binary(max_size=40), st.booleans())
def test_connect(
    version: int, zxid: int, timeout_ms: int, session: int, password: bytes | None, read_only: bool
) -> None:
    frame = bytes(kazoo.Connect(version, zxid, timeout_ms, session, password, read_only).serialize())
    assert decode_connect(frame) == requests.ConnectRequest(
        version, zxid, timeout_ms, session, password or b"", read_only
    )
    assert decode_connect(frame[:-1]).read_only is None


RAW = st.binary(max_size=30)
STRINGS = st.lists(RAW, max_size=5)


@given(INT64, st.tuples(*[STRINGS] * 5))
def test_set_watches(zxid: int, lists: tuple[list[bytes], ...]) -> None:
    encoded = [vector(map(buf, paths)) for paths in lists]
    expected = [tuple(paths) for paths in lists]
    frame = i64(zxid) + b"".join(encoded)
    assert decode_request(Op.SET_WATCHES2, frame, 0) == requests.SetWatches(zxid, *expected)
    assert decode_request(Op.SET_WATCHES, frame, 0) == requests.SetWatches(zxid, *expected[:3])


@given(RAW, DATA, INT32, INT64)
def test_requests_that_kazoo_lacks(path: bytes, data: bytes | None, number: int, ttl: int) -> None:
    acl = (Acl(31, "world", "anyone"),)
    for op, tail, expected in (
        (
            Op.CREATE_TTL,
            buf(data) + OPEN + i32(number) + i64(ttl),
            requests.Create(Op.CREATE_TTL, path, data, acl, number, ttl),
        ),
        (
            Op.CREATE_CONTAINER,
            buf(data) + OPEN + i32(number),
            requests.Create(Op.CREATE_CONTAINER, path, data, acl, number),
        ),
        (Op.ADD_WATCH, i32(number), requests.AddWatch(path, number)),
        (Op.CHECK_WATCHES, i32(number), requests.CheckWatches(path, number)),
        (Op.REMOVE_WATCHES, i32(number), requests.RemoveWatches(path, number)),
        (Op.GET_EPHEMERALS, b"", requests.GetEphemerals(path)),
        (Op.GET_ALL_CHILDREN_NUMBER, b"", requests.GetAllChildrenNumber(path)),
    ):
        assert decode_request(op, buf(path) + tail, 0) == expected


# Numbers that lengths and counts are compared with, so that mutations hit the boundaries.
AWKWARD = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 4, 12, 13, 31, 1000, 2**16, 2**31 - 1])


@st.composite
def mutated(draw: st.DrawFn) -> tuple[int, bytes]:
    """A well-formed request with some of its bytes changed, cut, doubled or replaced by a number."""
    op = draw(st.sampled_from(sorted(Op)))
    operation = draw(OPERATION)
    pieces = [
        bytes(operation.serialize()),
        buf(b"/a") + buf(b"x") + OPEN + i32(0) + i64(5),
        i64(3) + vector([buf(b"/a"), buf(b"/b")]) + vector([]) * 4,
        multi_header(operation.type) + bytes(operation.serialize()) + END,
        multi_header(4) + buf(b"/a") + b"\0" + multi_header(8) + buf(b"/a") + b"\1" + END,
    ]
    body = bytearray(draw(st.sampled_from(pieces)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(body)))
        change = draw(st.integers(0, 3))
        if change == 0:
            body[at : at + 4] = i32(draw(AWKWARD))
        elif change == 1:
            del body[at : at + draw(st.integers(1, 8))]
        elif change == 2:
            body[at:at] = draw(st.binary(max_size=8))
        else:
            body += body[at:]
    return op, bytes(body)


@given(mutated())
@example((Op.CREATE, buf(b"/a") + buf(b"x") + i32(1)))
@example((Op.CREATE, buf(b"/a") + buf(b"x") + i32(1) + i32(31) + i32(5) + b"wor"))
@example((Op.MULTI, multi_header(1) + buf(b"/a") + buf(b"x") + i32(1) + i32(31) + i32(2**31 - 1)))
def test_mutated_request_is_read_or_refused(case: tuple[int, bytes]) -> None:
    op, body = case
    try:
        request = decode_request(op, i32(1) + i32(op) + body, 8)
    except JuteError as refusal:
        assert str(refusal)
    else:
        assert isinstance(request, requests.Request)


@given(st.integers(-20, 120), st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_refused(op: int, body: bytes) -> None:
    for decode in (lambda: decode_request(op, body, 0), lambda: decode_connect(body)):
        try:
            assert decode() is not None
        except JuteError as refusal:
            assert str(refusal)


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (Op.CREATE, buf(b"/a") + buf(b"") + i32(8_000) + bytes(100_000)),
        (Op.CREATE, buf(b"/a") + buf(b"") + i32(2**31 - 1) + bytes(100_000)),
        (Op.SET_WATCHES, i64(0) + i32(24_000) + bytes(100_000)),
        (Op.SET_WATCHES, i64(0) + i32(2**31 - 1) + bytes(100_000)),
        (Op.MULTI, (multi_header(13) + buf(b"") + i32(0)) * 6_000),
        (Op.MULTI_READ, (multi_header(4) + buf(b"") + b"\0") * 7_000),
        (Op.GET_DATA, i32(2**31 - 1) + bytes(100_000)),
    ],
)
def test_memory_is_bounded_by_what_was_received(op: Op, body: bytes) -> None:
    tracemalloc.start()
    try:
        with suppress(JuteError):
            decode_request(op, body, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * len(body)
