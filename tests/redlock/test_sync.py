"""Redlock for threads: the same names, the same promises."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import quoracy.redlock
from quoracy.clock import SystemClock
from quoracy.errors import InvalidRequest, LockLost, TimedOut, Unavailable, Unsupported
from quoracy.redlock import sync
from tests.support.redis_server import RedisServer


class AdjustableClock(SystemClock):
    """The machine's clock, which a test sets forward."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


@pytest.fixture
def threaded(urls: list[str]) -> Iterator[sync.Redlock]:
    with sync.Redlock(urls, server_timeout=2.0, retry_delay=0.01) as redlock:
        yield redlock


def test_lock_is_held_in_the_block_and_not_after(
    threaded: sync.Redlock, redises: list[RedisServer]
) -> None:
    with threaded.lock("a") as held:
        held.check()
        held.extend()
        assert 0 < held.remaining_s < 10
        assert redises[4].keys() == ["a"]
        assert redises[4].command("GET", "a") == "$40"
        assert threaded.lock("a").try_acquire() is None
        with pytest.raises(TimedOut):
            threaded.lock("a").acquire(timeout=0.05)
        assert not held.lost.is_set()
        assert not held.lost.wait(0.01)
        with pytest.raises(Unsupported, match="no fencing token"):
            _ = held.token
    assert not held.is_held
    assert [server.keys() for server in redises] == [[]] * 5
    with pytest.raises(LockLost, match="was released"):
        held.check()


def test_threads_take_turns(threaded: sync.Redlock) -> None:
    lock = threaded.lock("a")
    inside = threading.Lock()

    def enter() -> int:
        for _ in range(5):
            with lock:
                assert inside.acquire(blocking=False)
                time.sleep(0.001)
                inside.release()
        return 5

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(lambda _: enter(), range(4))) == 20


def test_loss_is_raised_at_the_end_of_the_block(urls: list[str]) -> None:
    clock = AdjustableClock()
    with sync.Redlock(urls, server_timeout=2, clock=clock) as redlock:
        with pytest.raises(LockLost, match="time was up"):
            with redlock.lock("a", ttl=60) as held:
                clock.ahead_s += 61
                assert not held.is_held
                with pytest.raises(LockLost, match="time was up"):
                    held.check()
        assert held.error is not None
        with pytest.raises(ZeroDivisionError):
            with redlock.lock("a", ttl=60):
                clock.ahead_s += 61
                raise ZeroDivisionError


def test_loss_is_told_to_a_thread_that_waits_for_it(
    urls: list[str], redises: list[RedisServer]
) -> None:
    with sync.Redlock(urls, server_timeout=1.0) as redlock:
        held = redlock.lock("a", ttl=3).acquire()
        for server in redises[:3]:
            server.command("DEL", "a")
        assert held.lost.wait(60)  # told by the renewal, after one second
        assert held.lost.is_set()
        with pytest.raises(LockLost, match="3 of 5 servers do not have its key"):
            held.extend()
        held.release()


def test_close_releases_everything_and_ends_the_thread(
    urls: list[str], redises: list[RedisServer]
) -> None:
    before = threading.active_count()
    redlock = sync.Redlock(urls, server_timeout=2)
    held = redlock.lock("a").acquire()
    waiting: list[object] = []

    def wait() -> None:
        try:
            redlock.lock("a").acquire()
        except Unavailable as error:
            waiting.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    redlock.close()
    redlock.close()
    waiter.join(60)
    assert len(waiting) == 1
    assert threading.active_count() == before
    assert [server.keys() for server in redises] == [[]] * 5
    assert not held.is_held
    held.release()
    with pytest.raises(Unavailable, match="closed"):
        redlock.lock("a").acquire()


def test_wrong_arguments_are_refused_before_a_thread_is_started() -> None:
    before = threading.active_count()
    with pytest.raises(InvalidRequest):
        sync.Redlock([])
    assert threading.active_count() == before


def test_threads_have_the_same_names_and_parameters() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    def parameters(function: Callable[..., object]) -> list[str]:
        return [*inspect.signature(function).parameters]

    assert public(sync.Redlock) == public(quoracy.redlock.Redlock)
    # Names for the blocks of coroutines, and attributes, which a class does not show.
    only_async, attributes = {"leave", "loss", "note_expiry"}, {"error", "key", "lost", "name", "value"}
    assert public(sync.Lock) - attributes == public(quoracy.redlock.Lock)
    assert public(sync.Held) - attributes == public(quoracy.redlock.Held) - only_async
    assert parameters(sync.Redlock) == parameters(quoracy.redlock.Redlock)
    assert [*parameters(sync.Redlock.lock), "cancel_on_loss"] == parameters(
        quoracy.redlock.Redlock.lock
    )


INTERRUPTED = """
import signal, sys, threading
from quoracy.redlock.sync import Redlock

with Redlock(sys.argv[1:], server_timeout=3, retry_delay=0.01) as redlock:
    held = redlock.lock("a").acquire()
    main = threading.main_thread().ident
    threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGINT]).start()
    try:
        redlock.lock("a").acquire()
    except KeyboardInterrupt:
        print("interrupted", held.is_held)
"""


def test_interrupted_waiter_goes_on_at_once(urls: list[str], redises: list[RedisServer]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, *urls],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("interrupted True\n", "")
    assert [server.keys() for server in redises] == [[]] * 5


FORGETFUL = """
import sys
from quoracy.redlock.sync import Redlock

held = Redlock(sys.argv[1:], server_timeout=3).lock("a").acquire()
print(held.is_held)
"""


def test_interpreter_ends_cleanly_without_a_close(urls: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORGETFUL, *urls],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
