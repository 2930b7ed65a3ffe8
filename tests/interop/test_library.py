"""The library beside clients that others wrote: it waits in their queues, and they in its."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest
from kazoo.client import KazooClient

import quoracy
from tests.differential.etcd_server import etcd_35_program, etcd_binary, running_etcd
from tests.interop.programs import Etcdctl, Running, etcdctls, running_quoracy
from tests.support.asking import eventually

NAME = "interop/it"


@pytest.fixture(params=["quoracy", "etcd"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Our server and a real etcd."""
    if request.param == "quoracy":
        with running_quoracy(tmp_path) as server:
            yield server.port
        return
    program = etcd_35_program() or etcd_binary()
    if program is None:
        pytest.skip("etcd is not installed")
    with running_etcd(program, tmp_path) as port:
        yield port


@pytest.fixture
async def q(port: int) -> AsyncIterator[quoracy.Connection]:
    async with quoracy.connect(f"etcd://127.0.0.1:{port}", identity="library") as q:
        yield q


@pytest.fixture(params=etcdctls(), ids=lambda etcdctl: etcdctl.version)
def etcdctl(request: pytest.FixtureRequest) -> Etcdctl:
    found: Etcdctl = request.param
    return found


async def contenders(q: quoracy.Connection, count: int) -> None:
    async def so_many() -> bool:
        return len(await q.lock(NAME).contenders()) == count

    await eventually(so_many)


async def test_library_and_etcdctl_lock_take_turns(
    q: quoracy.Connection, etcdctl: Etcdctl, port: int
) -> None:
    tokens: list[int] = []
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            async with q.lock(NAME) as held:
                tokens.append(held.token)
                theirs = stack.enter_context(etcdctl.start(port, "lock", NAME))
                await contenders(q, 2)
                assert theirs.is_silent
                waiting = asyncio.create_task(q.lock(NAME).acquire())
                await contenders(q, 3)
            assert (await asyncio.to_thread(theirs.line)).startswith(f"{NAME}/")
            first, second = await q.lock(NAME).contenders()
            tokens.append(first.token)
            assert second.identity == "library"
            assert not waiting.done()
            assert await q.lock(NAME).try_acquire() is None
            code, _ = await asyncio.to_thread(theirs.end)
            assert code == 0
            held = await waiting
            tokens.append(held.token)
            await held.release()
    assert tokens == sorted(set(tokens))


async def test_library_and_etcdctl_stand_in_one_election(
    q: quoracy.Connection, etcdctl: Etcdctl, port: int
) -> None:
    election = q.election(NAME)
    with etcdctl.start(port, "elect", NAME, "theirs") as theirs:
        await asyncio.to_thread(theirs.lines, 2)
        leader = await election.leader()
        assert leader is not None
        assert leader.value == "theirs"
        campaigning = asyncio.create_task(election.campaign("ours"))
        await contenders(q, 2)
        with etcdctl.start(port, "elect", "--listen", NAME) as listener:
            assert (await asyncio.to_thread(listener.lines, 2))[1] == "theirs"
            async with aclosing(election.observe()) as leaders:
                assert (await anext(leaders)).value == "theirs"
                await asyncio.to_thread(theirs.end)
                async with asyncio.timeout(30):
                    term = await campaigning
                    assert (await anext(leaders)).value == "ours"
                    assert (await asyncio.to_thread(listener.lines, 2))[1] == "ours"
                    await term.proclaim("ours, busy")
                    assert (await anext(leaders)).value == "ours, busy"
                    assert (await asyncio.to_thread(listener.lines, 2))[1] == "ours, busy"
        await term.resign()


async def test_library_and_lock_service_wait_for_each_other(q: quoracy.Connection, port: int) -> None:
    name = base64.b64encode(NAME.encode()).decode()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
        async with q.lock(NAME) as held:
            locking = asyncio.create_task(http.post("/v3/lock/lock", json={"name": name}))
            await contenders(q, 2)
            assert not locking.done()
        answer = (await locking).json()
        key = base64.b64decode(answer["key"])
        assert key.startswith(NAME.encode() + b"/")
        waiting = asyncio.create_task(q.lock(NAME).acquire())
        await contenders(q, 2)
        assert not waiting.done()
        await http.post("/v3/lock/unlock", json={"key": answer["key"]})
        again = await waiting
        assert again.token > held.token


async def test_kazoo_and_the_library_share_a_server(tmp_path: Path) -> None:
    with running_quoracy(tmp_path, "--listen-zookeeper", "127.0.0.1:0") as server:
        hosts = f"127.0.0.1:{server.zookeeper_port}"
        holder = Path(__file__).with_name("kazoo_holder.py")
        inside = {"kazoo": 0, "library": 0}

        def cycle_kazoo(stop: asyncio.Event) -> int:
            client = KazooClient(hosts, timeout=10)
            client.start(30)
            done = 0
            try:
                lock = client.Lock("/it", "kazoo")
                while not stop.is_set():
                    with lock:
                        inside["kazoo"] += 1
                        assert inside["kazoo"] == 1
                        inside["kazoo"] -= 1
                        done += 1
                return done
            finally:
                client.stop()
                client.close()

        async def cycle_library(stop: asyncio.Event, url: str) -> int:
            done = 0
            async with quoracy.connect(url) as q:
                while not stop.is_set():
                    async with q.lock("it") as held:
                        inside["library"] += 1
                        assert inside["library"] == 1
                        await asyncio.sleep(0)
                        held.check()
                        inside["library"] -= 1
                        done += 1
            return done

        stop = asyncio.Event()
        with Running([sys.executable, str(holder), hosts, "10", "lock", "/held"]) as held:
            assert "holds" in await asyncio.to_thread(held.line)
            url = f"quoracy://{server.address}"
            ours = [asyncio.create_task(cycle_library(stop, url)) for _ in range(3)]
            theirs = asyncio.create_task(asyncio.to_thread(cycle_kazoo, stop))
            async with quoracy.connect(url) as q:
                async with q.lock("held"):  # another name space: what kazoo holds is not in the way
                    pass
                for _ in range(100):
                    async with q.lock("it"):
                        pass
            stop.set()
            assert all(await asyncio.gather(*ours))
            assert await theirs > 0
            code, _ = await asyncio.to_thread(held.end)
            assert code != 0  # interrupted, still holding
