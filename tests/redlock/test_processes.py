"""Mutual exclusion between processes, and what happens when one is killed or stopped."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from quoracy.redlock import Redlock
from tests.redlock import workers
from tests.support.redis_server import RedisServer

SPAWN = multiprocessing.get_context("spawn")


async def ended(process: SpawnProcess) -> int | None:
    await asyncio.to_thread(process.join, 60)
    return process.exitcode


async def test_processes_are_never_inside_at_the_same_time(urls: list[str], tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    jobs = [workers.count_with_an_async_lock, workers.count_with_a_thread_lock] * 2
    processes = [SPAWN.Process(target=job, args=(urls, tmp_path, 15)) for job in jobs]
    for process in processes:
        process.start()
    try:
        assert [await ended(process) for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
    assert (tmp_path / "counter").read_text() == "60"


@contextmanager
def running(
    work: Callable[[list[str], float, Connection], None], urls: list[str], ttl: float
) -> Iterator[tuple[SpawnProcess, Connection]]:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=work, args=(urls, ttl, theirs))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join(60)
        ours.close()


async def heard(connection: Connection) -> object:
    assert await asyncio.to_thread(connection.poll, 60)
    return connection.recv()


async def test_lock_of_a_killed_process_is_free_after_its_ttl(
    redlock: Redlock, urls: list[str], redises: list[RedisServer]
) -> None:
    with running(workers.hold, urls, 1.2) as (process, told):
        value = await heard(told)
        process.kill()
        async with redlock.lock("a").hold(timeout=60) as held:
            assert held.value != value
            # Keys expire one after the other, and a majority is enough.
            assert [server.command("STRLEN", "a") for server in redises].count(":40") >= 3


async def test_stopped_process_learns_of_the_loss_at_its_next_check(
    redlock: Redlock, urls: list[str]
) -> None:
    with running(workers.work_until_lost, urls, 1.2) as (process, told):
        assert await heard(told) == "held"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        async with redlock.lock("a").hold(timeout=60):
            while told.poll():
                assert told.recv() == "acts"
            os.kill(process.pid, signal.SIGCONT)
            # If it was stopped between its check and its act, it acts once more: the gap that no check
            # closes, and that a fencing token would.
            after = [await heard(told)]
            if after == ["acts"]:
                after = [await heard(told)]
            assert after == ["lost"]
