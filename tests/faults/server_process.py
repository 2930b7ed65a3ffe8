"""A Quoracy server as its users run it: a process with a file and a port, started again and again."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import free_port

__all__ = ["ServerProcess"]

_ENDS_S_MAX = 60.0  # far more than it needs: past it, it hangs


class ServerProcess:
    """`quoracy serve` on a file and a port that stay the same.  Gone when the block is left."""

    def __init__(
        self, directory: Path, *, under: Sequence[str] = (), flags: Sequence[str] = ()
    ) -> None:
        """`under` is a command it is run by, in the same process: strace with -D, say."""
        self.path = directory / "store.db"
        self.port = free_port()
        self.url = f"quoracy://127.0.0.1:{self.port}"
        self._under = under
        self._flags = flags
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._forget(process)
        if error is not None:
            error.add_note(f"the server's last words:\n{self._last_words()}")

    def start(self) -> None:
        assert self._process is None
        # History is what the test judges by: all of it is kept.
        command = [
            *(
                *self._under,
                sys.executable,
                "-m",
                "quoracy",
                "serve",
                "--engine",
                f"sqlite:{self.path}",
            ),
            *("--listen-etcd", f"127.0.0.1:{self.port}", "--listen-http", "off"),
            *("--listen-zookeeper", "off"),
            *("--retain-revisions", "off", "--retain-age", "off"),
            *self._flags,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    async def wait_ready(self) -> None:
        """Returns when it greets, which it does when it answers."""
        await asyncio.to_thread(self.wait_greeting)

    def wait_greeting(self) -> None:
        """The same, for whom no event loop runs."""
        process = self._running()
        assert process.stdout is not None
        greeting = process.stdout.readline()
        assert greeting, f"the server ended before it was ready:\n{self._last_words()}"

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        process = self._running()
        process.kill()
        await asyncio.to_thread(process.wait)
        # 0 would mean that it was gone before; anything else, that it died by itself.
        assert process.returncode == -signal.SIGKILL, self._last_words()
        self._forget(process)

    async def stop(self) -> None:
        """SIGTERM; it must end by itself, well, and with nothing to complain about."""
        process = self._running()
        process.terminate()
        await asyncio.to_thread(process.wait, _ENDS_S_MAX)
        assert process.returncode == 0, self._last_words()
        self._forget(process)

    def check_log(self) -> None:
        """Being killed or stopped is no error: nothing in the log may look like one."""
        words = self._log.read_text(errors="replace")
        assert not re.search(r"^Traceback|^\S+ (error|warning) ", words, re.MULTILINE), words[-4000:]

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it is not running"
        return self._process

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        process.stdout.close()
        self._process = None

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""
