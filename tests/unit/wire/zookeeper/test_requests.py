"""Requests, one by one: what is read, what is refused, and what only looks malformed."""

from __future__ import annotations

import pytest

from quoracy.wire.zookeeper import jute
from quoracy.wire.zookeeper.codes import CreateMode, Op
from quoracy.wire.zookeeper.jute import JuteError
from quoracy.wire.zookeeper.requests import (
    Acl,
    AddWatch,
    Auth,
    Check,
    CheckWatches,
    CloseSession,
    ConnectRequest,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    Multi,
    MultiRead,
    Ping,
    Reconfig,
    RemoveWatches,
    Request,
    Sasl,
    SetAcl,
    SetData,
    SetWatches,
    Sync,
    Unknown,
    WhoAmI,
    decode_connect,
    decode_request,
)

from .jute_bytes import END, OPEN, acl_entry, buf, i32, i64, multi_header, vector

PATH = buf(b"/a")
EVERYONE = (Acl(31, "world", "anyone"),)
TTL = CreateMode.PERSISTENT_WITH_TTL
CREATE = PATH + buf(b"x") + OPEN + i32(0)

WELL_FORMED: list[tuple[Op, bytes, Request]] = [
    (Op.CREATE, CREATE, Create(1, b"/a", b"x", EVERYONE, 0)),
    (Op.CREATE, PATH + buf(None) + OPEN + i32(3), Create(1, b"/a", None, EVERYONE, 3)),
    (Op.CREATE2, CREATE, Create(15, b"/a", b"x", EVERYONE, 0)),
    (Op.CREATE_CONTAINER, PATH + buf(b"") + OPEN + i32(4), Create(19, b"/a", b"", EVERYONE, 4)),
    (Op.CREATE_TTL, PATH + buf(b"") + OPEN + i32(5) + i64(9), Create(21, b"/a", b"", EVERYONE, 5, 9)),
    (Op.DELETE, PATH + i32(7), Delete(b"/a", 7)),
    (Op.EXISTS, PATH + b"\x01", Exists(b"/a", True)),
    (Op.GET_DATA, PATH + b"\x00", GetData(b"/a", False)),
    (Op.SET_DATA, PATH + buf(b"x") + i32(-1), SetData(b"/a", b"x", -1)),
    (Op.SET_DATA, PATH + buf(None) + i32(3), SetData(b"/a", None, 3)),
    (Op.GET_ACL, PATH, GetAcl(b"/a")),
    (Op.SET_ACL, PATH + OPEN + i32(2), SetAcl(b"/a", EVERYONE, 2)),
    (Op.GET_CHILDREN, PATH + b"\x01", GetChildren(b"/a", True, False)),
    (Op.GET_CHILDREN2, PATH + b"\x00", GetChildren(b"/a", False, True)),
    (Op.SYNC, PATH, Sync(b"/a")),
    (Op.CHECK, PATH + i32(4), Check(b"/a", 4)),
    (Op.CHECK_WATCHES, PATH + i32(1), CheckWatches(b"/a", 1)),
    (Op.REMOVE_WATCHES, PATH + i32(3), RemoveWatches(b"/a", 3)),
    (Op.ADD_WATCH, PATH + i32(1), AddWatch(b"/a", 1)),
    (Op.GET_EPHEMERALS, PATH, GetEphemerals(b"/a")),
    (Op.GET_ALL_CHILDREN_NUMBER, PATH, GetAllChildrenNumber(b"/a")),
    (
        Op.SET_WATCHES,
        i64(9) + vector([PATH]) + vector([]) + vector([PATH, buf(b"/b")]),
        SetWatches(9, (b"/a",), (), (b"/a", b"/b")),
    ),
    (
        Op.SET_WATCHES2,
        i64(9) + vector([]) * 3 + vector([PATH]) + vector([buf(b"/r")]),
        SetWatches(9, (), (), (), (b"/a",), (b"/r",)),
    ),
    (Op.AUTH, i32(0) + buf(b"digest") + buf(b"u:p"), Auth(0, "digest", b"u:p")),
    (Op.SASL, buf(b""), Sasl(b"")),
    (
        Op.RECONFIG,
        buf(b"server.1=x") + buf(None) + buf(None) + i64(-1),
        Reconfig(b"server.1=x", None, None, -1),
    ),
    (
        Op.MULTI,
        multi_header(13)
        + (PATH + i32(1))
        + multi_header(5)
        + (PATH + buf(b"x") + i32(2))
        + multi_header(2)
        + (PATH + i32(3))
        + multi_header(1)
        + CREATE
        + END,
        Multi(
            (
                Check(b"/a", 1),
                SetData(b"/a", b"x", 2),
                Delete(b"/a", 3),
                Create(1, b"/a", b"x", EVERYONE, 0),
            )
        ),
    ),
    (
        Op.MULTI_READ,
        multi_header(4) + PATH + b"\x01" + multi_header(8) + PATH + b"\x00" + END,
        MultiRead((GetData(b"/a", False), GetChildren(b"/a", False, False))),
    ),
]


