"""`quoracy agent` processes of a test: started, listened to, killed, and gone when the test is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

__all__ = ["QUICK", "Agent", "Agents"]

# Four times as quick as the defaults, so that a test takes seconds.
QUICK = ("probe_interval_s=0.25", "probe_timeout_s=0.1", "gossip_interval_s=0.05", "sync_interval_s=5")
_QUORACY = [sys.executable, "-m", "quoracy"]
_ENDS_S_MAX = 30.0


class Agent:
    """One process, and all that it has said."""

    def __init__(self, name: str, pid: int, stderr: Path) -> None:
        self.name, self.pid = name, pid
        self.events: list[dict[str, Any]] = []
        self.is_running = True  # as far as its end of the pipe goes
        self.is_killed = False
        self._stderr = stderr

    @property
    def address(self) -> str:
        """Where it is; known once it has started."""
        return str(self.events[0]["address"])

    def of_kind(self, *kinds: str) -> list[str]:
        """The names of those to whom something of this kind happened, in order."""
        return [event["name"] for event in self.events if event["event"] in kinds]

    @property
    def present(self) -> set[str]:
        """Who is there, itself included, by what it said."""
        names: set[str] = set()
        for event in self.events:
            if event["event"] in ("started", "present", "joined"):
                names.add(event["name"])
            elif event["event"] in ("died", "left"):
                names.discard(event["name"])
        return names

    def stderr(self) -> str:
        return self._stderr.read_text() if self._stderr.exists() else ""

    def kill(self) -> None:
        self.is_killed = True
        os.kill(self.pid, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


class Agents:
    """Some agents on this machine (or, with `under`, on others), by name."""

    def __init__(self, directory: Path, *, settings: Sequence[str] = QUICK) -> None:
        self.by_name: dict[str, Agent] = {}
        self._directory, self._settings = directory, settings
        self._changed = asyncio.Event()
        self._reading: set[asyncio.Task[None]] = set()
        self._transports: list[asyncio.ReadTransport] = []
        self._zygotes: list[subprocess.Popen[bytes]] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for zygote in self._zygotes:
            assert zygote.stdin is not None
            assert zygote.stdout is not None
            zygote.stdin.close()
            await asyncio.to_thread(zygote.wait, _ENDS_S_MAX)
            zygote.stdout.close()
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for transport in self._transports:
            transport.close()
        if error is not None:
            for agent in self.by_name.values():
                said = [(event["event"], event.get("name")) for event in agent.events]
                error.add_note(f"{agent.name}: {said[-40:]} {agent.stderr()}")

    def __iter__(self) -> Iterator[Agent]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def alive(self) -> list[Agent]:
        return [agent for agent in self if not agent.is_killed]

    # -- starting ------------------------------------------------------------------------------------

    async def start(
        self, name: str, *arguments: str, bind: str = "127.0.0.1:0", under: Sequence[str] = ()
    ) -> Agent:
        """A process of its own; `under` is a command that becomes it, such as nsenter."""
        agent = await self.begin(name, *arguments, bind=bind, under=under)
        await self.until(lambda: bool(agent.events) or not agent.is_running, within_s=30.0)
        assert agent.events, f"{name} did not start: {agent.stderr()}"
        return agent

    async def begin(
        self, name: str, *arguments: str, bind: str = "127.0.0.1:0", under: Sequence[str] = ()
    ) -> Agent:
        """The same without waiting until it has started."""
        read, write = os.pipe()
        stderr = self._directory / f"{name}.stderr"
        with stderr.open("ab") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 (forking takes a millisecond)
                [*under, *_QUORACY, "agent", *self._arguments(name, arguments, bind)],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=log,
            )
        os.close(write)
        self._processes.append(process)
        return await self._listen(name, process.pid, read, stderr)

    async def fork(self, names: Sequence[str], *arguments: str) -> list[Agent]:
        """Many at once: see zygote.py."""
        pipes = [os.pipe() for _ in names]
        zygote = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "tests.membership.processes.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[write for _, write in pipes],
        )
        self._zygotes.append(zygote)
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        agents = []
        for name, (read, write) in zip(names, pipes, strict=True):
            os.close(write)
            stderr = self._directory / f"{name}.stderr"
            spec = {
                "arguments": self._arguments(name, arguments, "127.0.0.1:0"),
                "stdout": write,
                "stderr": str(stderr),
            }
            zygote.stdin.write(json.dumps(spec).encode() + b"\n")
            zygote.stdin.flush()
            pid = int(await asyncio.to_thread(zygote.stdout.readline))
            agents.append(await self._listen(name, pid, read, stderr))
        await self.until(lambda: all(agent.events for agent in agents), within_s=60.0)
        return agents

    def _arguments(self, name: str, arguments: Sequence[str], bind: str) -> list[str]:
        settings = [word for pair in self._settings for word in ("--set", pair)]
        return ["--name", name, "--bind", bind, "-o", "json", *settings, *arguments]

    async def _listen(self, name: str, pid: int, read: int, stderr: Path) -> Agent:
        agent = self.by_name[name] = Agent(name, pid, stderr)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        pipe: IO[bytes] = os.fdopen(read, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._transports.append(transport)
        self._reading.add(asyncio.create_task(self._read(agent, reader)))
        return agent

    async def _read(self, agent: Agent, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if line.endswith(b"\n"):  # else it was killed in the middle of it
                agent.events.append(json.loads(line))
                self._changed.set()
        agent.is_running = False
        self._changed.set()

    async def ended(self, name: str) -> int:
        """The exit code of one that was started by itself, once it has ended."""
        pid = self.by_name[name].pid
        [process] = [each for each in self._processes if each.pid == pid]
        return await asyncio.to_thread(process.wait, _ENDS_S_MAX)

    # -- waiting -------------------------------------------------------------------------------------

    async def until(self, is_so: Callable[[], bool], *, within_s: float) -> None:
        """Look after each thing that any of them says; fails when the time is over."""
        async with asyncio.timeout(within_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def until_all_see(self, names: set[str], *, within_s: float) -> None:
        await self.until(lambda: all(agent.present == names for agent in self.alive), within_s=within_s)
