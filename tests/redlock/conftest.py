"""Five real Redis servers, running and empty at the start of every test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from quoracy.redlock import Redlock
from tests.support.redis_server import RedisServer, redis_program, redis_servers


@pytest.fixture(scope="module")
def five_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    program = redis_program()
    if program is None:
        pytest.skip("redis-server is not installed")
    with redis_servers(program, tmp_path_factory.mktemp("redlock"), 5) as servers:
        yield servers


@pytest.fixture
def redises(five_servers: list[RedisServer]) -> list[RedisServer]:
    for server in five_servers:
        server.revive()
    return five_servers


@pytest.fixture
def urls(redises: list[RedisServer]) -> list[str]:
    return [server.url for server in redises]


@pytest.fixture
async def redlock(urls: list[str]) -> AsyncIterator[Redlock]:
    """With a patience for servers that no busy machine exceeds; tests that wait for it take another."""
    async with Redlock(urls, server_timeout=2.0, retry_delay=0.01) as redlock:
        yield redlock
