"""A real etcd cluster on loopback, whose members a test kills, stops and starts again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from quoracy.remote.urls import Address, Target
from tests.differential.etcd_server import etcd_35_program, etcd_binary
from tests.support.etcd_process import clean_environment, is_healthy
from tests.support.ports import free_ports

__all__ = ["EtcdCluster", "etcd_program", "running_cluster"]

_START_S_MAX = 60.0
_STOP_S_MAX = 10.0


def etcd_program(version: str) -> Path | None:
    """etcd 3.4 (the system's) or 3.5 (the package's); None if that is not installed."""
    found = etcd_35_program() if version == "3.5" else etcd_binary()
    return None if found is None else Path(found)


class EtcdCluster:
    """Members 0 to n-1, each ended by its own process handle."""

    def __init__(
        self, program: Path, directory: Path, *, count: int = 3, flags: Sequence[str] = ()
    ) -> None:
        self._program, self._directory, self._flags = program, directory, tuple(flags)
        ports = free_ports(2 * count)
        self.ports, self._peer_ports = ports[:count], ports[count:]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    @property
    def target(self) -> Target:
        return self.target_from(0)

    def target_from(self, first: int) -> Target:
        """Every member, beginning with one of them."""
        ports = self.ports[first:] + self.ports[:first]
        return Target(tuple(Address("127.0.0.1", port) for port in ports))

    async def start_all(self) -> None:
        for index in range(len(self.ports)):
            self._spawn(index)
        await asyncio.to_thread(self._await_all)

    async def start(self, index: int) -> None:
        """Start a member that was killed; returns when it serves, which takes a majority."""
        self._spawn(index)
        await asyncio.to_thread(self._await_healthy, index)

    def spawn(self, index: int) -> None:
        """Start a member that was killed, and do not wait."""
        self._spawn(index)

    async def kill(self, *indexes: int) -> None:
        """At once, as `kill -9` does."""
        for index in indexes:
            process = self._processes[index]
            assert process is not None
            process.kill()
        for index in indexes:
            process, self._processes[index] = self._processes[index], None
            assert process is not None
            await asyncio.to_thread(process.wait, _STOP_S_MAX)

    def pause(self, *indexes: int) -> None:
        self._signal(signal.SIGSTOP, indexes)

    def resume(self, *indexes: int) -> None:
        self._signal(signal.SIGCONT, indexes)

    async def etcdctl(self, *arguments: str, index: int = 0) -> str:
        """Run etcdctl against one member; what it printed."""
        program = self._program.with_name("etcdctl")
        process = await asyncio.create_subprocess_exec(
            program,
            f"--endpoints=127.0.0.1:{self.ports[index]}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=clean_environment() | {"ETCDCTL_API": "3"},
        )
        out, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def close(self) -> None:
        running = [index for index, process in enumerate(self._processes) if process is not None]
        self.resume(*running)
        await self.kill(*running)

    def _spawn(self, index: int) -> None:
        client = f"http://127.0.0.1:{self.ports[index]}"
        peer = f"http://127.0.0.1:{self._peer_ports[index]}"
        cluster = ",".join(
            f"m{each}=http://127.0.0.1:{port}" for each, port in enumerate(self._peer_ports)
        )
        with self._log(index).open("ab") as log:
            self._processes[index] = subprocess.Popen(
                [
                    str(self._program),
                    f"--name=m{index}",
                    f"--data-dir={self._directory / f'm{index}'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster={cluster}",
                    *self._flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
            )

    def _await_all(self) -> None:
        for index in range(len(self.ports)):
            self._await_healthy(index)

    def _await_healthy(self, index: int) -> None:
        process = self._processes[index]
        assert process is not None
        deadline = time.monotonic() + _START_S_MAX
        while not is_healthy(self.ports[index]):
            if process.poll() is not None or time.monotonic() > deadline:
                text = self._log(index).read_text("utf-8", "replace")
                raise RuntimeError(f"etcd {index} did not start; its log ends with\n{text[-2000:]}")
            time.sleep(0.02)  # a poll with a deadline

    def _signal(self, number: signal.Signals, indexes: Sequence[int]) -> None:
        for index in indexes:
            process = self._processes[index]
            assert process is not None
            process.send_signal(number)

    def _log(self, index: int) -> Path:
        return self._directory / f"m{index}.log"


@contextlib.asynccontextmanager
async def running_cluster(
    program: Path, directory: Path, *, count: int = 3, flags: Sequence[str] = ()
) -> AsyncIterator[EtcdCluster]:
    cluster = EtcdCluster(program, directory, count=count, flags=flags)
    try:
        await cluster.start_all()
        yield cluster
    finally:
        await cluster.close()
