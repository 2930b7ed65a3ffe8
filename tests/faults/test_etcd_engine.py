"""The engine on a real cluster that loses members, its majority, its history and its memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quoracy.engines.etcd import replica as replica_module
from quoracy.engines.etcd.engine import EtcdStore
from quoracy.engines.etcd.opening import open_etcd
from quoracy.errors import Compacted, Indeterminate, Rejected, Unavailable
from quoracy.remote.etcd_versions import known_faults
from quoracy.remote.urls import Address, Target
from quoracy.store.model import KeyRange, Put, Txn
from quoracy.store.rules import Limits
from tests.support.asking import EVERYTHING, contents, read_to, read_to_the_end, take, until
from tests.support.etcd_cluster import EtcdCluster, etcd_program, running_cluster
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.faults


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    program = etcd_program("3.4")
    if program is None:
        pytest.skip("etcd is not installed")
    async with running_cluster(program, tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def near(etcd: EtcdCluster) -> AsyncIterator[EtcdStore]:
    """A node whose network does not break."""
    async with open_etcd(etcd.target) as store:
        yield store


@pytest.fixture
async def far(proxy: TcpProxy) -> AsyncIterator[EtcdStore]:
    """A node whose network breaks."""
    async with open_etcd(Target((Address("127.0.0.1", proxy.port),))) as store:
        yield store


# -- a node that is cut off -----------------------------------------------------------------------


async def test_node_that_is_cut_off_says_so_and_resumes(
    near: EtcdStore, far: EtcdStore, proxy: TcpProxy
) -> None:
    told: list[bool] = []
    far.on_serving(told.append)
    await near.put(b"k", b"old")
    assert (await far.range(b"k")).kvs[0].value == b"old"
    await proxy.refuse()
    proxy.cut()
    await until(lambda: not far.health().is_serving)
    with pytest.raises(Unavailable, match="no leader"):
        await far.put(b"k", b"never")
    with pytest.raises(Unavailable, match="no leader"):
        await far.range(b"k")
    await near.put(b"k", b"new")
    stale = await far.range(b"k", serializable=True)
    assert (stale.kvs[0].value, stale.is_stale) == (b"old", True)
    health = far.health()
    assert (health.is_serving, bool(health.reason), health.stale_s > 0) == (False, True, True)
    await proxy.listen()
    await until(lambda: far.health().is_serving)
    fresh = await far.range(b"k", serializable=True)
    assert (fresh.kvs[0].value, fresh.is_stale) == (b"new", False)
    assert told == [False, True]


async def test_status_is_told_as_far_as_it_is_known_when_the_cluster_does_not_answer(
    near: EtcdStore, far: EtcdStore, proxy: TcpProxy
) -> None:
    """A node that comes up during an outage says how it is, and ended when that question failed."""
    written = await near.put(b"k", b"v")
    await far.sync()
    await proxy.refuse()
    proxy.cut()
    assert far.health().is_serving, "it has not noticed yet"
    status = await far.status()
    assert (status.revision, status.keys_count) == (written.revision, 1)


async def test_watch_on_a_node_that_was_cut_off_misses_nothing(
    near: EtcdStore, far: EtcdStore, proxy: TcpProxy
) -> None:
    async with far.watch(EVERYTHING, after=1) as stream:
        for number in range(30):
            if number % 10 == 5:
                proxy.cut()
            await near.put(b"k%d" % number, b"v")
        batches = await read_to(stream, near.replica.revision)
    assert [batch.revision for batch in batches if batch.events] == list(range(2, 32))


async def test_history_compacted_meanwhile_is_told_as_compacted(
    near: EtcdStore, far: EtcdStore, proxy: TcpProxy
) -> None:
    await near.put(b"before", b"1")
    async with far.watch(EVERYTHING, after=1) as stream:
        assert (await take(stream, 1))[0].revision == 2
        await proxy.refuse()
        proxy.cut()
        for number in range(20):
            await near.put(b"k%d" % number)
        await near.delete(b"before")
        await near.compact(near.replica.revision)
        await proxy.listen()
        _, error = await read_to_the_end(stream)
    assert isinstance(error, Compacted)
    assert error.oldest == near.replica.revision
    assert await contents(far) == await contents(near)
    async with far.watch(EVERYTHING) as stream:  # and from here on all is well
        await near.put(b"after")
        assert (await anext(stream)).events[0].kv.key == b"after"


async def test_silent_network_is_noticed(near: EtcdStore, far: EtcdStore, proxy: TcpProxy) -> None:
    """Bytes vanish, and nobody hangs up."""
    await near.put(b"k", b"1")
    proxy.hold_all()
    await until(lambda: not far.health().is_serving)
    proxy.pass_all()
    await until(lambda: far.health().is_serving)
    assert (await far.range(b"k")).kvs[0].value == b"1"


async def test_sign_of_life_is_not_sent_long_after_it_was_given(
    near: EtcdStore, far: EtcdStore, proxy: TcpProxy
) -> None:
    """Or those who died while the network was away would live on when it is back."""
    lease = await near.grant(120)
    proxy.hold_all()
    keeping = asyncio.create_task(far.keep_alive(lease.id))
    await until(lambda: not far.health().is_serving)  # which takes longer than a sign of life is worth
    proxy.cut()
    proxy.pass_all()
    with pytest.raises((Unavailable, Indeterminate)):
        await keeping
    await until(lambda: far.health().is_serving)
    assert (await near.time_to_live(lease.id)).remaining_s < 119


async def test_member_that_falls_silent_is_not_waited_for(etcd: EtcdCluster, proxy: TcpProxy) -> None:
    """The machine that tells of changes vanishes without a word, and another could tell."""
    direct = Address("127.0.0.1", etcd.ports[0])
    async with open_etcd(Target((Address("127.0.0.1", proxy.port), direct))) as store:
        store.remote.prefer(direct)
        await until(lambda: store.remote.current_address == direct)
        await store.put(b"k", b"1")
        proxy.hold_all()
        await store.put(b"k", b"2")
        assert store.near.current_address == direct
        assert (await store.range(b"k")).kvs[0].version == 2


async def test_write_whose_answer_is_lost_is_sent_once(
    near: EtcdStore, far: EtcdStore, proxy: TcpProxy
) -> None:
    proxy.hold_answers()
    writing = asyncio.create_task(far.put(b"k", b"v"))
    async with near.watch(b"k", after=1) as stream:
        assert (await anext(stream)).events[0].kv.version == 1
    proxy.cut()
    with pytest.raises(Indeterminate):
        await writing
    proxy.pass_all()
    assert (await near.range(b"k")).kvs[0].version == 1


async def test_cluster_that_was_replaced_is_read_anew(
    tmp_path: Path, proxy: TcpProxy, far: EtcdStore, etcd: EtcdCluster
) -> None:
    """Somebody restored another state: revisions went back, and nothing known before holds."""
    for number in range(10):
        await far.put(b"old%d" % number)
    async with far.watch(EVERYTHING) as stream:
        await etcd.kill(0)
        (tmp_path / "m0").rename(tmp_path / "gone")
        await etcd.start(0)
        _, error = await read_to_the_end(stream)
    assert isinstance(error, Compacted)
    await until(lambda: far.health().is_serving)
    assert await contents(far) == {}
    assert (await far.put(b"new")).revision == 2
    assert proxy.connections_count > 0


# -- history ----------------------------------------------------------------------------------------


async def test_past_from_before_the_node_began_is_the_clusters(
    near: EtcdStore, etcd: EtcdCluster
) -> None:
    for number in range(5):
        await near.put(b"k", b"%d" % number)
    async with open_etcd(etcd.target) as late:
        assert (await late.range(b"k", at=3)).kvs[0].value == b"1"
        async with late.watch(b"k", after=1, prev_kv=True) as stream:
            batches = await take(stream, 5)
            assert [batch.events[0].kv.value for batch in batches] == [b"0", b"1", b"2", b"3", b"4"]
            assert [batch.events[0].kv.key for batch in batches] == [b"k"] * 5
            await late.put(b"k", b"5")
            (batch,) = await take(stream, 1)
            assert batch.events[0].prev_kv is not None
            assert (batch.events[0].prev_kv.value, batch.events[0].prev_kv.key) == (b"4", b"k")


async def test_slow_consumer_is_fed_from_the_cluster(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it needs next was forgotten here long ago."""
    monkeypatch.setattr(replica_module, "KEPT_REVISIONS", 40)
    monkeypatch.setattr(replica_module, "_TRIM_REVISIONS", 16)
    async with (
        open_etcd(etcd.target, limits=Limits(watch_buffer_events_max=5)) as store,
        store.watch(EVERYTHING) as stream,
    ):
        for number in range(300):
            await store.put(b"k%d" % (number % 7), b"%d" % number)
        assert store.replica.known_from > 200
        batches = await read_to(stream, 301)
        assert [int(batch.events[0].kv.value) for batch in batches if batch.events] == list(range(300))
        await store.put(b"k", b"300")
        assert (await take(stream, 1))[0].events[0].kv.value == b"300"


