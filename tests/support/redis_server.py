"""Real Redis servers that a test kills, stops and starts again, on the same port."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.ports import free_port

__all__ = ["RedisServer", "redis_program", "redis_servers"]

_START_S_MAX = 20.0
_STOP_S_MAX = 10.0
_PORTS_TRIED_MAX = 5


def redis_program() -> Path | None:
    """Where redis-server is, if it is installed."""
    found = shutil.which("redis-server")
    return None if found is None else Path(found)


class RedisServer:
    """One redis-server on a loopback port; ended by its own process handle.

    appendonly: keep data over a restart, every write on disk before it is answered.  Without, a
        restarted server is empty.
    """

    def __init__(
        self, program: Path, directory: Path, *, appendonly: bool = False, password: str | None = None
    ) -> None:
        self._program, self._directory = program, directory
        self._appendonly, self._password = appendonly, password
        self.port = free_port()
        self._has_run = False  # a port once used stays: clients have its URL
        self._process: subprocess.Popen[bytes] | None = None
        self.is_paused = False
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self.is_paused

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        for _ in range(_PORTS_TRIED_MAX):
            if self._begin():
                self._has_run = True
                return self
            if not self._has_run:  # somebody else may have been quicker to take the port
                self.port = free_port()
        raise RuntimeError(f"redis-server did not start; its log ends with\n{self._log()}")

    def _begin(self) -> bool:
        """Whether it runs; False if it ended at once."""
        assert self._process is None, "it runs"
        durable = ["--appendonly", "yes", "--appendfsync", "always"] if self._appendonly else []
        secret = [] if self._password is None else ["--requirepass", self._password]
        with (self._directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._program), "--bind", "127.0.0.1", "--port", str(self.port),
                    "--dir", str(self._directory), "--save", "", *durable, *secret,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S_MAX
        while not self._answers(self._process.pid):
            if self._process.poll() is not None:
                self.kill()
                return False
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"redis-server does not answer; its log ends with\n{self._log()}")
            time.sleep(0.005)  # a poll with a deadline
        return True

    def _log(self) -> str:
        return (self._directory / "redis.log").read_text("utf-8", "replace")[-2000:]

    def kill(self) -> None:
        """At once, as `kill -9` does; also if it is paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S_MAX)
            self._process, self.is_paused = None, False

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it in its tracks: connections stay, and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def revive(self) -> None:
        """Running, answering and empty, whatever was done to it."""
        if self._process is None:
            self.start()
        elif self.is_paused:
            self.resume()
        self.command("FLUSHALL")

    def command(self, *words: str) -> str:
        """The first line of the answer to a command, as Redis puts it: `+OK`, `:1`, `-ERR ...`."""
        return self._ask(words).partition(b"\r\n")[0].decode()

    def keys(self) -> list[str]:
        """All keys there are."""
        lines = self._ask(["KEYS", "*"]).decode().split("\r\n")
        return sorted(lines[2 : 2 + 2 * int(lines[0].removeprefix("*")) : 2])

    def _answers(self, pid: int) -> bool:
        """Whether this process does, not another that has the port, and has loaded what it keeps."""
        try:
            answer = self._ask(["INFO"])
        except OSError:
            return False
        is_ready = f"process_id:{pid}\r\n".encode() in answer and b"\r\nloading:0\r\n" in answer
        return is_ready or answer.startswith(b"-NOAUTH")

    def _ask(self, words: tuple[str, ...] | list[str]) -> bytes:
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(request.encode())
            connection.shutdown(socket.SHUT_WR)  # it answers, then closes: the end of the answer
            answer = b""
            while more := connection.recv(65536):
                answer += more
        return answer


@contextlib.contextmanager
def redis_servers(
    program: Path, directory: Path, count: int, *, appendonly: bool = False
) -> Iterator[list[RedisServer]]:
    """Several independent servers, all running; killed at the end."""
    servers = [
        RedisServer(program, directory / f"redis-{number}", appendonly=appendonly)
        for number in range(count)
    ]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()
