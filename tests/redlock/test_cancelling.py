"""Whenever an acquisition is cancelled, nothing of it is left on any server, and nothing runs on."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.redlock import Redlock
from tests.support.asking import until
from tests.support.cancelling import cancelled_everywhere
from tests.support.redis_server import RedisServer


def nothing_left(redises: list[RedisServer]) -> bool:
    return all(server.keys() == [] for server in redises if server.is_running)


async def test_block_that_is_cancelled_at_any_await_leaves_no_key(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    async def use() -> None:
        async with redlock.lock("a") as held:
            await held.extend()
            await asyncio.sleep(0)

    before = asyncio.all_tasks()
    points = 0
    async for attempt in cancelled_everywhere(use):
        assert not attempt.swallowed
        # A release that is interrupted goes on in the background.
        await until(lambda: nothing_left(redises))
        points = attempt.point
    assert points > 3
    await until(lambda: asyncio.all_tasks() == before)


async def test_acquisition_that_is_cancelled_is_undone_before_the_caller_goes_on(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    # At every turn of the event loop, not only where the caller itself begins to wait.
    acquired = cancelled = 0
    turns = 0
    while acquired < 3:
        task = asyncio.create_task(redlock.lock("a").acquire())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            held = await task
        except asyncio.CancelledError:
            cancelled += 1
            assert nothing_left(redises), f"after {turns} turns"
        else:
            acquired += 1
            await held.release()
        turns += 1
        assert turns < 3000
    assert cancelled > 3


async def test_waiter_that_is_cancelled_leaves_no_key_and_the_holder_alone(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    async with redlock.lock("a") as held:
        waiting = asyncio.create_task(redlock.lock("a").acquire())
        await asyncio.sleep(0.03)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        held.check()
    assert nothing_left(redises)


async def test_cancellation_while_servers_are_stopped_leaves_nothing_on_the_others(
    redises: list[RedisServer],
) -> None:
    for server in redises[:2]:
        server.pause()
    async with Redlock([server.url for server in redises], server_timeout=0.3) as redlock:
        task = asyncio.create_task(redlock.lock("a").acquire())
        await until(lambda: any(server.keys() for server in redises[2:]))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert nothing_left(redises)
    for server in redises[:2]:
        server.resume()
    await until(lambda: nothing_left(redises))


@pytest.mark.parametrize("closing", [True, False])
async def test_impatient_canceller_is_obeyed_at_once_and_the_rest_is_done_in_the_background(
    redises: list[RedisServer], closing: bool
) -> None:
    redises[0].pause()
    redlock = Redlock([server.url for server in redises], server_timeout=0.5)
    task = asyncio.create_task(redlock.lock("a").acquire())
    await until(lambda: any(server.keys() for server in redises[1:]))
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()  # it is being undone
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    if not closing:
        await until(lambda: nothing_left(redises))
    await redlock.close()  # which waits for what was begun
    assert nothing_left(redises)


async def test_timeout_around_an_acquisition_leaves_nothing(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    async with redlock.lock("a") as held:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await redlock.lock("a").acquire()
        held.check()
    assert nothing_left(redises)
