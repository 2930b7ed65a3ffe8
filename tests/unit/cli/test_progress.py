"""The progress bar: there for people, absent for scripts."""

from __future__ import annotations

import io

import pytest

from quoracy.cli.output import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_follows_the_work_and_reaches_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar("Copying") as advance:
        advance(500, 2000)
        advance(1990, 2000)
        advance(2010, 2010)  # what grew meanwhile
    assert "Copying" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_nothing_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("Copying") as advance:
        advance(1, 1)
    assert capsys.readouterr().err == ""