async def test_many_keys_are_read_in_pages(near: EtcdStore, etcd: EtcdCluster) -> None:
    for page in range(25):
        puts = tuple(Put(b"%05d" % (page * 100 + each), b"v") for each in range(100))
        await near.txn(Txn((), puts))
    async with open_etcd(etcd.target) as late:
        assert (await late.range(EVERYTHING, count_only=True, serializable=True)).count == 2500
        assert (await late.hash()).digest == (await near.hash()).digest


# -- others on the same cluster ----------------------------------------------------------------------


async def test_revisions_of_others_hold_nobody_up(near: EtcdStore, etcd: EtcdCluster) -> None:
    await near.put(b"ours", b"1")
    for number in range(5):
        await etcd.etcdctl("put", "theirs", str(number))
    assert (await near.range(EVERYTHING)).count == 1
    result = await near.put(b"ours", b"2")
    assert result.revision == 8
    async with near.watch(EVERYTHING, after=1) as stream:
        revisions = [batch.revision for batch in await read_to(stream, 8) if batch.events]
    assert revisions == [2, 8]
    assert await contents(near) == {b"ours": b"2"}


async def test_two_stores_on_one_cluster_see_their_own(etcd: EtcdCluster) -> None:
    async with (
        open_etcd(etcd.target, prefix=b"/a/") as one,
        open_etcd(etcd.target, prefix=b"/b/") as other,
    ):
        await one.put(b"k", b"a")
        await other.put(b"k", b"b")
        await other.delete(KeyRange.everything())
        assert (await contents(one), await contents(other)) == ({b"k": b"a"}, {})
        lease = await one.grant(60)
        await one.put(b"l", lease=lease.id)
        assert (await one.time_to_live(lease.id, keys=True)).keys == (b"l",)
        assert (await other.time_to_live(lease.id, keys=True)).keys == ()


