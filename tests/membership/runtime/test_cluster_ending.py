"""However it ends, nothing is left behind: no task, no socket, no thread that waits."""

from __future__ import annotations

import asyncio
import gc
import socket

import psutil
import pytest

from quoracy import membership
from quoracy.errors import Unavailable
from tests.faults.scale import rounds
from tests.membership.runtime.test_cluster import ANY, QUICK, join, soon, until_sees


class Leftovers:
    """What this process had, to compare with later."""

    def __init__(self, before: tuple[int, int]) -> None:
        self._before = before

    async def assert_none(self) -> None:
        assert await _belongings() == self._before


async def _belongings() -> tuple[int, int]:
    for _ in range(3):  # what was closed is let go of in the next turn of the loop
        await asyncio.sleep(0)
    gc.collect()
    return psutil.Process().num_fds(), len(asyncio.all_tasks())


async def _warm_up() -> Leftovers:
    # The first time, the loop makes its thread for looking up names.
    async with join("a") as a, join("b", a):
        pass
    return Leftovers(await _belongings())


async def test_two_hundred_times_open_and_closed_nothing_is_left() -> None:
    leftovers = await _warm_up()
    for number in range(rounds(200, 1_000)):
        async with membership.join(ANY, name=f"m{number}", settings=QUICK):
            pass
    await leftovers.assert_none()


async def test_pairs_that_talked_leave_nothing_either() -> None:
    leftovers = await _warm_up()
    for _ in range(rounds(8, 200)):
        async with join("a") as a:
            messages = a.messages()
            async with join("b", a) as b:
                await b.send("a", b"x" * 20_000)  # on a stream
                await soon(anext(messages))
                await a.close()
    del messages
    await leftovers.assert_none()


async def test_a_block_that_is_cancelled_says_goodbye_and_is_gone() -> None:
    leftovers = await _warm_up()
    async with join("a") as a:
        entered = asyncio.Event()

        async def be_a_member() -> None:
            async with join("b", a):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(be_a_member())
        await soon(entered.wait())
        await until_sees(a, "ab")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_sees(a, "a")
        seen = a.member("b")
        assert seen is not None
        assert seen.state is membership.MemberState.LEFT
    await leftovers.assert_none()


async def test_cancelled_again_while_leaving_it_ends_at_once() -> None:
    leftovers = await _warm_up()
    slow = membership.SwimSettings()  # its goodbye takes most of a second
    async with join("a", settings=slow) as a:
        entered, leaving = asyncio.Event(), asyncio.Event()

        async def be_a_member() -> None:
            async with join("b", a, settings=slow, leave_timeout=60.0) as b:
                entered.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    asyncio.get_running_loop().call_soon(leaving.set)
                    assert not b.has_left

        task = asyncio.create_task(be_a_member())
        await soon(entered.wait())
        task.cancel()
        await soon(leaving.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await leftovers.assert_none()


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 10, 20, 40])
async def test_joining_can_be_cancelled_at_any_moment(turns: int) -> None:
    leftovers = await _warm_up()
    with socket.socket() as silent:  # it accepts and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        async def be_a_member() -> None:
            async with join("a", seeds=[address]):
                raise AssertionError("nobody took it in")

        task = asyncio.create_task(be_a_member())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await leftovers.assert_none()


async def test_joining_that_fails_leaves_nothing() -> None:
    leftovers = await _warm_up()
    for _ in range(10):
        with pytest.raises(Unavailable):
            async with join("a", seeds=["127.0.0.1:1"]):
                pass
    await leftovers.assert_none()


async def test_a_search_in_the_background_ends_with_the_block() -> None:
    leftovers = await _warm_up()
    async with join("a", seeds=["127.0.0.1:1"], keep_trying=True):
        pass
    async with join("a", seeds=["127.0.0.1:1"], wait=False, keep_trying=True):
        pass
    await leftovers.assert_none()


async def test_readers_that_wait_are_ended_with_the_block() -> None:
    async with join("a") as a:
        events, messages, changes = a.events(), a.messages(), a.health.changes()
        waiting = [asyncio.create_task(_exhaust(stream)) for stream in (events, messages, changes)]
        await asyncio.sleep(0)
    await soon(asyncio.gather(*waiting))


async def _exhaust(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        pass