def decode(op: int, body: bytes) -> Request:
    return decode_request(op, b"\0\0\0\x01" + i32(op) + body, 8)


@pytest.mark.parametrize(("op", "body", "request_"), WELL_FORMED)
def test_well_formed_request_is_read(op: Op, body: bytes, request_: Request) -> None:
    assert decode(op, body) == request_


@pytest.mark.parametrize(("op", "body", "request_"), WELL_FORMED)
def test_bytes_after_the_record_are_ignored(op: Op, body: bytes, request_: Request) -> None:
    for tail in (b"\0", b"junk", b"\xff" * 40):
        assert decode(op, body + tail) == request_


@pytest.mark.parametrize(("op", "body", "_request"), WELL_FORMED)
def test_request_cut_short_anywhere_is_refused(op: Op, body: bytes, _request: Request) -> None:
    for size in range(len(body)):
        with pytest.raises(JuteError):
            decode(op, body[:size])


@pytest.mark.parametrize("body", [b"", b"anything"])
def test_requests_without_a_record_take_any_body(body: bytes) -> None:
    assert decode(Op.PING, body) == Ping()
    assert decode(Op.CLOSE_SESSION, body) == CloseSession()
    assert decode(Op.WHO_AM_I, body) == WhoAmI()


@pytest.mark.parametrize("op", [0, 10, 23, 108, 1000, -1, Op.CREATE_SESSION, Op.DELETE_CONTAINER])
def test_operation_no_client_may_send_is_unknown(op: int) -> None:
    assert decode(op, b"whatever") == Unknown(op)


def test_body_starts_where_it_is_said_to() -> None:
    assert decode_request(Op.GET_DATA, b"...." + PATH + b"\1", 4) == GetData(b"/a", True)


@pytest.mark.parametrize("length", [-2, -5, -(2**31), 3, 2**31 - 1])
@pytest.mark.parametrize(
    ("op", "tail"),
    [(Op.GET_DATA, b"\0"), (Op.SET_DATA, b""), (Op.CREATE, b""), (Op.MULTI, b""), (Op.SYNC, b"")],
)
def test_length_that_cannot_be_is_refused(op: Op, tail: bytes, length: int) -> None:
    head = multi_header(13) if op == Op.MULTI else b""
    with pytest.raises(JuteError):
        decode(op, head + i32(length) + b"/" + tail)


@pytest.mark.parametrize("op", [Op.CREATE, Op.SET_DATA])
def test_data_of_negative_length_is_refused_unless_null(op: Op) -> None:
    tail = OPEN + i32(0) if op == Op.CREATE else i32(-1)
    assert getattr(decode(op, PATH + i32(-1) + tail), "data", b"") is None
    with pytest.raises(JuteError, match="length -2"):
        decode(op, PATH + i32(-2) + tail)


NULL_REFUSED = [Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL, Op.DELETE, Op.EXISTS]
NULL_REFUSED += [Op.GET_DATA, Op.GET_ACL, Op.GET_CHILDREN, Op.GET_CHILDREN2, Op.CHECK_WATCHES]
NULL_REFUSED += [Op.GET_ALL_CHILDREN_NUMBER]


@pytest.mark.parametrize(("op", "body", "_request"), WELL_FORMED)
def test_null_path_is_refused_or_empty_as_zookeeper_has_it(
    op: Op, body: bytes, _request: Request
) -> None:
    if not body.startswith(PATH):
        return
    null = i32(-1) + body.removeprefix(PATH)
    if op in NULL_REFUSED:
        with pytest.raises(JuteError, match="null"):
            decode(op, null)
    elif op == Op.SYNC:
        assert decode(op, null) == Sync(None)
    else:
        empty = decode(op, null)
        assert empty == decode(op, i32(0) + body.removeprefix(PATH))


@pytest.mark.parametrize("kind", [1, 2, 5, 13, 15, 19, 21])
def test_null_path_in_a_multi_is_refused(kind: int) -> None:
    with pytest.raises(JuteError, match="null"):
        decode(Op.MULTI, multi_header(kind) + i32(-1) + buf(b"") + OPEN + i32(0) + i64(1) + END)


