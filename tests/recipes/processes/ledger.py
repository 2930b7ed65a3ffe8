"""What processes did, each line written in one go to a file that all of them append to.

Times are readings of the machine's monotonic clock, which all processes on it share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

__all__ = ["Entry", "Ledger", "monotonic"]


def monotonic() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Entry(msgspec.Struct, frozen=True):
    """One thing that one process did in one trial.

    at: when it had happened for certain; `until`, for what lasts, the last moment it was seen to last.
    """

    child: str
    trial: str
    event: str
    at: float
    token: int = 0
    value: str = ""
    until: float = 0.0


class Ledger:
    """The file, for one process."""

    def __init__(self, path: Path, child: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._child = child

    def note(
        self, trial: str, event: str, *, token: int = 0, value: str = "", at: float | None = None,
        until: float = 0.0,
    ) -> None:  # fmt: skip
        at = monotonic() if at is None else at
        entry = Entry(self._child, trial, event, at, token, value, until)
        line = msgspec.json.encode(entry) + b"\n"
        assert os.write(self._file, line) == len(line)

    def close(self) -> None:
        os.close(self._file)


class Reader:
    """The file, for whoever judges: reads on from where it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.entries: list[Entry] = []

    def read(self) -> Sequence[Entry]:
        """Everything so far."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._at += len(whole)
            self.entries.extend(msgspec.json.decode(line, type=Entry) for line in whole.splitlines())
        return self.entries
