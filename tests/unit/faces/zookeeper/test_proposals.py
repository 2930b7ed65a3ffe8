"""The rules, one by one: what is refused, and with which of several errors (PrepRequestProcessor)."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest

from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.acl import Identity
from quoracy.faces.zookeeper.writing.proposals import DeleteContainer
from quoracy.wire.zookeeper.codes import Err, Op
from quoracy.wire.zookeeper.requests import (
    Acl,
    Check,
    Create,
    Delete,
    Multi,
    SetAcl,
    SetData,
)
from tests.support.zookeeper_core import Client, Ensemble, create, ensemble
from tests.support.zookeeper_model import Stat

_WORLD = "world"
_NOBODY = (Acl(31, "digest", "nobody:x"),)
_READ_ONLY = (Acl(1, _WORLD, "anyone"),)
_NO_CREATE = (Acl(31 - 4, _WORLD, "anyone"),)
_NO_DELETE = (Acl(31 - 8, _WORLD, "anyone"),)


@pytest.fixture
async def it() -> AsyncIterator[Ensemble]:
    async with ensemble() as it:
        await it.start()
        yield it


@pytest.fixture
async def client(it: Ensemble) -> Client:
    """With a tree: /closed belongs to nobody, /e is an ephemeral, /full has a child."""
    client = await it.session()
    await client.ask(create(b"/closed"))
    await client.ask(create(b"/closed/child"))
    await client.ask(SetAcl(b"/closed", _NOBODY, -1))
    await client.ask(create(b"/e", flags=1))
    await client.ask(create(b"/full"))
    await client.ask(create(b"/full/child"))
    await client.ask(create(b"/no-create", acl=_NO_CREATE))
    await client.ask(create(b"/no-delete", acl=_NO_DELETE))
    await client.ask(create(b"/no-delete/child"))
    return client


@pytest.mark.parametrize(
    ("request_", "err"),
    [
        # The mode comes first of all, then the path, the ACL, the parent, its ACL, the whole path, ...
        (create(b"no slash", flags=9, acl=()), Err.BAD_ARGUMENTS),
        (create(b"/nowhere/x", acl=()), Err.INVALID_ACL),
        (create(b"/nowhere/x/", acl=(Acl(31, "unknown", ""),)), Err.INVALID_ACL),
        (create(b"/nowhere/x/"), Err.NO_NODE),
        (create(b"/closed/"), Err.NO_AUTH),
        (create(b"/no-create/x"), Err.NO_AUTH),
        (create(b"/e/"), Err.BAD_ARGUMENTS),
        (create(b"/full/"), Err.BAD_ARGUMENTS),
        (create(b"/full/."), Err.BAD_ARGUMENTS),
        (create(b"/full//x"), Err.NO_NODE),
        (create(b"/full/\0"), Err.BAD_ARGUMENTS),
        (create(b"/full/\x1f"), Err.BAD_ARGUMENTS),
        (create(b"/"), Err.NODE_EXISTS),
        (create(b""), Err.BAD_ARGUMENTS),
        (create(b"/e/child"), Err.NO_CHILDREN_FOR_EPHEMERALS),
        (create(b"/full/child"), Err.NODE_EXISTS),
        # ... and of a sequential one, with its number.
        (create(b"/full/", flags=2), Err.OK),
        (create(b"/e/", flags=2), Err.NO_CHILDREN_FOR_EPHEMERALS),
        # Modes.
        (create(b"/x", flags=7), Err.BAD_ARGUMENTS),
        (create(b"/x", flags=-1), Err.BAD_ARGUMENTS),
        (create(b"/x", flags=5), Err.BAD_ARGUMENTS),
        (create(b"/x", op=Op.CREATE_TTL, flags=5, ttl_ms=0), Err.BAD_ARGUMENTS),
        (create(b"/x", op=Op.CREATE_TTL, flags=5, ttl_ms=2**40), Err.BAD_ARGUMENTS),
        (create(b"/x", op=Op.CREATE_TTL, flags=5, ttl_ms=2**40 - 1), Err.OK),
        (create(b"/x", op=Op.CREATE_TTL, flags=6, ttl_ms=1), Err.OK),
        (create(b"/x", op=Op.CREATE_TTL, flags=0, ttl_ms=5), Err.BAD_ARGUMENTS),
        (create(b"/x", op=Op.CREATE_CONTAINER, flags=4), Err.OK),
        # A delete looks for the parent, then its ACL, then the znode, its version, its children.
        (Delete(b"no slash", 0), Err.BAD_ARGUMENTS),
        (Delete(b"", -1), Err.BAD_ARGUMENTS),
        (Delete(b"/", -1), Err.BAD_ARGUMENTS),
        (Delete(b"/zookeeper", -1), Err.BAD_ARGUMENTS),
        (Delete(b"/zookeeper/quota", -1), Err.BAD_ARGUMENTS),
        (Delete(b"/zookeeper/config", -1), Err.BAD_ARGUMENTS),
        (Delete(b"/full/\0", -1), Err.BAD_ARGUMENTS),
        (Delete(b"/nowhere/x", 7), Err.NO_NODE),
        (Delete(b"/closed/nothing", 7), Err.NO_AUTH),
        (Delete(b"/no-delete/child", -1), Err.NO_AUTH),
        (Delete(b"/full/nothing", 7), Err.NO_NODE),
        (Delete(b"/full/", -1), Err.NO_NODE),
        (Delete(b"/full", 7), Err.BAD_VERSION),
        (Delete(b"/full", 0), Err.NOT_EMPTY),
        (Delete(b"/closed", -1), Err.NOT_EMPTY),
        (Delete(b"/no-delete", -1), Err.NOT_EMPTY),
        (Delete(b"/full/child", 0), Err.OK),
        # The others look at the path first.
        (SetData(b"/full/", b"", -1), Err.BAD_ARGUMENTS),
        (SetData(b"", b"", -1), Err.BAD_ARGUMENTS),
        (SetData(b"/nowhere", b"", 7), Err.NO_NODE),
        (SetData(b"/closed", b"", 7), Err.NO_AUTH),
        (SetData(b"/full", b"", 7), Err.BAD_VERSION),
        (SetData(b"/zookeeper/config", b"", -1), Err.NO_AUTH),
        (SetData(b"/", b"", -1), Err.OK),
        (SetAcl(b"/nowhere/", (), -1), Err.BAD_ARGUMENTS),
        (SetAcl(b"/nowhere", (), -1), Err.INVALID_ACL),
        (SetAcl(b"/nowhere", (Acl(31, "auth", ""),), -1), Err.INVALID_ACL),
        (SetAcl(b"/nowhere", _READ_ONLY, 7), Err.NO_NODE),
        (SetAcl(b"/closed", _READ_ONLY, 7), Err.NO_AUTH),
        (SetAcl(b"/full", _READ_ONLY, 7), Err.BAD_VERSION),
        (SetAcl(b"/full", _READ_ONLY, 0), Err.OK),
        (Check(b"/full/", 0), Err.BAD_ARGUMENTS),
        (Check(b"/nowhere", 7), Err.NO_NODE),
        (Check(b"/closed", 7), Err.NO_AUTH),
        (Check(b"/full", 7), Err.BAD_VERSION),
        (Check(b"/full", 0), Err.OK),
        (Check(b"/full", -1), Err.OK),
        # What only the server itself asks for.
        (DeleteContainer(b"/full/child"), Err.BAD_VERSION),
        (DeleteContainer(b"/nowhere"), Err.NO_NODE),
    ],
)
async def test_the_first_thing_that_is_wrong_decides(
    client: Client, request_: Create | Delete | SetData | SetAcl | Check, err: Err
) -> None:
    before = client.replica.tree.zxid
    assert await client.err(request_) == err
    # In a multi it is the same, and nothing of it happens.
    if not isinstance(request_, SetAcl | DeleteContainer) and err:
        multi = Multi((create(b"/first"), request_, create(b"/last")))
        results = [("error", 0), ("error", err), ("error", Err.RUNTIME_INCONSISTENCY)]
        assert await client.answer(multi) == (0, results)
        assert b"/first" not in client.replica.tree.nodes
    if err:
        assert client.replica.tree.zxid == before


async def test_ttl_znodes_can_be_switched_off() -> None:
    async with ensemble(settings=ZooKeeperSettings(extended_types_enabled=False)) as it:
        await it.start()
        client = await it.session()
        ttl = create(b"/t", op=Op.CREATE_TTL, flags=5, ttl_ms=-7)
        assert await client.err(ttl) == Err.UNIMPLEMENTED
        assert await client.err(create(b"/c", op=Op.CREATE_CONTAINER, flags=4)) == Err.OK


async def test_acls_can_be_switched_off() -> None:
    async with ensemble(settings=ZooKeeperSettings(skip_acl=True)) as it:
        await it.start()
        client = await it.session()
        assert await client.err(create(b"/a", acl=_NOBODY)) == Err.OK
        assert await client.err(SetData(b"/a", b"", -1)) == Err.OK


async def test_whoever_is_named_may(it: Ensemble, client: Client) -> None:
    named = await it.session(None, Identity("digest", "nobody:x"))
    assert await client.err(SetData(b"/closed", b"", -1)) == Err.NO_AUTH
    assert await named.err(SetData(b"/closed", b"", -1)) == Err.OK
    assert await named.err(create(b"/mine", acl=(Acl(31, "auth", ""),))) == Err.OK
    assert it.replica.tree.nodes[b"/mine"].acl == _NOBODY
    assert await client.err(SetData(b"/mine", b"", -1)) == Err.NO_AUTH


async def test_sequence_numbers_count_every_create_and_no_delete(client: Client) -> None:
    await client.ask(create(b"/q"))
    assert await client.answer(create(b"/q/n-", flags=2)) == (0, b"/q/n-0000000000")
    assert await client.err(create(b"/q/other")) == 0
    assert await client.err(create(b"/q/other")) == Err.NODE_EXISTS
    assert await client.answer(create(b"/q/n-", flags=3)) == (0, b"/q/n-0000000002")
    assert await client.err(Delete(b"/q/other", -1)) == 0
    assert await client.answer(create(b"/q/", flags=2)) == (0, b"/q/0000000003")
    both = Multi((create(b"/q/n-", flags=2), create(b"/q/n-", flags=2)))
    assert await client.answer(both) == (
        0,
        [("create", b"/q/n-0000000004"), ("create", b"/q/n-0000000005")],
    )


async def test_sequence_numbers_wrap_around_like_an_int(it: Ensemble, client: Client) -> None:
    await client.ask(create(b"/q"))
    await client.ask(create(b"/q/first"))
    put = await it.store.put(layout.kids_key(b"/q"), layout.encode_kids(2**31 - 2, 1))
    await client.replica.caught_up(put.revision)
    paths = [await client.answer(create(b"/q/n-", flags=2)) for _ in range(4)]
    assert paths == [
        (0, b"/q/n-2147483646"),
        (0, b"/q/n-2147483647"),
        (0, b"/q/n--2147483648"),
        (0, b"/q/n--2147483647"),
    ]
    node = it.replica.tree.nodes[b"/q"]
    assert node.creates == -(2**31) + 2
    assert node.cversion == 2 * 2 - 5


async def test_versions_leave_out_minus_one(it: Ensemble, client: Client) -> None:
    """-1 would mean "any" to the next who names it."""
    await client.ask(create(b"/v"))
    (kv,) = (await it.store.range(layout.node_key(b"/v"))).kvs
    kind, data, acl, ctime, mtime, czxid, mzxid, _, _, owner = layout.decode_node(kv.value)
    for version, following in ((2**31 - 1, -(2**31)), (-2, 0), (-(2**31), -(2**31) + 1)):
        value = layout.encode_node(
            kind,
            data,
            acl,
            ctime=ctime,
            mtime=mtime,
            czxid=czxid,
            mzxid=mzxid,
            version=version,
            aversion=version,
            owner=owner,
        )
        put = await it.store.put(layout.node_key(b"/v"), value)
        await client.replica.caught_up(put.revision)
        err, stat = await client.answer(SetData(b"/v", b"", version))
        assert isinstance(stat, Stat)
        assert (err, stat.version) == (0, following)
        err, stat = await client.answer(SetAcl(b"/v", acl, version))
        assert isinstance(stat, Stat)
        assert (err, stat.aversion) == (0, following)


async def test_the_owner_of_containers_and_ttl_znodes_is_nobody(client: Client) -> None:
    for request in (
        create(b"/c", op=Op.CREATE_CONTAINER, flags=4),
        create(b"/t", op=Op.CREATE_TTL, flags=5, ttl_ms=9),
    ):
        _, body = await client.answer(request)
        assert isinstance(body, tuple)
        path, stat = body
        assert (path, stat.owner) == (request.path, 0)
    _, body = await client.answer(create(b"/e2", op=Op.CREATE2, flags=1))
    assert isinstance(body, tuple)
    assert body[1].owner == client.session_id


async def test_each_result_of_a_multi_shows_the_znode_at_that_moment(client: Client) -> None:
    _, results = await client.answer(
        Multi(
            (
                create(b"/m", b"1", op=Op.CREATE2),
                create(b"/m/a"),
                SetData(b"/m", b"22", 0),
                create(b"/m/b"),
                Delete(b"/m/a", -1),
                SetData(b"/m", b"333", 1),
                Check(b"/m", 2),
                Delete(b"/m/b", -1),
                Delete(b"/m", 2),
                create(b"/m", None, op=Op.CREATE2),
            )
        )
    )
    assert isinstance(results, list)
    stats = [result[-1] for result in results if isinstance(result[-1], Stat)]
    assert [(s.version, s.cversion, s.num_children, s.data_length) for s in stats] == [
        (0, 0, 0, 1),
        (1, 1, 1, 2),
        (2, 3, 1, 3),
        (0, 0, 0, 0),
    ]
    zxid = client.replica.tree.zxid
    assert {(s.czxid, s.mzxid, s.pzxid) for s in stats} == {(zxid, zxid, zxid)}


async def test_an_empty_multi_is_answered_and_makes_nothing(client: Client) -> None:
    before = client.replica.tree.zxid
    outcome = await client.ask(Multi(()))
    assert outcome is not None
    assert outcome.body == struct.pack(">i?i", -1, True, -1)
    assert client.replica.tree.zxid == before
