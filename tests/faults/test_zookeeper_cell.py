"""Sessions and writes on a cell of three real nodes: nodes race, stand still, and lose their etcd.

QUORACY_FAULTS=long   more sessions, more writes
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.differential.zk_jute import JuteReader, text
from tests.differential.zk_requests import Op
from tests.faults.scale import rounds
from tests.faults.zookeeper_client import EPHEMERAL, SEQUENTIAL, Expired, Lost, ZkClient
from tests.support.zookeeper_cell import Cell, running_cell

pytestmark = pytest.mark.faults

_WRITERS_PER_NODE = rounds(4, 20)
_WRITES = rounds(15, 200)
_WAIT_S_MAX = 30.0
# What the machine may be busy with meanwhile.
_BUSY_S = 8.0


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """Every test has a part of the tree of its own, and mends what it breaks."""
    with running_cell(
        tmp_path_factory.mktemp("cell"), "--zookeeper-tick-time", "500"
    ) as running:  # sessions from one second on
        yield running


@contextlib.asynccontextmanager
async def connected(cell: Cell, node: int, *, timeout_ms: int = 10_000) -> AsyncIterator[ZkClient]:
    client = await ZkClient.connect(cell.port(node), timeout_ms=timeout_ms)
    beating = asyncio.create_task(client.keep_alive())
    try:
        yield client
    finally:
        beating.cancel()
        if not client.closed.is_set():
            await client.close()


async def test_sequence_numbers_are_unique_whatever_node_gives_them(cell: Cell) -> None:
    """All create below one parent, ephemerals or not, and delete every third: all numbers are used."""
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(connected(cell, 0))
        await one.create("/queue")
        clients = [
            await stack.enter_async_context(connected(cell, node))
            for node in range(3)
            for _ in range(_WRITERS_PER_NODE)
        ]
        began = time.monotonic()
        made = await asyncio.gather(*(_take_numbers(client) for client in clients))
        took_s = time.monotonic() - began
        numbers = [number for each in made for number in each]
        assert sorted(numbers) == list(range(len(numbers)))
        assert all(each == sorted(each) for each in made)
        count = len(clients) * _WRITES
        print(f"{count} creates by {len(clients)} sessions at 3 nodes: {count / took_s:.0f}/s")  # noqa: T201
        expected: set[str] | None = None
        for client in (clients[0], clients[_WRITERS_PER_NODE], clients[-1]):
            await client.request(Op.SYNC, text("/queue"))
            children = set(await client.children("/queue"))
            assert expected is None or children == expected
            expected = children
            stat = await _stat(client, "/queue")
            assert stat == (len(numbers) + _WRITES // 3 * len(clients), len(children))
            assert len(children) == (_WRITES - _WRITES // 3) * len(clients)


async def _take_numbers(client: ZkClient) -> list[int]:
    numbers: list[int] = []
    for turn in range(_WRITES):
        flags = SEQUENTIAL | (EPHEMERAL if turn % 2 else 0)
        path = await client.create("/queue/n-", flags=flags)
        found = re.fullmatch(r"/queue/n-(\d{10})", path)
        assert found, path
        numbers.append(int(found[1]))
        if turn % 3 == 2:
            await client.delete(path)
    return numbers


async def _stat(client: ZkClient, path: str) -> tuple[int, int]:
    """cversion and numChildren."""
    answer = JuteReader(await client.request(Op.EXISTS, text(path) + b"\0"))
    for _ in range(4):
        answer.int64()
    answer.int32()
    cversion = answer.int32()
    answer.int32()
    answer.int64()
    answer.int32()
    return cversion, answer.int32()


async def test_node_that_stood_still_does_not_answer_for_a_session_that_is_over(cell: Cell) -> None:
    """It was stopped for longer than the session; what the client asked meanwhile is in its socket."""
    async with connected(cell, 1) as other:
        paused = await ZkClient.connect(cell.port(0), timeout_ms=3000)
        await paused.create("/locked", flags=EPHEMERAL)
        await other.request(Op.SYNC, text("/locked"))
        assert await other.exists("/locked", watch=True)
        cell.node(0).process.send_signal(signal.SIGSTOP)
        heard_at = time.monotonic()
        try:
            asked = asyncio.create_task(paused.get("/locked"))
            pinged = asyncio.create_task(paused.request(Op.PING, xid=-2))
            assert await other.next_event() == "deleted /locked"
            lived_s = time.monotonic() - heard_at
            await other.create("/locked")  # somebody else has it now
        finally:
            cell.node(0).process.send_signal(signal.SIGCONT)
        for request in (asked, pinged):
            with pytest.raises(Lost):
                await request
        with pytest.raises(Expired):
            await ZkClient.connect(cell.port(0), session=paused.session)
        assert 3.0 - 0.1 < lived_s < 3.0 + 2.0 + _BUSY_S


async def test_watches_that_are_set_again_at_another_node_tell_what_was_missed(cell: Cell) -> None:
    async with connected(cell, 1) as other:
        client = await ZkClient.connect(cell.port(2))
        await client.create("/seen", b"1")
        await client.create("/owned", flags=EPHEMERAL)
        seen_zxid = client.zxid
        client.abort()
        await other.request(Op.SYNC, text("/seen"))
        await other.set("/seen", b"2")
        await other.create("/came")
        again = await ZkClient.connect(cell.port(0), session=client.session, zxid=other.zxid)
        await again.set_watches(seen_zxid, data=["/seen", "/owned"], exist=["/came"])
        assert {await again.next_event(), await again.next_event()} == {
            "changed /seen",
            "created /came",
        }
        assert await again.get("/seen") == b"2"
        await again.set("/owned", b"still its own")
        await again.close()
        await other.request(Op.SYNC, text("/owned"))
        assert not await other.exists("/owned")


async def test_session_outlives_an_outage_of_etcd_that_is_shorter(cell: Cell) -> None:
    async with connected(cell, 0, timeout_ms=10_000) as client:
        await client.create("/stays", flags=EPHEMERAL)
        session = client.session
        await asyncio.to_thread(cell.kill_members, 0, 1)
        async with asyncio.timeout(_WAIT_S_MAX):
            await client.closed.wait()
        with pytest.raises(Lost):
            await ZkClient.connect(cell.port(1), session=session)
        await asyncio.to_thread(cell.start_members, 0, 1)
        again = await _back(cell, 1, client)
        assert await again.exists("/stays")
        await again.set("/stays", b"x")
        await again.close()


async def _back(cell: Cell, node: int, client: ZkClient) -> ZkClient:
    """As soon as that node serves."""
    deadline = time.monotonic() + _WAIT_S_MAX
    while True:
        try:
            return await ZkClient.connect(cell.port(node), session=client.session, zxid=client.zxid)
        except Lost:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
