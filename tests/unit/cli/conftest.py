"""Real `quoracy` processes, started, watched and cleaned up."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.unit.cli.asking import ask as ask

FREE_PORTS = [
    *("--listen-http", "127.0.0.1:0"),
    *("--listen-etcd", "127.0.0.1:0"),
    *("--listen-zookeeper", "off"),
]
QUORACY = [sys.executable, "-W", "error", "-m", "quoracy"]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


class ServerProcess:
    """`quoracy serve`, ready: what it printed, where it answers, how it ends."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*QUORACY, "serve", *FREE_PORTS, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.greeting = ""
        for line in self.process.stdout:
            self.greeting += line
            if line.startswith("Ctrl-C"):
                break
        else:
            pytest.fail(f"it ended before it was ready: {self.process.communicate()[1]}")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/health", self.greeting)
        assert found, self.greeting
        return found[1]

    @property
    def etcd(self) -> tuple[str, int]:
        """Host and port of the etcd face."""
        return self._address("etcd")

    @property
    def zookeeper(self) -> tuple[str, int]:
        """Host and port of the ZooKeeper face, if it was asked for."""
        return self._address("zookeeper")

    def _address(self, label: str) -> tuple[str, int]:
        found = re.search(rf"^  {label} +(127\.0\.0\.1):(\d+)", self.greeting, re.MULTILINE)
        assert found, self.greeting
        return found[1], int(found[2])

    def get(self, path: str, **headers: str) -> Answer:
        try:
            with urlopen(Request(self.url + path, headers=headers), timeout=30) as response:
                return Answer(response.status, response.read().decode())
        except HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """Send a signal; returns the exit code and what was printed since it was ready."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def kill_if_running(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class LoggingServer:
    """`quoracy serve` whose JSON logs, on stderr, are read line by line; killed when left."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*QUORACY, "serve", *FREE_PORTS, "--log-format", "json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def next_log(self) -> dict[str, str]:
        assert self.process.stderr is not None
        line = json.loads(self.process.stderr.readline())
        assert isinstance(line, dict)
        return line


def assert_one_line(err: str) -> str:
    assert err.startswith("quoracy: ")
    assert err.count("\n") == 1, err
    return err


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerProcess]]:
    """Start `quoracy serve` on a free loopback port; it is killed when the test is over."""
    started: list[ServerProcess] = []

    def start(*arguments: str) -> ServerProcess:
        started.append(ServerProcess(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.kill_if_running()


@pytest.fixture
def quoracy() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `quoracy` to its end."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*QUORACY, *map(str, arguments)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    return run
