"""The test's side of a child process: start it, hear its reports, stop or kill it by its pid."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from tests.faults.reports import Note, Opening, Report, decode

__all__ = ["Child"]

R = TypeVar("R", bound=msgspec.Struct)

_ROOT = Path(__file__).parents[2]
_PIPE_BYTES = 1024**2
_SILENCE_MAX_S = 30.0


class Child:
    """`python -m tests.faults.MODULE OPTIONS`, perhaps under strace.  Gone when the block is left."""

    def __init__(self, module: str, options: msgspec.Struct, *, under: Sequence[str] = ()) -> None:
        encoded = msgspec.json.encode(options).decode()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*under, sys.executable, "-m", f"tests.faults.{module}", encoded],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._arrived: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.reports: list[Report] = []  # all that were heard, in the order they were told
        self.pid = 0  # known once it is opening

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._process.poll() is None:
                self.kill()
        finally:
            self._stdin.close()
            self._stderr.close()

    # -- hearing ---------------------------------------------------------------------------

    def next(self) -> Report | None:
        """The next report, or None when it ended."""
        try:
            report = self._arrived.get(timeout=_SILENCE_MAX_S)
        except queue.Empty:
            raise AssertionError(f"the child fell silent: {self._last_words()}") from None
        if report is not None:
            self.reports.append(report)
            if isinstance(report, Opening):
                self.pid = report.pid
        return report

    def wait_for(self, kind: type[R]) -> R:
        """Hear it out until it tells something of this kind."""
        while (report := self.next()) is not None:
            if isinstance(report, kind):
                return report
        raise AssertionError(f"the child ended before it told {kind.__name__}: {self._last_words()}")

    def wait_for_note(self, name: str) -> Note:
        while (note := self.wait_for(Note)).name != name:
            pass
        return note

    def hear(self, count: int) -> bool:
        """Hear so many more reports; False if it ended before."""
        return all(self.next() is not None for _ in range(count))

    def hear_all(self) -> None:
        """Everything it still has to tell, to its end."""
        while self.next() is not None:
            pass
        self._process.wait()

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            with pipe:
                for line in pipe:
                    if line.endswith(b"\n"):  # a torn last line was never quite told
                        self._arrived.put(decode(line))
        finally:
            self._arrived.put(None)

    # -- acting ----------------------------------------------------------------------------

    def tell(self, word: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(f"{word}\n".encode())
            self._stdin.flush()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone and all it told was heard."""
        self.signal(signal.SIGKILL)
        self.hear_all()

    def signal(self, number: signal.Signals) -> None:
        # Under strace our own child is strace; the one that matters has told its pid.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid or self._process.pid, number)

    def end(self) -> None:
        """Hear it out; it must end well by itself."""
        self.hear_all()
        assert self._process.returncode == 0, self._last_words()

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def _last_words(self) -> str:
        self._process.poll()
        self._stderr.seek(0)
        words = self._stderr.read().decode(errors="replace")[-4000:]
        return f"exit status {self._process.returncode}\n{words}"

    def check_killed(self) -> None:
        """It ended by SIGKILL, or was done before; not by an error of its own."""
        killed = (-signal.SIGKILL, 128 + signal.SIGKILL, 0)
        assert self._process.returncode in killed, self._last_words()
