"""Server processes: started together, waited for, and stopped together, whatever happens meanwhile."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

__all__ = ["Launched", "launched"]

_READY_MAX_S = 30.0
_STOP_MAX_S = 10.0


class Launched:
    """A process that was started, ready or not."""

    def __init__(self, name: str, command: Sequence[str], complaints: IO[bytes]) -> None:
        self.name = name
        self._complaints = complaints
        self._started_at = time.perf_counter()
        # Compiled files are kept, as they are wherever pip has installed something.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=complaints
        )

    def wait_ready(self, is_ready: Callable[[], bool]) -> float:
        """Ask until it is; how many seconds after its start that was."""
        give_up_at = time.perf_counter() + _READY_MAX_S
        while time.perf_counter() < give_up_at:
            if self.process.poll() is not None:
                raise self._failure(f"ended with {self.process.returncode} before it was ready")
            try:
                if is_ready():
                    return time.perf_counter() - self._started_at
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.002)  # a poll with a deadline
        raise self._failure(f"was not ready within {_READY_MAX_S:.0f} s")

    def _failure(self, what: str) -> RuntimeError:
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace")[-2000:]
        return RuntimeError(f"{self.name} {what}; it said:\n{said}")

    def wait_stopped(self) -> None:
        try:
            self.process.wait(_STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def launched(commands: Mapping[str, Sequence[str]], *, kill: bool = False) -> Iterator[list[Launched]]:
    """Start all of these, by name.  In the end all are asked to stop before any is waited for.

    `kill` does not ask: for those who would take their time, and whose data nobody needs.
    """
    with ExitStack() as waits, ExitStack() as requests:
        started = []
        for name, command in commands.items():
            complaints = waits.enter_context(tempfile.TemporaryFile())
            each = Launched(name, command, complaints)
            waits.callback(each.wait_stopped)
            requests.callback(each.process.kill if kill else each.process.terminate)
            started.append(each)
        yield started
