"""Drafts: which transaction a request becomes, and what it makes sure of."""

from __future__ import annotations

import pytest

from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL
from quoracy.faces.zookeeper.tree.layout import NodeKind, kids_key, node_key
from quoracy.faces.zookeeper.tree.znodes import Node
from quoracy.faces.zookeeper.writing.drafts import UNKNOWN, Draft, MustWait, Pending, made_at
from quoracy.store.model import Compare, Delete, Put
from quoracy.wire.zookeeper.requests import Acl

_OTHER_ACL = (Acl(1, "world", "anyone"),)


class _Somebody:
    """A write in flight, whoever's."""


def _node(path: bytes, *, mod: int = 10, kids: int = 0, count: int = 0) -> Node:
    """A znode as the tree has it; `kids` is when the record of its children was written."""
    node = Node(path)
    node.data, node.ctime, node.mtime = b"old", 1, 2
    node.czxid = node.n_created = 5
    node.n_mod = node.mzxid = mod
    node.n_version = 3
    node.pzxid = kids or 5
    if kids:
        node.c_created, node.c_mod, node.c_version = 6, kids, 4
    node.children_count = node.creates = count
    return node


def _tree(*nodes: Node) -> dict[bytes, Node]:
    return {node.path: node for node in nodes}


def _draft(nodes: dict[bytes, Node], pending: Pending | None = None) -> Draft:
    return Draft(nodes, {} if pending is None else pending, now_ms=77)


def _in_flight(draft: Draft, zxid: int = UNKNOWN) -> Pending:
    """What those find who come while the draft is on its way."""
    _, after = draft.writes()
    flight = _Somebody()
    for node in after.values() if zxid else ():
        made_at(node, zxid)
    return {path: (node, flight) for path, node in after.items()}


def _keys(writes: list[Put | Delete]) -> list[tuple[str, bytes]]:
    return [
        ("put", write.key) if isinstance(write, Put) else ("delete", bytes(write.keys))  # type: ignore[arg-type]
        for write in writes
    ]


def test_a_create_makes_sure_of_the_parent_and_that_nothing_is_there() -> None:
    draft = _draft(_tree(_node(b"/", kids=9, count=1)))
    assert draft.node(b"/") is not None
    assert draft.node(b"/a") is None
    draft.create(b"/a", b"/", b"data", OPEN_ACL, NodeKind.PERSISTENT)
    assert set(draft.compares()) == {
        Compare.mod_revision(node_key(b"/"), "=", 10),
        Compare.mod_revision(kids_key(b"/"), "=", 9),
        Compare.missing(node_key(b"/a")),
    }
    writes, after = draft.writes()
    assert _keys(writes) == [("put", node_key(b"/a")), ("put", kids_key(b"/"))]
    assert after[b"/"].children_count == after[b"/"].creates == 2
    assert (after[b"/a"].ctime, after[b"/a"].n_version) == (77, 1)


def test_a_first_child_makes_sure_that_there_was_none() -> None:
    draft = _draft(_tree(_node(b"/p")))
    draft.create(b"/p/a", b"/p", b"", OPEN_ACL, NodeKind.PERSISTENT)
    assert Compare.missing(kids_key(b"/p")) in draft.compares()


def test_setting_data_does_not_care_what_happens_below() -> None:
    draft = _draft(_tree(_node(b"/a", kids=9)))
    draft.set_data(b"/a", b"new", 8)
    assert draft.compares() == [Compare.mod_revision(node_key(b"/a"), "=", 10)]
    writes, _ = draft.writes()
    assert _keys(writes) == [("put", node_key(b"/a"))]


def test_a_removal_takes_the_record_of_the_children_along() -> None:
    nodes = _tree(_node(b"/", kids=9, count=1), _node(b"/a", kids=8), _node(b"/b"))
    draft = _draft(nodes)
    draft.look_below(b"/a")
    draft.remove(b"/a", b"/")
    assert Compare.mod_revision(kids_key(b"/a"), "=", 8) in draft.compares()
    keys = _keys(draft.writes()[0])
    assert keys == [("delete", node_key(b"/a")), ("delete", kids_key(b"/a")), ("put", kids_key(b"/"))]
    draft = _draft(nodes)
    draft.remove(b"/b", b"/")
    assert _keys(draft.writes()[0]) == [("delete", node_key(b"/b")), ("put", kids_key(b"/"))]


def test_an_ephemeral_hangs_on_the_lease_of_its_session_also_when_another_writes_it() -> None:
    draft = _draft(_tree(_node(b"/", kids=9)))
    draft.create(b"/e", b"/", b"", OPEN_ACL, NodeKind.EPHEMERAL, owner=42)
    created = draft.writes()[0][0]
    assert isinstance(created, Put)
    assert created.lease == 42
    node = _node(b"/e")
    node.kind, node.owner = NodeKind.EPHEMERAL, 42
    draft = _draft(_tree(node))
    draft.set_data(b"/e", b"by another", 1)
    written = draft.writes()[0][0]
    assert isinstance(written, Put)
    assert written.lease == 42


