"""The tree, fed by a real store: what it knows after every change, and after being read anew."""

from __future__ import annotations

import asyncio
import random

import pytest

from quoracy.errors import DataError
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.layout import NodeKind
from quoracy.faces.zookeeper.tree.znodes import Node, Tree, as_int32
from quoracy.faces.zookeeper.writing.in_flight import Request
from quoracy.store.model import Put, Txn
from quoracy.wire.zookeeper.codes import EventType, Op
from quoracy.wire.zookeeper.replies import data_body
from quoracy.wire.zookeeper.requests import Acl, CloseSession, Delete, Multi, SetAcl, SetData
from tests.support.zookeeper_core import (
    Ensemble,
    assert_same_tree,
    create,
    ensemble,
    loaded_tree,
    seen,
    stat_of,
)
from tests.support.zookeeper_stores import Relay


async def _follow(it: Ensemble, tree: Tree, after: int) -> list[tuple[int, str, bytes]]:
    """Apply whatever happened since; the changes, as zxid, name and path."""
    newest = (await it.store.range(b"\0", count_only=True)).revision
    changes: list[tuple[int, str, bytes]] = []
    async with it.store.watch(layout.EVERYTHING, after=after) as stream:
        stream.request_progress()
        async for batch in stream:
            if batch.events:
                changes += [(batch.revision, type.name, path) for type, path, _ in tree.apply(batch)]
                tree.lost.clear()
            if batch.revision >= newest:
                return changes
    raise AssertionError("a watch never ends")


def _is_unrecorded(node: Node) -> bool:
    return node.children_count != node.recorded_children


async def test_what_is_applied_is_what_is_read_anew_at_every_revision() -> None:
    async with ensemble() as it:
        replica = await it.start()
        one, other = await it.session(), await it.session()
        await one.ask(create(b"/a", None))
        await one.ask(create(b"/a/e", b"e", flags=1))
        await other.ask(create(b"/a/s-", b"s", flags=3))
        await one.ask(create(b"/c", op=Op.CREATE_CONTAINER, flags=4))
        await one.ask(create(b"/t", op=Op.CREATE_TTL, flags=5, ttl_ms=7))
        await other.ask(SetData(b"/a/e", b"longer", -1))
        await other.ask(SetAcl(b"/a", (Acl(1, "world", "anyone"), Acl(31, "digest", "x:y")), -1))
        await one.ask(Multi((Delete(b"/c", -1), create(b"/c", b"again"), create(b"/c/d"))))
        await one.close()
        await it.settle()
        await other.ask(Multi((Delete(b"/c/d", -1), Delete(b"/c", -1))))
        newest = await it.settle()
        tree = Tree()
        for revision in range(2, newest + 1):
            found = await it.store.range(layout.EVERYTHING, at=revision)
            anew = Tree()
            anew.load(found.kvs)
            kids = [kv for kv in found.kvs if kv.key[layout.KIND_AT] == layout.KIDS_KIND]
            anew.loaded(kids, revision)
            if revision == 2:
                tree = anew
                continue
            async with it.store.watch(layout.EVERYTHING, after=revision - 1) as stream:
                tree.apply(await anext(stream))
            # (Whoever puts it on record takes it from the list.)
            tree.unrecorded = {path for path in tree.unrecorded if _is_unrecorded(tree.nodes[path])}
            assert_same_tree(tree, anew)
            assert tree.zxid == revision
        assert_same_tree(replica.tree, tree)


async def test_what_was_drafted_here_lands_as_its_records_are_read() -> None:
    rng = random.Random(3)
    async with ensemble() as it:
        replica = await it.start()
        clients = [await it.session() for _ in range(3)]
        paths = [b"/a", b"/b", b"/a/c", b"/a/c/d"]
        for turn in range(40):
            answers = []
            for _ in range(20):
                client, path = rng.choice(clients), rng.choice(paths)
                flags = rng.choice((0, 0, 1, 2, 3))
                data = rng.choice((None, b"", b"x", b"longer"))
                requests = (SetData(path, data, -1), Delete(path, -1), create(path, data, flags=flags))
                answers.append(client.submit(rng.choice(requests)))
            if turn % 10 == 9:
                answers.append(clients[0].submit(CloseSession()))
                clients[0] = await it.session()
            await asyncio.gather(*answers)
            await it.settle()
            assert_same_tree(replica.tree, await loaded_tree(it.store))


