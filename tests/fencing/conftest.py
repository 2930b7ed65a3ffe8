"""Real servers for the gates that need one, started once for a file of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fencing.gates import SHARED, prepare_postgres
from tests.support.postgres_server import running_postgres
from tests.support.redis_server import RedisServer, redis_program, redis_servers

Where = Callable[[str], str]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis."""
    program = redis_program()
    if program is None:
        pytest.skip("redis-server is not installed")
    with redis_servers(program, tmp_path_factory.mktemp("redis"), 1) as (server,):
        yield server


@pytest.fixture
def redis_port(redis_server: RedisServer) -> int:
    """The port of a Redis with nothing in it."""
    redis_server.revive()
    return redis_server.port


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[str]:
    """Where a PostgreSQL is."""
    with running_postgres() as where:
        yield where


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """Where a PostgreSQL is, with the tables in it, empty."""
    prepare_postgres(postgres_server)
    return postgres_server


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    """Where a gate of some kind is kept; starts what it needs."""

    def find(kind: str) -> str:
        match SHARED.get(kind, "directory"):
            case "redis":
                return str(request.getfixturevalue("redis_port"))
            case "postgres":
                return str(request.getfixturevalue("postgres"))
            case _:
                return str(tmp_path)

    return find