def test_path_stays_the_bytes_that_came() -> None:
    assert decode(Op.GET_DATA, buf(b"/\xff\x00") + b"\0") == GetData(b"/\xff\x00", False)


@pytest.mark.parametrize("count", [-1, 0, -2, -(2**31)])
def test_acl_list_that_is_null_or_negative_is_empty(count: int) -> None:
    assert decode(Op.CREATE, PATH + buf(b"") + i32(count) + i32(0)) == Create(1, b"/a", b"", (), 0)
    assert decode(Op.SET_ACL, PATH + i32(count) + i32(0)) == SetAcl(b"/a", (), 0)


@pytest.mark.parametrize("count", [2, 3, 2**31 - 1])
def test_count_beyond_the_frame_is_refused_before_anything_is_built(count: int) -> None:
    entry = acl_entry(31, b"world", b"anyone")
    for op, body in (
        (Op.CREATE, PATH + buf(b"") + i32(count) + entry + i32(0)),
        (Op.SET_ACL, PATH + i32(count) + entry + i32(0)),
        (Op.SET_WATCHES, i64(0) + i32(count) + PATH),
        (Op.MULTI, multi_header(1) + PATH + buf(b"") + i32(count) + entry + i32(0) + END),
    ):
        with pytest.raises(JuteError):
            decode(op, body)


def test_acl_entries_read_as_in_java() -> None:
    entries = [
        acl_entry(-1, b"digest", b"u:p"),
        acl_entry(1, None, b"x"),
        acl_entry(2, b"auth", None),
        acl_entry(4, b"ip", b"\xff"),
    ]
    expected = (Acl(-1, "digest", "u:p"), Acl(1, "", "x"), Acl(2, "auth", ""), Acl(4, "ip", "�"))
    for _ in range(2):  # read, then found in the cache
        assert decode(Op.CREATE, PATH + buf(b"") + vector(entries) + i32(0)) == Create(
            1, b"/a", b"", expected, 0
        )
        assert decode(Op.SET_ACL, PATH + vector(entries) + i32(0)) == SetAcl(b"/a", expected, 0)


@pytest.mark.parametrize("scheme", [b"world", b"digest", b"ip"])
def test_null_id_of_a_scheme_that_looks_at_it_is_refused(scheme: bytes) -> None:
    with pytest.raises(JuteError, match="id"):
        decode(Op.CREATE, PATH + buf(b"") + vector([acl_entry(31, scheme, None)]) + i32(0))


def test_equal_acl_lists_are_one_tuple() -> None:
    acls = [getattr(decode(op, CREATE), "acl", None) for op in (Op.CREATE, Op.CREATE2)]
    acls.append(getattr(decode(Op.SET_ACL, PATH + OPEN + i32(0)), "acl", None))
    assert acls[0] == EVERYONE
    assert all(acl is acls[0] for acl in acls)


def test_acl_cache_is_bounded() -> None:
    for number in range(3 * jute.ACL_CACHE_MAX):
        entry = acl_entry(31, b"ip", b"%d" % number)
        decode(Op.CREATE, PATH + buf(b"") + vector([entry]) + i32(0))
    long = vector([acl_entry(31, b"ip", b"1" * 100_000)])
    decode(Op.CREATE, PATH + buf(b"") + long + i32(0))
    assert len(jute._acl_cache) <= jute.ACL_CACHE_MAX
    assert long not in jute._acl_cache