def test_the_lifetime_of_a_ttl_znode_is_kept_when_it_is_written() -> None:
    node = _node(b"/t")
    node.kind, node.ttl_ms = NodeKind.TTL, 5000
    draft = _draft(_tree(node))
    draft.set_data(b"/t", b"", 1)
    written = draft.writes()[0][0]
    assert isinstance(written, Put)
    record = layout.decode_node(written.value)
    assert (record[0], record[9], written.lease) == (NodeKind.TTL, 5000, 0)


@pytest.mark.parametrize("created", [0, 5])
def test_what_is_in_flight_is_compared_by_what_it_will_be(created: int) -> None:
    """Its version alone could be that of another write, which got in instead."""
    node = _node(b"/a")
    node.n_created = node.czxid = created
    first = _draft(_tree(node))
    first.set_data(b"/a", b"first", 1)
    pending = _in_flight(first)
    value = pending[b"/a"][0].n_value
    second = _draft(_tree(node), pending)
    second.set_data(b"/a", b"second", 2)
    assert set(second.compares()) == {
        Compare.version(node_key(b"/a"), "=", 4),
        Compare.value(node_key(b"/a"), "=", value),
    }
    assert second.depends == {pending[b"/a"][1]}
    assert pending[b"/a"][0].data == b"first"


def test_what_happens_below_is_compared_likewise() -> None:
    nodes = _tree(_node(b"/p", kids=9, count=1))
    first = _draft(nodes)
    first.create(b"/p/a", b"/p", b"", OPEN_ACL, NodeKind.PERSISTENT)
    pending = _in_flight(first)
    second = _draft(nodes, pending)
    second.create(b"/p/b", b"/p", b"", OPEN_ACL, NodeKind.PERSISTENT)
    compares = second.compares()
    assert Compare.version(kids_key(b"/p"), "=", 5) in compares
    assert Compare.value(kids_key(b"/p"), "=", layout.encode_kids(2, 2)) in compares
    assert Compare.mod_revision(node_key(b"/p"), "=", 10) in compares


def test_a_large_value_in_flight_is_waited_for_not_sent_twice() -> None:
    nodes = _tree(_node(b"/a"))
    first = _draft(nodes)
    first.set_data(b"/a", b"x" * 5000, 1)
    second = _draft(nodes, _in_flight(first))
    second.set_data(b"/a", b"", 2)
    with pytest.raises(MustWait):
        second.compares()


def test_where_the_revision_is_known_it_is_compared() -> None:
    nodes = _tree(_node(b"/a"))
    first = _draft(nodes)
    first.set_data(b"/a", b"x" * 5000, 1)
    second = _draft(nodes, _in_flight(first, 20))
    second.set_data(b"/a", b"", 2)
    assert second.compares() == [Compare.mod_revision(node_key(b"/a"), "=", 20)]


def test_a_zxid_that_is_not_known_yet_is_not_written_down() -> None:
    nodes = _tree(_node(b"/a"))

    def set_acl_on_set_data(zxid: int) -> Draft:
        """It must say when the data was changed last."""
        first = _draft(nodes)
        first.set_data(b"/a", b"", 1)
        second = _draft(nodes, _in_flight(first, zxid))
        second.set_acl(b"/a", _OTHER_ACL, 1)
        return second

    with pytest.raises(MustWait):
        set_acl_on_set_data(UNKNOWN).writes()
    second = set_acl_on_set_data(20)
    written = second.writes()[0][0]
    assert isinstance(written, Put)
    assert layout.decode_node(written.value)[6] == 20


def test_a_znode_created_in_flight_can_be_written_its_czxid_being_that_of_its_key() -> None:
    nodes = _tree(_node(b"/", kids=9))
    first = _draft(nodes)
    first.create(b"/a", b"/", b"", OPEN_ACL, NodeKind.PERSISTENT)
    second = _draft(nodes, _in_flight(first))
    second.set_data(b"/a", b"1", 1)
    written = second.writes()[0][0]
    assert isinstance(written, Put)
    assert layout.decode_node(written.value)[5] == layout.CREATION


