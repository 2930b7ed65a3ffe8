"""Servers are killed, stopped and started again at random while processes contend for one lock.

They keep what they answered over a crash (appendfsync always), and a majority always runs: under these
conditions Redlock promises mutual exclusion, and this test judges it by a counter in a file.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
from pathlib import Path

import pytest

from tests.faults.scale import rounds
from tests.redlock import workers
from tests.support.asking import until
from tests.support.redis_server import RedisServer, redis_program, redis_servers

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

SPAWN = multiprocessing.get_context("spawn")


def disturb(rng: random.Random, servers: list[RedisServer]) -> None:
    """Bring one down that runs, or up that does not; never fewer than three of five run."""
    down = [server for server in servers if not server.is_running]
    if down and (len(down) == 2 or rng.random() < 0.5):
        back = rng.choice(down)
        back.resume() if back.is_paused else back.start()
    else:
        victim = rng.choice([server for server in servers if server.is_running])
        rng.choice([victim.kill, victim.pause])()


async def test_processes_exclude_each_other_while_a_minority_of_servers_comes_and_goes(
    tmp_path: Path,
) -> None:
    program = redis_program()
    if program is None:
        pytest.skip("redis-server is not installed")
    seed = int(os.environ.get("QUORACY_SEED") or random.SystemRandom().getrandbits(32))
    rng = random.Random(seed)
    (tmp_path / "counter").write_text("0")
    with redis_servers(program, tmp_path / "redis", 5, appendonly=True) as servers:
        urls = [server.url for server in servers]
        processes = [
            SPAWN.Process(target=workers.count_until_stopped, args=(urls, tmp_path, f"worker {number}"))
            for number in range(3)
        ]
        for process in processes:
            process.start()
        try:
            await until(lambda: (tmp_path / "counter").read_text() not in ("", "0"))
            for _ in range(rounds(6, 300)):
                await asyncio.sleep(rng.uniform(0.1, 0.4))
                await asyncio.to_thread(disturb, rng, servers)
            (tmp_path / "stop").touch()
            for process in processes:
                await asyncio.to_thread(process.join, 60)
        finally:
            for process in processes:
                process.kill()
    again = f"QUORACY_SEED={seed} makes the same schedule"
    assert [process.exitcode for process in processes] == [0] * 3, again
    counts = [int((tmp_path / f"worker {number}").read_text()) for number in range(3)]
    assert int((tmp_path / "counter").read_text()) == sum(counts) > 0, again
