"""Where recipes are tried: a store in this process, our own server, a real etcd; each test in a corner.

The servers run for the whole test session and are shared, so that a test costs milliseconds; a
namespace of its own keeps a test from seeing the others.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import quoracy
from quoracy.client.connection import Connection
from quoracy.clock import Clock
from quoracy.store.api import Store
from tests.differential.etcd_server import etcd_binary, running_etcd
from tests.faults.server_process import ServerProcess

__all__ = ["PLACES", "Place", "Servers", "open_place"]

PLACES = ("memory", "sqlite", "server", "etcd")
_numbers = itertools.count(1)


class Place:
    """One store, and a corner of it that is this test's own.

    target: what `quoracy.connect` is given; a URL where other processes can come too.
    store: the store itself, without the namespace.
    """

    def __init__(
        self, name: str, target: str | Store, store: Store, clock: Clock | None = None
    ) -> None:
        self.name, self.target, self.store, self.clock = name, target, store, clock
        self.namespace = f"test-{os.getpid()}-{next(_numbers)}"

    def connect(self, **options: Any) -> AbstractAsyncContextManager[Connection]:
        """Another connection, in the same corner."""
        options.setdefault("namespace", self.namespace)
        if self.clock is not None:
            options.setdefault("clock", self.clock)
        return quoracy.connect(self.target, **options)

    def key(self, name: str) -> bytes:
        """The key of a name in this corner."""
        return f"{self.namespace}/{name}".encode()

    @property
    def corner(self) -> quoracy.KeyRange:
        """Everything this test may have left behind."""
        return quoracy.KeyRange.prefix(f"{self.namespace}/".encode())


class Servers:
    """One server of each kind, started when it is first wanted, stopped with the process."""

    def __init__(self) -> None:
        self._ends = contextlib.ExitStack()
        self._urls: dict[str, str] = {}
        atexit.register(self._ends.close)

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            directory = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="quoracy-")))
            self._urls[kind] = (self._etcd if kind == "etcd" else self._quoracy)(directory)
        return self._urls[kind]

    def _etcd(self, directory: Path) -> str:
        program = etcd_binary()
        if program is None:
            pytest.skip("etcd is not installed")
        return f"etcd://127.0.0.1:{self._ends.enter_context(running_etcd(program, directory))}"

    def _quoracy(self, directory: Path) -> str:
        server = self._ends.enter_context(ServerProcess(directory))
        server.start()
        server.wait_greeting()
        return server.url


_servers = Servers()


@asynccontextmanager
async def open_place(name: str, directory: Path, clock: Clock | None = None) -> AsyncIterator[Place]:
    """A place of that kind; a clock only where the store is in this process."""
    if name in ("memory", "sqlite"):
        url = "memory:" if name == "memory" else f"sqlite:{directory}/place.db"
        async with quoracy.open_store(url, clock=clock) as store:
            yield Place(name, store, store, clock)
        return
    assert clock is None, f"{name} has its own time"
    url = _servers.url(name)
    async with quoracy.open_store(url) as store:
        yield Place(name, url, store)
