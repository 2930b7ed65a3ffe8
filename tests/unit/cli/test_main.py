"""The command around the verbs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import quoracy as package
from quoracy.cli.verbs import cli
from quoracy.compiled import is_compiled
from tests.unit.cli.asking import Ask
from tests.unit.cli.conftest import QUORACY

Run = Callable[..., subprocess.CompletedProcess[str]]

VERBS = [
    "agent", "backup", "bench", "cell", "compact", "del", "doctor", "elect", "get", "history", "lease",
    "lock", "ls", "members", "put", "restore", "serve", "simulate", "snapshot", "status", "txn",
    "watch",
]  # fmt: skip
CODES = ["0", "1", "2", "3", "4", "5", "124", "127", "130"]


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "get"]])
def test_version_is_the_package_version_and_says_whether_it_is_compiled(
    quoracy: Run, arguments: list[str]
) -> None:
    name, version, form = quoracy(*arguments).stdout.rstrip("\n").split(" ", 2)
    assert (name, version) == ("quoracy", package.__version__)
    assert form.startswith("(compiled)" if is_compiled() else "(from source")


@pytest.mark.parametrize("heavy", ["click", "asyncio", "msgspec", "quoracy.engines", "typing"])
def test_version_is_answered_before_anything_is_loaded(heavy: str) -> None:
    program = (
        "import sys; sys.argv[1:] = ['--version']; from quoracy.cli import main; main(); "
        f"sys.exit({heavy!r} in sys.modules)"
    )
    source = str(Path(package.__file__).parents[1])
    # Without site-packages: what an editable install loads at the start is not ours to answer for.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env=os.environ | {"PYTHONPATH": source},
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("heavy", ["quoracy.engines", "quoracy.server", "sqlite3", "rich", "uvicorn"])
def test_verb_for_a_server_loads_no_engine_and_no_server(heavy: str) -> None:
    program = (
        "import sys; sys.argv[1:] = 'get k -e quoracy://127.0.0.1:1'.split()\n"
        "from quoracy.cli.verbs import run\n"
        f"assert run() == 1; sys.exit({heavy!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_help_names_every_verb_and_every_exit_code(quoracy: Run) -> None:
    listed = quoracy("--help").stdout
    assert sorted(re.findall(r"^  ([a-z]+)  +[A-Z]", listed, re.MULTILINE)) == VERBS
    assert re.findall(r"^  (\d+) ", listed, re.MULTILINE) == CODES


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_every_option_too(ask: Ask, verb: str) -> None:
    said = ask(verb, "--help")
    assert said.code == 0
    command = cli.get_command(cli.make_context("quoracy", [verb]), verb)
    assert command is not None
    assert command.help
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_unknown_verb_is_one_line_and_exit_code_2(quoracy: Run) -> None:
    done = quoracy("sreve")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "sreve" in done.stderr
    assert "'serve'" in done.stderr


def test_reader_that_has_seen_enough_is_no_error(ask: Ask) -> None:
    for number in range(3):
        ask("put", f"k{number}", "x" * 100_000)
    with subprocess.Popen(
        [*QUORACY, "get", "", "--prefix"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_shells_can_complete(quoracy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_QUORACY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "quoracy sn")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert quoracy().stdout == "plain,snapshot\n"
