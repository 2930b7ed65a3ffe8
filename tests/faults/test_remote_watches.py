"""Watches over a network that breaks and a server that dies: every event once, or an error."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quoracy.errors import Compacted, Indeterminate, LeaseNotFound, Unavailable
from quoracy.remote.dial import ChannelOptions
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from quoracy.store.model import KeyRange, Put, Txn
from quoracy.store.rules import Limits
from tests.faults.scale import LONG
from tests.support.asking import EVERYTHING, eventually, failure_of, read_to, turns
from tests.support.engines import Engines
from tests.support.etcd_process import EtcdProcess
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = pytest.mark.faults

_IMPATIENT = ChannelOptions(silence_s=0.3, answer_s=0.3)
_ROUNDS = 200 if LONG else 6


@pytest.fixture
async def direct(engines: Engines) -> AsyncIterator[RemoteStore]:
    """A store whose network does not break, to write with."""
    async with engines.get("remote-etcd35").open() as store:
        assert isinstance(store, RemoteStore)
        yield store


@pytest.fixture
async def proxy(direct: RemoteStore) -> AsyncIterator[TcpProxy]:
    async with tcp_proxy(direct.target.addresses[0].port) as proxy:
        yield proxy


@pytest.fixture(params=[Limits(), Limits(watch_buffer_events_max=3)], ids=["roomy", "tight"])
async def store(proxy: TcpProxy, request: pytest.FixtureRequest) -> AsyncIterator[RemoteStore]:
    """A store whose network breaks, with much or little room for events."""
    limits: Limits = request.param
    target = Target((Address("127.0.0.1", proxy.port),))
    async with open_remote(target, timeout_s=20, options=_IMPATIENT, limits=limits) as store:
        yield store


async def test_cut_connections_cost_no_event_and_repeat_none(
    direct: RemoteStore, store: RemoteStore, proxy: TcpProxy, rng: random.Random
) -> None:
    """Numbered writes; three watches; the network is cut, held and let go at random moments."""

    async def hear(keys: KeyRange) -> list[int]:
        async with store.watch(keys, after=1) as stream:
            return [batch.revision for batch in await read_to(stream, last)]

    writes = 40 * _ROUNDS
    last = writes + 2
    async with asyncio.TaskGroup() as group:
        everything = group.create_task(hear(EVERYTHING))
        again = group.create_task(hear(EVERYTHING))
        some = group.create_task(hear(KeyRange.prefix(b"3")))
        for i in range(_ROUNDS):
            for j in range(40):
                await direct.put(b"%d" % (j % 10), b"%d" % i)
            match rng.randrange(3):
                case 0:
                    proxy.cut()
                case 1:
                    proxy.hold_all()
                    await turns(rng.randrange(50))
                    proxy.cut()
                    proxy.pass_all()
                case _:
                    await proxy.refuse()
                    await turns(rng.randrange(50))
                    await proxy.listen()
        await direct.put(b"3")
    assert everything.result() == list(range(2, last + 1))
    assert again.result() == everything.result()
    assert some.result() == [*(i for i in range(2, last) if (i - 2) % 10 == 3), last]


async def test_a_revision_is_whole_however_often_it_is_cut(
    direct: RemoteStore, store: RemoteStore, proxy: TcpProxy
) -> None:
    async with store.watch(EVERYTHING, after=1) as stream:
        for i in range(_ROUNDS):
            await direct.txn(Txn(then=tuple(Put(b"%d" % j, bytes(20_000)) for j in range(60))))
            if i % 3 == 2:
                proxy.cut()
        batches = await read_to(stream, _ROUNDS + 1)
    assert [batch.revision for batch in batches] == list(range(2, _ROUNDS + 2))
    assert {len(batch.events) for batch in batches} == {60}


async def test_a_watch_in_a_black_hole_notices_and_goes_on(
    direct: RemoteStore, store: RemoteStore, proxy: TcpProxy
) -> None:
    async with store.watch(b"k") as stream:
        proxy.hold_all()
        await direct.put(b"k", b"1")
        waiting = asyncio.ensure_future(anext(stream))
        # Nobody says a word; the client finds out by asking, and connects anew.
        connections = proxy.connections_count

        async def reconnected() -> bool:
            return proxy.connections_count > connections

        await eventually(reconnected)
        proxy.pass_all()
        assert (await waiting).revision == 2


async def test_history_compacted_while_away_is_told(
    direct: RemoteStore, store: RemoteStore, proxy: TcpProxy
) -> None:
    async with store.watch(b"k") as stream:
        await direct.put(b"k")
        assert (await anext(stream)).revision == 2
        await proxy.refuse()
        for _ in range(10):
            await direct.put(b"k")
        await direct.compact(10)
        await proxy.listen()
        with pytest.raises(Compacted) as caught:
            await anext(stream)
        assert caught.value.oldest == 10
        with pytest.raises(Compacted):
            await anext(stream)


async def test_a_quiet_watch_that_knows_its_progress_outlives_compaction(
    direct: RemoteStore, store: RemoteStore, proxy: TcpProxy
) -> None:
    async with store.watch(b"quiet") as stream:
        for _ in range(10):
            await direct.put(b"busy")
        stream.request_progress()
        assert (await anext(stream)).revision == 11
        await direct.compact(11)
        proxy.cut()
        await turns()
        await direct.put(b"quiet")
        assert (await anext(stream)).revision == 12


async def test_progress_asked_for_while_away_is_told_later(
    direct: RemoteStore, store: RemoteStore, proxy: TcpProxy
) -> None:
    async with store.watch(b"quiet") as stream:
        await proxy.refuse()
        await turns()
        stream.request_progress()
        await direct.put(b"busy")
        await proxy.listen()
        batch = await anext(stream)
        assert (batch.revision, batch.events) == (2, ())


async def test_a_watch_that_cannot_be_entered_in_time_says_so(proxy: TcpProxy) -> None:
    target = Target((Address("127.0.0.1", proxy.port),))
    async with open_remote(target, timeout_s=0.5, options=_IMPATIENT) as store:
        await store.put(b"k")
        proxy.hold_all()
        assert isinstance(await failure_of(store.watch(b"k", after=1)), Unavailable)
        assert isinstance(await failure_of(store.watch(b"k")), Unavailable)


# -- a server that dies -----------------------------------------------------------------------


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    etcd = EtcdProcess.find(tmp_path)
    if etcd is None:
        pytest.skip("etcd 3.5 is not installed")
    try:
        await etcd.start()
        yield etcd
    finally:
        await etcd.kill()


async def test_a_killed_server_costs_no_event_and_no_acknowledged_write(
    etcd: EtcdProcess, rng: random.Random
) -> None:
    """Writes are numbered and go on over kills; each is there once, or was indeterminate."""
    target = Target((Address("127.0.0.1", etcd.port),))
    done = asyncio.Event()
    acknowledged: set[bytes] = set()
    unsure: set[bytes] = set()

    async with (
        open_remote(target, timeout_s=30, options=_IMPATIENT) as store,
        store.watch(EVERYTHING) as stream,
    ):
        lease = (await store.grant(3600)).id

        async def write() -> None:
            i = 0
            while not done.is_set():
                key = b"%06d" % (i := i + 1)
                try:
                    await store.put(key, lease=lease)
                    acknowledged.add(key)
                except Indeterminate:
                    unsure.add(key)
                await asyncio.sleep(0.001)

        writing = asyncio.create_task(write())
        for _ in range(3 if not LONG else 30):
            goal = len(acknowledged) + rng.randrange(20, 80)

            async def reached(goal: int = goal) -> bool:
                return len(acknowledged) >= goal

            await eventually(reached)
            await etcd.kill()
            await etcd.start()
            assert (await store.keep_alive(lease)).ttl_s == 3600
        done.set()
        await writing
        last = (await store.put(b"last")).revision
        batches = await read_to(stream, last)
        found = {kv.key for kv in (await store.range(EVERYTHING)).kvs}
    heard = [event.kv.key for batch in batches for event in batch.events]
    assert [batch.revision for batch in batches] == list(range(2, last + 1))
    assert len(set(heard)) == len(heard)
    assert acknowledged <= found <= acknowledged | unsure | {b"last"}
    assert set(heard) == found


async def test_requests_wait_for_a_server_that_restarts(etcd: EtcdProcess) -> None:
    target = Target((Address("127.0.0.1", etcd.port),))
    async with open_remote(target, timeout_s=30, options=_IMPATIENT) as store:
        await store.put(b"k", b"v")
        await etcd.kill()
        await turns()
        reading = asyncio.gather(*(store.range(b"k") for _ in range(20)))
        writing = asyncio.ensure_future(store.put(b"k", b"w"))
        await etcd.start()
        assert (await writing).revision == 3
        assert {result.kvs[0].value for result in await reading} <= {b"v", b"w"}
        with pytest.raises(LeaseNotFound):
            await store.keep_alive(4711)
