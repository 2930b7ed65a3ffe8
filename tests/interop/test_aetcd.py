"""`aetcd`, an asyncio client from PyPI, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.interop.programs import QuoracyServer

aetcd: Any = pytest.importorskip("aetcd", exc_type=ImportError)


@pytest.fixture
async def client(server: QuoracyServer) -> AsyncIterator[Any]:
    async with aetcd.Client(port=server.port, timeout=30) as client:
        yield client


async def test_put_get_and_delete(client: Any) -> None:
    await client.put(b"aetcd/a", b"1")
    previous = await client.put(b"aetcd/a", b"2", prev_kv=True)
    assert previous.prev_kv.value == b"1"
    assert (await client.get(b"aetcd/a")).value == b"2"
    await client.put(b"aetcd/b", b"3")
    found = await client.get_prefix(b"aetcd/", sort_order="descend")
    assert [(each.key, each.value) for each in found] == [(b"aetcd/b", b"3"), (b"aetcd/a", b"2")]
    assert await client.delete(b"aetcd/a")
    assert await client.get(b"aetcd/a") is None
    assert (await client.delete_prefix(b"aetcd/")).deleted == 1


async def test_transaction_takes_one_branch(client: Any) -> None:
    is_new = [client.transactions.version(b"aetcd/txn") == 0]
    create = [client.transactions.put(b"aetcd/txn", b"1")]
    read = [client.transactions.get(b"aetcd/txn")]
    assert (await client.transaction(compare=is_new, success=create, failure=read))[0] is True
    succeeded, answers = await client.transaction(compare=is_new, success=create, failure=read)
    assert succeeded is False
    assert answers[0][0][0] == b"1"
    assert await client.replace(b"aetcd/txn", b"1", b"2")
    assert not await client.replace(b"aetcd/txn", b"1", b"3")


async def test_watch_sees_puts_and_deletes(client: Any) -> None:
    watch = await client.watch_prefix(b"aetcd/watch/")
    await client.put(b"aetcd/watch/a", b"1")
    await client.delete(b"aetcd/watch/a")
    seen = []
    async with asyncio.timeout(30):
        async for event in watch:
            seen.append((event.kind, event.kv.key))
            if len(seen) == 2:
                break
    await watch.cancel()
    assert seen == [
        (aetcd.EventKind.PUT, b"aetcd/watch/a"),
        (aetcd.EventKind.DELETE, b"aetcd/watch/a"),
    ]


async def test_lease_is_refreshed_and_revoked(client: Any) -> None:
    lease = await client.lease(600)
    await client.put(b"aetcd/leased", b"1", lease=lease)
    assert await lease.remaining_ttl() > 0
    assert await lease.keys() == [b"aetcd/leased"]
    await lease.refresh()
    await lease.revoke()
    assert await client.get(b"aetcd/leased") is None


async def test_lock_is_held_by_one(client: Any) -> None:
    async with client.lock(b"aetcd/lock", ttl=60) as held:
        assert await held.is_acquired()
        other = client.lock(b"aetcd/lock", ttl=60)
        assert not await other.acquire(timeout=0.3)
    assert await other.acquire(timeout=30)
    await other.release()


async def test_server_describes_itself(client: Any) -> None:
    status = await client.status()
    assert status.version.startswith("3.")
    members = [member async for member in client.members()]
    assert len(members) == 1
    assert [alarm async for alarm in client.list_alarms()] == []
    await client.defragment()