async def test_changes_come_in_the_order_of_the_operations() -> None:
    async with ensemble() as it:
        await it.start()
        tree = await loaded_tree(it.store)
        client = await it.session()
        await client.ask(
            Multi((create(b"/a"), create(b"/a/b"), create(b"/x"), SetData(b"/a", b"", -1)))
        )
        await client.ask(Multi((create(b"/a/c"), create(b"/y"), SetData(b"/a", b"1", -1))))
        await client.ask(Multi((Delete(b"/a/c", -1), create(b"/a/c"), Delete(b"/a/c", -1))))
        await client.ask(SetAcl(b"/a", (Acl(31, "world", "anyone"),), -1))
        changes = await _follow(it, tree, 2)
        assert [(type, path) for _, type, path in changes] == [
            ("CREATED", b"/a"),
            ("CREATED", b"/a/b"),
            ("CREATED", b"/x"),
            ("DATA_CHANGED", b"/a"),
            ("CREATED", b"/a/c"),
            ("CREATED", b"/y"),
            ("DATA_CHANGED", b"/a"),
            ("DELETED", b"/a/c"),
            ("CREATED", b"/a/c"),
            ("DELETED", b"/a/c"),
        ]


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("again", [False, True])
async def test_a_znode_made_again_has_the_children_that_it_has(touched: bool, again: bool) -> None:
    """Of one transaction, the records of children may come before or after that of their parent."""
    async with ensemble() as it:
        replica = await it.start()
        client = await it.session()
        for path in (b"/a", b"/a/b", b"/a/c"):
            await client.ask(create(path))
        ops = [SetData(b"/a", b"", -1)] if touched else []
        await client.ask(
            Multi(
                (
                    *ops,
                    Delete(b"/a/b", -1),
                    Delete(b"/a/c", -1),
                    Delete(b"/a", -1),
                    create(b"/a"),
                    *([create(b"/a/b"), create(b"/a/d")] if again else []),
                )
            )
        )
        node = replica.tree.nodes[b"/a"]
        assert node.children == ({b"b", b"d"} if again else set())
        assert node.creates == (2 if again else 0)
        assert node.czxid == node.pzxid == replica.tree.zxid
        assert_same_tree(replica.tree, await loaded_tree(it.store))


async def test_ephemerals_go_with_their_session_in_one_revision() -> None:
    async with ensemble() as it:
        await it.start()
        client, other = await it.session(), await it.session()
        for path in (b"/a", b"/a/b", b"/c"):
            await other.ask(create(path))
        for path in (b"/a/1", b"/a/2", b"/a/b/3", b"/4"):
            await client.ask(create(path, flags=1))
        await other.ask(create(b"/a/5", flags=1))
        tree = await loaded_tree(it.store)
        assert tree.sessions[client.session_id].ephemerals == {b"/a/1", b"/a/2", b"/a/b/3", b"/4"}
        before = tree.zxid
        revision = await it.store.revoke(client.session_id)
        async with it.store.watch(layout.EVERYTHING, after=before) as stream:
            changes = tree.apply(await anext(stream))
        assert {path for type, path, _ in changes if type is EventType.DELETED} == {
            b"/a/1",
            b"/a/2",
            b"/a/b/3",
            b"/4",
        }
        assert tree.ended == [client.session_id]
        assert client.session_id not in tree.sessions
        assert sorted(tree.lost) == [b"/", b"/a", b"/a", b"/a/b"]
        assert tree.unrecorded == {b"/", b"/a", b"/a/b"}
        a, b, c = tree.nodes[b"/a"], tree.nodes[b"/a/b"], tree.nodes[b"/c"]
        assert (a.children_count, a.cversion, a.pzxid) == (2, 2 * 4 - 2, revision)
        assert (b.children_count, b.cversion, b.pzxid) == (0, 2, revision)
        assert c.pzxid == c.czxid
        assert a.children == {b"b", b"5"}


