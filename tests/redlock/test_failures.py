"""Redlock while Redis servers are killed, stopped, emptied or misconfigured."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import LockLost, TimedOut, Unavailable
from quoracy.redlock import Redlock
from tests.support.asking import eventually, until
from tests.support.redis_server import RedisServer, redis_program


def impatient(redises: list[RedisServer], *, server_timeout: float = 0.2) -> Redlock:
    """For tests in which servers do not answer: nobody waits long for them."""
    return Redlock([server.url for server in redises], server_timeout=server_timeout, retry_delay=0.02)


async def test_two_of_five_servers_may_be_dead(redises: list[RedisServer]) -> None:
    for server in redises[:2]:
        server.kill()
    async with impatient(redises) as redlock:
        async with redlock.lock("a").hold(timeout=20) as held:
            await held.extend()
            assert await redlock.lock("a").try_acquire() is None
            assert [server.keys() for server in redises[2:]] == [["a"]] * 3
        assert [server.keys() for server in redises[2:]] == [[]] * 3


async def test_two_of_five_servers_may_be_stopped(redises: list[RedisServer]) -> None:
    async with impatient(redises) as redlock:
        async with redlock.lock("a").hold(timeout=20):
            pass  # so that connections to all exist
        for server in redises[:2]:
            server.pause()
        async with redlock.lock("a").hold(timeout=20) as held:
            await held.extend()
            assert await redlock.lock("a").try_acquire() is None
        assert [server.keys() for server in redises[2:]] == [[]] * 3


@pytest.mark.parametrize("known", [True, False], ids=["connected", "not connected"])
async def test_stopped_server_has_nothing_left_when_it_goes_on(
    redises: list[RedisServer], known: bool
) -> None:
    async with impatient(redises) as redlock:
        if known:
            await (await redlock.lock("a").acquire()).release()
        redises[0].pause()
        async with redlock.lock("a", ttl=60).hold(timeout=20):
            pass
    redises[0].resume()
    # It was told to set the key, and after that to delete it.
    assert redises[0].command("SET", "b", "c") == "+OK"
    await until(lambda: redises[0].keys() == ["b"])


@pytest.mark.parametrize("fate", ["dead", "stopped"])
async def test_without_a_majority_nothing_is_held_and_nothing_left(
    redises: list[RedisServer], fate: str
) -> None:
    for server in redises[:3]:
        server.kill() if fate == "dead" else server.pause()
    async with impatient(redises, server_timeout=0.5) as redlock:
        lock = redlock.lock("a")
        with pytest.raises(
            TimedOut, match=rf"2 of 5 servers said yes.*{redises[0].port} did not answer"
        ):
            await lock.acquire(timeout=1.0)
        with pytest.raises(Unavailable, match="takes 3 that grant it"):
            await lock.try_acquire()
        assert [server.keys() for server in redises[3:]] == [[]] * 2


async def test_waiter_gets_it_when_the_majority_comes_back(redises: list[RedisServer]) -> None:
    for server in redises[:3]:
        server.kill()
    async with impatient(redises) as redlock:
        waiting = asyncio.create_task(redlock.lock("a").acquire())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await asyncio.to_thread(redises[0].start)
        assert (await waiting).is_held


async def test_lost_majority_ends_the_body(redises: list[RedisServer]) -> None:
    async with impatient(redises) as redlock:
        with pytest.raises(LockLost, match=r"time was up.*did not answer"):
            async with redlock.lock("a", ttl=1.2).hold(timeout=20) as held:
                for server in redises[:3]:
                    server.pause()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    assert held.lost.is_set()
                    raise
        assert redises[3].keys() == redises[4].keys() == []


async def test_loss_is_told_at_the_deadline_while_the_servers_still_have_the_key(
    redises: list[RedisServer],
) -> None:
    clock = ManualClock()
    urls = [server.url for server in redises]
    async with Redlock(urls, server_timeout=0.1, clock=clock) as redlock:
        held = await redlock.lock("a", ttl=90).acquire()
        assert held.remaining_s == pytest.approx(90 - 0.902)
        for server in redises[:3]:
            server.pause()
        await clock.advance(89.0)
        assert held.is_held
        assert not held.lost.is_set()
        await clock.advance(0.2)
        # They keep it for 90 seconds at least, so nobody else can have had it by now.
        assert held.lost.is_set()
        with pytest.raises(LockLost):
            held.check()


async def test_time_that_an_acquisition_takes_is_taken_off(redises: list[RedisServer]) -> None:
    clock = ManualClock()
    redises[0].pause()  # so that it takes a while
    async with Redlock([server.url for server in redises], server_timeout=0.2, clock=clock) as redlock:
        acquiring = asyncio.create_task(redlock.lock("a", ttl=90, renew=False).acquire())
        await until(lambda: all(server.keys() for server in redises[1:]))
        clock.jump(30)
        assert (await acquiring).remaining_s == pytest.approx(90 - 30 - 0.902)


async def test_acquisition_that_takes_all_its_time_is_none(redises: list[RedisServer]) -> None:
    clock = ManualClock()
    redises[0].pause()
    async with Redlock([server.url for server in redises], server_timeout=0.2, clock=clock) as redlock:
        acquiring = asyncio.create_task(redlock.lock("a", ttl=90).try_acquire())
        await until(lambda: all(server.keys() for server in redises[1:]))
        clock.jump(89.5)
        with pytest.raises(Unavailable, match=r"4 of 5 servers said yes.*within its time to live"):
            await acquiring
        assert [server.keys() for server in redises[1:]] == [[]] * 4


async def test_extension_that_is_confirmed_too_late_does_not_bring_the_lock_back(
    redises: list[RedisServer],
) -> None:
    clock = ManualClock()
    async with Redlock([server.url for server in redises], server_timeout=0.2, clock=clock) as redlock:
        held = await redlock.lock("a", ttl=90, renew=False).acquire()
        for server in redises:
            server.command("PERSIST", "a")
        redises[0].pause()
        clock.jump(80)
        extending = asyncio.create_task(held.extend())
        await until(lambda: all(server.command("PTTL", "a") != ":-1" for server in redises[1:]))
        clock.jump(20)
        # Four of five said yes, and keep it for another 70 seconds.  It was not held for a while.
        with pytest.raises(LockLost):
            await extending
        assert not held.is_held


async def test_majority_that_comes_back_in_time_keeps_the_lock(redises: list[RedisServer]) -> None:
    async with impatient(redises, server_timeout=0.1) as redlock:
        async with redlock.lock("a", ttl=60, renew=False) as held:
            before = held.remaining_s
            for server in redises[:3]:
                server.pause()
            with pytest.raises(Unavailable, match="held for another"):
                await held.extend()
            assert 0 < held.remaining_s < before
            for server in redises[:3]:
                server.resume()
            await until(lambda: all(server.keys() for server in redises))

            async def extended() -> bool:
                try:
                    await held.extend()
                except Unavailable:  # a busy machine; the lock is held for a minute
                    return False
                return True

            await eventually(extended)
            assert held.remaining_s > before - 1


async def test_servers_that_restart_without_their_data_lose_the_lock_and_it_is_told(
    redises: list[RedisServer],
) -> None:
    async with impatient(redises, server_timeout=1) as redlock:
        with pytest.raises(LockLost, match="3 of 5 servers do not have its key"):
            async with redlock.lock("a", ttl=3) as held:
                for server in redises[:3]:
                    await asyncio.to_thread(server.restart)
                # The next renewal finds out, at a third of the time to live.
                async with asyncio.timeout(30):
                    await held.lost.wait()
                    await asyncio.Event().wait()


async def test_loss_that_only_the_release_finds_is_raised_by_the_block(
    redises: list[RedisServer],
) -> None:
    async with impatient(redises, server_timeout=2) as redlock:
        with pytest.raises(LockLost, match="3 of 5 servers do not have its key"):
            async with redlock.lock("a", renew=False):
                for server in redises[:3]:
                    server.command("FLUSHALL")


async def test_server_with_an_append_only_file_keeps_the_lock_over_a_restart(tmp_path: Path) -> None:
    program = redis_program()
    if program is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(program, tmp_path, appendonly=True).start()
    try:
        async with Redlock([server.url], server_timeout=2) as redlock:
            async with redlock.lock("a", ttl=30, renew=False) as held:
                await asyncio.to_thread(server.restart)
                assert await redlock.lock("a").try_acquire() is None
                await held.extend()
    finally:
        server.kill()


async def test_password_that_is_missing_fails_at_once_with_the_servers_words(tmp_path: Path) -> None:
    program = redis_program()
    if program is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(program, tmp_path, password="secret").start()
    try:
        async with Redlock([server.url], server_timeout=2) as redlock:
            with pytest.raises(Unavailable, match="Authentication required"):
                await redlock.lock("a").acquire()  # no timeout: it would wait for ever otherwise
        wrong = server.url.replace("redis://", "redis://:wrong@")
        async with Redlock([wrong], server_timeout=2) as redlock:
            with pytest.raises(Unavailable, match=r"WRONGPASS|invalid") as caught:
                await redlock.lock("a").acquire()
            assert ":wrong@" not in str(caught.value)
        right = server.url.replace("redis://", "redis://:secret@")
        async with Redlock([right], server_timeout=2) as redlock, redlock.lock("a") as held:
            assert held.is_held
    finally:
        server.kill()


FORKING = """
import asyncio, os, sys
from quoracy.errors import Forked
from quoracy.redlock import Redlock, sync

def told(act):
    try:
        act()
    except Forked as error:
        return type(error).__name__
    return "nothing"

async def main(servers):
    async with Redlock(servers, server_timeout=3) as redlock:
        held = await redlock.lock("a").acquire()
        if os.fork() == 0:
            try:
                await held.release()
            except Forked:
                print("release: Forked", flush=True)
            print("held:", held.is_held, "check:", told(held.check), flush=True)
            os._exit(0)
        os.wait()
        held.check()

asyncio.run(main(sys.argv[1:]))
with sync.Redlock(sys.argv[1:], server_timeout=3) as redlock:
    held = redlock.lock("b").acquire()
    if os.fork() == 0:
        print("held:", held.is_held, "check:", told(held.check), flush=True)
        print("release:", told(held.release), "close:", told(redlock.close), flush=True)
        os._exit(0)
    os.wait()
    held.check()
print("the parent still held both")
"""


def test_forked_child_can_do_nothing_with_its_parents_lock(urls: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, *urls], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "release: Forked",
        "held: False check: Forked",
        "held: False check: Forked",
        "release: Forked close: Forked",
        "the parent still held both",
    ]
