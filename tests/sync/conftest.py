"""A server of its own for the classes for threads, and connections that are closed after the test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import quoracy.sync
from tests.faults.server_process import ServerProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server of ours listens, for the whole session."""
    with ServerProcess(tmp_path_factory.mktemp("server")) as server:
        server.start()
        server.wait_greeting()
        yield server.url


@pytest.fixture
def namespace() -> str:
    """A corner of the server that is this test's own."""
    return f"sync-{os.getpid()}-{next(_numbers)}"


Connect = Callable[[], quoracy.sync.Connection]


@pytest.fixture(params=["memory", "sqlite", "server"])
def connect(request: pytest.FixtureRequest, namespace: str, tmp_path: Path) -> Iterator[Connect]:
    """Connections to one place, as many as wanted."""
    with ExitStack() as stack:
        url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/place.db"
        if request.param == "server":
            url = request.getfixturevalue("server_url")
        first = stack.enter_context(quoracy.sync.connect(url, namespace=namespace, session_ttl=10))
        fresh = [first]

        def connect() -> quoracy.sync.Connection:
            if fresh:
                return fresh.pop()
            where = url if request.param == "server" else first.store
            return stack.enter_context(quoracy.sync.connect(where, namespace=namespace))

        yield connect


@pytest.fixture
def q(connect: Connect) -> quoracy.sync.Connection:
    return connect()


@pytest.fixture
def memory() -> Iterator[quoracy.sync.Connection]:
    """A connection to a store in this process."""
    with quoracy.sync.connect("memory:") as connection:
        yield connection
