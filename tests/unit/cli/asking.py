"""`quoracy` in this process: what it answers, and with which exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quoracy.cli import verbs


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.lines]

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


Ask = Callable[..., Said]


@pytest.fixture
def ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Ask:
    """Run the command on a data file of this test."""
    monkeypatch.setenv("QUORACY_ENDPOINT", f"sqlite:{tmp_path}/q.db")

    def run(*arguments: str | Path, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "argv", ["quoracy", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = int(verbs.run())
        out, err = capfdbinary.readouterr()
        return Said(code, out, err.decode())

    return run
