"""Paths: the verdicts of a ZooKeeper server, and which of its errors comes first.

The tables say what ZooKeeper 3.8 answered when it was asked.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quoracy.faces.zookeeper.tree.paths import (
    ROOT,
    ZkError,
    is_special,
    is_valid,
    is_valid_below,
    parent_and_name,
    parent_for_create,
    parent_for_delete,
    parent_of,
    validate_path,
)
from quoracy.wire.zookeeper.codes import Err

VALID = [
    b"/",
    b"/a",
    b"/a/b/c",
    b"/...",
    b"/.a",
    b"/a.",
    b"/..a/b..",
    b"/with space",
    b"/~",
    "/\u00a0\u07ff\u0800\ud7ff\uf900\uffef".encode(),
]
# Not valid, and whether a sequence number at the end would make it so.
INVALID = [
    (b"", False),
    (b"a", False),
    (b"a/b", False),
    (b"//", False),
    (b"/a/", True),
    (b"/a//b", False),
    (b"/.", True),
    (b"/..", True),
    (b"/a/.", True),
    (b"/a/../b", False),
    (b"/./b", False),
    (b"/a\x00b", False),
    (b"/\x01", False),
    (b"/\x1f", False),
    (b"/\x7f", False),
    ("/\u0080".encode(), False),
    ("/\u009f".encode(), False),
    ("/\ue000".encode(), False),
    ("/\uf8ff".encode(), False),
    ("/\ufff0".encode(), False),
    ("/\uffff".encode(), False),
    ("/\U00010000".encode(), False),
    ("/\U0010ffff".encode(), False),
    (b"/\xff", False),
    (b"/\xc3", False),
    (b"/\xc0\xaf", False),
    (b"/\xe0\x80\xaf", False),
    (b"/\xed\xa0\x80", False),
]


@pytest.mark.parametrize("path", VALID)
def test_what_a_server_would_create_is_valid(path: bytes) -> None:
    validate_path(path)
    assert is_valid(path)


@pytest.mark.parametrize(("path", "valid_with_number"), INVALID)
def test_what_a_server_would_not_create_is_a_bad_argument(path: bytes, valid_with_number: bool) -> None:
    assert not is_valid(path)
    with pytest.raises(ZkError) as refused:
        validate_path(path)
    assert refused.value.code is Err.BAD_ARGUMENTS
    if valid_with_number:
        validate_path(path, sequential=True)
    else:
        with pytest.raises(ZkError):
            validate_path(path, sequential=True)


@pytest.mark.parametrize("path", [*VALID, *(path for path, _ in INVALID)])
def test_below_a_valid_path_only_the_name_decides(path: bytes) -> None:
    cut = path.rfind(b"/")
    if cut == 0 or (cut > 1 and is_valid(path[:cut])):
        assert is_valid_below(path, cut) == is_valid(path)


def test_the_root_with_a_sequence_number_is_a_path() -> None:
    validate_path(b"/", sequential=True)


def as_java_reads(path: bytes) -> list[int]:
    """The path as UTF-16, as a server in Java looks at it; what is no UTF-8 becomes U+FFFD."""
    units = path.decode("utf-8", "replace").encode("utf-16-be")
    return [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]


def is_valid_by_the_book(path: bytes) -> bool:
    units = as_java_reads(path)
    if units == [ord("/")]:
        return True
    if not units or units[0] != ord("/"):
        return False
    names: list[list[int]] = [[]]
    for unit in units[1:]:
        if unit == ord("/"):
            names.append([])
        else:
            names[-1].append(unit)
    dot = ord(".")
    if any(name in ([], [dot], [dot, dot]) for name in names):
        return False
    forbidden = [(0, 0x1F), (0x7F, 0x9F), (0xD800, 0xF8FF), (0xFFF0, 0xFFFF)]
    return not any(low <= unit <= high for name in names for unit in name for low, high in forbidden)


def test_every_code_point_is_judged_by_the_book() -> None:
    for code_point in range(0x11000):
        if not 0xD800 <= code_point <= 0xDFFF:
            path = b"/a" + chr(code_point).encode() + b"b"
            assert is_valid(path) == is_valid_by_the_book(path), hex(code_point)


pieces = st.sampled_from(
    [
        b"/",
        b"/",
        b".",
        b"a",
        b"\x00",
        b"\x1f",
        b"~",
        b"\x7f",
        b"\xc2",
        b"\xa0",
        b"\x9f",
        b"\xff",
        b"\xe2",
    ]
)


@given(st.one_of(st.lists(pieces).map(b"".join), st.text().map(str.encode), st.binary()))
@example(b"/a/..")
@example(b"/a/...")
def test_every_path_is_judged_by_the_book(path: bytes) -> None:
    for rooted in (path, b"/" + path):
        assert is_valid(rooted) == is_valid_by_the_book(rooted)


def test_a_create_needs_a_slash_and_no_nul_before_anything_else_is_looked_at() -> None:
    assert parent_for_create(b"/a") == ROOT
    assert parent_for_create(b"/a/b") == b"/a"
    assert parent_for_create(b"/") == ROOT
    # Malformed, but the answer depends on whether these parents exist.
    assert parent_for_create(b"/a/") == b"/a"
    assert parent_for_create(b"/a//b") == b"/a/"
    assert parent_for_create(b"a/b") == b"a"
    for path in (b"", b"a", b"/a\x00", b"/\x00/b"):
        with pytest.raises(ZkError) as refused:
            parent_for_create(path)
        assert refused.value.code is Err.BAD_ARGUMENTS


def test_a_delete_refuses_what_the_service_needs() -> None:
    assert parent_for_delete(b"/zookeeper/quota/a") == b"/zookeeper/quota"
    assert parent_for_delete(b"/zookeeper/x") == b"/zookeeper"
    assert parent_for_delete(b"//") == ROOT
    for path in (b"", b"a", b"/", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config", b"/a\x00"):
        with pytest.raises(ZkError) as refused:
            parent_for_delete(path)
        assert refused.value.code is Err.BAD_ARGUMENTS


def test_special_nodes_are_those_that_are_always_there() -> None:
    special = [b"", b"/", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config"]
    assert [path for path in [*special, b"/zookeeper/x", b"/a"] if is_special(path)] == special


def test_parents_and_names() -> None:
    assert parent_of(b"/a") == ROOT
    assert parent_of(b"/a/b") == b"/a"
    assert parent_of(ROOT) == ROOT
    assert parent_and_name(b"/a") == (ROOT, b"a")
    assert parent_and_name(b"/a/b/c") == (b"/a/b", b"c")
