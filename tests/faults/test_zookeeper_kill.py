"""A server of ZooKeeper's protocol that is killed under its clients: what it told them holds.

Eight clients with a session each create, delete, set and count while the server is killed and started
again on the same file and port.  Nothing that was acknowledged may be lost, nothing that was asked for
once may be done twice, no sequence number may be given to two, and no session may end.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.faults.scale import LONG, rounds
from tests.faults.zookeeper_client import PATIENCE_S, ZkClient
from tests.faults.zookeeper_load import Ledger, Load
from tests.faults.zookeeper_servers import running_server

pytestmark = pytest.mark.faults

_SIDES = [pytest.param("quoracy", rounds(6, 200), id="quoracy")]
if LONG:  # the test itself is proven on a real one, where that takes long
    _SIDES.append(pytest.param("real", 20, id="real"))


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("name", "count"), _SIDES)
async def test_what_a_server_told_its_clients_outlives_kill_9(
    tmp_path: Path, seed: int, rng: random.Random, name: str, count: int
) -> None:
    ledger = Ledger()
    with running_server(name, tmp_path) as server:
        # A real one that is starting takes connections that it never answers; clients give those up.
        load = Load(server.port, ledger, seed, greeting_s_max=2.0 if name == "real" else PATIENCE_S)
        async with load.running():
            for number in range(1, count + 1):
                try:
                    await load.acknowledged(rng.randint(1, 200))
                    await asyncio.sleep(rng.random() * 0.01)  # any moment will do
                    await server.kill()
                    await server.start()
                    await _judge(server.port, load, ledger)
                except Exception as error:
                    error.add_note(f"in round {number}")
                    raise
    assert ledger.unsure_count > 0, "no kill met a request"
    assert ledger.steps, "nobody counted"
    assert ledger.deleted, "nobody deleted"


async def _judge(port: int, load: Load, ledger: Ledger) -> None:
    async with load.paused():
        witness = await ZkClient.connect(port, timeout_ms=60_000)
        await ledger.check(witness)
        await witness.close()
