"""Sessions on a cluster: renewed seldom, never promised more than their lease has, agreed on by nodes.

Time is the test's, and the cluster does what the test says.
"""

from __future__ import annotations

import asyncio

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.errors import Indeterminate, Unavailable
from quoracy.faces.zookeeper.serving.server import Face
from quoracy.faces.zookeeper.serving.session_timing import CLUSTER, NEAR
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.layout import session_key
from quoracy.store.model import Txn, TxnResult
from quoracy.wire.zookeeper.codes import Err, Op
from tests.support.zookeeper_frames import connect_frame, create_body, get_body, request, set_body, text

from .cell_stores import CellStore, cell_store
from .dialogue import Client, Connected, serving

NO_LEADER = Unavailable("no leader")


def back_to(told: Connected, *, timeout_ms: int = 10_000, zxid: int = 0) -> bytes:
    return connect_frame(
        timeout_ms=timeout_ms, session_id=told.session_id, password=told.password, zxid=zxid
    )


async def heartbeat(client: Client) -> None:
    assert (await client.ask(Op.PING, xid=-2)).xid == -2


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def later(clock: ManualClock, seconds: float) -> None:
    """Time passes, and everybody has heard of it."""
    await clock.advance(seconds)
    await settle()


# -- how long a lease is ---------------------------------------------------------------------


@pytest.mark.parametrize("rhythm", [CLUSTER, NEAR], ids=["cluster", "near"])
def test_lease_lasts_for_the_timeout_after_the_last_sign_of_life_and_hardly_longer(rhythm) -> None:  # type: ignore[no-untyped-def]
    for timeout_ms in range(1000, 60_000, 37):
        renew_s, ttl_s = rhythm.renew_s(timeout_ms), rhythm.ttl_s(timeout_ms)
        assert ttl_s == pytest.approx(timeout_ms / 1000 + renew_s)
        assert 0.1 < renew_s <= 1.25
        assert rhythm.timeout_ms_of(ttl_s) >= timeout_ms - 1
        # Who hears nothing for two thirds of the timeout does not believe in its session any more.
        assert (
            rhythm.answers_s(timeout_ms) == float("inf")
            or rhythm.answers_s(timeout_ms) + timeout_ms / 1500 <= ttl_s + 1e-9
        )


def test_leases_on_a_cluster_are_whole_seconds() -> None:
    given = {each: CLUSTER.ttl_s(each) for each in (2000, 4000, 10_000, 10_500, 10_800, 40_000)}
    assert given == {2000: 3, 4000: 5, 10_000: 11, 10_500: 11, 10_800: 12, 40_000: 41}


async def test_busy_client_is_reported_once_a_second() -> None:
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        client = Client(face)
        await client.connect()
        for _ in range(100):
            await later(clock, 0.1)
            for _ in range(5):
                await heartbeat(client)
            await settle()
        assert 8 <= store.calls["keep_alive"] <= 10


@pytest.mark.parametrize("at", [0.3, 0.99, 1.01, 5.0, 9.9])
async def test_session_lives_for_its_timeout_after_every_sign_of_life(at: float) -> None:
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        client = Client(face)
        told = await client.connect()
        await later(clock, at)
        await heartbeat(client)
        await later(clock, 10.0)
        assert told.session_id in face.tree.sessions
        await later(clock, 1.0 + 0.2)
        assert told.session_id not in face.tree.sessions
        assert client.is_closed()


# -- what an answer promises -----------------------------------------------------------------


async def test_requests_wait_when_the_lease_could_not_be_renewed_for_a_third_of_the_timeout() -> None:
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        client = Client(face)
        await client.connect()
        store.write_error = NO_LEADER
        for _ in range(4):
            await later(clock, 1.0)
            await heartbeat(client)
        await later(clock, 0.4)  # a third of ten seconds and one second are over
        client.say(request(1, Op.EXISTS, get_body(b"/")), request(-2, Op.PING))
        await later(clock, 1.0)
        assert client.unparsed == b""
        store.write_error = None
        await later(clock, 0.25)
        assert [(await client.reply()).xid for _ in range(2)] == [1, -2]
        assert not client.is_closed()
        await later(clock, 9.9)
        assert not client.is_closed()