# -- a cluster of three --------------------------------------------------------------------------


async def test_lost_member_costs_no_write_that_was_answered(cluster: EtcdCluster) -> None:
    async with contextlib.AsyncExitStack() as open_stores:
        stores = [
            await open_stores.enter_async_context(open_etcd(cluster.target_from(index)))
            for index in range(3)
        ]
        acknowledged: set[bytes] = set()
        unknown: set[bytes] = set()

        async def write(store: EtcdStore, name: str) -> None:
            for number in range(60):
                key = b"%s-%d" % (name.encode(), number)
                try:
                    await store.put(key)
                    acknowledged.add(key)
                except Indeterminate:
                    unknown.add(key)
                except Unavailable:
                    await asyncio.sleep(0.05)

        writers = [
            asyncio.create_task(write(store, f"node{index}")) for index, store in enumerate(stores)
        ]
        await until(lambda: len(acknowledged) > 20)
        await cluster.kill(0)
        await until(lambda: len(acknowledged) > 60)
        await cluster.start(0)
        await asyncio.gather(*writers)
        for store in stores:
            found = set(await contents(store))
            assert acknowledged <= found <= acknowledged | unknown
        digests = {(await store.hash()).digest for store in stores}
        assert len(digests) == 1


async def test_without_a_majority_nothing_is_taken_and_with_it_all_goes_on(
    cluster: EtcdCluster,
) -> None:
    async with open_etcd(cluster.target) as store:
        await store.put(b"k", b"v")
        lease = await store.grant(120)
        await cluster.kill(1, 2)
        await until(lambda: not store.health().is_serving)
        for refused in (
            store.put(b"k", b"w"),
            store.range(b"k"),
            store.keep_alive(lease.id),
            store.grant(60),
        ):
            with pytest.raises(Unavailable):
                await refused
        stale = await store.range(b"k", serializable=True)
        assert (stale.kvs[0].value, stale.is_stale) == (b"v", True)
        cluster.spawn(1)
        await until(lambda: store.health().is_serving)
        await store.put(b"k", b"w")
        assert (await store.keep_alive(lease.id)).ttl_s == 120
        assert (await store.range(b"k")).kvs[0].version == 2


