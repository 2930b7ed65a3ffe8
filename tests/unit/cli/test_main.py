"""The command around the verbs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import quorate as package

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_version_is_the_package_version(quorate: Run) -> None:
    assert quorate("--version").stdout == f"quorate {package.__version__}\n"


def test_help_names_every_verb(quorate: Run) -> None:
    listed = quorate("--help").stdout
    assert [
        verb for verb in ("backup", "doctor", "restore", "serve") if f"\n  {verb}  " not in listed
    ] == []


def test_every_option_has_help_and_default(quorate: Run) -> None:
    helped = quorate("serve", "--help").stdout
    options = helped.partition("Options:\n")[2].split("\n  -")
    assert len(options) == 6
    assert all("[default:" in option or "--help" in option for option in options), helped


def test_unknown_verb_is_one_line_and_exit_code_2(quorate: Run) -> None:
    done = quorate("sreve")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "sreve" in done.stderr
