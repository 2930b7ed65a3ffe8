"""Keys and records: what is written can be read, and what is not ours is refused."""

from __future__ import annotations

import pytest

from quoracy.errors import DataError
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, READ_ONLY_ACL
from quoracy.faces.zookeeper.tree.layout import NodeKind
from quoracy.store.model import KeyRange
from quoracy.wire.zookeeper.requests import Acl

_SECRET = (Acl(1, "world", "anyone"), Acl(31, "digest", "ann:hash"))


@pytest.mark.parametrize("data", [None, b"", b"\0", b"d" * 100_000])
@pytest.mark.parametrize("acl", [OPEN_ACL, READ_ONLY_ACL, _SECRET])
def test_a_znode_is_read_as_it_was_written(data: bytes | None, acl: tuple[Acl, ...]) -> None:
    value = layout.encode_node(
        NodeKind.TTL,
        data,
        acl,
        ctime=1,
        mtime=-2,
        czxid=layout.CREATED_HERE,
        mzxid=2**62,
        version=2**31 - 1,
        aversion=-(2**31),
        owner=2**40 - 1,
    )
    assert layout.decode_node(value) == (
        NodeKind.TTL,
        data,
        acl,
        1,
        -2,
        layout.CREATED_HERE,
        2**62,
        2**31 - 1,
        -(2**31),
        2**40 - 1,
    )


def test_an_open_acl_takes_no_room_and_is_the_one_object() -> None:
    def encoded(acl: tuple[Acl, ...]) -> bytes:
        return layout.encode_node(
            0, b"", acl, ctime=0, mtime=0, czxid=0, mzxid=0, version=0, aversion=0, owner=0
        )

    equal = (Acl(31, "world", "anyone"),)
    assert encoded(equal) == encoded(OPEN_ACL)
    assert layout.decode_node(encoded(equal))[2] is OPEN_ACL
    assert len(encoded(_SECRET)) > len(encoded(equal))


def test_the_record_of_children_is_read_as_it_was_written() -> None:
    assert layout.decode_kids(layout.encode_kids(-(2**31), 7)) == (-(2**31), 7, layout.OWN)
    assert layout.decode_kids(layout.encode_kids(2**31 - 1, 0, 99)) == (2**31 - 1, 0, 99)


def test_a_session_is_read_as_it_was_written() -> None:
    value = layout.encode_session(b"p" * 16, 40_000, b"node    ")
    assert layout.decode_session(value) == (b"p" * 16, 40_000, b"node    ")


def test_a_note_is_read_as_it_was_written() -> None:
    note: layout.Note = [(1, b"/a", OPEN_ACL), (2, b"/a/\xc3\xa4", _SECRET), (3, b"/", READ_ONLY_ACL)]
    decoded = layout.decode_note(layout.encode_note(note))
    assert decoded == note
    assert decoded[0][2] is OPEN_ACL


def test_keys_say_what_they_are_of() -> None:
    assert layout.path_of(layout.node_key(b"/a/b")) == b"/a/b"
    assert layout.path_of(layout.kids_key(b"/")) == b"/"
    for id in (1, 0x7FFF_FFFF_FFFF_FFFF):
        assert layout.session_id_of(layout.session_key(id)) == id
    kinds = (layout.NODE_KIND, layout.KIDS_KIND, layout.SESSION_KIND, layout.NOTE_KIND)
    keys = (layout.node_key(b"/a"), layout.kids_key(b"/a"), layout.session_key(1), layout.NOTE_KEY)
    assert tuple(key[layout.KIND_AT] for key in keys) == kinds
    assert all(layout.EVERYTHING.contains(key) for key in keys)


def test_keys_of_others_are_not_among_ours() -> None:
    for key in (b"quoracy/zl", b"quoracy/z", b"quoracy/zk", b"other"):
        assert not layout.EVERYTHING.contains(key)
    assert KeyRange.prefix(b"quoracy/zk/").end == layout.EVERYTHING.end


@pytest.mark.parametrize(
    "decode", [layout.decode_node, layout.decode_kids, layout.decode_session, layout.decode_note]
)
@pytest.mark.parametrize("value", [b"", b"\x01", b"\x02" + bytes(100), b"{}", b"\x01" + b"\xc1" * 9])
def test_what_cannot_be_read_is_refused(decode: object, value: bytes) -> None:
    assert callable(decode)
    with pytest.raises(DataError, match="newer Quoracy, or by hand"):
        decode(value)


def test_a_znode_with_an_unreadable_acl_is_refused() -> None:
    good = layout.encode_node(
        0, b"", _SECRET, ctime=0, mtime=0, czxid=0, mzxid=0, version=0, aversion=0, owner=0
    )
    broken = good[:-5] + b"\xc1" * 5
    with pytest.raises(DataError, match="an ACL"):
        layout.decode_node(broken)
