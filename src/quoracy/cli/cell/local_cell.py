"""A whole cell on this machine: its nodes are started, watched, killed, healed and stopped.

Whatever ends it (Ctrl-C, SIGTERM, a closed terminal, a node that does not start), the same happens:
every node is stopped and waited for, the socket is removed, and so is the directory unless it was
chosen.  A second signal kills what is left at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quoracy.cli.cell.control import listening
from quoracy.cli.cell.node import Hit, Layout, Node, State, find_layout
from quoracy.cli.cell.screen import Screen, how_to_connect, rows_of
from quoracy.clock import Clock, SystemClock
from quoracy.errors import InvalidRequest, Unavailable

__all__ = ["run_cell"]


_LOOK_S = 0.5
_READY_S_MAX = 120.0
_GRACE_S = 20.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_cell(
    nodes_count: int, *, directory: Path | None, control: Path, program: Path | None
) -> None:
    """Run it until a signal ends it.  Raises `Unavailable` if a node does not start."""
    screen, clock = Screen(), SystemClock()
    with contextlib.closing(screen), _ended_by_signal(screen) as stopping:
        with _in_directory(directory) as place:
            layout = find_layout(place, nodes_count)
            cell = _Cell(layout, program, screen, clock)
            async with listening(control, cell.carry_out):
                try:
                    await cell.run(stopping, chosen=directory)
                finally:
                    screen.close_table()
                    await cell.stop(stopping)


class _Cell:
    def __init__(self, layout: Layout, program: Path | None, screen: Screen, clock: Clock) -> None:
        self._layout, self._screen, self._clock = layout, screen, clock
        self._changed = asyncio.Event()
        self._nodes = [
            Node(layout, number, program=program, clock=clock, changed=self._changed.set)
            for number in range(1, len(layout.nodes) + 1)
        ]

    async def run(self, stopping: _Stopping, *, chosen: Path | None) -> None:
        count = len(self._nodes)
        self._screen.say(
            f"Starting {count} nodes, each with an etcd member, in {self._layout.directory}"
        )
        for node in self._nodes:
            await node.start()
        watching = asyncio.create_task(self._watch_nodes())
        try:
            if not await self._become_ready(stopping):
                return
            shown = None if chosen is None else str(chosen)
            self._screen.say("The cell is up. Try, from another terminal:")
            self._screen.say(*(f"  {line}" for line in how_to_connect(self._layout, directory=shown)))
            self._screen.say("Ctrl-C takes it all down.", "")
            self._screen.open_table()
            await self._show_until(stopping, watching)
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def stop(self, stopping: _Stopping) -> None:
        self._screen.say("Taking the cell down.")
        grace_s = 0.0 if stopping.is_urgent else _GRACE_S
        all_stopped = asyncio.create_task(self._stop_nodes(grace_s))
        urgent = asyncio.create_task(stopping.wait_urgent())
        await asyncio.wait([all_stopped, urgent], return_when=asyncio.FIRST_COMPLETED)
        if not all_stopped.done():
            await self._stop_nodes(0.0)
        urgent.cancel()
        await all_stopped
        self._screen.say("It is down, and nothing is left running.")

    async def _stop_nodes(self, grace_s: float) -> None:
        await asyncio.gather(*(node.stop(grace_s) for node in self._nodes))

    async def carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request from another terminal; see `control`."""
        match request:
            case {"do": "status"}:
                return {
                    "directory": str(self._layout.directory),
                    "nodes": [asdict(row) for row in rows_of(self._nodes)],
                }
            case {"do": "kill", "node": int(number), "only": str(only)}:
                node, hit = self._node(number), Hit(only)
                await node.kill(hit)
                what = "the member of " if hit is Hit.MEMBER else ""
                return {"said": f"{what}{node.name} was killed"}
            case {"do": "pause", "node": int(number), "only": str(only)}:
                node, hit = self._node(number), Hit(only)
                node.pause(hit)
                what = {Hit.BOTH: "", Hit.NODE: "the node, not the member, of "}.get(
                    hit, "the member of "
                )
                return {"said": f"{what}{node.name} is paused"}
            case {"do": "heal"}:
                done = [(node.name, await node.heal()) for node in self._nodes]
                said = ", ".join(f"{name} {what}" for name, what in done if what is not None)
                return {"said": said or "there was nothing to heal"}
            case _:
                raise InvalidRequest("a cell knows status, kill, pause and heal.")

    def _node(self, number: int) -> Node:
        if not 1 <= number <= len(self._nodes):
            raise InvalidRequest(f"there is no node {number}. Give 1 to {len(self._nodes)}.")
        return self._nodes[number - 1]

    async def _watch_nodes(self) -> None:
        while True:
            await asyncio.gather(*(node.look() for node in self._nodes))
            self._changed.set()
            await self._clock.sleep(_LOOK_S)

    async def _become_ready(self, stopping: _Stopping) -> bool:
        """Wait until all nodes serve; False if a signal came first."""
        give_up_at = self._clock.now() + _READY_S_MAX
        while not all(node.state is State.SERVING for node in self._nodes):
            if stopping.is_set:
                return False
            for node in self._nodes:
                if not node.is_running:
                    raise _failed(node, f"ended with {node.how_it_ended} before it was ready")
            if self._clock.now() > give_up_at:
                late = next(node for node in self._nodes if node.state is not State.SERVING)
                raise _failed(late, f"was not ready after {_READY_S_MAX:g} s")
            await self._wait_for_change(stopping)
        return True

    async def _show_until(self, stopping: _Stopping, watching: asyncio.Task[None]) -> None:
        while not stopping.is_set:
            if watching.done():
                watching.result()
            self._screen.show(rows_of(self._nodes))
            await self._wait_for_change(stopping)

    async def _wait_for_change(self, stopping: _Stopping) -> None:
        waits = [asyncio.create_task(self._changed.wait()), asyncio.create_task(stopping.first.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self._changed.clear()


class _Stopping:
    """The first signal asks for an orderly stop, the second for a quick one."""

    def __init__(self) -> None:
        self.first, self.urgent = asyncio.Event(), asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self.first.is_set()

    @property
    def is_urgent(self) -> bool:
        return self.urgent.is_set()

    async def wait_urgent(self) -> None:
        await self.urgent.wait()

    def received(self) -> None:
        (self.urgent if self.first.is_set() else self.first).set()


@contextlib.contextmanager
def _ended_by_signal(screen: Screen) -> Iterator[_Stopping]:
    stopping = _Stopping()
    loop = asyncio.get_running_loop()

    def hung_up() -> None:
        screen.gone()
        # A terminal that is closed may send two of them; that is not a request to hurry.
        stopping.first.set()

    for number in _ENDING:
        loop.add_signal_handler(number, hung_up if number is signal.SIGHUP else stopping.received)
    try:
        yield stopping
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _in_directory(chosen: Path | None) -> Iterator[Path]:
    """The chosen directory, made if need be, or a temporary one."""
    if chosen is not None:
        chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield chosen.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="quoracy-cell-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def _failed(node: Node, what: str) -> Unavailable:
    return Unavailable(f"{node.name} {what}. Its log, {node.log}, ends with:\n{node.end_of_log()}")
