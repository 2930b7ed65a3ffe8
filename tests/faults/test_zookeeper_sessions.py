"""ZooKeeper's sessions when clients fall silent, networks swallow, and servers are killed or stopped.

A session ends when its client is silent for the timeout: not before that, whatever happens to the
server, and not much later.  That it does not end early is asserted by the clock, from before the last
sign of life was sent: a busy machine can only make that longer.  That it ends is awaited.
"""

from __future__ import annotations

import asyncio
import random
import re
import resource
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.scale import LONG, rounds
from tests.faults.zookeeper_client import (
    EPHEMERAL,
    PATIENCE_S,
    SEQUENTIAL,
    Expired,
    Lost,
    Refused,
    Session,
    ZkClient,
)
from tests.faults.zookeeper_servers import TICK_MS, Server, running_server
from tests.support.tcp_proxy import tcp_proxy

pytestmark = pytest.mark.faults

_SHORT_MS = 1000
_CONNECTS_AT_ONCE = 1000
_SESSIONS_AT_ONCE = 5000 if LONG else 2000


@pytest.fixture(scope="module", params=["real", "quoracy"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One for all tests that do it no harm; each keeps to its own directory."""
    with running_server(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture(params=["real", "quoracy"] if LONG else ["quoracy"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """One for a test that kills it; a real one takes long to start again."""
    with running_server(request.param, tmp_path) as server:
        yield server


@pytest.fixture
def quoracy(tmp_path: Path) -> Iterator[Server]:
    """For what a real ZooKeeper does not promise, or does not do in the time that a test has."""
    with running_server("quoracy", tmp_path) as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """The directory of a test; `_witness` makes it."""
    return "/" + re.sub(r"\W+", "-", request.node.name)


@asynccontextmanager
async def _kept_alive(*clients: ZkClient) -> AsyncIterator[None]:
    """Heartbeats for these while the block runs."""
    beating = [asyncio.create_task(client.keep_alive()) for client in clients]
    try:
        yield
    finally:
        for task in beating:
            task.cancel()
        await asyncio.gather(*beating, return_exceptions=True)


@asynccontextmanager
async def _witness(server: Server, place: str | None = None) -> AsyncIterator[ZkClient]:
    """A client with all the time there is, and heartbeats.  It makes the place."""
    client = await ZkClient.connect(server.port, timeout_ms=60_000)
    if place is not None:
        await client.create(place)
    async with _kept_alive(client):
        yield client
    await client.close()


# -- silence --------------------------------------------------------------------------------------


async def test_a_silent_session_ends_after_its_timeout_and_never_before(
    server: Server, place: str, rng: random.Random
) -> None:
    async with _witness(server, place) as witness:

        async def one(number: int) -> None:
            timeout_ms = rng.randrange(4 * TICK_MS, 8 * TICK_MS)
            client = await ZkClient.connect(server.port, timeout_ms=timeout_ms)
            assert client.session.timeout_ms == timeout_ms
            await client.create(f"{place}/{number}", b"", EPHEMERAL)
            assert await witness.exists(f"{place}/{number}", watch=True)
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(rng.random() * timeout_ms / 2000)
                await client.ping()
            sent = time.monotonic()
            await client.ping()
            ends[number] = sent + timeout_ms / 1000
            await asyncio.wait_for(client.closed.wait(), PATIENCE_S)  # the server hangs up
            await client.aborted()
            # ZooKeeper, asked in the very moment in which it ends a session, closes that connection
            # with the session's others.
            with pytest.raises((Expired, Lost) if server.is_real else Expired):
                await ZkClient.connect(server.port, session=client.session)

        ends: dict[int, float] = {}
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(one(number))
            for _ in range(20):
                event = await witness.next_event()
                now = time.monotonic()
                kind, _, path = event.partition(" ")
                assert kind == "deleted"
                assert now >= ends[int(path.removeprefix(f"{place}/"))], f"{path} went early"


async def test_a_session_goes_on_with_another_connection_within_its_timeout(
    server: Server, place: str
) -> None:
    """Again and again, for several times the timeout, without one heartbeat."""
    client = await ZkClient.connect(server.port, timeout_ms=_SHORT_MS)
    session = client.session
    await client.create(place, b"", EPHEMERAL)
    since = time.monotonic()
    while time.monotonic() < since + 3 * _SHORT_MS / 1000:
        await client.aborted()
        await asyncio.sleep(_SHORT_MS / 4000)
        client = await ZkClient.connect(server.port, session=session, timeout_ms=_SHORT_MS)
        assert client.session == session
    assert await client.exists(place)
    await client.close()
    with pytest.raises(Expired):
        await ZkClient.connect(server.port, session=session)


async def test_a_second_connection_takes_the_session_from_the_first(server: Server, place: str) -> None:
    first = await ZkClient.connect(server.port)
    await first.create(place, b"", EPHEMERAL)
    for _ in range(5):
        second = await ZkClient.connect(server.port, session=first.session)
        await asyncio.wait_for(first.closed.wait(), PATIENCE_S)
        await first.aborted()
        assert await second.exists(place)
        first = second
    await first.close()


@pytest.mark.parametrize("wrong", ["password", "id"])
async def test_nobody_else_gets_a_session(server: Server, place: str, wrong: str) -> None:
    client = await ZkClient.connect(server.port)
    await client.create(place, b"", EPHEMERAL)
    id, password, timeout_ms = client.session.id, client.session.password, client.session.timeout_ms
    stolen = {
        "password": Session(id, bytes(byte ^ 1 for byte in password), timeout_ms),
        "id": Session(id + 1, password, timeout_ms),
    }[wrong]
    with pytest.raises(Expired):
        await ZkClient.connect(server.port, session=stolen)
    async with _witness(server) as witness:
        assert await witness.exists(place)
    await client.aborted()


async def test_a_peer_that_vanished_without_a_word_loses_its_session(
    server: Server, place: str
) -> None:
    """Its connection is open still, as far as the server knows; its heartbeats arrive nowhere."""
    async with _witness(server, place) as witness, tcp_proxy(server.port) as proxy:
        client = await ZkClient.connect(proxy.port, timeout_ms=_SHORT_MS)
        await client.create(f"{place}/mine", b"", EPHEMERAL)
        assert await witness.exists(f"{place}/mine", watch=True)
        async with _kept_alive(client):
            proxy.hold_all()
            assert await witness.next_event() == f"deleted {place}/mine"
            proxy.pass_all()
            await asyncio.wait_for(client.closed.wait(), PATIENCE_S)
        await client.aborted()
        with pytest.raises(Expired):
            await ZkClient.connect(proxy.port, session=client.session)


# -- a server that dies ---------------------------------------------------------------------------


async def test_sessions_ephemerals_and_sequence_numbers_outlive_kill_9(mortal: Server) -> None:
    timeout_ms = 20_000
    client = await ZkClient.connect(mortal.port, timeout_ms=timeout_ms)
    closed = await ZkClient.connect(mortal.port)
    await closed.create("/closed", b"", EPHEMERAL)
    await closed.close()
    await client.create("/mine", b"data", EPHEMERAL)
    await client.create("/parent")
    assert [await client.create("/parent/n-", b"", SEQUENTIAL) for _ in range(3)][-1][-1] == "2"
    await client.delete("/parent/n-0000000002")
    for number in range(rounds(2, 20)):
        await mortal.kill()
        await asyncio.wait_for(client.closed.wait(), PATIENCE_S)
        await client.aborted()
        await mortal.start()
        with pytest.raises(Expired):
            await ZkClient.connect(mortal.port, session=closed.session)
        client = await ZkClient.connect(
            mortal.port, session=client.session, timeout_ms=timeout_ms, zxid=client.zxid
        )
        assert client.session.timeout_ms == timeout_ms
        assert await client.get("/mine") == b"data"
        assert not await client.exists("/closed")
        created = await client.create("/parent/n-", b"", SEQUENTIAL)
        assert created == f"/parent/n-{number + 3:010}"
    await client.close()
    async with _witness(mortal) as witness:
        assert not await witness.exists("/mine")


async def test_watches_that_a_client_sets_again_after_kill_9_miss_nothing(mortal: Server) -> None:
    client = await ZkClient.connect(mortal.port, timeout_ms=20_000)
    for path in ("/data", "/gone", "/children", "/same"):
        await client.create(path)
    for path in ("/data", "/gone", "/same"):
        await client.get(path, watch=True)
    assert not await client.exists("/new", watch=True)
    await client.children("/children", watch=True)
    seen = client.zxid
    await mortal.kill()
    await client.aborted()
    await mortal.start()
    async with _witness(mortal) as other:
        await other.set("/data", b"changed")
        await other.delete("/gone")
        await other.create("/new")
        await other.create("/children/one")
        client = await ZkClient.connect(mortal.port, session=client.session, zxid=seen)
        await client.set_watches(
            seen, data=["/data", "/gone", "/same"], exist=["/new"], child=["/children"]
        )
        assert sorted([await client.next_event() for _ in range(4)]) == [
            "changed /data",
            "child /children",
            "created /new",
            "deleted /gone",
        ]
        await other.set("/same", b"changed")
        assert await client.next_event() == "changed /same"
        assert client.events.empty()
    await client.close()


async def test_a_session_nobody_comes_back_for_ends_after_a_restart(mortal: Server) -> None:
    """It has its whole timeout again from when the server is back."""
    client = await ZkClient.connect(mortal.port, timeout_ms=_SHORT_MS)
    await client.create("/mine", b"", EPHEMERAL)
    await client.create("/kept")
    await mortal.kill()
    await client.aborted()
    back = time.monotonic()  # or later
    await mortal.start()
    async with _witness(mortal) as witness:
        if await witness.exists("/mine", watch=True):
            assert await witness.next_event() == "deleted /mine"
        assert time.monotonic() >= back + _SHORT_MS / 1000
        assert await witness.exists("/kept")
    with pytest.raises(Expired):
        await ZkClient.connect(mortal.port, session=client.session)


async def test_clients_of_a_server_that_is_restarted_keep_their_sessions(mortal: Server) -> None:
    clients = [await ZkClient.connect(mortal.port, timeout_ms=20_000) for _ in range(20)]
    for number, client in enumerate(clients):
        await client.create(f"/{number}", b"", EPHEMERAL)
    await mortal.restart()
    for client in clients:
        await client.aborted()
    back = [await ZkClient.connect(mortal.port, session=client.session) for client in clients]
    for number, client in enumerate(back):
        assert await client.exists(f"/{number}")
        await client.close()


# -- a server that is stopped for a while ---------------------------------------------------------


async def test_a_server_that_was_stopped_ends_no_session_whose_client_was_there(
    quoracy: Server, rng: random.Random
) -> None:
    """SIGSTOP for longer than the timeout: the heartbeats wait in the kernel, and count.

    A real ZooKeeper does not promise that: its clock goes on, and which of its threads wakes first
    decides.
    """
    for number in range(rounds(1, 10)):
        clients = [
            await ZkClient.connect(quoracy.port, timeout_ms=rng.randrange(1500, 2000))
            for _ in range(20)
        ]
        async with _kept_alive(*clients), _witness(quoracy) as witness:
            for each, client in enumerate(clients):
                await client.create(f"/{number}-{each}", b"", EPHEMERAL)
            silent = await ZkClient.connect(quoracy.port, timeout_ms=2 * _SHORT_MS)
            await silent.create(f"/silent-{number}", b"", EPHEMERAL)
            assert await witness.exists(f"/silent-{number}", watch=True)
            quoracy.signal(signal.SIGSTOP)
            await asyncio.sleep(rng.uniform(2.5, 3.0))
            quoracy.signal(signal.SIGCONT)
            # The one that is silent after it, too, ends; so enough time has passed for the others.
            assert await witness.next_event() == f"deleted /silent-{number}"
            for each, client in enumerate(clients):
                assert not client.closed.is_set(), f"{client.session} was cut off"
                assert await witness.exists(f"/{number}-{each}"), f"{client.session} ended"
            for client in clients:
                await client.close()
        await silent.aborted()


# -- crowds ---------------------------------------------------------------------------------------


async def test_a_thousand_clients_connect_at_once(server: Server, place: str) -> None:
    _need_descriptors(_CONNECTS_AT_ONCE)
    clients = await asyncio.gather(*(ZkClient.connect(server.port) for _ in range(_CONNECTS_AT_ONCE)))
    assert len({client.session.id for client in clients}) == _CONNECTS_AT_ONCE
    assert len({client.session.password for client in clients}) == _CONNECTS_AT_ONCE
    async with _witness(server, place) as witness:
        created = (client.create(f"{place}/{n}", b"", EPHEMERAL) for n, client in enumerate(clients))
        await asyncio.gather(*created)
        assert len(await witness.children(place)) == _CONNECTS_AT_ONCE
        await asyncio.gather(*(client.close() for client in clients))
        assert await witness.children(place) == []


async def test_thousands_of_sessions_live_and_end_together(quoracy: Server) -> None:
    _need_descriptors(_SESSIONS_AT_ONCE)
    clients: list[ZkClient] = []
    while len(clients) < _SESSIONS_AT_ONCE:
        more = (ZkClient.connect(quoracy.port, timeout_ms=20_000) for _ in range(500))
        clients += await asyncio.gather(*more)
    async with _witness(quoracy) as witness:
        await witness.create("/crowd")
        await asyncio.gather(
            *(client.create("/crowd/n-", b"", EPHEMERAL | SEQUENTIAL) for client in clients)
        )
        names = sorted(await witness.children("/crowd"))
        assert names == [f"n-{number:010}" for number in range(len(clients))]
        await asyncio.gather(*(client.ping() for client in clients))
        half = len(clients) // 2
        await asyncio.gather(*(client.close() for client in clients[:half]))
        assert len(await witness.children("/crowd")) == len(clients) - half
        await asyncio.gather(*(client.close() for client in clients[half:]))
        assert await witness.children("/crowd") == []


def _need_descriptors(count: int) -> None:
    """For so many connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"{wanted} file descriptors are needed, the limit is {hard} (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# -- requests that are under way ------------------------------------------------------------------


async def test_events_come_before_the_answers_that_show_the_change(server: Server, place: str) -> None:
    client = await ZkClient.connect(server.port)
    async with _witness(server, place) as other:
        await client.create(f"{place}/w", b"0")
        for number in range(100):
            await client.get(f"{place}/w", watch=True)
            await other.set(f"{place}/w", b"%d" % number)
            if await client.get(f"{place}/w") == b"%d" % number:
                assert client.events.get_nowait() == f"changed {place}/w", (
                    "the answer overtook the event"
                )
            else:
                assert await client.next_event() == f"changed {place}/w"
    await client.close()


async def test_requests_of_a_session_that_ended_are_not_done(server: Server, place: str) -> None:
    """The connection is swallowed, the session ends, then what was sent arrives."""
    async with _witness(server, place) as witness, tcp_proxy(server.port) as proxy:
        client = await ZkClient.connect(proxy.port, timeout_ms=_SHORT_MS)
        await client.create(f"{place}/mine", b"", EPHEMERAL)
        assert await witness.exists(f"{place}/mine", watch=True)
        proxy.hold_all()
        late = [asyncio.create_task(client.create(f"{place}/late-{n}")) for n in range(10)]
        assert await witness.next_event() == f"deleted {place}/mine"
        proxy.pass_all()
        outcomes = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(outcome, Lost | Refused) for outcome in outcomes), outcomes
        assert await witness.children(place) == []
        await client.aborted()
