"""One node of a cell on this machine: `quoracy serve --cell` as a child, killed, paused and healed.

A node and its etcd member go together here as they would on a machine of their own: killed at once with
SIGKILL, or stopped at once with SIGSTOP.  If this process is killed, Linux kills the node, and with it
the member.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from quoracy.cli.cell_layout import HOST, Layout, Ports
from quoracy.clock import Clock
from quoracy.errors import InvalidRequest
from quoracy.server.cell.process import die_with_parent

__all__ = ["Hit", "MemberStatus", "Node", "State"]

_ANSWER_S_MAX = 1.0
_ANSWER_BYTES_MAX = 1024 * 1024
_LOG_LINES_SHOWN = 15
_MEMBER_GRACE_S = 2.0


class Hit(Enum):
    """What a kill or a pause is for."""

    BOTH = "both"
    NODE = "node"
    MEMBER = "member"


class State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    NOT_SERVING = "not serving"
    SILENT = "no answer"
    PAUSED = "paused"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What an etcd member says of itself.

    Two may think that they lead; the one with the later term is right.
    """

    version: str
    term: int
    leads: bool
    has_leader: bool


class Node:
    """A node and what is known of it; `changed` is called when that may be something new."""

    def __init__(
        self,
        layout: Layout,
        number: int,
        *,
        program: Path | None,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.number, self.name = number, layout.names[number - 1]
        self.ports: Ports = layout.nodes[number - 1]
        self.directory = layout.directory / self.name
        self.health: dict[str, Any] | None = None
        self.member: MemberStatus | None = None
        self.how_it_ended = ""
        self._cell, self._program = layout.cell, program
        self._clock, self._changed = clock, changed
        self._process: asyncio.subprocess.Process | None = None
        self._ended: asyncio.Task[None] | None = None
        self._was_ready = False
        self._paused: set[int] = set()

    # -- what is known

    @property
    def log(self) -> Path:
        return self.directory / "node.log"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def state(self) -> State:
        if self._process is None:
            return State.DOWN
        if self._process.pid in self._paused:
            return State.PAUSED
        if self.health is None:
            return State.SILENT if self._was_ready else State.STARTING
        serving = self.cluster.get("is_serving", True)
        return State.SERVING if serving else State.NOT_SERVING

    @property
    def cluster(self) -> dict[str, Any]:
        found = (self.health or {}).get("cluster")
        return found if isinstance(found, dict) else {}

    @property
    def member_pid(self) -> int | None:
        """Of its etcd; None while none runs."""
        if self._process is None:
            return None
        try:
            pid = int((self.directory / "etcd.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if _is_child(pid, self._process.pid) else None

    @property
    def is_member_paused(self) -> bool:
        return self.member_pid in self._paused

    def end_of_log(self) -> str:
        try:
            with self.log.open(encoding="utf-8", errors="replace") as lines:
                return "".join(deque(lines, _LOG_LINES_SHOWN)).rstrip()
        except FileNotFoundError:
            return "(nothing)"

    # -- what is done to it

    async def start(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._was_ready, self.health, self.member, self.how_it_ended = False, None, None, ""
        self._paused.clear()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for us; the nodes are stopped by us
                preexec_fn=die_with_parent(),
            )
        self._ended = asyncio.create_task(self._wait(self._process))
        self._changed()

    async def kill(self, hit: Hit) -> None:
        """At once, as a machine loses its power."""
        if hit is Hit.MEMBER:
            os.kill(self._need_member(), signal.SIGKILL)  # the node starts it again
            return
        # The member ends with its node, whichever was meant: nobody would supervise it.
        self._need_process().kill()
        assert self._ended is not None
        await self._ended

    def pause(self, hit: Hit) -> None:
        """The node first: it would notice that its member stands still."""
        process = self._need_process()
        member = self.member_pid if hit is Hit.BOTH else None
        pids = {
            Hit.BOTH: [process.pid, *([] if member is None else [member])],
            Hit.NODE: [process.pid],
            Hit.MEMBER: [self._need_member()] if hit is Hit.MEMBER else [],
        }[hit]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            self._paused.add(pid)
        self._changed()

    async def heal(self) -> str | None:
        """Undo a kill or a pause; what was done, if anything was."""
        if self._process is None:
            await self.start()
            return "started again"
        if self._paused:
            self._go_on()
            return "goes on"
        return None

    async def stop(self, grace_s: float) -> None:
        """As `quoracy serve` is stopped; whoever does not end in time is killed."""
        if self._process is None or self._ended is None:
            return
        self._go_on()
        self._send(signal.SIGTERM)
        try:
            # The last member of a cell would wait for seconds for somebody to hand leadership to.
            if grace_s > _MEMBER_GRACE_S and not await self._ends_within(_MEMBER_GRACE_S):
                self._kill_member()
            await self._ends_within(grace_s)
        finally:
            self._send(signal.SIGKILL)
        await self._ended

    async def look(self) -> None:
        """Ask it how it is doing."""
        if self._process is None or self._process.pid in self._paused:
            self.health = None
        else:
            self.health = await asyncio.to_thread(_health, self.ports.http)
        if self._process is None or self.is_member_paused:
            self.member = None
        else:
            self.member = await asyncio.to_thread(_member_status, self.ports.client)
        self._was_ready = self._was_ready or self.health is not None

    def _command(self) -> list[str]:
        ports = self.ports
        command = [
            *(sys.executable, "-m", "quoracy", "serve"),
            *("--cell", self._cell, "--node", self.name, "--data-dir", str(self.directory)),
            *("--listen-etcd", f"{HOST}:{ports.etcd}"),
            *("--listen-zookeeper", f"{HOST}:{ports.zookeeper}"),
            *("--listen-http", f"{HOST}:{ports.http}"),
            *("--zookeeper-4lw-commands-whitelist", "*"),
        ]
        return command if self._program is None else [*command, "--etcd-program", str(self._program)]

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self.how_it_ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._process, self.health, self.member = None, None, None
        self._paused.clear()
        self._changed()

    async def _ends_within(self, seconds: float) -> bool:
        assert self._ended is not None
        bell = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({self._ended, bell}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            bell.cancel()
        return self._ended.done()

    def _kill_member(self) -> None:
        pid = self.member_pid
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)

    def _go_on(self) -> None:
        for pid in sorted(self._paused, reverse=True):  # the member first: it was started later
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._paused.clear()
        self._changed()

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                self._process.send_signal(number)

    def _need_process(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise InvalidRequest(f"{self.name} is down already. `quoracy cell heal` starts it again.")
        return self._process

    def _need_member(self) -> int:
        self._need_process()
        pid = self.member_pid
        if pid is None:
            raise InvalidRequest(f"the member of {self.name} does not run just now. Try again.")
        return pid


def _health(port: int) -> dict[str, Any] | None:
    return _ask(port, "GET", "/health")


def _member_status(port: int) -> MemberStatus | None:
    """By way of etcd's JSON gateway, which writes numbers of 64 bits as text."""
    said = _ask(port, "POST", "/v3/maintenance/status", "{}")
    header = None if said is None else said.get("header")
    if said is None or not isinstance(header, dict):
        return None
    leader = said.get("leader", "0")
    return MemberStatus(
        version=str(said.get("version", "")),
        term=int(said.get("raftTerm", 0)),
        leads=leader == header.get("member_id"),
        has_leader=leader != "0",
    )


def _ask(port: int, method: str, path: str, body: str | None = None) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_S_MAX)
    try:
        connection.request(method, path, body)
        said = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return said if isinstance(said, dict) else None


def _environment() -> dict[str, str]:
    # Settings of the surroundings are for a server of their own, not for these.
    return {name: value for name, value in os.environ.items() if not name.startswith("QUORACY_")}


def _is_child(pid: int, parent: int) -> bool:
    """Whether the process is still the one that was meant; only Linux tells."""
    if sys.platform != "linux":
        return True
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return f"\nPPid:\t{parent}\n" in status
