"""One process with clients of one library, which do what the benchmark asks of them on standard input.

    python -m bench.recipes_child LIBRARY WHERE

    cycles S   take the lock and give it back for S seconds: how often a second that was
    take       one client takes the lock and holds it
    wait S     one more client waits for the lock; once it has it, it gives it back S seconds later
    give       the one that took it gives it back: when it had it, and when it began to let go
    turns      once everyone who waited had the lock: the same of each of them

Each command is answered with one line of JSON.  Moments are by the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack

from bench.recipes_clients import LIBRARIES, AsyncLock, SyncLock, Where
from bench.rounds import run
from quoracy import open_store

__all__: list[str] = []

# When a client had the lock, and when it began to give it back.
_Turn = tuple[float, float]


class _AsyncCrew:
    """Clients that are tasks.  The first is for what is done alone, the others wait."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncLock]]) -> None:
        self._connect = connect
        self._clients: list[AsyncLock] = []
        self._waiting: list[asyncio.Task[_Turn]] = []
        self._taken_at = 0.0

    async def do(self, command: str, *arguments: str) -> object:
        first = await self._client(0)
        match command:
            case "cycles":
                return await self._cycles(first, float(arguments[0]))
            case "take":
                await first.__aenter__()
                self._taken_at = time.monotonic()
            case "wait":
                lock = await self._client(1 + len(self._waiting))
                self._waiting.append(asyncio.create_task(self._turn(lock, float(arguments[0]))))
            case "give":
                given_at = time.monotonic()
                await first.__aexit__(None, None, None)
                return self._taken_at, given_at
            case "turns":
                waiting, self._waiting = self._waiting, []
                return await asyncio.gather(*waiting)
            case _:
                raise ValueError(command)
        return None

    async def _client(self, number: int) -> AsyncLock:
        if number == len(self._clients):
            self._clients.append(await self._connect())
        return self._clients[number]

    async def _turn(self, lock: AsyncLock, hold_s: float) -> _Turn:
        async with lock:
            held_at = time.monotonic()
            if hold_s:
                await asyncio.sleep(hold_s)
            return held_at, time.monotonic()

    async def _cycles(self, lock: AsyncLock, seconds: float) -> float:
        done, started = 0, time.perf_counter()
        while time.perf_counter() < started + seconds:
            async with lock:
                done += 1
        return done / (time.perf_counter() - started)


class _SyncCrew:
    """The same with clients that are threads."""

    def __init__(self, connect: Callable[[], SyncLock]) -> None:
        self._connect = connect
        self._clients: list[SyncLock] = []
        self._waiting: list[threading.Thread] = []
        self._turns: list[_Turn] = []
        self._taken_at = 0.0

    def do(self, command: str, *arguments: str) -> object:
        first = self._client(0)
        match command:
            case "cycles":
                return self._cycles(first, float(arguments[0]))
            case "take":
                first.__enter__()
                self._taken_at = time.monotonic()
            case "wait":
                lock = self._client(1 + len(self._waiting))
                turn = (lock, float(arguments[0]))
                thread = threading.Thread(target=self._turn, args=turn, daemon=True)
                self._waiting.append(thread)
                thread.start()
            case "give":
                given_at = time.monotonic()
                first.__exit__(None, None, None)
                return self._taken_at, given_at
            case "turns":
                for thread in self._waiting:
                    thread.join()
                if len(self._turns) != len(self._waiting):
                    raise RuntimeError("somebody who waited failed; the error is above")
                turns, self._turns, self._waiting = self._turns, [], []
                return turns
            case _:
                raise ValueError(command)
        return None

    def _client(self, number: int) -> SyncLock:
        if number == len(self._clients):
            self._clients.append(self._connect())
        return self._clients[number]

    def _turn(self, lock: SyncLock, hold_s: float) -> None:
        with lock:
            held_at = time.monotonic()
            if hold_s:
                time.sleep(hold_s)
            self._turns.append((held_at, time.monotonic()))

    def _cycles(self, lock: SyncLock, seconds: float) -> float:
        done, started = 0, time.perf_counter()
        while time.perf_counter() < started + seconds:
            with lock:
                done += 1
        return done / (time.perf_counter() - started)


async def _run_tasks(name: str, address: str) -> None:
    library = LIBRARIES[name]
    connect = library.open_async
    assert connect is not None
    async with AsyncExitStack() as stack:
        where: Where = address
        if library.server is None:
            where = await stack.enter_async_context(open_store(address))
        crew = _AsyncCrew(lambda: stack.enter_async_context(connect(where)))
        # Reading in a thread: what the clients do in the background goes on meanwhile.
        while command := await asyncio.to_thread(sys.stdin.readline):
            _tell(await crew.do(*command.split()))


def _run_threads(name: str, address: str) -> None:
    connect = LIBRARIES[name].open_sync
    assert connect is not None
    with ExitStack() as stack:
        crew = _SyncCrew(lambda: stack.enter_context(connect(address)))
        while command := sys.stdin.readline():
            _tell(crew.do(*command.split()))


def _tell(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _, given_name, given_address = sys.argv
    if LIBRARIES[given_name].open_async is not None:
        run(_run_tasks(given_name, given_address))
    else:
        _run_threads(given_name, given_address)