@pytest.mark.parametrize("vectors", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_null_list_of_watches_is_refused_and_a_negative_one_empty(vectors: tuple[int, ...]) -> None:
    with pytest.raises(JuteError, match="null"):
        decode(Op.SET_WATCHES, i64(0) + b"".join(map(i32, vectors)))
    negative = b"".join(i32(count * 5) for count in vectors)
    assert decode(Op.SET_WATCHES, i64(0) + negative) == SetWatches(0, (), (), ())


def test_null_path_among_watches_is_refused_except_in_persistent_ones() -> None:
    null, empty = vector([buf(None)]), vector([])
    for at in range(3):
        lists = [empty] * 5
        lists[at] = null
        with pytest.raises(JuteError, match="length -1"):
            decode(Op.SET_WATCHES2, i64(0) + b"".join(lists))
    assert decode(Op.SET_WATCHES2, i64(0) + empty * 3 + null * 2) == SetWatches(
        0, (), (), (), (b"",), (b"",)
    )


def test_authentication_tells_no_credentials_from_empty_ones() -> None:
    assert decode(Op.AUTH, i32(0) + buf(b"ip") + buf(None)) == Auth(0, "ip", None)
    assert decode(Op.AUTH, i32(0) + buf(None) + buf(b"")) == Auth(0, "", b"")
    with pytest.raises(JuteError, match="null"):
        decode(Op.SASL, buf(None))


@pytest.mark.parametrize("end", [END, multi_header(5, done=1, err=0), multi_header(-1, done=2)])
def test_multi_ends_at_the_header_that_says_done(end: bytes) -> None:
    assert decode(Op.MULTI, end) == Multi(())
    assert decode(Op.MULTI_READ, end) == MultiRead(())
    check = multi_header(13, err=77) + PATH + i32(1)
    assert decode(Op.MULTI, check + end) == Multi((Check(b"/a", 1),))


@pytest.mark.parametrize("kind", [-1, 0, 3, 4, 6, 7, 8, 9, 11, 12, 14, 16, 20, 22, 99])
def test_operation_that_may_not_be_in_a_multi_is_refused(kind: int) -> None:
    with pytest.raises(JuteError, match=f"operation {kind} "):
        decode(Op.MULTI, multi_header(kind) + PATH + OPEN + i32(0) + END)


@pytest.mark.parametrize("kind", [-1, 0, 1, 2, 3, 5, 12, 13, 22])
def test_operation_that_may_not_be_in_a_multi_read_is_refused(kind: int) -> None:
    with pytest.raises(JuteError, match=f"operation {kind} "):
        decode(Op.MULTI_READ, multi_header(kind) + PATH + i32(0) + END)


@pytest.mark.parametrize(
    ("kind", "flags", "read_as"),
    [
        (Op.CREATE, 0, Op.CREATE),
        (Op.CREATE, 3, Op.CREATE),
        (Op.CREATE, 4, Op.CREATE_CONTAINER),
        (Op.CREATE, 9, Op.CREATE),
        (Op.CREATE2, 1, Op.CREATE2),
        (Op.CREATE2, 4, Op.CREATE_CONTAINER),
        (Op.CREATE_CONTAINER, 4, Op.CREATE_CONTAINER),
        (Op.CREATE_CONTAINER, 0, Op.CREATE),
        (Op.CREATE_TTL, 5, Op.CREATE_TTL),
        (Op.CREATE_TTL, 6, Op.CREATE_TTL),
        (Op.CREATE_TTL, 0, Op.CREATE),
        (Op.CREATE_TTL, 4, Op.CREATE_CONTAINER),
    ],
)
def test_which_create_it_is_in_a_multi_follows_from_the_flags(
    kind: Op, flags: int, read_as: Op
) -> None:
    ttl = i64(9) if kind == Op.CREATE_TTL else b""
    ttl_ms = 9 if read_as == Op.CREATE_TTL else -1
    body = multi_header(kind) + PATH + buf(b"") + OPEN + i32(flags) + ttl + END
    assert decode(Op.MULTI, body) == Multi((Create(read_as, b"/a", b"", EVERYONE, flags, ttl_ms),))


@pytest.mark.parametrize("kind", [Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER])
@pytest.mark.parametrize("flags", [TTL, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL])
def test_mode_with_ttl_but_no_ttl_is_refused_in_a_multi_only(kind: Op, flags: int) -> None:
    create = PATH + buf(b"") + OPEN + i32(flags)
    with pytest.raises(JuteError, match="TTL"):
        decode(Op.MULTI, multi_header(kind) + create + END)
    assert decode(kind, create) == Create(kind, b"/a", b"", EVERYONE, flags)


CONNECT = i32(0) + i64(7) + i32(10_000) + i64(-2)


@pytest.mark.parametrize(
    ("password", "read"), [(bytes(16), bytes(16)), (b"", b""), (None, b""), (b"x" * 40, b"x" * 40)]
)
def test_connect_request_is_read_with_and_without_read_only(
    password: bytes | None, read: bytes
) -> None:
    frame = CONNECT + buf(password)
    tails = {b"": None, b"\0": False, b"\1": True, b"\2": True, b"\0zz": False}
    for tail, read_only in tails.items():
        assert decode_connect(frame + tail) == ConnectRequest(0, 7, 10_000, -2, read, read_only)


def test_connect_request_cut_short_or_with_a_bad_password_length_is_refused() -> None:
    frame = CONNECT + buf(bytes(16))
    for size in range(len(frame)):
        with pytest.raises(JuteError):
            decode_connect(frame[:size])
    for length in (-2, -(2**31), 2**31 - 1):
        with pytest.raises(JuteError, match="password"):
            decode_connect(CONNECT + i32(length) + bytes(16))
