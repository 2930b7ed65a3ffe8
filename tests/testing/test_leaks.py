"""Whatever a test did with its server and its connections, nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import gc
import threading

import psutil

from quoracy.testing import Faults, VirtualClock, memory, server
from quoracy.testing.network_link import link_at

CYCLES = 30


def files_and_threads() -> tuple[int, int]:
    gc.collect()
    return psutil.Process().num_fds(), threading.active_count()


async def use_everything() -> int:
    clock = VirtualClock()
    async with server(clock=clock) as running, memory(clock=clock) as local:
        async with running.connect() as q, local.connect() as other:
            with Faults() as faults:
                for connection in (q, other):
                    await connection.lock("a").acquire()
                    faults.lose_answers(connection)
                    faults.disconnect(connection)
                    faults.partition(connection)
                    faults.pause(connection)
                    await faults.expire(connection)
                await clock.advance(1)
        return int(running.url.rpartition(":")[2])


async def test_cycles_leave_files_threads_and_tasks_as_they_were() -> None:
    await use_everything()
    tasks, before = len(asyncio.all_tasks()), files_and_threads()
    for _ in range(CYCLES):
        port = await use_everything()
    assert files_and_threads() == before
    assert len(asyncio.all_tasks()) == tasks
    assert link_at(port) is None


async def test_connections_to_one_server_leave_nothing_of_their_links() -> None:
    async with server() as running:
        async with running.connect(), running.open_store():
            pass
        before = files_and_threads()
        for _ in range(CYCLES):
            async with running.connect(), running.open_store():
                pass
        await asyncio.sleep(0)
        assert files_and_threads() == before


def test_what_is_still_broken_when_its_server_ends_does_not_matter() -> None:
    with Faults() as faults:
        with server() as running:
            faults.partition(running.url)


def test_synchronous_connections_leave_nothing_behind() -> None:
    def use() -> None:
        with server() as running, running.sync_connect() as q, Faults() as faults:
            q.lock("a").acquire()
            faults.partition(q)

    use()
    before = files_and_threads()
    for _ in range(5):
        use()
    assert files_and_threads() == before
