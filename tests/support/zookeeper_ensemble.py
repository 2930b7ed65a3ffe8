"""A real ZooKeeper ensemble of three from Debian's jars, on loopback, that may lose its quorum.

Each server is ended by its own process handle; every wait has a deadline.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.zookeeper_server import four_letter_word, zookeeper_missing

__all__ = ["Ensemble", "running_ensemble"]

_JARS = ("zookeeper.jar", "slf4j-simple.jar", "servlet-api.jar")
_WAIT_S_MAX = 60.0
_POLL_S = 0.05


class Ensemble:
    """Servers 0 to 2; one that serves read-only clients may be asked without a quorum."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        ports = free_ports(9)
        self.ports = ports[:3]
        self._peers = list(zip(ports[3:6], ports[6:], strict=True))
        self._directory, self._settings = directory, settings
        self._processes: list[subprocess.Popen[bytes] | None] = [self._launch(n) for n in range(3)]

    def wait(self, number: int, word: str, wanted: str) -> None:
        """Until a server answers a four-letter word with that in it."""
        deadline = time.monotonic() + _WAIT_S_MAX
        while True:
            try:
                if wanted in four_letter_word(self.ports[number], word):
                    return
            except OSError:
                pass  # it does not listen yet
            assert time.monotonic() < deadline, self._log(number).read_text("utf-8", "replace")[-2000:]
            time.sleep(_POLL_S)  # a poll with a deadline

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            process, self._processes[number] = self._processes[number], None
            if process is not None:
                process.kill()
                process.wait(_WAIT_S_MAX)

    def _log(self, number: int) -> Path:
        return self._directory / f"server{number}.log"

    def _launch(self, number: int) -> subprocess.Popen[bytes]:
        data = self._directory / f"server{number}"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(number + 1), "ascii")
        lines = {
            "tickTime": 1000,
            "initLimit": 10,
            "syncLimit": 5,
            "dataDir": data,
            "clientPort": self.ports[number],
            "4lw.commands.whitelist": "*",
            "admin.enableServer": "false",
            "extendedTypesEnabled": "true",
            **self._settings,
        }
        for peer, (quorum, election) in enumerate(self._peers, 1):
            lines[f"server.{peer}"] = f"127.0.0.1:{quorum}:{election}"
        file = data / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), "utf-8")
        with self._log(number).open("wb") as log:
            return subprocess.Popen(
                [
                    "java",
                    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),
                    "-Dreadonlymode.enabled=true",
                    "-Dzookeeper.forceSync=no",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-cp",
                    ":".join(f"/usr/share/java/{jar}" for jar in _JARS),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(file),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in os.environ.items() if "JAVA" not in name},
            )


@contextmanager
def running_ensemble(directory: Path, **settings: object) -> Iterator[Ensemble]:
    """`settings` are lines of zoo.cfg; read-only service is switched on."""
    if missing := zookeeper_missing():
        pytest.skip(missing)
    ensemble = Ensemble(directory, settings)
    try:
        for number in range(3):
            ensemble.wait(number, "srvr", "Mode: ")
        yield ensemble
    finally:
        ensemble.kill(0, 1, 2)
