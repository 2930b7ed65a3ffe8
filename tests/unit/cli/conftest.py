"""Real `quorate` processes, started, watched and cleaned up."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

QUORATE = [sys.executable, "-W", "error", "-m", "quorate"]


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
    """`quorate serve`, ready: what it printed, where it answers, how it ends."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*QUORATE, "serve", "--listen-http", "127.0.0.1:0", *arguments],
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
        found = re.search(r"http://127\.0\.0\.1:\d+", self.greeting)
        assert found, self.greeting
        return found[0]

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


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerProcess]]:
    """Start `quorate serve` on a free loopback port; it is killed when the test is over."""
    started: list[ServerProcess] = []

    def start(*arguments: str) -> ServerProcess:
        started.append(ServerProcess(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.kill_if_running()


@pytest.fixture
def quorate() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `quorate` to its end."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*QUORATE, *map(str, arguments)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    return run
