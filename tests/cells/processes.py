"""A program on a host of a test: started, killed, stopped and started again, by its own process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cells.network import Network

__all__ = ["Program"]

_PROJECT = Path(__file__).parent.parent.parent
_ENDS_S_MAX = 20.0
_WORDS = 3000


class Program:
    """One command on one host.  Its output goes to a file, on and on."""

    def __init__(
        self,
        network: Network,
        host: str,
        name: str,
        command: Sequence[str],
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.host = name, host
        self.log = directory / f"{name}.log"
        self._command = network.command(host, command)
        # etcd and Quoracy take settings from there too; those of the surroundings are not for these.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ETCD", "QUORACY"))}
        self._environment = {**inherited, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def was_killed(self) -> bool:
        """By us, and not started since."""
        return self._process is None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=_PROJECT,
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} does not run"
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, if it runs; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._forget(self._process)

    async def end(self) -> None:
        """Ask it to end, and wait for that; the code it ended with must be good."""
        self.send(signal.SIGTERM)
        await self.ended()

    async def ended(self) -> None:
        """Wait until it ended by itself, well."""
        process = self._process
        assert process is not None, f"{self.name} does not run"
        try:
            await asyncio.to_thread(process.wait, _ENDS_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{self.name} did not end:\n{self.last_words()}") from None
        if self._process is not process:
            return  # killed meanwhile, by another fault
        self._forget(process)
        assert process.returncode in (0, -signal.SIGTERM), (
            f"{self.name} ended with {process.returncode}:\n{self.last_words()}"
        )

    def tell(self, line: str) -> None:
        """On its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def check_running_unless_killed(self) -> None:
        """Whatever it does not survive was done to it by us."""
        assert self.was_killed or self.is_running, f"{self.name} ended by itself:\n{self.last_words()}"

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-_WORDS:] if self.log.exists() else ""

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(_ENDS_S_MAX)
        if process.stdin is not None:
            process.stdin.close()
        self._process = None
