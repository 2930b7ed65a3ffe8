"""Servers for the verbs to talk to: our own, and a real etcd where there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.etcd_server import etcd_35_program, etcd_binary, running_etcd
from tests.unit.cli.conftest import ServerProcess

KINDS = ("quoracy", "etcd")


@contextlib.contextmanager
def running(kind: str, directory: Path) -> Iterator[str]:
    """A server with an empty store; its URL."""
    if kind == "etcd":
        program = etcd_35_program() or etcd_binary()
        if program is None:
            pytest.skip("there is no etcd here")
        with running_etcd(program, directory) as port:
            yield f"etcd://127.0.0.1:{port}"
        return
    server = ServerProcess("--engine", f"sqlite:{directory}/server.db")
    try:
        host, port = server.etcd
        yield f"quoracy://{host}:{port}"
    finally:
        server.kill_if_running()
