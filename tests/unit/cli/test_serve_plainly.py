"""A server that is started by flags with values keeps nothing in memory that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from quoracy.cli.serve import plain_flags
from quoracy.cli.serve_verb import command

SERVE = """
import sys
from quoracy.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *sys.modules)
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules of a server that has started, and stopped."""
    flags = (
        "--engine memory: --listen-http off --listen-etcd 127.0.0.1:0 --listen-zookeeper=127.0.0.1:0"
    )
    # To be made to run from source takes parts of importlib that load more than a server does.
    environment = {name: value for name, value in os.environ.items() if name != "QUORACY_PURE"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", *flags.split()],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Quoracy is ready.\n"
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return set(said.splitlines()[-1].removeprefix("loaded:").split())


@pytest.mark.parametrize(
    "module",
    ["click", "rich", "shutil", "tempfile", "prometheus_client", "tomllib",
     "encodings.idna"],
)  # fmt: skip
def test_idle_server_does_without(loaded: set[str], module: str) -> None:
    assert "quoracy.faces.etcd.serving.server" in loaded
    assert "quoracy.faces.zookeeper.serving.server" in loaded
    assert module not in loaded


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--engine memory:",
        "--engine=memory: --listen-etcd off",
        "--listen-etcd off --listen-etcd 127.0.0.1:7",
        "--engine --listen-etcd",
        "--log-level=",
        "--config a=b --engine memory:",
    ],
)
def test_plain_flags_are_read_as_click_reads_them(line: str) -> None:
    flags = plain_flags(line.split())
    assert flags is not None
    context: click.Context = command.make_context("serve", line.split())
    parsed = {
        "--config" if name == "file" else "--" + name.replace("_", "-"): str(value)
        for name, value in context.params.items()
        if value not in (None, False)
    }
    assert flags == parsed


@pytest.mark.parametrize(
    "line", ["--help", "-h", "--show-config", "--engine", "--enginee memory:", "here", "-- here"]
)
def test_what_is_not_plain_is_left_to_click(line: str) -> None:
    assert plain_flags(line.split()) is None
