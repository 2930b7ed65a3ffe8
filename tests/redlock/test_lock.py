"""Redlock on five real Redis servers that are all well."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import quoracy.redlock
from quoracy.clock import ManualClock
from quoracy.errors import InvalidRequest, LockLost, TimedOut, Unavailable, Unsupported
from quoracy.redlock import Held, Redlock
from tests.support.asking import until
from tests.support.redis_server import RedisServer


def keys_of(redises: list[RedisServer]) -> list[list[str]]:
    return [server.keys() for server in redises]


async def test_lock_is_on_all_servers_while_held_and_on_none_after(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    async with redlock.lock("reports/nightly") as held:
        assert held.is_held
        assert held.name == held.key == "reports/nightly"
        assert 0 < held.remaining_s < 10
        assert keys_of(redises) == [["reports/nightly"]] * 5
        assert all(0 < int(server.command("PTTL", held.key)[1:]) <= 10_000 for server in redises)
    assert keys_of(redises) == [[]] * 5
    assert held.remaining_s == 0
    assert not held.lost.is_set()


async def test_namespace_comes_before_the_name(urls: list[str], redises: list[RedisServer]) -> None:
    async with Redlock(urls, server_timeout=2, namespace="billing") as redlock:
        async with redlock.lock("nightly") as held:
            assert (held.name, held.key) == ("nightly", "billing/nightly")
            assert redises[0].keys() == ["billing/nightly"]


async def test_every_acquisition_has_a_value_of_its_own(redlock: Redlock) -> None:
    values = set()
    for _ in range(3):
        async with redlock.lock("a") as held:
            values.add(held.value)
    assert len(values) == 3
    assert all(len(value) == 40 for value in values)  # 20 random bytes


async def test_second_one_does_not_get_it(redlock: Redlock, redises: list[RedisServer]) -> None:
    lock = redlock.lock("a")
    async with lock as held:
        assert await lock.try_acquire() is None
        with pytest.raises(TimedOut, match="5 said no") as caught:
            await lock.acquire(timeout=0.05)
        assert isinstance(caught.value, TimeoutError)
        # Nobody's attempt touched the holder's key.
        assert redises[0].command("STRLEN", "a") == ":40"
        held.check()
    assert await lock.try_acquire() is not None


async def test_waiter_gets_it_after_the_release(redlock: Redlock) -> None:
    lock = redlock.lock("a")
    first = await lock.acquire()
    waiting = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0.05)  # long enough to be refused at least once
    assert not waiting.done()
    await first.release()
    second = await waiting
    assert second.is_held
    assert not first.is_held


async def test_one_lock_object_serves_many_tasks_one_after_the_other(redlock: Redlock) -> None:
    lock = redlock.lock("a")
    inside, entries = 0, 0

    async def enter() -> None:
        nonlocal inside, entries
        for _ in range(3):
            async with lock as held:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.001)
                held.check()
                entries += 1
                inside -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(enter())
    assert entries == 15


async def test_handle_may_be_released_by_another_task(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    held = await redlock.lock("a").acquire()
    await asyncio.create_task(held.release())
    await held.release()  # once was enough
    assert keys_of(redises) == [[]] * 5
    with pytest.raises(LockLost, match="was released"):
        held.check()


async def test_release_leaves_the_key_of_the_next_holder_alone(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    held = await redlock.lock("a").acquire()
    for server in redises:
        server.command("SET", "a", "somebody else")
    await held.release()
    assert keys_of(redises) == [["a"]] * 5
    assert held.lost.is_set()  # and the truth came to light


async def test_lock_expires_by_itself_when_nobody_renews_it(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    async with Redlock([server.url for server in redises], server_timeout=0.15) as other:
        held = await other.lock("a", ttl=0.5, renew=False).acquire()
        async with asyncio.timeout(20):
            await held.lost.wait()
        assert not held.is_held
        async with redlock.lock("a").hold(timeout=20):
            with pytest.raises(LockLost, match="not extended"):
                held.check()


async def test_renewal_keeps_it_for_longer_than_its_ttl(
    urls: list[str], redises: list[RedisServer]
) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        held = await redlock.lock("a", ttl=90).acquire()
        for _ in range(4):
            for server in redises:
                server.command("PEXPIRE", "a", "60000")
            await clock.advance(30.1)
            await until(lambda: held.remaining_s > 88)
            assert all(int(server.command("PTTL", "a")[1:]) > 60_000 for server in redises)
        assert not held.lost.is_set()


async def test_extension_gives_it_a_whole_ttl_again(urls: list[str]) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        held = await redlock.lock("a", ttl=100, renew=False).acquire()
        assert held.remaining_s == pytest.approx(100 - 1.002)
        clock.jump(60)
        assert held.remaining_s == pytest.approx(40 - 1.002)
        await held.extend()
        assert held.remaining_s == pytest.approx(100 - 1.002)


async def test_lost_lock_is_not_extended(urls: list[str], redises: list[RedisServer]) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        held = await redlock.lock("a", ttl=100, renew=False).acquire()
        clock.jump(99)
        # The servers still have it.  By our reckoning it is over, and that is what counts.
        assert keys_of(redises) == [["a"]] * 5
        with pytest.raises(LockLost):
            await held.extend()
        assert held.lost.is_set()
        with pytest.raises(LockLost):
            await held.extend()


async def test_extension_that_finds_the_key_gone_says_so(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    held = await redlock.lock("a", renew=False).acquire()
    for server in redises[:3]:
        server.command("DEL", "a")
    with pytest.raises(LockLost, match="3 of 5 servers do not have its key"):
        await held.extend()
    assert not held.is_held


async def test_extension_leaves_the_key_of_the_next_holder_alone(
    redlock: Redlock, redises: list[RedisServer]
) -> None:
    held = await redlock.lock("a", ttl=1000, renew=False).acquire()
    for server in redises[:3]:
        server.command("SET", "a", "somebody else", "PX", "60000")
    with pytest.raises(LockLost, match="3 of 5 servers do not have its key"):
        await held.extend()
    assert all(int(server.command("PTTL", "a")[1:]) <= 60_000 for server in redises[:3])


async def test_hold_max_ends_it_although_it_is_renewed(urls: list[str]) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        held = await redlock.lock("a", ttl=30, renew=False, hold_max=50).acquire()
        clock.jump(25)
        await held.extend()
        assert held.remaining_s == pytest.approx(25)
        await clock.advance(25.1)
        assert held.lost.is_set()
        with pytest.raises(LockLost, match="hold_max"):
            held.check()


async def test_there_is_no_fencing_token_and_it_says_why(redlock: Redlock) -> None:
    async with redlock.lock("a") as held:
        with pytest.raises(Unsupported, match=r"no fencing token.*quoracy\.connect"):
            _ = held.token


async def test_loss_cancels_the_body_and_the_block_raises_it(redises: list[RedisServer]) -> None:
    clock = ManualClock()
    urls = [server.url for server in redises]
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        cancelled = False
        with pytest.raises(LockLost, match="'a' is lost") as caught:
            async with redlock.lock("a", ttl=10, renew=False) as held:
                try:
                    asyncio.get_running_loop().call_soon(clock.jump, 11)
                    await asyncio.gather(clock.advance(0), asyncio.Event().wait())
                except asyncio.CancelledError:
                    cancelled = True
                    # It winds up under what is left of the keys: a loss does not delete them.
                    assert keys_of(redises) == [["a"]] * 5
                    raise
        assert cancelled
        assert held.error is caught.value
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0  # nothing of it goes on
        assert keys_of(redises) == [[]] * 5


async def test_cancellation_from_outside_wins_over_a_loss(urls: list[str]) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        entered = asyncio.Event()

        async def body() -> None:
            async with redlock.lock("a", ttl=10, renew=False):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await entered.wait()
        clock.jump(11)
        task.cancel()
        await clock.advance(0)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_loss_is_only_told_when_the_body_is_not_to_be_cancelled(urls: list[str]) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        ended = False
        with pytest.raises(LockLost):
            async with redlock.lock("a", ttl=10, renew=False, cancel_on_loss=False) as held:
                clock.jump(11)
                await clock.advance(0)
                await held.lost.wait()
                await asyncio.sleep(0.01)
                ended = True
        assert ended


async def test_block_whose_lock_ran_out_without_an_await_does_not_end_quietly(urls: list[str]) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        with pytest.raises(LockLost):
            async with redlock.lock("a", ttl=10) as held:
                clock.jump(11)  # the loop was blocked all the time
                assert not held.is_held
                assert not held.lost.is_set()


async def test_error_of_the_body_goes_on_after_a_loss(urls: list[str]) -> None:
    clock = ManualClock()
    async with Redlock(urls, server_timeout=2, clock=clock) as redlock:
        with pytest.raises(ZeroDivisionError):
            async with redlock.lock("a", ttl=10):
                clock.jump(11)
                raise ZeroDivisionError


async def test_block_that_released_early_ends_quietly(redlock: Redlock) -> None:
    async with redlock.lock("a") as held:
        await held.release()


async def test_leaving_the_redlock_releases_everything(
    urls: list[str], redises: list[RedisServer]
) -> None:
    before = asyncio.all_tasks()
    async with Redlock(urls, server_timeout=2) as redlock:
        held = await redlock.lock("a").acquire()
        await redlock.lock("b").acquire()
        waiting = asyncio.create_task(redlock.lock("a").acquire())
        await asyncio.sleep(0)
    assert keys_of(redises) == [[]] * 5
    assert not held.is_held
    with pytest.raises(Unavailable, match="closed"):
        await waiting
    with pytest.raises(Unavailable, match="closed"):
        await redlock.lock("a").acquire()
    await redlock.close()
    await until(lambda: asyncio.all_tasks() == before)


async def test_acquisition_under_way_is_undone_when_the_redlock_is_left(
    urls: list[str], redises: list[RedisServer]
) -> None:
    async with Redlock(urls, server_timeout=2) as redlock:
        acquiring = asyncio.create_task(redlock.lock("a").acquire())
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="closed"):
        await acquiring
    assert keys_of(redises) == [[]] * 5


async def test_one_server_is_enough(redises: list[RedisServer]) -> None:
    async with Redlock([redises[0].url], server_timeout=2) as redlock:
        async with redlock.lock("a") as held:
            await held.extend()
            assert await redlock.lock("a").try_acquire() is None
        redises[0].kill()
        with pytest.raises(Unavailable, match="1 that grant"):
            await redlock.lock("a").try_acquire()


async def test_hundred_cycles_leave_connections_as_they_were(
    urls: list[str], redises: list[RedisServer]
) -> None:
    def clients() -> int:
        return redises[0]._ask(["CLIENT", "LIST"]).count(b"id=")

    async with Redlock(urls, server_timeout=2) as redlock:
        for _ in range(100):
            async with redlock.lock("a"):
                pass
        assert clients() <= 3  # of ours one, or two if a renewal was cut; and the one that asks
    await until(lambda: clients() == 1)


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ([], "needs a list"),
        ("redis://localhost", "needs a list"),
        (["redis://a", "redis://a:6379/1"], "a:6379 is given more than once"),
        (["http://a"], "no scheme of a Redis URL"),
    ],
)
def test_servers_that_cannot_be_independent_are_refused(servers: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Redlock(servers)


def test_ttl_that_leaves_no_time_is_refused() -> None:
    redlock = Redlock(["redis://a"], server_timeout=0.1)
    redlock.lock("a", ttl=0.3)
    for ttl in (0.29, 0, -1, float("inf"), float("nan")):
        with pytest.raises(InvalidRequest, match="3 times that at least"):
            redlock.lock("a", ttl=ttl)
    with pytest.raises(InvalidRequest, match="leaves nothing after"):
        Redlock(["redis://a"], server_timeout=0.1, drift_factor=0.8).lock("a", ttl=0.3)
    with pytest.raises(InvalidRequest, match="needs a name"):
        redlock.lock("")
    with pytest.raises(InvalidRequest, match="must be above 0"):
        Redlock(["redis://a"], server_timeout=0)


def test_missing_redis_package_is_explained() -> None:
    program = (
        "import sys; sys.modules['redis'] = sys.modules['redis.asyncio'] = None\n"
        "from quoracy.redlock import Redlock\n"
        "Redlock(['redis://localhost'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Unsupported: quoracy.redlock needs the redis package" in done.stderr
    assert "pip install 'quoracy[redis]'" in done.stderr


def test_public_names() -> None:
    assert quoracy.redlock.__all__ == ["Held", "Holding", "Lock", "Redlock"]
    assert quoracy.redlock.Held is Held
