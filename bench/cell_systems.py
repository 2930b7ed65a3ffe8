"""Three systems of three, each on loopback: ZooKeepers, etcds, and a cell of etcds and Quoracy nodes.

What is the same for all: their data is below one directory, every write is on the disks of a majority
before it is answered, and their settings are those they come with, as far as that is possible.

Invariants
    * A system is given out when every node of it serves, and all its processes end with its context.
    * Nodes are named with the leader's first, so that the same turn asks nodes of the same kind.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.cell_bystander import bystander
from bench.launching import Launched, launched
from bench.servers import FirstSession, etcd_program, is_healthy, zookeeper_command
from bench.spending import Meter, meter
from tests.support.ports import free_ports

__all__ = ["NODES", "System", "serve_cell", "serve_ensemble", "serve_etcds"]

NODES = 3
_ELECTED_MAX_S = 10.0

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class System:
    """A system that serves.  Ports are by node; it may speak one protocol, the other, or both."""

    name: str
    processes: Sequence[Launched]
    start_s: float
    spent: Meter
    leader: Callable[[], int]
    etcd_ports: Sequence[int] = ()
    zookeeper_ports: Sequence[int] = ()

    @property
    def resident_bytes(self) -> int:
        return sum(psutil.Process(each.process.pid).memory_info().rss for each in self.processes)

    def etcds(self, turn: int) -> list[int]:
        """The ports of all nodes: in turn 0 the leader's is first, in turn 1 the next one's..."""
        first = self._first(turn)
        return [*self.etcd_ports[first:], *self.etcd_ports[:first]]

    def zookeepers(self, turn: int) -> list[Address]:
        first = self._first(turn)
        ports = [*self.zookeeper_ports[first:], *self.zookeeper_ports[:first]]
        return _on_loopback(ports)

    def _first(self, turn: int) -> int:
        """Asked anew each time: under load a system may elect another leader."""
        return (self.leader() + turn) % NODES


@contextmanager
def serve_ensemble(data: Path) -> Iterator[System]:
    """Debian's ZooKeeper as it ships, with no administration server and for any number of clients."""
    ports, peers, elections = _ports_by_node(3)
    servers = "".join(f"server.{at + 1}=127.0.0.1:{peers[at]}:{elections[at]}\n" for at in range(NODES))
    commands = {}
    for at, port in enumerate(ports):
        own = data / f"{at + 1}"
        own.mkdir(parents=True)
        (own / "myid").write_text(f"{at + 1}\n", encoding="utf-8")
        settings = own / "zoo.cfg"
        settings.write_text(
            f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={own}\n"
            f"clientPortAddress=127.0.0.1\nclientPort={port}\n"
            f"maxClientCnxns=0\nadmin.enableServer=false\n{servers}",
            encoding="utf-8",
        )
        commands[f"ZooKeeper {at + 1}"] = zookeeper_command(settings)
    with launched(commands) as processes:
        start_s = max(
            each.wait_ready(_first_session(port)) for each, port in zip(processes, ports, strict=True)
        )
        with bystander(_on_loopback(ports)):
            yield System(
                name="ZooKeeper",
                processes=processes,
                start_s=start_s,
                spent=_meter(processes),
                leader=lambda: _wait_leader(ports, _zookeeper_leads),
                zookeeper_ports=ports,
            )


@contextmanager
def serve_etcds(data: Path) -> Iterator[System]:
    with _etcds(data) as (processes, ports, start_s):
        yield System(
            name="etcd",
            processes=processes,
            start_s=start_s,
            spent=_meter(processes),
            leader=lambda: _wait_leader(ports, _etcd_leads),
            etcd_ports=ports,
        )