async def test_client_whose_lease_may_have_run_out_is_hung_up_on() -> None:
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        client = Client(face)
        await client.connect()
        store.write_error = NO_LEADER
        for _ in range(9):
            await later(clock, 1.0)
            client.say(request(-2, Op.PING))
        assert not client.is_closed()
        await later(clock, 1.3)
        assert client.is_closed()


async def test_process_that_stood_still_answers_nothing_before_it_knows() -> None:
    """What came meanwhile is in the socket; the session may be over, and others may have its locks."""
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        client, other = Client(face), Client(face)
        await client.connect()
        await other.connect()
        clock.jump(8.0)
        client.say(request(1, Op.EXISTS, get_body(b"/")))
        assert client.unparsed == b""
        assert (await client.reply()).xid == 1  # it is known to live
        clock.jump(3.0)
        other.say(request(1, Op.EXISTS, get_body(b"/")))
        assert other.is_closed()
        assert other.unparsed == b""


async def test_client_that_left_is_not_kept_alive() -> None:
    clock = ManualClock()
    async with cell_store(clock) as store, serving(store=store, clock=clock) as face:
        client = Client(face)
        told = await client.connect()
        await later(clock, 5.0)
        store.write_error = NO_LEADER
        client.say(request(-2, Op.PING))
        await settle()
        client.lose()
        store.write_error = None
        await later(clock, 6.2)
        assert told.session_id not in face.tree.sessions
        assert store.calls["keep_alive"] == 1


# -- nodes -----------------------------------------------------------------------------------


async def test_client_that_has_seen_more_waits_until_the_node_has_too() -> None:
    async with open_embedded("memory:") as inner:
        ahead, behind = CellStore(inner), CellStore(inner)
        async with serving(store=ahead) as there, serving(store=behind) as here:
            client = Client(there)
            told = await client.connect()
            behind.relay.watch_open.clear()
            await client.create(b"/a")
            moved = Client(here)
            moved.say(back_to(told, zxid=there.tree.zxid))
            await settle()
            assert not moved.is_closed()
            assert moved.unparsed == b""
            behind.relay.watch_open.set()
            assert await moved.connected() == told
            assert (await moved.ask(Op.EXISTS, get_body(b"/a"))).err == 0


async def test_client_that_has_seen_what_nobody_has_is_hung_up_on() -> None:
    async with cell_store() as store, serving(store=store) as face:
        client = Client(face)
        client.say(connect_frame(zxid=face.tree.zxid + 1))
        await client.wait_closed()
        assert client.unparsed == b""


async def test_sync_shows_what_another_node_wrote() -> None:
    async with open_embedded("memory:") as inner:
        async with serving(store=CellStore(inner)) as there, serving(store=CellStore(inner)) as here:
            reader, writer = Client(here), Client(there)
            await reader.connect()
            await writer.connect()
            for number in range(20):
                path = b"/n%d" % number
                await writer.create(path)
                assert (await reader.ask(Op.SYNC, text(path))).err == 0
                assert (await reader.ask(Op.EXISTS, get_body(path))).err == 0


async def test_write_with_a_version_that_lost_its_race_is_told_so() -> None:
    async with open_embedded("memory:") as inner:
        behind = CellStore(inner)
        async with serving(store=CellStore(inner)) as there, serving(store=behind) as here:
            one, other = Client(here), Client(there)
            await one.connect()
            await other.connect()
            await other.create(b"/a")
            assert (await one.ask(Op.SYNC, text(b"/a"))).err == 0
            behind.relay.watch_open.clear()
            assert (await other.ask(Op.SET_DATA, set_body(b"/a", b"x", 0))).err == 0
            one.say(request(1, Op.SET_DATA, set_body(b"/a", b"y", 0)))
            await settle()
            behind.relay.watch_open.set()
            assert (await one.reply()).err == Err.BAD_VERSION
            assert (await one.ask(Op.SET_DATA, set_body(b"/a", b"y", 1))).err == 0