async def test_when_children_went_is_on_record_and_outlives_every_replica() -> None:
    async with ensemble() as it:
        replica = await it.start()
        client, other = await it.session(), await it.session()
        await other.ask(create(b"/p"))
        await client.ask(create(b"/p/e", flags=1))
        ended = await it.store.revoke(client.session_id)
        newest = await it.settle()
        assert newest == ended + 1  # the record
        assert not replica.tree.unrecorded
        assert stat_of(replica.tree.nodes[b"/p"]).pzxid == ended
        tree = await loaded_tree(it.store)
        assert stat_of(tree.nodes[b"/p"]).pzxid == ended
        assert not tree.unrecorded
        assert_same_tree(replica.tree, tree)


async def test_children_that_went_while_nobody_looked_are_noticed() -> None:
    async with ensemble() as it:
        replica = await it.start()
        client, other = await it.session(), await it.session()
        await other.ask(create(b"/p"))
        await client.ask(create(b"/p/e", flags=1))
        await other.ask(create(b"/q"))
        await it.stop(replica)
        await it.store.revoke(client.session_id)
        tree = await loaded_tree(it.store)
        assert tree.unrecorded == {b"/p"}
        assert stat_of(tree.nodes[b"/p"])[-2:] == (0, tree.zxid)
        assert tree.nodes[b"/q"].pzxid < tree.zxid
        again = await it.start()
        await it.settle()
        assert_same_tree(again.tree, await loaded_tree(it.store))
        assert again.tree.nodes[b"/p"].pzxid == tree.zxid
        assert not again.tree.unrecorded


async def test_what_is_on_record_counts_for_those_who_did_not_see_children_go() -> None:
    """One that came up later can only say "by now", until one that saw it has written it down."""
    async with ensemble() as it:
        replica = await it.start()
        client, other = await it.session(), await it.session()
        await other.ask(create(b"/p"))
        await client.ask(create(b"/p/1", flags=1))
        await other.ask(create(b"/p/2", flags=1))
        await it.stop(replica)
        saw = await loaded_tree(it.store)
        ended = await it.store.revoke(client.session_id)
        await it.store.put(b"something else")
        late = await loaded_tree(it.store)
        assert late.nodes[b"/p"].pzxid > ended
        await it.store.put(layout.kids_key(b"/p"), layout.encode_kids(2, 1, ended))
        for tree in (saw, late):
            await _follow(it, tree, tree.zxid)
            assert tree.nodes[b"/p"].pzxid == ended
        # A record that came too late: meanwhile another went.
        ended_too = await it.store.revoke(other.session_id)
        await it.store.put(layout.kids_key(b"/p"), layout.encode_kids(2, 1, ended))
        for tree in (saw, late):
            await _follow(it, tree, tree.zxid)
            assert tree.nodes[b"/p"].pzxid == ended_too
            assert b"/p" in tree.unrecorded


async def test_an_ephemeral_without_a_session_is_there_until_it_follows() -> None:
    async with ensemble() as it:
        await it.start()
        client = await it.session()
        await client.ask(create(b"/e", flags=1))
        await it.store.delete(layout.session_key(client.session_id))
        tree = await loaded_tree(it.store)
        assert client.session_id not in tree.sessions
        assert tree.nodes[b"/e"].owner == client.session_id
        revision = await it.store.revoke(client.session_id)
        await _follow(it, tree, revision - 1)
        assert b"/e" not in tree.nodes


async def test_keys_that_are_not_ours_change_nothing() -> None:
    strays = (
        b"quoracy/zk/",
        b"quoracy/zk/n",
        b"quoracy/zk/nope",
        b"quoracy/zk/c",
        b"quoracy/zk/c/nowhere",
        b"quoracy/zk/s/",
        b"quoracy/zk/s/not hexadecimal!",
        b"quoracy/zk/s/00",
        b"quoracy/zk/sessions",
        b"quoracy/zk/total",
        b"quoracy/zk/x",
    )
    async with ensemble() as it:
        replica = await it.start()
        before = seen(replica.tree)
        await it.store.txn(Txn(then=tuple(Put(key, b"by hand") for key in strays)))
        await it.settle()
        assert seen(replica.tree) == before
        assert seen(await loaded_tree(it.store)) == before
        for key in strays:
            await it.store.delete(key)
        await it.settle()
        assert seen(replica.tree) == before
        client = await it.session()
        assert await client.err(create(b"/a")) == 0