@contextmanager
def serve_cell(data: Path) -> Iterator[System]:
    """Three etcds as above, and a node next to each that speaks etcd's protocol, ZooKeeper's and HTTP.

    Each node is given its own etcd first.  The node next to the etcd that leads counts as the leader's.
    """
    with _etcds(data / "etcd") as (etcds, members, etcds_start_s):
        ports, zookeeper_ports, http_ports = _ports_by_node(3)
        commands = {}
        for at in range(NODES):
            targets = ",".join(f"127.0.0.1:{port}" for port in [*members[at:], *members[:at]])
            commands[f"Quoracy {at + 1}"] = [
                *(sys.executable, "-m", "quoracy", "serve", "--engine", f"etcd://{targets}"),
                *("--listen-etcd", f"127.0.0.1:{ports[at]}"),
                *("--listen-http", f"127.0.0.1:{http_ports[at]}"),
                *("--listen-zookeeper", f"127.0.0.1:{zookeeper_ports[at]}"),
                *("--zookeeper-max-client-cnxns", "0"),
            ]
        with launched(commands) as nodes:
            nodes_start_s = max(
                max(node.wait_ready(_healthy(port)), node.wait_ready(_first_session(zookeeper_port)))
                for node, port, zookeeper_port in zip(nodes, ports, zookeeper_ports, strict=True)
            )
            with bystander(_on_loopback(zookeeper_ports)):
                yield System(
                    name="Quoracy",
                    processes=[*etcds, *nodes],
                    start_s=etcds_start_s + nodes_start_s,
                    spent=_meter([*etcds, *nodes]),
                    leader=lambda: _wait_leader(members, _etcd_leads),
                    etcd_ports=ports,
                    zookeeper_ports=zookeeper_ports,
                )


@contextmanager
def _etcds(data: Path) -> Iterator[tuple[list[Launched], list[int], float]]:
    """The processes, the ports for clients, and how long they took to start."""
    ports, peers = _ports_by_node(2)
    cluster = ",".join(f"m{at + 1}=http://127.0.0.1:{peer}" for at, peer in enumerate(peers))
    commands = {
        f"etcd {at + 1}": _etcd_command(data / f"{at + 1}", f"m{at + 1}", ports[at], peers[at], cluster)
        for at in range(NODES)
    }
    # One that is asked to stop hands the leadership on first, for which it waits seconds in vain here.
    with launched(commands, kill=True) as processes:
        start_s = max(
            each.wait_ready(_healthy(port)) for each, port in zip(processes, ports, strict=True)
        )
        yield processes, ports, start_s


def _etcd_command(data: Path, name: str, port: int, peer: int, cluster: str) -> Sequence[str]:
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    return [
        str(etcd_program()),
        *("--name", name, "--data-dir", str(data), "--log-level", "error"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        # A token of their own, so that no other etcd of this machine is taken for one of them.
        *("--initial-cluster", cluster, "--initial-cluster-token", cluster),
        *("--quota-backend-bytes", str(8 << 30)),
    ]


def _ports_by_node(kinds: int) -> list[list[int]]:
    """For each kind of port, one for each node."""
    free = free_ports(kinds * NODES)
    return [free[at::kinds] for at in range(kinds)]


def _on_loopback(ports: Sequence[int]) -> list[Address]:
    return [("127.0.0.1", port) for port in ports]


def _meter(processes: Sequence[Launched]) -> Meter:
    return meter([each.process.pid for each in processes])


def _healthy(port: int) -> Callable[[], bool]:
    return lambda: is_healthy(port)


def _first_session(port: int) -> Callable[[], bool]:
    ask = FirstSession()
    return lambda: ask(port)


# -- who leads


def _wait_leader(ports: Sequence[int], leads: Callable[[int], bool]) -> int:
    """Which of them; there may be none for a moment."""
    give_up_at = time.perf_counter() + _ELECTED_MAX_S
    while time.perf_counter() < give_up_at:
        for at, port in enumerate(ports):
            if leads(port):
                return at
        time.sleep(0.05)  # a poll with a deadline
    raise TimeoutError(f"none of the nodes at the ports {ports} led within {_ELECTED_MAX_S:.0f} s")


def _zookeeper_leads(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=_ELECTED_MAX_S) as connection:
        connection.sendall(b"srvr")
        answer = bytearray()
        while part := connection.recv(1 << 16):
            answer += part
    return b"Mode: leader" in answer


def _etcd_leads(port: int) -> bool:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v3/maintenance/status", data=b"{}", method="POST"
    )
    with urllib.request.urlopen(request, timeout=_ELECTED_MAX_S) as answer:
        status: Mapping[str, object] = json.load(answer)
    header = status["header"]
    assert isinstance(header, dict)
    return bool(status.get("leader") == header["member_id"])