async def test_whoever_leads_is_asked(cluster: EtcdCluster) -> None:
    """And the nearest member, the first of the list, tells what changed."""
    async with open_etcd(cluster.target_from(1)) as store:
        leader = next(member for member in store.health().members if member.is_leader)
        await until(lambda: str(store.remote.current_address) == leader.address)
        await store.put(b"k")
        assert str(store.near.current_address) == f"127.0.0.1:{cluster.ports[1]}"


async def test_health_names_the_members(cluster: EtcdCluster) -> None:
    async with open_etcd(cluster.target) as store:
        health = store.health()
        assert [member.name for member in health.members] == ["m0", "m1", "m2"]
        assert [member.is_leader for member in health.members].count(True) == 1
        assert health.leader in {"m0", "m1", "m2"}
        assert health.role == ("leader" if health.leader == "m0" else "follower")
        fault = known_faults(health.members[0].version)
        assert health.warnings == (() if fault is None else (fault,))
        status = await store.status()
        assert (status.engine.startswith("etcd 3.4"), status.revision) == (True, 1)


async def test_etcd_that_damages_data_is_named(tmp_path: Path) -> None:
    program = etcd_program("3.5")
    if program is None:
        pytest.skip("etcd 3.5 is not installed")
    async with (
        running_cluster(program, tmp_path, count=1) as cluster,
        open_etcd(cluster.target) as store,
    ):
        (warning,) = store.health().warnings
        assert "13766" in warning


# -- who may -------------------------------------------------------------------------------------


async def test_user_who_may_only_have_the_prefix_is_enough(etcd: EtcdCluster) -> None:
    for arguments in (
        ("user", "add", "root:secret"),
        ("user", "grant-role", "root", "root"),
        ("user", "add", "node:secret"),
        ("role", "add", "cell"),
        ("role", "grant-permission", "--prefix=true", "cell", "readwrite", "/quoracy/"),
        ("user", "grant-role", "node", "cell"),
        ("auth", "enable"),
    ):
        await etcd.etcdctl(*arguments)
    address = Address("127.0.0.1", etcd.ports[0])
    async with open_etcd(Target((address,), "node", "secret")) as store:
        lease = await store.grant(60)
        await store.put(b"k", b"v", lease=lease.id)
        async with store.watch(b"k", after=1) as stream:
            assert (await anext(stream)).events[0].kv.value == b"v"
        assert (await store.range(b"k")).kvs[0].lease == lease.id
        await store.revoke(lease.id)
        assert await contents(store) == {}
    with pytest.raises(Rejected):
        async with open_etcd(Target((address,), "node", "secret"), prefix=b"/elsewhere/"):
            pass


async def test_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1\b.*0\.5 s"):
        async with open_etcd(Target((Address("127.0.0.1", 1),)), wait_s=0.5):
            pass