async def test_a_record_that_cannot_be_read_is_refused_not_guessed_at() -> None:
    async with ensemble() as it:
        await it.start()
        await it.stop_all()
        await it.store.put(layout.node_key(b"/a"), b"\x09 from the future")
        with pytest.raises(DataError):
            await it.start()


async def test_the_count_of_data_follows_every_kind_of_change() -> None:
    async with ensemble() as it:
        tree = (await it.start()).tree
        client = await it.session()
        await client.ask(create(b"/a", b"12345"))
        assert tree.data_bytes == 5
        await client.ask(SetData(b"/a", b"12", -1))
        assert tree.data_bytes == 2
        await client.ask(SetAcl(b"/a", (Acl(31, "world", "anyone"),), -1))
        assert tree.data_bytes == 2
        await client.ask(Multi((Delete(b"/a", -1), create(b"/a", b"123"))))
        assert tree.data_bytes == 3
        await client.ask(SetData(b"/a", None, -1))
        assert tree.data_bytes == 0
        await client.ask(create(b"/e", b"1234", flags=1))
        await client.close()
        assert tree.data_bytes == 0


@pytest.mark.parametrize("way", ["in process", "far away"])
async def test_data_is_in_memory_once(way: str) -> None:
    """The store has it in the record of the znode; a mebibyte need not be there twice."""
    async with ensemble() as it:
        replica = await it.start(store=None if way == "in process" else Relay(it.store))
        client = await it.session()
        writes: list[tuple[Request, bytes | None]] = [
            (create(b"/a", b"first"), b"first"),
            (SetData(b"/a", b"second", -1), b"second"),
            (SetAcl(b"/a", (Acl(15, "world", "anyone"),), -1), b"second"),
            (SetData(b"/a", b"", -1), b""),
            (SetData(b"/a", None, -1), None),
            (Multi((Delete(b"/a", -1), create(b"/a", b"third"))), b"third"),
            (Multi((SetData(b"/a", b"x", -1), SetData(b"/a", b"fourth", -1))), b"fourth"),
        ]
        for request, data in writes:
            await client.ask(request)
            node = replica.tree.nodes[b"/a"]
            (kv,) = (await it.store.range(layout.node_key(b"/a"))).kvs
            assert (node.data, node.data_length) == (data, len(data or b""))
            assert node.n_value is kv.value
        await client.close()


@pytest.mark.parametrize("size", [0, 100, 5000, None])
async def test_what_was_shown_is_shown_until_it_changes(size: int | None) -> None:
    """Whoever asks first, and for what: the Stat, or the data with it."""
    async with ensemble() as it:
        tree = (await it.start()).tree
        client = await it.session()
        data = None if size is None else b"d" * size
        await client.ask(create(b"/a", data))
        for request in (
            SetData(b"/a", data, -1),
            SetAcl(b"/a", (Acl(31, "world", "anyone"),), -1),
            create(b"/a/b"),
            Delete(b"/a/b", -1),
        ):
            before = tree.nodes[b"/a"].data_and_stat()
            assert tree.nodes[b"/a"].data_and_stat() == before
            await client.ask(request)
            node = tree.nodes[b"/a"]
            fresh = node.copy().stat()
            assert node.data_and_stat() == data_body(data, fresh) != before
            assert node.stat() == fresh
            assert (await loaded_tree(it.store)).nodes[b"/a"].data_and_stat() == node.data_and_stat()
        await client.close()


def test_numbers_wrap_as_in_java() -> None:
    assert as_int32(2**31) == -(2**31)
    assert as_int32(-(2**31) - 1) == 2**31 - 1
    assert as_int32(-1) == -1
    node = Node(b"/")
    node.creates, node.children_count = 2**31 - 1, 0
    assert node.cversion == -2


def test_a_copy_shares_nothing_that_changes() -> None:
    node = Node(b"/a")
    values: dict[type, object] = {bytes: b"other", int: 7, NodeKind: 3, tuple: (), type(None): b"some"}
    names = [
        name for name in dir(node) if not name.startswith("_") and not callable(getattr(node, name))
    ]
    for name in set(names) - {"children", "cversion", "data", "data_length"}:
        setattr(node, name, values[type(getattr(node, name))])
    node.children, node.n_value, node.data_at = {b"x"}, b"record data", 7
    copied = node.copy()
    for name in set(names) - {"children"}:
        assert getattr(copied, name) == getattr(node, name), name
    assert not copied.children
