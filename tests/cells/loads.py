"""The clients of a schedule, all of them: which loads there are, and whom each asks."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from tests.cells.cell import CLIENTS, Cell
from tests.cells.load import Settings
from tests.cells.processes import Program

__all__ = ["Loads"]

_READY_S_MAX = 30.0


@dataclass
class Loads:
    """Six processes for a cell, two for a plain etcd.

    holder: one whose clients hold locks that those of another want.
    pinned: the store clients that know one node.  (A plain member that was killed may know less than
        it told before, for reads that allow that.)
    """

    cell: Cell
    seed: int
    rate: float
    programs: list[Program] = field(default_factory=list)
    holder: Program | None = None
    pinned: frozenset[int] = frozenset()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everybody is connected when the block is entered, and gone when it is left."""
        try:
            for module, settings in self._settings():
                program = self._program(module, settings)
                self.programs.append(program)
                program.start()
            await self._wait_ready()
            yield
        finally:
            for program in self.programs:
                program.kill()

    async def end(self, revision: int) -> None:
        """Tell all of them, and wait; each must end well."""
        for program in self.programs:
            program.check_running_unless_killed()
            program.tell(str(revision))
        for program in self.programs:
            await program.ended()

    async def _wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_S_MAX
        waiting = [program.name for program in self.programs]
        while waiting:
            for program in self.programs:
                program.check_running_unless_killed()
            assert time.monotonic() < deadline, f"{', '.join(waiting)}: not ready"
            await asyncio.sleep(0.02)  # they tell by a file
            waiting = [n for n in waiting if not (self.cell.directory / f"{n}.ready").exists()]

    def _program(self, module: str, settings: Settings) -> Program:
        told = msgspec.json.encode(settings).decode()
        command = [sys.executable, "-m", f"tests.cells.{module}", told]
        program = Program(self.cell.network, CLIENTS, settings.name, command, self.cell.directory)
        if settings.name == "locks-0":
            self.holder = program
        return program

    def _settings(self) -> Iterator[tuple[str, Settings]]:
        """Each load, by its module."""
        hosts = list(self.cell.hosts.values())
        each = tuple((str(host.store_address),) for host in hosts)
        every = tuple(str(host.store_address) for host in hosts)
        common = Settings(
            name="",
            seed=self.seed,
            directory=str(self.cell.directory),
            began=time.monotonic(),
            clients_from=0,
            members=tuple(str(host.member_address) for host in hosts),
            engines=0 if self.cell.setup.plain else 1,
            rate=self.rate,
        )
        self.pinned = frozenset(() if self.cell.setup.plain else range(2 * len(each)))

        def load(name: str, clients_from: int, **others: object) -> Settings:
            return msgspec.structs.replace(common, name=name, clients_from=clients_from, **others)

        yield "load_registers", load("registers", 0, stores=(*each, *each, every, every))
        yield "load_watches", load("watches", 100, stores=(*each, every))
        if self.cell.setup.plain:
            return
        alone = tuple(host.zookeeper_address for host in hosts)
        together = ",".join(alone)
        first, second = (alone[0], alone[1], together), (alone[1], alone[2], together)
        yield "load_kazoo", load("kazoo", 200, zookeepers=(*alone, together))
        yield "load_locks", load("locks-0", 300, zookeepers=first)
        yield "load_locks", load("locks-1", 400, zookeepers=second)
        yield "load_sessions", load("sessions", 500, zookeepers=alone)
