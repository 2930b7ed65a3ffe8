"""The nodes of a cell on this machine: where each is, and its process.

A node is `quoracy serve --cell` as a child process.  It and its etcd member go together here as they
would on a machine of their own: both are killed with SIGKILL, or both stopped with SIGSTOP.  If this
process is killed, Linux kills the node, and with it the member.

Directories and ports are counted from a first one of each kind.  The ports are part of what etcd
remembers about a cluster, so a directory that is kept keeps them too.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from quoracy.clock import Clock
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.cell.etcd_process import die_with_parent

__all__ = ["HOST", "Hit", "Layout", "MemberStatus", "Node", "Ports", "State", "find_layout"]


HOST = "127.0.0.1"

# Each kind of port counts up from here, out of the way of what a real server uses.
_FIRST = {"etcd": 12379, "zookeeper": 12181, "http": 17070, "client": 12481, "peer": 12581}
# If one of the ports is taken, all move up by this much.
_STEP = 10
_STEPS_MAX = 40

_ANSWER_S_MAX = 1.0
_ANSWER_BYTES_MAX = 1024 * 1024
_LOG_LINES_SHOWN = 15
_MEMBER_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Ports:
    """Of one node: its three faces, and its etcd member's two."""

    etcd: int
    zookeeper: int
    http: int
    client: int
    peer: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes, named n1, n2 and so on."""

    directory: Path
    nodes: tuple[Ports, ...]

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, len(self.nodes) + 1)]

    @property
    def cell(self) -> str:
        """The value of `quoracy serve --cell`."""
        return ",".join(
            f"{name}={HOST}:{ports.peer}:{ports.client}"
            for name, ports in zip(self.names, self.nodes, strict=True)
        )

    def endpoints(self, kind: str) -> str:
        return ",".join(f"{HOST}:{getattr(ports, kind)}" for ports in self.nodes)


def find_layout(
    directory: Path, nodes_count: int, *, is_free: Callable[[int], bool] | None = None
) -> Layout:
    """The layout that the directory remembers, or a new one on ports that are free now.

    Raises `InvalidRequest` if the directory has a cell of another size.
    """
    file = directory / "cell.json"
    if file.exists():
        return _remembered(file, nodes_count)
    free = is_free or _is_free
    for step in range(_STEPS_MAX):
        offset = step * _STEP
        nodes = tuple(
            Ports(**{kind: first + offset + number for kind, first in _FIRST.items()})
            for number in range(nodes_count)
        )
        if all(free(port) for ports in nodes for port in asdict(ports).values()):
            file.write_text(json.dumps([asdict(ports) for ports in nodes]), encoding="utf-8")
            return Layout(directory, nodes)
    raise Unavailable("there are no free ports for a cell. Is there another cell to stop?")


def _remembered(file: Path, nodes_count: int) -> Layout:
    try:
        nodes = tuple(Ports(**ports) for ports in json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"{file} is not what `quoracy cell up` writes: {error}.") from error
    if len(nodes) != nodes_count:
        raise InvalidRequest(
            f"the cell in {file.parent} has {len(nodes)} nodes. Give --nodes {len(nodes)}, or another "
            "--dir."
        )
    return Layout(file.parent, nodes)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class Hit(Enum):
    """What a kill or a pause hits."""

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
    """The status that an etcd member reports.

    Two members may both report that they lead; the one with the later term is right.
    """

    version: str
    term: int
    leads: bool
    has_leader: bool


class Node:
    """A node and its state; `changed` is called when the state may have changed."""

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
        """The process id of its etcd; None while none runs."""
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
        """Kill it at once, as a power failure would."""
        if hit is Hit.MEMBER:
            os.kill(self._need_member(), signal.SIGKILL)  # the node starts it again
            return
        # The member ends with its node in any case.
        self._need_process().kill()
        assert self._ended is not None
        await self._ended

    def pause(self, hit: Hit) -> None:
        """Stop the node first: it would notice that its member is stopped."""
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
        """Undo a kill or a pause; says what was done, or None."""
        if self._process is None:
            await self.start()
            return "started again"
        if self._paused:
            self._continue()
            return "continues"
        return None

    async def stop(self, grace_s: float) -> None:
        """Stop it as `quoracy serve` is stopped; kill it if it does not end in time."""
        if self._process is None or self._ended is None:
            return
        self._continue()
        self._send(signal.SIGTERM)
        try:
            # The last member of a cell would wait for seconds for another one to take over leadership.
            if grace_s > _MEMBER_GRACE_S and not await self._ends_within(_MEMBER_GRACE_S):
                self._kill_member()
            await self._ends_within(grace_s)
        finally:
            self._send(signal.SIGKILL)
        await self._ended

    async def look(self) -> None:
        """Ask it for its health, and its member for its status."""
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

    def _continue(self) -> None:
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
    """Ask etcd's JSON gateway, which writes 64-bit numbers as text."""
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
    # Settings in our environment are meant for another server.
    return {name: value for name, value in os.environ.items() if not name.startswith("QUORACY_")}


def _is_child(pid: int, parent: int) -> bool:
    """Whether the process is a child of `parent`, and not a later one with its id; only Linux tells."""
    if sys.platform != "linux":
        return True
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return f"\nPPid:\t{parent}\n" in status