def test_a_znode_deleted_and_created_again_says_that_it_is_not_as_old_as_its_key() -> None:
    nodes = _tree(_node(b"/", kids=9, count=1), _node(b"/a", kids=8))
    first = _draft(nodes)
    first.remove(b"/a", b"/")
    first.create(b"/a", b"/", b"new", OPEN_ACL, NodeKind.PERSISTENT)
    writes, after = first.writes()
    assert _keys(writes) == [
        ("put", node_key(b"/a")),
        ("delete", kids_key(b"/a")),
        ("put", kids_key(b"/")),
        ("put", layout.NOTE_KEY),
    ]
    put = writes[0]
    assert isinstance(put, Put)
    assert layout.decode_node(put.value)[5] == layout.CREATED_HERE
    assert after[b"/a"].c_version == 0
    second = _draft(nodes, _in_flight(first))
    second.set_data(b"/a", b"2", 1)
    with pytest.raises(MustWait):
        second.writes()  # its czxid has to be said from now on, and is not known
    second = _draft(nodes, _in_flight(first, 30))
    second.set_data(b"/a", b"2", 1)
    written = second.writes()[0][0]
    assert isinstance(written, Put)
    assert layout.decode_node(written.value)[5] == 30


def test_what_is_deleted_in_flight_is_not_there() -> None:
    nodes = _tree(_node(b"/", kids=9, count=1), _node(b"/a"))
    first = _draft(nodes)
    first.remove(b"/a", b"/")
    second = _draft(nodes, _in_flight(first))
    assert second.node(b"/a") is None
    second.create(b"/a", b"/", b"", OPEN_ACL, NodeKind.PERSISTENT)
    assert Compare.missing(node_key(b"/a")) in second.compares()
    put = second.writes()[0][0]
    assert isinstance(put, Put)
    assert layout.decode_node(put.value)[5] == layout.CREATION


def test_what_was_made_and_removed_again_leaves_only_a_trace_at_its_parent() -> None:
    draft = _draft(_tree(_node(b"/", kids=9)))
    draft.create(b"/a", b"/", b"", OPEN_ACL, NodeKind.PERSISTENT)
    draft.remove(b"/a", b"/")
    writes, after = draft.writes()
    assert _keys(writes) == [("put", kids_key(b"/")), ("put", layout.NOTE_KEY)]
    assert (after[b"/"].creates, after[b"/"].children_count) == (1, 0)
    assert b"/a" not in after


def _note(draft: Draft) -> layout.Note | None:
    last = draft.writes()[0][-1]
    assert isinstance(last, Put)
    return layout.decode_note(last.value) if last.key == layout.NOTE_KEY else None


def test_a_note_is_written_only_where_the_records_would_tell_another_story() -> None:
    nodes = _tree(_node(b"/", kids=9), _node(b"/a"), _node(b"/b"))
    plain = _draft(nodes)
    plain.create(b"/a/x", b"/a", b"", OPEN_ACL, NodeKind.PERSISTENT)
    plain.set_data(b"/a", b"", 1)
    plain.set_data(b"/b", b"", 1)
    assert _note(plain) is None
    # Records are written in the order in which znodes were touched, and /a was when it got a child.
    shuffled = _draft(nodes)
    shuffled.create(b"/a/x", b"/a", b"", OPEN_ACL, NodeKind.PERSISTENT)
    shuffled.set_data(b"/b", b"", 1)
    shuffled.set_data(b"/a", b"", 1)
    assert _note(shuffled) == [
        (1, b"/a/x", OPEN_ACL),
        (3, b"/b", OPEN_ACL),
        (3, b"/a", OPEN_ACL),
    ]
    twice = _draft(nodes)
    twice.set_data(b"/b", b"", 1)
    twice.set_data(b"/b", b"", 2)
    assert _note(twice) == [(3, b"/b", OPEN_ACL), (3, b"/b", OPEN_ACL)]


def test_a_draft_changes_nothing_but_itself() -> None:
    nodes = _tree(_node(b"/", kids=9, count=1), _node(b"/a"))
    draft = _draft(nodes)
    draft.set_data(b"/a", b"changed", 9)
    draft.set_acl(b"/a", _OTHER_ACL, 9)
    draft.create(b"/b", b"/", b"", OPEN_ACL, NodeKind.PERSISTENT)
    draft.remove(b"/a", b"/")
    draft.writes()
    assert nodes.keys() == {b"/", b"/a"}
    a, root = nodes[b"/a"], nodes[b"/"]
    assert (a.data, a.acl, a.version) == (b"old", OPEN_ACL, 0)
    assert (root.children_count, root.creates, root.pzxid) == (1, 1, 9)


def test_the_number_of_creates_wraps() -> None:
    parent = _node(b"/", kids=9)
    parent.creates = 2**31 - 1
    draft = _draft(_tree(parent))
    draft.create(b"/a", b"/", b"", OPEN_ACL, NodeKind.PERSISTENT)
    put = draft.writes()[0][1]
    assert isinstance(put, Put)
    assert layout.decode_kids(put.value)[0] == -(2**31)
