"""Reads: what each answers, to whom, and what it leaves watching.

Where the rule is ZooKeeper's own choice, the expectation is what a 3.8 server answered.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import reads as reads_module
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, SUPER, Identity, digest_of
from quoracy.faces.zookeeper.tree.paths import ZkError
from quoracy.faces.zookeeper.tree.reads import READ_REQUESTS, ReadRequest, Reads
from quoracy.faces.zookeeper.tree.watches import WatchTable
from quoracy.wire.zookeeper.codes import AddWatchMode, Err, WatcherType
from quoracy.wire.zookeeper.replies import (
    MULTI_END,
    acl_body,
    children_body,
    data_body,
    multi_children,
    multi_data,
    multi_error,
    whoami_body,
)
from quoracy.wire.zookeeper.requests import (
    Acl,
    AddWatch,
    CheckWatches,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    MultiRead,
    RemoveWatches,
    SetWatches,
    WhoAmI,
)

from .trees import Garden, Somebody

ALICE = Identity("digest", digest_of(b"alice:secret"))
OWN = (Acl(31, *ALICE),)
EMPTY = struct.pack(">i", 0)


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_length: int
    num_children: int
    pzxid: int


def stat_of(body: bytes) -> Stat:
    return Stat._make(struct.unpack(">qqqqiiiqiiq", body[-68:]))


class Face:
    """Reads over a tree by hand; changes reach the watches as they would in a server."""

    def __init__(self, *, skip_acl: bool = False) -> None:
        self.garden = Garden()
        self.tree = self.garden.tree
        self.watches = WatchTable(self.tree)
        self.reads = Reads(self.tree, self.watches, ZooKeeperSettings(skip_acl=skip_acl))

    def ask(self, request: ReadRequest, viewer: Somebody) -> bytes:
        return self.reads.answer(request, viewer)

    def refuses(self, request: ReadRequest, viewer: Somebody) -> Err:
        with pytest.raises(ZkError) as refused:
            self.reads.answer(request, viewer)
        return refused.value.code

    def create(self, path: bytes, acl: tuple[Acl, ...] = OPEN_ACL) -> None:
        self.watches.fire([self.garden.create(path, b"", acl)], self.tree.zxid)

    def set_data(self, path: bytes) -> None:
        self.watches.fire([self.garden.set_data(path)], self.tree.zxid)

    def delete(self, path: bytes) -> None:
        self.watches.fire([self.garden.delete(path)], self.tree.zxid)


@pytest.fixture
def face() -> Face:
    return Face()


@pytest.fixture
def me() -> Somebody:
    return Somebody()


# -- exists, getData, getChildren ------------------------------------------------------------


@pytest.mark.parametrize("data", [b"hello", b"", None])
def test_get_data_answers_data_and_stat(face: Face, me: Somebody, data: bytes | None) -> None:
    face.garden.create(b"/a", data)
    stat = face.tree.nodes[b"/a"].stat()
    assert face.ask(GetData(b"/a", False), me) == data_body(data, stat)
    assert face.ask(Exists(b"/a", False), me) == stat
    assert stat_of(stat).data_length == len(data or b"")


def test_get_children_answers_names_with_or_without_a_stat(face: Face, me: Somebody) -> None:
    face.garden.grow("/a/b")
    stat = face.tree.nodes[b"/a"].stat()
    assert face.ask(GetChildren(b"/a", False, with_stat=False), me) == children_body([b"b"], None)
    assert face.ask(GetChildren(b"/a", False, with_stat=True), me) == children_body([b"b"], stat)
    assert face.ask(GetChildren(b"/a/b", False, with_stat=False), me) == EMPTY
    face.garden.grow("/a/c", "/a/d")
    answer = face.ask(GetChildren(b"/a", False, with_stat=False), me)
    assert sorted(answer[4 + 5 * at : 9 + 5 * at] for at in range(3)) == [
        b"\0\0\0\1" + name for name in (b"b", b"c", b"d")
    ]


@pytest.mark.parametrize("path", [b"/b", b"/a/", b"//", b"a", b"/.", b"/\xff", b"/a//b"])
def test_what_is_not_there_or_cannot_be_is_no_node(face: Face, me: Somebody, path: bytes) -> None:
    face.garden.grow("/a/b")
    requests: list[ReadRequest] = [
        Exists(path, False),
        GetData(path, True),
        GetChildren(path, True, with_stat=False),
        GetChildren(path, True, with_stat=True),
        GetAcl(path),
        GetAllChildrenNumber(path),
    ]
    assert {face.refuses(request, me) for request in requests} == {Err.NO_NODE}
    assert face.watches.count == 0


def test_only_exists_minds_a_nul(face: Face, me: Somebody) -> None:
    assert face.refuses(Exists(b"/a\0", True), me) is Err.BAD_ARGUMENTS
    assert face.refuses(GetData(b"/a\0", True), me) is Err.NO_NODE
    assert face.watches.count == 0


def test_the_empty_path_names_the_root_but_nothing_happens_there(face: Face, me: Somebody) -> None:
    for request in (Exists(b"", True), GetData(b"", True), GetChildren(b"", True, with_stat=True)):
        face.ask(request, me)
    assert face.ask(GetData(b"", False), me) == face.ask(GetData(b"/", False), me)
    face.set_data(b"/")
    face.create(b"/a")
    assert me.told() == []
    assert face.watches.count == 2


def test_get_data_and_exists_leave_a_data_watch_get_children_a_child_watch(face: Face) -> None:
    face.garden.grow("/a")
    reader, seeker, lister, passer = crowd = [Somebody(number) for number in range(4)]
    face.ask(GetData(b"/a", True), reader)
    face.ask(Exists(b"/a", True), seeker)
    face.ask(GetChildren(b"/a", True, with_stat=True), lister)
    face.ask(GetData(b"/a", False), passer)
    face.create(b"/a/b")
    face.set_data(b"/a")
    assert [somebody.told() for somebody in crowd] == [
        [("DATA_CHANGED", "/a")],
        [("DATA_CHANGED", "/a")],
        [("CHILDREN_CHANGED", "/a")],
        [],
    ]


def test_exists_waits_for_what_is_not_there_and_other_reads_do_not(face: Face, me: Somebody) -> None:
    assert face.refuses(Exists(b"/a", True), me) is Err.NO_NODE
    assert face.refuses(GetData(b"/b", True), me) is Err.NO_NODE
    assert face.refuses(GetChildren(b"/c", True, with_stat=False), me) is Err.NO_NODE
    for path in (b"/a", b"/b", b"/c"):
        face.create(path)
    assert me.told() == [("CREATED", "/a")]


# -- who may read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        Exists(b"/closed", True),
        GetData(b"/closed", True),
        GetChildren(b"/closed", True, with_stat=False),
        GetChildren(b"/closed", True, with_stat=True),
        GetAcl(b"/closed"),
        GetAllChildrenNumber(b"/closed"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_closed_node_is_read_by_its_owner_and_super_only(request_: ReadRequest) -> None:
    face = Face()
    face.garden.create(b"/closed", b"secret", OWN)
    assert face.refuses(request_, Somebody()) is Err.NO_AUTH
    assert face.refuses(request_, Somebody(1, Identity("digest", "alice:guess"))) is Err.NO_AUTH
    assert face.watches.count == 0
    assert face.ask(request_, Somebody(2, ALICE)) == face.ask(request_, Somebody(3, SUPER))
    open_to_all = Face(skip_acl=True)
    open_to_all.garden.create(b"/closed", b"secret", OWN)
    open_to_all.ask(request_, Somebody())


def test_the_address_of_the_caller_counts(face: Face) -> None:
    face.garden.create(b"/a", b"", (Acl(1, "ip", "10.0.0.0/8"),))
    face.ask(GetData(b"/a", False), Somebody(1, address="10.1.2.3"))
    assert face.refuses(GetData(b"/a", False), Somebody(1, address="11.1.2.3")) is Err.NO_AUTH


def test_get_acl_shows_digests_only_to_who_may_change_them(face: Face, me: Somebody) -> None:
    acl = (*OWN, Acl(1, "world", "anyone"), Acl(1, "ip", "1.2.3.4"))
    face.garden.create(b"/a", b"", acl)
    stat = face.tree.nodes[b"/a"].stat()
    masked = (Acl(31, "digest", "alice:x"), *acl[1:])
    assert face.ask(GetAcl(b"/a"), me) == acl_body(masked, stat)
    assert face.ask(GetAcl(b"/a"), Somebody(2, ALICE)) == acl_body(acl, stat)
    assert face.ask(GetAcl(b"/a"), Somebody(3, SUPER)) == acl_body(acl, stat)


def test_get_acl_is_open_to_who_may_administer_though_not_read(face: Face, me: Somebody) -> None:
    acl = (Acl(16, "world", "anyone"), *OWN)
    face.garden.create(b"/a", b"", acl)
    assert face.ask(GetAcl(b"/a"), me) == acl_body(acl, face.tree.nodes[b"/a"].stat())
    assert face.refuses(GetData(b"/a", False), me) is Err.NO_AUTH


def test_masking_hides_all_that_follows_a_colon(face: Face, me: Somebody) -> None:
    acl = (Acl(1, "world", "anyone"), Acl(31, "digest", "a:b:"), Acl(31, "digest", ":b"))
    face.garden.create(b"/a", b"", acl)
    masked = (acl[0], Acl(31, "digest", "a:x"), Acl(31, "digest", ":x"))
    assert face.ask(GetAcl(b"/a"), me) == acl_body(masked, face.tree.nodes[b"/a"].stat())


# -- counting and listing --------------------------------------------------------------------


def test_all_children_are_counted_down_to_the_last(face: Face, me: Somebody) -> None:
    face.garden.grow("/a/b/c", "/a/d", "/ab/x")

    def number(path: bytes) -> int:
        return int.from_bytes(face.ask(GetAllChildrenNumber(path), me), "big")

    assert [number(path) for path in (b"/a", b"/a/b", b"/a/d", b"/ab")] == [3, 1, 0, 1]
    assert number(b"/") == 6
    assert number(b"") == 7  # as ZooKeeper counts: what begins with "/", so the root too


def test_ephemerals_are_those_of_the_session_by_prefix(face: Face) -> None:
    face.garden.grow("/a")
    for path, owner in [(b"/a/e1", 7), (b"/e2", 7), (b"/a/other", 8)]:
        face.garden.create(path, b"", OWN, owner=owner)
    me = Somebody(7)

    def found(prefix: bytes) -> bytes:
        return face.ask(GetEphemerals(prefix), me)

    both = children_body([b"/a/e1", b"/e2"], None)
    assert [found(prefix) for prefix in (b"", b"/", b" / ", b"\t")] == [both] * 4
    assert found(b"/a") == found(b"/a/") == children_body([b"/a/e1"], None)
    assert found(b"/zzz") == found(b" /a") == EMPTY
    assert face.ask(GetEphemerals(b""), Somebody(9)) == EMPTY


def test_who_am_i_names_all_identities_and_no_digest(face: Face) -> None:
    me = Somebody(1, ALICE, SUPER, address="10.0.0.1")
    expected = [("ip", "10.0.0.1"), ("digest", "alice"), ("super", "")]
    assert face.ask(WhoAmI(), me) == whoami_body(expected)


# -- multiRead -------------------------------------------------------------------------------


def test_a_multi_read_goes_on_after_an_error_and_leaves_no_watch(face: Face, me: Somebody) -> None:
    face.garden.create(b"/a", b"data")
    face.garden.create(b"/a/b")
    face.garden.create(b"/closed", b"", OWN)
    ops = (
        GetData(b"/a", True),
        GetData(b"/none", True),
        GetChildren(b"/a", True, with_stat=False),
        GetData(b"/closed", True),
    )
    assert face.ask(MultiRead(ops), me) == b"".join(
        [
            multi_data(data_body(b"data", face.tree.nodes[b"/a"].stat())),
            multi_error(Err.NO_NODE),
            multi_children([b"b"]),
            multi_error(Err.NO_AUTH),
            MULTI_END,
        ]
    )
    assert face.ask(MultiRead(()), me) == MULTI_END
    assert face.watches.count == 0


def test_a_multi_read_that_would_grow_too_large_fails(
    face: Face, me: Somebody, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads_module, "MULTI_READ_BYTES_MAX", 10_000)
    face.garden.create(b"/a", bytes(1000))
    face.ask(MultiRead((GetData(b"/a", False),) * 9), me)
    assert face.refuses(MultiRead((GetData(b"/a", False),) * 10), me) is Err.MARSHALLING_ERROR


# -- requests about watches ------------------------------------------------------------------


def test_add_watch_needs_no_node_and_answers_zero(face: Face, me: Somebody) -> None:
    assert face.ask(AddWatch(b"/a", AddWatchMode.PERSISTENT), me) == EMPTY
    assert face.ask(AddWatch(b"/b", AddWatchMode.PERSISTENT_RECURSIVE), me) == EMPTY
    for path in (b"/a", b"/a/1", b"/b", b"/b/1"):
        face.create(path)
    assert me.told() == [
        ("CREATED", "/a"),
        ("CHILDREN_CHANGED", "/a"),
        ("CREATED", "/b"),
        ("CREATED", "/b/1"),
    ]


def test_a_watch_of_no_known_mode_or_type_is_not_understood(face: Face, me: Somebody) -> None:
    assert face.refuses(AddWatch(b"/a", 2), me) is Err.MARSHALLING_ERROR
    for type in (0, 6, -1):
        assert face.refuses(CheckWatches(b"/a", type), me) is Err.MARSHALLING_ERROR
        assert face.refuses(RemoveWatches(b"/a", type), me) is Err.MARSHALLING_ERROR


def test_watches_are_checked_and_removed_by_type(face: Face, me: Somebody) -> None:
    face.garden.grow("/a")
    face.ask(GetData(b"/a", True), me)
    assert face.ask(CheckWatches(b"/a", WatcherType.DATA), me) == b""
    assert face.refuses(CheckWatches(b"/a", WatcherType.CHILDREN), me) is Err.NO_WATCHER
    assert face.refuses(RemoveWatches(b"/a", WatcherType.CHILDREN), me) is Err.NO_WATCHER
    assert face.refuses(RemoveWatches(b"/a", WatcherType.DATA), Somebody(2)) is Err.NO_WATCHER
    assert face.ask(RemoveWatches(b"/a", WatcherType.ANY), me) == b""
    assert face.refuses(RemoveWatches(b"/a", WatcherType.ANY), me) is Err.NO_WATCHER
    face.set_data(b"/a")
    assert me.told() == []


# -- setWatches ------------------------------------------------------------------------------


def test_set_watches_tells_what_was_missed_and_watches_the_rest(face: Face, me: Somebody) -> None:
    garden = face.garden
    garden.grow("/kept", "/changed", "/parent", "/gone", "/quiet")
    seen = face.tree.zxid
    garden.set_data(b"/changed")
    garden.create(b"/parent/child")
    garden.delete(b"/gone")
    garden.create(b"/came")
    body = face.ask(
        SetWatches(
            seen,
            data=(b"/kept", b"/changed", b"/gone", b"/parent"),
            exist=(b"/came", b"/gone"),
            child=(b"/parent", b"/gone", b"/quiet", b"/changed"),
        ),
        me,
    )
    assert body == b""
    events = me.take()
    # In the order of the request; these have no zxid and no ACL stands in their way.
    assert [(event.type.name, event.path) for event in events] == [
        ("DATA_CHANGED", b"/changed"),
        ("DELETED", b"/gone"),
        ("CREATED", b"/came"),
        ("CHILDREN_CHANGED", b"/parent"),
        ("DELETED", b"/gone"),
    ]
    assert {event.zxid for event in events} == {-1}
    assert {event.acl for event in events} == {OPEN_ACL}
    # What was told is not watched any more; what was quiet is.
    face.set_data(b"/changed")
    face.create(b"/came/x")
    face.create(b"/parent/y")
    assert me.told() == []
    face.set_data(b"/kept")
    face.create(b"/gone")
    face.create(b"/quiet/x")
    face.create(b"/changed/x")
    face.set_data(b"/parent")
    assert me.told() == [
        ("DATA_CHANGED", "/kept"),
        ("CREATED", "/gone"),
        ("CHILDREN_CHANGED", "/quiet"),
        ("CHILDREN_CHANGED", "/changed"),
        ("DATA_CHANGED", "/parent"),
    ]


def test_what_was_seen_at_its_very_zxid_was_not_missed(face: Face, me: Somebody) -> None:
    face.garden.grow("/a/b")
    face.garden.set_data(b"/a")
    node = face.tree.nodes[b"/a"]
    face.ask(SetWatches(node.mzxid, data=(b"/a",), exist=(), child=()), me)
    face.ask(SetWatches(node.pzxid, data=(), exist=(), child=(b"/a",)), me)
    assert me.told() == []
    assert face.watches.count == 2


def test_persistent_watches_come_back_without_catching_up(face: Face, me: Somebody) -> None:
    face.garden.grow("/p/1", "/r/1")
    request = SetWatches(0, data=(), exist=(), child=(), persistent=(b"/p",), recursive=(b"/r",))
    face.ask(request, me)
    assert me.told() == []
    face.create(b"/p/2")
    face.create(b"/r/2")
    face.set_data(b"/r/1")
    assert me.told() == [("CHILDREN_CHANGED", "/p"), ("CREATED", "/r/2"), ("DATA_CHANGED", "/r/1")]


# -- quotas ----------------------------------------------------------------------------------


def test_what_a_quota_counts_is_worked_out_when_it_is_read(face: Face, me: Somebody) -> None:
    garden = face.garden
    stats = b"/zookeeper/quota/q/zookeeper_stats"
    garden.grow("/q", "/q/a", "/qq", "/zookeeper/quota/q")
    garden.set_data(b"/q", b"12345")
    garden.set_data(b"/q/a", b"1")
    garden.create(stats, b"count=0,bytes=0")
    garden.create(b"/zookeeper/quota/q/zookeeper_limits", b"count=5,bytes=-1")

    def content() -> bytes:
        answer = face.ask(GetData(stats, False), me)
        shown = answer[4:-68]
        assert answer[:4] == struct.pack(">i", len(shown))
        for stat in (
            stat_of(answer),
            stat_of(face.ask(Exists(stats, False), me)),
            stat_of(face.ask(GetChildren(stats, False, with_stat=True), me)),
            stat_of(face.ask(GetAcl(stats), me)),
        ):
            own = stat_of(face.tree.nodes[stats].stat())
            assert stat == own._replace(data_length=len(shown))
        multi = face.ask(MultiRead((GetData(stats, False),)), me)
        assert multi == multi_data(data_body(shown, answer[-68:])) + MULTI_END
        return shown

    assert content() == b"count=2,bytes=6"
    garden.create(b"/q/b", b"22")
    garden.create(b"/q/b/c", None)
    assert content() == b"count=4,bytes=8"
    garden.set_data(b"/q", bytes(1000))
    assert content() == b"count=4,bytes=1003"
    for path in (b"/q/b/c", b"/q/b", b"/q/a", b"/q"):
        garden.delete(path)
    assert content() == b"count=0,bytes=0"
    limits = face.ask(GetData(b"/zookeeper/quota/q/zookeeper_limits", False), me)
    assert limits[4:-68] == b"count=5,bytes=-1"


def test_a_quota_on_the_root_counts_everything(face: Face, me: Somebody) -> None:
    face.garden.grow("/zookeeper/quota", "/a/b")
    stats = b"/zookeeper/quota/zookeeper_stats"
    face.garden.create(stats, b"")
    assert face.ask(GetData(stats, False), me)[4:-68] == b"count=6,bytes=0"


def test_a_node_of_that_name_elsewhere_is_a_node_like_any(face: Face, me: Somebody) -> None:
    face.garden.grow("/a")
    face.garden.create(b"/a/zookeeper_stats", b"mine")
    assert face.ask(GetData(b"/a/zookeeper_stats", False), me)[4:-68] == b"mine"


def test_the_list_of_reads_is_complete() -> None:
    assert set(READ_REQUESTS) == set(ReadRequest.__args__)
