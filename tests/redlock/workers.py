"""What the other processes of these tests do; imported by them, so it stands on its own."""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection
from pathlib import Path

from quoracy.errors import LockLost, TimedOut
from quoracy.redlock import Redlock, sync

__all__ = [
    "count_until_stopped",
    "count_with_a_thread_lock",
    "count_with_an_async_lock",
    "hold",
    "work_until_lost",
]


def count_with_an_async_lock(urls: list[str], directory: Path, times: int) -> None:
    """Add one to the number in a file, again and again, under the lock."""

    async def count() -> None:
        async with Redlock(urls, server_timeout=3, retry_delay=0.005) as redlock:
            for _ in range(times):
                async with redlock.lock("counter").hold(timeout=60):
                    _add_one(directory)

    asyncio.run(count())


def count_with_a_thread_lock(urls: list[str], directory: Path, times: int) -> None:
    with sync.Redlock(urls, server_timeout=3, retry_delay=0.005) as redlock:
        for _ in range(times):
            with redlock.lock("counter").hold(timeout=60):
                _add_one(directory)


def count_until_stopped(urls: list[str], directory: Path, name: str) -> None:
    """Add one under the lock until there is a file "stop"; write down how often."""

    async def count() -> int:
        times = 0
        async with Redlock(urls, server_timeout=0.3, retry_delay=0.01) as redlock:
            lock = redlock.lock("counter", ttl=3)
            while not (directory / "stop").exists():
                try:
                    async with lock.hold(timeout=0.5) as held:
                        held.check()
                        _add_one(directory)
                        times += 1
                except TimedOut:
                    continue  # look whether to stop
        return times

    (directory / name).write_text(str(asyncio.run(count())))


def _add_one(directory: Path) -> None:
    inside = directory / "somebody is inside"
    inside.touch(exist_ok=False)  # fails if somebody else is
    counter = directory / "counter"
    number = int(counter.read_text())
    time.sleep(0.0005)
    counter.write_text(str(number + 1))
    inside.unlink()


def hold(urls: list[str], ttl: float, told: Connection) -> None:
    """Hold the lock until killed, extending it all the time."""
    with sync.Redlock(urls, server_timeout=ttl / 4) as redlock:
        held = redlock.lock("a", ttl=ttl).acquire()
        told.send(held.value)
        held.lost.wait()


def work_until_lost(urls: list[str], ttl: float, told: Connection) -> None:
    """Hold the lock and do something under it now and then, as long as `check` allows it."""

    async def work() -> None:
        async with Redlock(urls, server_timeout=ttl / 4) as redlock:
            try:
                async with redlock.lock("a", ttl=ttl) as held:
                    told.send("held")
                    while True:
                        # No await in between: who was stopped elsewhere looks at the clock first.
                        held.check()
                        told.send("acts")
                        await asyncio.sleep(0.01)
            except LockLost:
                told.send("lost")

    asyncio.run(work())
