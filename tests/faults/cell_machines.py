"""The machines of a cell as far as its etcd goes: supervised members on loopback, each started, stopped
and robbed of its data by a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from quoracy.remote.store import RemoteStore, open_remote
from quoracy.server.cell.config import CellConfig, CellMember, CellTls
from quoracy.server.cell.member import supervised_member
from quoracy.wire.etcd.maintenance import Member
from tests.support.ports import free_ports

__all__ = ["Machine", "Machines", "running_machines"]

_START_S_MAX = 60.0


class Machine:
    """One of them: its configuration, and its member while that runs."""

    def __init__(self, config: CellConfig) -> None:
        self.config = config
        self.serves = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Start the member; the task ends when it is stopped, or fails."""
        assert self._task is None
        self.serves.clear()
        self._stopping.clear()
        self._task = asyncio.create_task(self._supervise())
        return self._task

    async def start(self) -> None:
        """Start the member and wait until it serves."""
        task = self.begin()
        served = asyncio.create_task(self.serves.wait())
        done, _ = await asyncio.wait(
            {task, served}, timeout=_START_S_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        served.cancel()
        assert done, f"{self.config.node} did not serve within {_START_S_MAX:g} s"
        if task.done():
            task.result()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping.set()
        if not self.serves.is_set():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def kill_member(self) -> int:
        pid = self.member_pid
        os.kill(pid, signal.SIGKILL)
        return pid

    @property
    def member_pid(self) -> int:
        return int(self.config.pid_file.read_text(encoding="ascii"))

    def lose_data(self) -> None:
        shutil.rmtree(self.config.data_dir)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[RemoteStore]:
        """What this member says, and no other."""
        target = self.config.target([self.config.own])
        async with open_remote(target, timeout_s=10.0) as store:
            yield store

    async def member_ids(self) -> dict[str, int]:
        async with self.store() as store:
            members: tuple[Member, ...] = await store.member_list(linearizable=True)
        return {member.name: member.ID for member in members}

    async def _supervise(self) -> None:
        # The last member of a cell would wait for seconds for somebody to hand leadership to.
        async with supervised_member(self.config, grace_s=0.5):
            self.serves.set()
            await self._stopping.wait()


class Machines(dict[str, Machine]):
    """Machines by name."""

    async def start(self, *names: str) -> None:
        await asyncio.gather(*(self[name].start() for name in names or self))

    async def stop(self, *names: str) -> None:
        await asyncio.gather(*(self[name].stop() for name in names or self))


@asynccontextmanager
async def running_machines(
    directory: Path, names: str, *, program: Path | None = None, tls: CellTls | None = None
) -> AsyncIterator[Machines]:
    """A cell with a member for each letter of `names`, none of them started yet."""
    ports = free_ports(2 * len(names))
    members = tuple(CellMember(name, "127.0.0.1", ports.pop(), ports.pop()) for name in names)
    # Only processes die here, not machines.
    config = CellConfig(
        "test", members, names[0], directory, program, tls, flags=("--unsafe-no-fsync",)
    )
    machines = Machines(
        {name: Machine(replace(config, node=name, data_dir=directory / name)) for name in names}
    )
    try:
        yield machines
    finally:
        await machines.stop()