async def test_path_that_no_store_can_have_is_refused_for_the_right_reason() -> None:
    async with cell_store() as store, serving(store=store) as face:
        client = Client(face)
        await client.connect()
        below_nothing = b"/none/" + b"x" * 100_000
        assert (await client.ask(Op.CREATE, create_body(below_nothing))).err == Err.NO_NODE
        assert (await client.ask(Op.DELETE, text(below_nothing) + b"\xff" * 4)).err == Err.NO_NODE
        assert (
            await client.ask(Op.CREATE, create_body(b"/" + b"x" * 100_000))
        ).err == Err.BAD_ARGUMENTS
        assert (await client.ask(Op.CREATE, create_body(b"/a"))).err == 0


async def test_node_that_stood_still_does_not_end_a_session_that_has_moved() -> None:
    """Its lease is longer than its timeout, so the node that serves it has to end it."""
    clock = ManualClock()
    settings = ZooKeeperSettings(tick_time=100)
    async with open_embedded("memory:", clock=clock) as inner:
        behind = CellStore(inner)
        async with (
            serving(settings, store=behind, clock=clock) as before,
            serving(settings, store=CellStore(inner), clock=clock) as after,
        ):
            told = await Client(before).connect(connect_frame(timeout_ms=2000))
            client = Client(before)
            await client.connect(back_to(told, timeout_ms=500))
            behind.relay.watch_open.clear()
            moved = Client(after)
            assert (await moved.connect(back_to(told, timeout_ms=500))).session_id == told.session_id
            for _ in range(20):
                await later(clock, 0.25)
                await heartbeat(moved)
            behind.relay.watch_open.set()
            await later(clock, 0.25)
            await heartbeat(moved)
            assert client.is_closed()


async def test_session_that_is_too_short_for_any_lease_is_ended_by_its_node() -> None:
    clock = ManualClock()
    settings = ZooKeeperSettings(tick_time=100)
    async with cell_store(clock) as store, serving(settings, store=store, clock=clock) as face:
        client = Client(face)
        told = await client.connect(connect_frame(timeout_ms=8000))
        client.lose()
        await Client(face).connect(back_to(told, timeout_ms=1000))
        await later(clock, 1.0)
        assert told.session_id in face.tree.sessions
        await later(clock, 1.5)
        assert face.tree.sessions == {}
        assert await store.inner.leases() == ()


# -- writes of which nobody knows ------------------------------------------------------------


async def test_write_that_was_lost_on_the_way_never_comes_after_its_client_is_back() -> None:
    async with cell_store() as store, serving(store=store) as face:
        client = Client(face)
        told = await client.connect()
        on_its_way: list[Txn] = []

        async def lose(txn: Txn) -> TxnResult:
            on_its_way.append(txn)
            raise Indeterminate("the answer was lost")

        store.relay.courier = lose
        client.say(request(1, Op.CREATE, create_body(b"/late")))
        await client.wait_closed()
        store.relay.courier = None
        again = Client(face)
        assert await again.connect(back_to(told)) == told
        (late,) = on_its_way
        assert not (await store.inner.txn(late)).succeeded
        assert await _records(face, told) == 2
        await again.create(b"/late")
        # Nothing is in doubt any more: to come back is not to write.
        assert await Client(face).connect(back_to(told)) == told
        assert await _records(face, told) == 2


async def _records(face: Face, told: Connected) -> int:
    """How often the record of the session was written."""
    assert isinstance(face.store, CellStore)
    return (await face.store.inner.range(session_key(told.session_id))).kvs[0].version
