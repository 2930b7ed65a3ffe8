"""Gates in Redis: a script that Redis runs as one step.

`RedisGate` is for a `redis.asyncio` client, `SyncRedisGate` for a `redis` one; the scripts are the
same. Where the guarded data is in Redis too, `run` checks the token and runs your script in the same
step, and no stale write can get between.

Invariants
    * One key for each resource, `prefix` and the resource, with no time to live.
    * Tokens are compared as decimal texts, by length and then by digits: Lua's numbers are doubles, and
      would take 2**53 + 1 for 2**53.
    * Every admission writes, even one that changes nothing: a replica, which may lag behind, refuses to
      write and thereby to admit.

A gate remembers as well as its Redis does.  One that comes back without its last second (appendfsync
everysec), fails over to a replica that had not heard, or evicts keys (allkeys-*) has forgotten tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quoracy.errors import DataUnreadable, Indeterminate, QuoracyError, Unavailable
from quoracy.fencing.gate import refuse_stale, require_valid

if TYPE_CHECKING:
    import redis
    import redis.asyncio

__all__ = ["REDIS_ADMIT", "RedisGate", "SyncRedisGate"]

_PREFIX = "quoracy:fencing:"

_RAISE_HIGHEST = """\
local function raise_highest(key, token)
  local highest = redis.call('GET', key)
  if highest and not string.match(highest, '^%d+$') then
    return highest
  end
  if not highest or #highest < #token or (#highest == #token and highest < token) then
    highest = token
  end
  redis.call('SET', key, highest)
  return highest
end
"""

# KEYS[1] is the gate's key, ARGV[1] the token; returns the highest, as text.
REDIS_ADMIT = _RAISE_HIGHEST + "return raise_highest(KEYS[1], ARGV[1])\n"

# The body finds its own KEYS and ARGV from 1 on.
_RUN = (
    _RAISE_HIGHEST
    + """\
local highest = raise_highest(KEYS[1], ARGV[1])
if highest ~= ARGV[1] then return {{highest}} end
local function body(KEYS, ARGV)
{body}
end
return {{highest, body({{unpack(KEYS, 2)}}, {{unpack(ARGV, 2)}})}}
"""
)


class RedisGate:
    """Remembers the highest token of each resource in Redis.

        gate = RedisGate(redis.asyncio.Redis(...))
        await gate.admit("orders", held.token)

    The client stays yours: close it yourself.
    """

    __slots__ = ("_admit", "_client", "_prefix")

    def __init__(
        self, client: redis.asyncio.Redis | redis.asyncio.RedisCluster, *, prefix: str = _PREFIX
    ) -> None:
        self._client, self._prefix = client, prefix
        self._admit = client.register_script(REDIS_ADMIT)

    async def admit(self, resource: str, token: int) -> None:
        """As `Gate.admit`."""
        require_valid(resource, token)
        with _explained(resource, Unavailable):
            reply: object = await self._admit(keys=[self._prefix + resource], args=[token])
        _judge(resource, token, reply)

    async def run(
        self,
        resource: str,
        token: int,
        script: str,
        *,
        keys: Sequence[str] = (),
        args: Sequence[str | bytes | int] = (),
    ) -> object:
        """Admit the token and run a Lua script, in one step; what the script returned.

            await gate.run("orders", held.token, "redis.call('SET', KEYS[1], ARGV[1])",
                           keys=["orders:7"], args=["paid"])

        script: Lua as in EVAL, with its own KEYS and ARGV.  Redis keeps each script it has seen, so let
            it be a constant and pass what varies in `args`.

        Raises what `admit` does, and `Indeterminate` if the answer was lost: the script may have run.
        The client may send a command again by itself (redis-py does, unless it is made with a `retry`
        of none), so write a script that may run twice.  On a Redis Cluster the keys and the gate's key
        must share a slot: give the gate a prefix with a hash tag.
        """
        require_valid(resource, token)
        registered = self._client.register_script(_RUN.format(body=script))
        with _explained(resource, Indeterminate):
            reply: object = await registered(keys=[self._prefix + resource, *keys], args=[token, *args])
        return _judge_run(resource, token, reply)


class SyncRedisGate:
    """`RedisGate` for a client of the synchronous `redis` package.

        gate = SyncRedisGate(redis.Redis(...))
        gate.admit_sync("orders", held.token)

    Safe from many threads, as the client is.
    """

    __slots__ = ("_admit", "_client", "_prefix")

    def __init__(self, client: redis.Redis | redis.RedisCluster, *, prefix: str = _PREFIX) -> None:
        self._client, self._prefix = client, prefix
        self._admit = client.register_script(REDIS_ADMIT)

    def admit_sync(self, resource: str, token: int) -> None:
        """As `Gate.admit`."""
        require_valid(resource, token)
        with _explained(resource, Unavailable):
            reply: object = self._admit(keys=[self._prefix + resource], args=[token])
        _judge(resource, token, reply)

    def run_sync(
        self,
        resource: str,
        token: int,
        script: str,
        *,
        keys: Sequence[str] = (),
        args: Sequence[str | bytes | int] = (),
    ) -> object:
        """As `RedisGate.run`."""
        require_valid(resource, token)
        registered = self._client.register_script(_RUN.format(body=script))
        with _explained(resource, Indeterminate):
            reply: object = registered(keys=[self._prefix + resource, *keys], args=[token, *args])
        return _judge_run(resource, token, reply)


def _judge(resource: str, token: int, reply: object) -> None:
    text = reply.decode("ascii", "replace") if isinstance(reply, bytes) else str(reply)
    if not text.isascii() or not text.isdigit():
        raise DataUnreadable(
            f"the gate's key of {resource!r} in Redis holds {text!r}, which is no token. Something "
            "else writes there: give the gate a prefix of its own."
        )
    refuse_stale(resource, token=token, highest=int(text))


def _judge_run(resource: str, token: int, reply: object) -> object:
    assert isinstance(reply, list), reply
    _judge(resource, token, reply[0])
    # Lua's nil ends an array: a script that returns nothing adds nothing.
    returned: object = reply[1] if len(reply) > 1 else None
    # What redis.error_reply makes; inside an array the client hands it over and does not raise it.
    if isinstance(returned, Exception):
        raise returned
    return returned


@contextmanager
def _explained(resource: str, lost: type[QuoracyError]) -> Iterator[None]:
    """Failures of the way to Redis as errors of ours: `lost` if the answer may have been lost."""
    from redis import exceptions

    try:
        yield
    except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
        advice = (
            "Ask again." if lost is Unavailable else "The script may have run: read before you write."
        )
        raise lost(f"no answer from Redis about {resource!r}: {error}. {advice}") from error
    except (exceptions.ReadOnlyError, exceptions.OutOfMemoryError) as error:
        raise Unavailable(
            f"Redis could not write the token for {resource!r}, so it was not admitted: {error}. "
            "Ask the primary, or make room."
        ) from error
