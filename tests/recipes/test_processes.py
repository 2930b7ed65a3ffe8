"""Every recipe among processes: contention, kill -9, SIGSTOP past the session, a server that restarts.

One crew does all recipes at once, so that each fault hits all of them; `QUORACY_FAULTS=long` does more
rounds of it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.scale import rounds
from tests.faults.server_process import ServerProcess
from tests.recipes.processes.crew import Server, running_crew
from tests.recipes.processes.trials_of_data import TRIALS
from tests.support.etcd_cluster import etcd_program
from tests.support.etcd_process import EtcdProcess

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

NAMES = ("ann", "bob", "cyd", "dan")


class OurServer:
    """Our own, on sqlite."""

    def __init__(self, process: ServerProcess) -> None:
        self.url, self._process = process.url, process

    async def restart(self) -> None:
        await self._process.kill()
        self._process.start()
        await self._process.wait_ready()


class EtcdServer:
    """A real etcd."""

    def __init__(self, process: EtcdProcess) -> None:
        self.url, self._process = f"etcd://127.0.0.1:{process.port}", process

    async def restart(self) -> None:
        await self._process.kill()
        await self._process.start()


@pytest.fixture(params=["server", "etcd"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    if request.param == "server":
        with ServerProcess(tmp_path) as process:
            process.start()
            await process.wait_ready()
            yield OurServer(process)
        return
    # Not 3.5.1: killed under load it comes back without some of what it acknowledged (etcd#13766), and
    # items of queues are given out twice: within 60 restarts in each of 3 runs, never in 300 on 3.4.
    program = etcd_program("3.4")
    if program is None:
        pytest.skip("etcd is not installed")
    etcd = EtcdProcess(program, tmp_path)
    await etcd.start()
    try:
        yield EtcdServer(etcd)
    finally:
        await etcd.kill()


async def test_recipes_keep_their_promises_through_kills_stops_and_restarts(
    server: Server, tmp_path: Path
) -> None:
    rng = random.Random(7)
    async with running_crew(server.url, tmp_path, TRIALS, NAMES) as crew:
        await crew.progress()
        for _ in range(rounds(1, 25)):
            killed, paused = rng.sample(NAMES, 2)
            await crew.kill(killed)
            await crew.progress()
            await crew.start(killed)
            crew.pause(paused)
            # What it held goes to others, who get on: its session has ended by then.
            await crew.progress(times=4)
            crew.resume(paused)
            await crew.progress(by=paused, times=1)
            await server.restart()
            await crew.progress()
            crew.judge()
        await crew.stop()
        await crew.finish()
        crew.judge()
        assert len(crew.resource.admitted) > rounds(20, 1000)
