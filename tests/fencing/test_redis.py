"""The gates in Redis, on real ones: scripts of one step, replicas, lost answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from quoracy.errors import DataUnreadable, Indeterminate, StaleToken, Unavailable
from quoracy.fencing import REDIS_ADMIT, RedisGate, SyncRedisGate
from tests.support.redis_server import RedisServer


@pytest.fixture
def client(redis_port: int) -> Iterator[redis.Redis]:
    with closing(redis.Redis(port=redis_port, retry=Retry(NoBackoff(), 0))) as client:
        yield client


@pytest.fixture
async def gate(redis_port: int) -> AsyncIterator[RedisGate]:
    async with redis.asyncio.Redis(port=redis_port) as client:
        yield RedisGate(client)


async def test_script_runs_only_with_a_token_that_is_not_stale(
    gate: RedisGate, client: redis.Redis
) -> None:
    write = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
    assert await gate.run("orders", 5, write, keys=["order:7"], args=["paid"]) == b"paid"
    with pytest.raises(StaleToken) as refused:
        await gate.run("orders", 4, write, keys=["order:7"], args=["open"])
    assert refused.value.highest == 5
    assert client.get("order:7") == b"paid"


async def test_script_has_keys_and_arguments_of_its_own(gate: RedisGate) -> None:
    script = "return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1]}  -- and a comment"
    assert await gate.run("orders", 5, script, keys=["a", "b"], args=["x"]) == [2, 1, b"a", b"b", b"x"]
    assert await gate.run("orders", 5, "return {#KEYS, #ARGV}") == [0, 0]
    assert await gate.run("orders", 5, "local nothing = 1") is None


@pytest.mark.parametrize(
    "script", ["return redis.error_reply('no such order')", "error('no such order')"]
)
async def test_error_of_the_script_is_raised(gate: RedisGate, script: str) -> None:
    with pytest.raises(redis.ResponseError, match="no such order"):
        await gate.run("orders", 5, script)
    with pytest.raises(StaleToken):
        await gate.admit("orders", 4)


def test_both_faces_and_the_script_itself_share_one_highest(client: redis.Redis) -> None:
    gate = SyncRedisGate(client)
    gate.admit_sync("orders", 5)
    assert gate.run_sync("orders", 6, "return ARGV[1]", args=["x"]) == b"x"
    assert client.eval(REDIS_ADMIT, 1, "quoracy:fencing:orders", 4) == b"6"
    with pytest.raises(StaleToken):
        gate.run_sync("orders", 5, "return redis.call('SET', 'written', 1)")
    assert client.get("written") is None


def test_answers_that_the_client_decodes_are_understood(redis_port: int) -> None:
    with closing(redis.Redis(port=redis_port, decode_responses=True)) as client:
        gate = SyncRedisGate(client)
        gate.admit_sync("orders", 5)
        with pytest.raises(StaleToken):
            gate.admit_sync("orders", 4)
        assert gate.run_sync("orders", 5, "return 'text'") == "text"


def test_gates_with_different_prefixes_are_different_gates(client: redis.Redis) -> None:
    SyncRedisGate(client, prefix="one:").admit_sync("orders", 5)
    SyncRedisGate(client, prefix="two:").admit_sync("orders", 4)
    assert (client.get("one:orders"), client.get("two:orders")) == (b"5", b"4")


def test_script_is_sent_again_to_a_redis_that_has_forgotten_it(client: redis.Redis) -> None:
    gate = SyncRedisGate(client)
    gate.admit_sync("orders", 5)
    client.script_flush()
    with pytest.raises(StaleToken):
        gate.admit_sync("orders", 4)


def test_key_has_no_time_to_live(client: redis.Redis) -> None:
    SyncRedisGate(client).admit_sync("orders", 5)
    assert client.ttl("quoracy:fencing:orders") == -1


@pytest.mark.parametrize("text", ["x", "-1", "5.0", "", " 6"])
def test_key_that_something_else_wrote_admits_nobody(client: redis.Redis, text: str) -> None:
    client.set("quoracy:fencing:orders", text)
    with pytest.raises(DataUnreadable, match="prefix"):
        SyncRedisGate(client).admit_sync("orders", 2**40)
    with pytest.raises(DataUnreadable, match="prefix"):
        SyncRedisGate(client).run_sync("orders", 2**40, "return redis.call('SET', 'written', 1)")
    assert client.get("written") is None
    assert client.get("quoracy:fencing:orders") == text.encode()


def test_redis_with_no_memory_left_admits_nobody(client: redis.Redis) -> None:
    gate = SyncRedisGate(client)
    gate.admit_sync("orders", 5)
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable, match="not admitted"):
            gate.admit_sync("orders", 6)
    finally:
        client.config_set("maxmemory", 0)
    with pytest.raises(StaleToken) as refused:
        gate.admit_sync("orders", 4)
    assert refused.value.highest == 5


@pytest.mark.parametrize("token", [4, 5, 6])
def test_replica_admits_nobody(client: redis.Redis, token: int) -> None:
    gate = SyncRedisGate(client)
    gate.admit_sync("orders", 5)
    client.replicaof("127.0.0.1", "1")  # of a primary it cannot reach: it serves what it has
    try:
        with pytest.raises(Unavailable, match="Ask the primary"):
            gate.admit_sync("orders", token)
    finally:
        client.replicaof("NO", "ONE")
    assert client.get("quoracy:fencing:orders") == b"5"


async def test_gate_that_does_not_answer_is_unavailable_and_a_script_indeterminate(
    redis_server: RedisServer, redis_port: int
) -> None:
    never_again = AsyncRetry(NoBackoff(), 0)
    async with redis.asyncio.Redis(port=redis_port, socket_timeout=0.1, retry=never_again) as client:
        gate = RedisGate(client)
        await gate.admit("orders", 5)
        redis_server.pause()
        with pytest.raises(Unavailable, match="no answer from Redis about 'orders'"):
            await gate.admit("orders", 6)
        with pytest.raises(Indeterminate, match="may have run"):
            await gate.run("orders", 7, "return redis.call('INCR', 'written')")
        redis_server.resume()
        with pytest.raises(StaleToken):
            await gate.admit("orders", 4)


def test_no_redis_at_all_is_unavailable() -> None:
    with closing(redis.Redis(port=1, retry=Retry(NoBackoff(), 0))) as client:
        with pytest.raises(Unavailable, match="Ask again"):
            SyncRedisGate(client).admit_sync("orders", 5)
