"""Processes that try recipes, and what is done to them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import quoracy
from tests.recipes.processes.ledger import Entry, Ledger, Reader, monotonic
from tests.recipes.processes.resource import Resource, serve_resource
from tests.recipes.processes.trials_of_data import TRIALS

__all__ = ["Crew", "Server", "running_crew"]

NAMESPACE = "crew"
_PROGRESS_S_MAX = 60.0
_ENDS_S_MAX = 30.0


class Server(Protocol):
    """What the processes talk to."""

    url: str

    async def restart(self) -> None:
        """Kill it, and start it again on the same data and the same port."""
        ...


class Crew:
    """Some processes, all at the same recipes."""

    def __init__(self, url: str, directory: Path, trials: Collection[str], resource: Resource) -> None:
        self._url, self._directory, self._trials = url, directory, tuple(trials)
        self._reader = Reader(directory / "ledger")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._broken = 0
        self.resource = resource

    @property
    def entries(self) -> Sequence[Entry]:
        return self._reader.read()

    async def start(self, name: str) -> None:
        """Start one more; returns when it is connected."""
        command = [sys.executable, "-m", "tests.recipes.processes.child", self._url, NAMESPACE]
        command += [str(self._directory), name, *self._trials]
        process = self._processes[name] = await asyncio.to_thread(self._spawn, name, command)
        assert process.stdout is not None
        greeting = await asyncio.to_thread(process.stdout.readline)
        assert greeting, f"{name} ended before it was connected:\n{self._last_words(name)}"

    def _spawn(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    async def kill(self, name: str) -> None:
        self._broken += 1
        process = self._processes.pop(name)
        process.kill()
        await asyncio.to_thread(process.wait)
        assert process.returncode == -signal.SIGKILL, self._last_words(name)
        assert process.stdout is not None
        process.stdout.close()

    def pause(self, name: str) -> None:
        self._broken += 1
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    async def progress(self, *, by: str | None = None, times: int = 2) -> None:
        """Wait until every trial has got on from now: by anybody, or by one process."""
        since = monotonic()

        def counts(trial: str) -> bool:
            event = TRIALS[trial].progress
            seen = [
                entry
                for entry in self.entries
                if entry.trial == trial
                and entry.event == event
                and entry.at > since
                and (by is None or entry.child == by)
            ]
            return len(seen) >= times

        await self._until(lambda: [trial for trial in self._trials if not counts(trial)])

    async def _until(self, missing: Callable[[], list[str]]) -> None:
        until = monotonic() + _PROGRESS_S_MAX
        while left := missing():
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name} ended:\n{self._last_words(name)}"
            assert monotonic() < until, f"no progress: {left}; the last: {self.entries[-20:]}"
            await asyncio.sleep(0.02)  # other processes' doings, which no event announces here

    async def stop(self) -> None:
        """SIGTERM for all; they end by themselves, well."""
        for process in self._processes.values():
            process.terminate()
        for name, process in self._processes.items():
            try:
                await asyncio.to_thread(process.wait, _ENDS_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.returncode == 0, f"{name}: {process.returncode}\n{self._last_words(name)}"

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    async def finish(self) -> None:
        """Look at what is left when all have ended."""
        ledger = Ledger(self._directory / "ledger", "finish")
        async with quoracy.connect(self._url, namespace=NAMESPACE) as q, asyncio.timeout(60):
            for trial in self._trials:
                await TRIALS[trial].finish(q, ledger, trial)
        ledger.close()

    def judge(self) -> None:
        """Every trial, by everything that was written down."""
        entries = self.entries
        for trial in self._trials:
            TRIALS[trial].judge(entries, trial, self._broken)
        highest: dict[str, int] = {}
        for trial, token in self.resource.admitted:
            assert token >= highest.get(trial, 0), f"{trial}: {token} was admitted after a larger one"
            highest[trial] = token

    def _last_words(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-3000:]


@asynccontextmanager
async def running_crew(
    url: str, directory: Path, trials: Collection[str], names: Sequence[str]
) -> AsyncIterator[Crew]:
    """A crew at work; gone when the block is left."""
    async with serve_resource(directory / "resource") as resource:
        crew = Crew(url, directory, trials, resource)
        try:
            for name in names:
                await crew.start(name)
            yield crew
        finally:
            crew.end()
