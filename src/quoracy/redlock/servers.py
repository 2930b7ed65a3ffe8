"""The Redis servers: all are asked at once, independently, and every outcome is an `Answer`.

Invariants
    * Nothing is sent twice: a request whose answer was lost is reported as SILENT.
    * A slow or dead server delays the others by `timeout_s` at most, and never raises.
    * Only a key that still has the caller's own value is extended or deleted: compared and done by one
      script, which Redis runs without anything in between.
    * At most `connections_max` connections to a server.  A request that finds none free within its time
      is reported as SILENT, and was not sent.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quoracy.errors import Forked, InvalidRequest, Unsupported
from quoracy.redlock.quorum import Answer, Verdict

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["Servers"]

# KEYS[1] the lock's key; ARGV[1] the holder's value; ARGV[2] the time to live in milliseconds.
_EXTEND = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""


class Servers:
    """All servers of one Redlock.  It decides nothing: it asks, and returns the answers."""

    def __init__(self, urls: Sequence[str], *, timeout_s: float, connections_max: int) -> None:
        self.names = _names(urls)
        self._timeout_s = timeout_s
        self._clients = [_client(url, timeout_s, connections_max) for url in urls]
        self._owner = os.getpid()

    async def acquire(self, key: str, value: str, *, ttl_ms: int) -> list[Answer]:
        """Set the key everywhere it is not set, to go by itself after `ttl_ms`."""
        return await self._ask(lambda redis: redis.set(key, value, nx=True, px=ttl_ms), self._timeout_s)

    async def extend(self, key: str, value: str, *, ttl_ms: int, within_s: float) -> list[Answer]:
        """Let the key live for `ttl_ms` from now where it has this value; wait `within_s` at most."""
        return await self._ask(
            lambda redis: redis.eval(_EXTEND, 1, key, value, str(ttl_ms)),
            min(self._timeout_s, within_s),
        )

    async def release(self, key: str, value: str) -> list[Answer]:
        """Delete the key wherever it has this value, also on servers that did not answer before."""
        return await self._ask(lambda redis: redis.eval(_RELEASE, 1, key, value), self._timeout_s)

    @property
    def is_owner(self) -> bool:
        """Whether this is the process that connected, not one that was forked from it."""
        return os.getpid() == self._owner

    def check_owner(self) -> None:
        if not self.is_owner:
            raise Forked(owner=self._owner, here=os.getpid())

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def _ask(
        self, request: Callable[[Redis], Awaitable[object]], timeout_s: float
    ) -> list[Answer]:
        self.check_owner()
        async with asyncio.TaskGroup() as tasks:
            asking = [
                tasks.create_task(_answer(client, request, timeout_s)) for client in self._clients
            ]
        return [task.result() for task in asking]


async def _answer(
    client: Redis, request: Callable[[Redis], Awaitable[object]], timeout_s: float
) -> Answer:
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        RedisError,
        ResponseError,
    )

    try:
        async with asyncio.timeout(timeout_s):
            # SET answers True or None, a script the number of keys it touched.
            return Answer(Verdict.YES if await request(client) else Verdict.NO)
    except TimeoutError:
        return Answer(Verdict.SILENT, f"not within {timeout_s:.3g} s")
    except (AuthenticationError, AuthorizationError, ResponseError) as error:
        return Answer(Verdict.FAILED, str(error))
    except (RedisError, OSError) as error:
        return Answer(Verdict.SILENT, str(error))


def _client(url: str, timeout_s: float, connections_max: int) -> Redis:
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
    except ImportError as error:
        raise Unsupported(
            "quoracy.redlock needs the redis package, which is not installed. "
            "Install it with: pip install 'quoracy[redis]'"
        ) from error
    # A pool of its own also leaves out the retries that a Redis client makes by default.
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections_max,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        protocol=2,
        **_no_introduction(),
    )
    return Redis.from_pool(pool)


def _no_introduction() -> dict[str, None]:
    """Options of a connection that does not begin by introducing itself and waiting for the answer.

    With no HELLO (protocol 2) and no CLIENT SETINFO a request goes out as soon as there is a
    connection, and the kernel makes one with a server that hangs, too.  So when the server comes back,
    the request to delete a key is there right behind the request to set it.
    """
    if importlib.util.find_spec("redis.driver_info") is not None:
        return {"driver_info": None}
    return {"lib_name": None, "lib_version": None}


def _names(urls: Sequence[str]) -> list[str]:
    """A name for each server: without its password, and all different."""
    if isinstance(urls, str) or not urls:
        raise InvalidRequest(
            f"a Redlock needs a list of the URLs of its Redis servers, not {urls!r}. "
            "Give one or more, three or five as a rule, like redis://10.0.0.1:6379."
        )
    names = [_name(url) for url in urls]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidRequest(
            f"{', '.join(sorted(twice))} is given more than once, also as another database of the same "
            "server. Each counts as one of the independent servers, so each must be another server."
        )
    return names


def _name(url: str) -> str:
    parts = urlsplit(url)
    match parts.scheme:
        case "redis" | "rediss":
            return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
        case "unix":
            return parts.path
        case _:
            raise InvalidRequest(
                f"{parts.scheme or 'nothing'} is no scheme of a Redis URL. "
                "Use redis://, rediss:// (TLS) or unix://."
            )
