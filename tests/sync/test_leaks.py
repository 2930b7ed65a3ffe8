"""A thousand connections, opened and closed: files, threads and tasks are as they were."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import quoracy
import quoracy.sync
from quoracy.threads.portal import Portal
from tests.faults.scale import LONG, rounds

pytestmark = pytest.mark.faults

CYCLES = rounds(25, 1000)


def counts() -> tuple[int, int]:
    """How many files are open, and how many threads run."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.fixture(params=["memory", "server", *(["sqlite"] if LONG else [])])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "server":
        return str(request.getfixturevalue("server_url"))
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/leaks.db"


def settle(portal: Portal, condition: Callable[[], bool]) -> None:
    """What is dropped is closed on the loop, soon after."""
    for _ in range(1000):
        if condition():
            return
        portal.run(lambda: asyncio.sleep(0.005))
    assert condition()


def use(q: quoracy.sync.Connection) -> None:
    with q.lock("x"):
        pass
    q.value("v", int).set(1)
    for _ in q.value("v", int).changes():
        break
    q.on_state(lambda _: None)


def test_synchronous_connections_leave_nothing(url: str, namespace: str) -> None:
    def cycle() -> None:
        with quoracy.sync.connect(url, namespace=namespace) as q:
            use(q)

    cycle()  # what is loaded once is loaded
    before = counts()
    for _ in range(CYCLES):
        cycle()
    assert counts() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("quoracy")]


def test_connections_beside_one_that_stays_leave_nothing(url: str, namespace: str) -> None:
    """The loop goes on, so its tasks can be counted."""
    if url.startswith("sqlite"):
        pytest.skip("one process owns a file once")
    # One that does not have to be renewed meanwhile: that takes a task which then stays.
    with quoracy.sync.connect(url, namespace=namespace, session_ttl=600) as staying:
        portal = staying._portal

        def tasks() -> int:
            return portal.call(lambda: len(asyncio.all_tasks(portal.loop)))

        def cycle() -> None:
            with quoracy.sync.connect(url, namespace=namespace) as q:
                use(q)

        use(staying)
        cycle()
        before, tasks_before = counts(), tasks()
        for _ in range(CYCLES):
            cycle()
        assert counts() == before
        settle(portal, lambda: tasks() <= tasks_before)
        with staying.lock("still-there").hold(timeout=30):
            pass


def test_failed_connections_leave_nothing() -> None:
    def cycle() -> None:
        with pytest.raises(quoracy.QuoracyError):
            quoracy.sync.connect("quoracy://127.0.0.1:1", request_timeout=0.01)

    cycle()
    before = counts()
    for _ in range(rounds(10, 200)):
        cycle()
    assert counts() == before


async def test_asynchronous_connections_leave_nothing(url: str, namespace: str) -> None:
    async def cycle() -> None:
        async with quoracy.connect(url, namespace=namespace) as q:
            async with q.lock("x"):
                pass
            await q.value("v", int).set(1)

    await cycle()
    before = (*counts(), len(asyncio.all_tasks()))
    for _ in range(CYCLES):
        await cycle()
    assert (*counts(), len(asyncio.all_tasks())) == before


def test_handles_that_are_dropped_leave_no_tasks(url: str, namespace: str) -> None:
    with quoracy.sync.connect(url, namespace=namespace) as q:
        portal = q._portal
        q.value("v", int).set(1)

        def tasks() -> int:
            return portal.call(lambda: len(asyncio.all_tasks(portal.loop)))

        before = tasks()
        for _ in range(50):
            next(q.value("v", int).changes())
            q.lock("x").acquire().release()
            with q.lock("y").hold():
                pass
        gc.collect()
        settle(portal, lambda: tasks() <= before)
