"""Watches: who is told what, in which order, and how often."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quoracy.faces.zookeeper.tree.acl import OPEN_ACL
from quoracy.faces.zookeeper.tree.paths import ROOT, parent_of
from quoracy.faces.zookeeper.tree.watches import WatchKind, WatchTable
from quoracy.faces.zookeeper.tree.znodes import Change
from quoracy.wire.zookeeper.codes import EventType, WatcherType
from quoracy.wire.zookeeper.requests import Acl

from .trees import Garden, Somebody

DATA, CHILD, PERSISTENT, RECURSIVE = WatchKind
CLOSED = (Acl(31, "digest", "a:b"),)


class Scene:
    """A tree with watches on it; every change is a transaction of its own."""

    def __init__(self) -> None:
        self.garden = Garden()
        self.table = WatchTable(self.garden.tree)

    def create(self, path: bytes, acl: tuple[Acl, ...] = OPEN_ACL) -> None:
        self.fire(self.garden.create(path, b"", acl))

    def delete(self, path: bytes) -> None:
        self.fire(self.garden.delete(path))

    def set_data(self, path: bytes) -> None:
        self.fire(self.garden.set_data(path))

    def fire(self, *changes: Change) -> None:
        self.table.fire(changes, self.garden.tree.zxid)


@pytest.fixture
def scene() -> Scene:
    return Scene()


# -- one-shot watches ------------------------------------------------------------------------


def test_a_data_watch_is_told_once(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a")
    scene.table.add(b"/a", somebody, DATA)
    scene.set_data(b"/a")
    scene.set_data(b"/a")
    assert somebody.told() == [("DATA_CHANGED", "/a")]
    assert scene.table.count == 0


def test_a_data_watch_waits_for_a_node_to_come(scene: Scene) -> None:
    somebody = Somebody()
    scene.table.add(b"/a", somebody, DATA)
    scene.create(b"/a")
    scene.delete(b"/a")
    assert somebody.told() == [("CREATED", "/a")]


def test_a_data_watch_hears_nothing_of_children(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a")
    scene.table.add(b"/a", somebody, DATA)
    scene.create(b"/a/b")
    assert somebody.told() == []
    scene.delete(b"/a/b")
    scene.delete(b"/a")
    assert somebody.told() == [("DELETED", "/a")]


def test_a_child_watch_hears_of_children_coming_and_going_but_not_of_data(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a/b")
    scene.table.add(b"/a", somebody, CHILD)
    scene.set_data(b"/a")
    scene.set_data(b"/a/b")
    assert somebody.told() == []
    scene.create(b"/a/c")
    scene.create(b"/a/d")
    assert somebody.told() == [("CHILDREN_CHANGED", "/a")]
    scene.table.add(b"/a", somebody, CHILD)
    scene.delete(b"/a/c")
    assert somebody.told() == [("CHILDREN_CHANGED", "/a")]


def test_a_child_watch_on_the_root_hears_of_top_level_nodes(scene: Scene) -> None:
    somebody = Somebody()
    scene.table.add(ROOT, somebody, CHILD)
    scene.create(b"/a")
    assert somebody.told() == [("CHILDREN_CHANGED", "/")]


def test_a_deletion_is_told_once_to_who_has_both_watches_and_spends_both(scene: Scene) -> None:
    somebody, other = Somebody(1), Somebody(2)
    scene.garden.grow("/a")
    scene.table.add(b"/a", somebody, DATA)
    scene.table.add(b"/a", somebody, CHILD)
    scene.table.add(b"/a", other, CHILD)
    scene.delete(b"/a")
    assert somebody.told() == [("DELETED", "/a")]
    assert other.told() == [("DELETED", "/a")]
    assert scene.table.count == 0


def test_the_events_of_one_change_come_in_the_order_of_data_tree(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a")
    for path, kind in [(b"/a", CHILD), (b"/a", DATA), (b"/a/b", DATA)]:
        scene.table.add(path, somebody, kind)
    scene.create(b"/a/b")
    assert somebody.told() == [("CREATED", "/a/b"), ("CHILDREN_CHANGED", "/a")]
    for path, kind in [(b"/a", CHILD), (b"/a/b", DATA), (b"/a/b", CHILD)]:
        scene.table.add(path, somebody, kind)
    scene.delete(b"/a/b")
    assert somebody.told() == [("DELETED", "/a/b"), ("CHILDREN_CHANGED", "/a")]


def test_a_transaction_tells_of_its_changes_one_after_the_other(scene: Scene) -> None:
    somebody = Somebody()
    scene.table.add(b"/a", somebody, PERSISTENT)
    garden = scene.garden
    scene.fire(garden.create(b"/a"), garden.create(b"/a/b"), garden.set_data(b"/a"))
    assert somebody.told() == [("CREATED", "/a"), ("CHILDREN_CHANGED", "/a"), ("DATA_CHANGED", "/a")]


# -- watches that stay -----------------------------------------------------------------------


def test_a_persistent_watch_is_told_what_both_kinds_are_told_and_stays(scene: Scene) -> None:
    somebody = Somebody()
    scene.table.add(b"/a", somebody, PERSISTENT)
    for _ in range(2):
        scene.create(b"/a")
        scene.set_data(b"/a")
        scene.create(b"/a/b")
        scene.set_data(b"/a/b")
        scene.delete(b"/a/b")
        scene.delete(b"/a")
        assert somebody.told() == [
            ("CREATED", "/a"),
            ("DATA_CHANGED", "/a"),
            ("CHILDREN_CHANGED", "/a"),
            ("CHILDREN_CHANGED", "/a"),
            ("DELETED", "/a"),
        ]


def test_a_recursive_watch_hears_of_all_below_but_never_of_children_changed(
    scene: Scene,
) -> None:
    somebody = Somebody()
    scene.table.add(b"/a", somebody, RECURSIVE)
    scene.create(b"/a")
    scene.create(b"/a/b")
    scene.create(b"/a/b/c")
    scene.set_data(b"/a/b/c")
    scene.create(b"/ab")
    scene.delete(b"/a/b/c")
    assert somebody.told() == [
        ("CREATED", "/a"),
        ("CREATED", "/a/b"),
        ("CREATED", "/a/b/c"),
        ("DATA_CHANGED", "/a/b/c"),
        ("DELETED", "/a/b/c"),
    ]


def test_a_recursive_watch_on_the_root_hears_of_everything(scene: Scene) -> None:
    somebody = Somebody()
    scene.table.add(ROOT, somebody, RECURSIVE)
    scene.create(b"/a")
    scene.create(b"/a/b")
    scene.set_data(ROOT)
    assert somebody.told() == [("CREATED", "/a"), ("CREATED", "/a/b"), ("DATA_CHANGED", "/")]


def test_kinds_on_one_path_do_not_disturb_each_other(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a")
    for kind in (PERSISTENT, RECURSIVE, DATA, CHILD):
        scene.table.add(b"/a", somebody, kind)
    scene.set_data(b"/a")
    scene.create(b"/a/b")
    assert somebody.told() == [("DATA_CHANGED", "/a"), ("CREATED", "/a/b"), ("CHILDREN_CHANGED", "/a")]
    # The one-shot ones are spent; those that stay are as they were.
    scene.set_data(b"/a")
    scene.create(b"/a/c")
    assert somebody.told() == [("DATA_CHANGED", "/a"), ("CREATED", "/a/c"), ("CHILDREN_CHANGED", "/a")]


def test_a_change_is_told_once_however_many_recursive_watches_it_falls_under(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a")
    for path in (ROOT, b"/a", b"/a/b"):
        scene.table.add(path, somebody, RECURSIVE)
    scene.table.add(b"/a/b", somebody, DATA)
    scene.create(b"/a/b")
    assert somebody.told() == [("CREATED", "/a/b")]


def test_a_deletion_heard_of_from_above_is_not_told_again_for_a_child_watch(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a/b")
    scene.table.add(ROOT, somebody, RECURSIVE)
    scene.table.add(b"/a/b", somebody, CHILD)
    scene.delete(b"/a/b")
    assert somebody.told() == [("DELETED", "/a/b")]


# -- what comes with an event ----------------------------------------------------------------


def test_an_event_comes_with_its_zxid_and_is_encoded_once(scene: Scene) -> None:
    crowd = [Somebody(number) for number in range(3)]
    scene.garden.grow("/a")
    for somebody in crowd:
        scene.table.add(b"/a", somebody, DATA)
    scene.set_data(b"/a")
    frames = [somebody.frames[0] for somebody in crowd]
    assert frames[0] is frames[1] is frames[2]
    assert crowd[0].take()[0].zxid == scene.garden.tree.zxid


def test_an_event_comes_with_the_acl_of_the_node_it_is_about(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/open")
    for path, kind in [(b"/open", RECURSIVE), (b"/open", PERSISTENT), (b"/open/closed", PERSISTENT)]:
        scene.table.add(path, somebody, kind)
    scene.create(b"/open/closed", CLOSED)
    assert [(event.type, event.acl) for event in somebody.take()] == [
        (EventType.CREATED, CLOSED),
        (EventType.CHILDREN_CHANGED, OPEN_ACL),
    ]
    scene.set_data(b"/open/closed")
    scene.create(b"/open/closed/open")
    assert [(event.type, event.acl) for event in somebody.take()] == [
        (EventType.DATA_CHANGED, CLOSED),
        (EventType.CREATED, OPEN_ACL),
        (EventType.CHILDREN_CHANGED, CLOSED),
    ]
    scene.delete(b"/open/closed/open")
    somebody.take()
    scene.delete(b"/open/closed")
    assert [(event.type, event.acl) for event in somebody.take()] == [
        (EventType.DELETED, CLOSED),
        (EventType.CHILDREN_CHANGED, OPEN_ACL),
    ]


def test_the_acl_of_a_parent_is_found_though_it_went_in_the_same_transaction(scene: Scene) -> None:
    somebody = Somebody()
    garden = scene.garden
    garden.create(b"/a", b"", CLOSED)
    garden.grow("/a/b")
    scene.table.add(b"/a", somebody, PERSISTENT)
    scene.fire(garden.delete(b"/a/b"), garden.delete(b"/a"))
    assert [(event.type, event.acl) for event in somebody.take()] == [
        (EventType.CHILDREN_CHANGED, CLOSED),
        (EventType.DELETED, CLOSED),
    ]


def test_of_a_parent_that_nothing_is_known_of_nobody_may_hear(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a/b")
    scene.table.add(b"/a", somebody, CHILD)
    change = scene.garden.delete(b"/a/b")
    del scene.garden.tree.nodes[b"/a"]
    scene.fire(change)
    (event,) = somebody.take()
    assert not any(entry.perms for entry in event.acl)


# -- taking watches back ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        (DATA, {WatcherType.DATA, WatcherType.ANY}),
        (CHILD, {WatcherType.CHILDREN, WatcherType.ANY}),
        (PERSISTENT, {WatcherType.PERSISTENT, WatcherType.ANY}),
        (RECURSIVE, {WatcherType.PERSISTENT_RECURSIVE, WatcherType.ANY}),
    ],
)
def test_a_watch_is_found_and_removed_by_its_own_type_or_any(
    scene: Scene, kind: WatchKind, types: set[WatcherType]
) -> None:
    somebody, other = Somebody(1), Somebody(2)
    for type in WatcherType:
        scene.table.add(b"/a", somebody, kind)
        assert scene.table.contains(b"/a", somebody, type) is (type in types)
        assert not scene.table.contains(b"/a", other, type)
        assert not scene.table.contains(b"/b", somebody, type)
        assert not scene.table.remove(b"/a", other, type)
        assert scene.table.remove(b"/a", somebody, type) is (type in types)
        assert not scene.table.remove(b"/a", somebody, type)
        scene.table.drop(somebody)
        assert scene.table.count == 0


def test_removing_one_kind_leaves_the_others(scene: Scene) -> None:
    somebody = Somebody()
    scene.garden.grow("/a")
    for kind in WatchKind:
        scene.table.add(b"/a", somebody, kind)
    assert scene.table.remove(b"/a", somebody, WatcherType.PERSISTENT)
    assert not scene.table.contains(b"/a", somebody, WatcherType.PERSISTENT)
    scene.set_data(b"/a")
    scene.create(b"/a/b")
    assert somebody.told() == [("DATA_CHANGED", "/a"), ("CREATED", "/a/b"), ("CHILDREN_CHANGED", "/a")]
    scene.create(b"/a/c")
    assert somebody.told() == [("CREATED", "/a/c")]
    assert scene.table.remove(b"/a", somebody, WatcherType.ANY)
    scene.create(b"/a/d")
    assert somebody.told() == []


def test_who_is_dropped_hears_nothing_and_others_still_do(scene: Scene) -> None:
    somebody, other = Somebody(1), Somebody(2)
    scene.garden.grow("/a")
    for kind in WatchKind:
        scene.table.add(b"/a", somebody, kind)
        scene.table.add(b"/a", other, kind)
    scene.table.drop(somebody)
    scene.table.drop(somebody)
    scene.set_data(b"/a")
    assert somebody.told() == []
    assert other.told() == [("DATA_CHANGED", "/a")]


def test_a_watcher_may_be_dropped_by_the_event_it_gets(scene: Scene) -> None:
    class Quitter(Somebody):
        def event(self, frame: bytes, acl: tuple[Acl, ...]) -> None:
            super().event(frame, acl)
            scene.table.drop(self)

    crowd = [Quitter(number) for number in range(3)]
    scene.garden.grow("/a")
    for quitter in crowd:
        scene.table.add(b"/a", quitter, PERSISTENT)
        scene.table.add(ROOT, quitter, RECURSIVE)
    scene.delete(b"/a")
    assert [quitter.told() for quitter in crowd] == [[("DELETED", "/a")]] * 3
    assert scene.table.count == 0


# -- listings --------------------------------------------------------------------------------


def test_listings_name_data_watches_only_and_the_count_is_of_all(scene: Scene) -> None:
    somebody, other = Somebody(1), Somebody(2)
    scene.table.add(b"/a", somebody, DATA)
    scene.table.add(b"/a", other, DATA)
    scene.table.add(b"/b", other, RECURSIVE)
    scene.table.add(b"/c", other, CHILD)
    scene.table.add(b"/d", other, PERSISTENT)
    scene.table.add(b"/d", other, RECURSIVE)
    assert {path: sorted(ids) for path, ids in scene.table.by_path()} == {
        b"/a": [1, 2],
        b"/b": [2],
        b"/d": [2],
    }
    assert {id: sorted(paths) for id, paths in scene.table.by_session()} == {
        1: [b"/a"],
        2: [b"/a", b"/b", b"/d"],
    }
    assert scene.table.count == 7


# -- against a model -------------------------------------------------------------------------


class Watch(NamedTuple):
    who: int
    path: bytes
    kind: WatchKind


PATHS = [b"/a", b"/a/b", b"/a/b/c", b"/d", b"/d/e"]
EVERYWHERE = [ROOT, *PATHS]
MEANT = {
    WatcherType.DATA: {DATA},
    WatcherType.CHILDREN: {CHILD},
    WatcherType.PERSISTENT: {PERSISTENT},
    WatcherType.PERSISTENT_RECURSIVE: {RECURSIVE},
    WatcherType.ANY: set(WatchKind),
}


def is_at_or_below(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top.rstrip(b"/") + b"/")


class WatchMachine(RuleBasedStateMachine):
    """The table against a set of watches that is searched from end to end for every event."""

    def __init__(self) -> None:
        super().__init__()
        self.garden = Garden()
        self.table = WatchTable(self.garden.tree)
        self.crowd = [Somebody(number) for number in range(3)]
        self.watches: set[Watch] = set()
        self.expected: list[list[tuple[str, str]]] = [[] for _ in self.crowd]

    who = st.integers(0, 2)

    @rule(who=who, path=st.sampled_from(EVERYWHERE), kind=st.sampled_from(WatchKind))
    def add(self, who: int, path: bytes, kind: WatchKind) -> None:
        self.table.add(path, self.crowd[who], kind)
        self.watches.add(Watch(who, path, kind))

    @rule(who=who, path=st.sampled_from(EVERYWHERE), type=st.sampled_from(WatcherType))
    def remove(self, who: int, path: bytes, type: WatcherType) -> None:
        meant = {
            watch for watch in self.watches if watch[:2] == (who, path) and watch.kind in MEANT[type]
        }
        assert self.table.contains(path, self.crowd[who], type) is bool(meant)
        assert self.table.remove(path, self.crowd[who], type) is bool(meant)
        self.watches -= meant

    @rule(who=who)
    def drop(self, who: int) -> None:
        self.table.drop(self.crowd[who])
        self.watches = {watch for watch in self.watches if watch.who != who}

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        nodes = self.garden.tree.nodes
        free = [path for path in PATHS if path not in nodes and parent_of(path) in nodes]
        if free:
            path = data.draw(st.sampled_from(free))
            self.table.fire([self.garden.create(path)], self.garden.tree.zxid)
            self.happens("CREATED", path, {DATA, PERSISTENT})
            self.happens("CHILDREN_CHANGED", parent_of(path), {CHILD, PERSISTENT}, below=False)

    @precondition(lambda self: len(self.garden.tree.nodes) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        nodes = self.garden.tree.nodes
        leaves = [path for path in PATHS if path in nodes and not nodes[path].children]
        path = data.draw(st.sampled_from(leaves))
        self.table.fire([self.garden.delete(path)], self.garden.tree.zxid)
        self.happens("DELETED", path, {DATA, CHILD, PERSISTENT})
        self.happens("CHILDREN_CHANGED", parent_of(path), {CHILD, PERSISTENT}, below=False)

    @rule(data=st.data())
    def set_data(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.garden.tree.nodes)))
        self.table.fire([self.garden.set_data(path)], self.garden.tree.zxid)
        self.happens("DATA_CHANGED", path, {DATA, PERSISTENT})

    def happens(self, event: str, path: bytes, kinds: set[WatchKind], *, below: bool = True) -> None:
        hit = {
            watch
            for watch in self.watches
            if (watch.path == path and watch.kind in kinds)
            or (below and watch.kind is RECURSIVE and is_at_or_below(path, watch.path))
        }
        for who in {watch.who for watch in hit}:
            self.expected[who].append((event, path.decode()))
        self.watches -= {watch for watch in hit if watch.kind in (DATA, CHILD)}

    @invariant()
    def everybody_heard_what_they_should(self) -> None:
        assert [somebody.told() for somebody in self.crowd] == self.expected
        self.expected = [[] for _ in self.crowd]

    @invariant()
    def nothing_is_kept_that_nobody_watches(self) -> None:
        listed = {(watch.path, watch.who) for watch in self.watches if watch.kind is not CHILD}
        assert all(ids for _, ids in self.table.by_path())
        assert all(paths for _, paths in self.table.by_session())
        by_path = [(path, id) for path, ids in self.table.by_path() for id in ids]
        by_session = [(path, id) for id, paths in self.table.by_session() for path in paths]
        assert sorted(by_path) == sorted(by_session) == sorted(listed)
        data = {watch[:2] for watch in self.watches if watch.kind in (DATA, PERSISTENT)}
        child = {watch[:2] for watch in self.watches if watch.kind in (CHILD, PERSISTENT)}
        recursive = {watch[:2] for watch in self.watches if watch.kind is RECURSIVE}
        assert self.table.count == len(data) + len(child) + len(recursive)


WatchMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_table_agrees_with_the_model = WatchMachine.TestCase
