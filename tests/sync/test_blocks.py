"""Locks, elections and semaphores from threads: who holds what, and what happens when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

import quoracy
import quoracy.sync
from quoracy.threads.proxies import same

from .conftest import Connect


@dataclass(frozen=True)
class Settings:
    """Of a program."""

    workers: int = 4


def revoke(q: quoracy.sync.Connection, held: quoracy.sync.Held) -> None:
    """Take the session away, as an operator would."""
    (kv,) = q.store.range(held.key).kvs
    q.store.revoke(kv.lease)


def test_lock_excludes_threads_and_connections(connect: Connect) -> None:
    connections = [connect(), connect(), connect()]
    inside, most, tokens = 0, 0, []
    judge = threading.Lock()

    def work(q: quoracy.sync.Connection) -> None:
        nonlocal inside, most
        lock = q.lock("the-lock")
        for _ in range(4):
            with lock as held:
                with judge:
                    inside += 1
                    most = max(most, inside)
                    tokens.append(held.token)
                held.check()
                with judge:
                    inside -= 1

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(work, connections * 3))
    assert most == 1
    assert len(tokens) == 36
    assert tokens == sorted(set(tokens))
    assert connections[0].lock("the-lock").contenders() == ()


def test_one_lock_object_is_shared_by_many_threads(q: quoracy.sync.Connection) -> None:
    lock, counter = q.lock("shared"), 0

    def work() -> None:
        nonlocal counter
        for _ in range(5):
            with lock:
                seen = counter
                counter = seen + 1

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work) for _ in range(8)]:
            future.result()
    assert counter == 40


def test_threads_leave_the_blocks_they_entered(memory: quoracy.sync.Connection) -> None:
    """Two hold shares through one object, and the first to enter leaves first."""
    semaphore = memory.semaphore("slots", 2)
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    tokens: dict[str, int] = {}

    def first() -> None:
        with semaphore as share:
            tokens["first"] = share.token
            first_in.set()
            assert second_in.wait(10)
        first_out.set()

    def second() -> None:
        assert first_in.wait(10)
        with semaphore as share:
            tokens["second"] = share.token
            second_in.set()
            assert first_out.wait(10)
            assert share.is_held
            assert [each.token for each in semaphore.holders()] == [share.token]

    with ThreadPoolExecutor(2) as pool:
        for future in (pool.submit(first), pool.submit(second)):
            future.result()
    assert semaphore.holders() == ()


def test_timeout_raises_and_leaves_nothing(connect: Connect) -> None:
    one, other = connect(), connect()
    with one.lock("taken"):
        with pytest.raises(quoracy.TimedOut):
            other.lock("taken").acquire(timeout=0.05)
        with pytest.raises(TimeoutError):
            with other.lock("taken").hold(timeout=0):
                pytest.fail("entered without the lock")
        assert other.lock("taken").try_acquire() is None
        assert len(one.lock("taken").contenders()) == 1


def test_lost_lock_is_told_and_raised_at_the_end_of_the_block(q: quoracy.sync.Connection) -> None:
    reached = False
    with pytest.raises(quoracy.LockLost, match="is lost"):
        with q.lock("lost") as held:
            assert not held.lost.is_set()
            revoke(q, held)
            assert held.lost.wait(30)
            assert not held.is_held
            assert held.remaining_s == 0
            with pytest.raises(quoracy.LockLost):
                held.check()
            reached = True
    assert reached


def test_what_the_body_raises_after_a_loss_is_what_is_raised(q: quoracy.sync.Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        with q.lock("lost") as held:
            revoke(q, held)
            assert held.lost.wait(30)
            raise ZeroDivisionError


def test_lost_lock_is_free_for_others_before_the_block_ends(connect: Connect) -> None:
    one, other = connect(), connect()
    with pytest.raises(quoracy.LockLost):
        with one.lock("free") as held:
            revoke(one, held)
            with other.lock("free").hold(timeout=30) as next_held:
                assert next_held.token > held.token
            assert held.lost.wait(30)


def test_exception_of_the_body_goes_on_and_the_lock_is_free(memory: quoracy.sync.Connection) -> None:
    for error in (ValueError("mine"), KeyboardInterrupt(), SystemExit(3), StopIteration(1)):
        with pytest.raises(type(error)) as raised:
            with memory.lock("body"):
                raise error
        assert raised.value is error
        assert memory.lock("body").contenders() == ()


def test_reentrant_lock_belongs_to_the_thread(q: quoracy.sync.Connection) -> None:
    lock = q.lock("again", reentrant=True)
    with lock as outer:
        with lock as inner:
            assert inner.token == outer.token
        assert outer.is_held
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lock.try_acquire).result() is None
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(lock.acquire).result()
        assert held.token > outer.token
        # Whoever has the handle may release it, whichever thread that is.
        held.release()
    assert lock.contenders() == ()


def test_lock_that_is_not_reentrant_times_out_in_its_own_thread(
    memory: quoracy.sync.Connection,
) -> None:
    lock = memory.lock("once")
    with lock, pytest.raises(quoracy.TimedOut):
        lock.acquire(timeout=0.05)


def test_block_is_for_one_use(memory: quoracy.sync.Connection) -> None:
    block = memory.lock("x").hold()
    with block:
        with pytest.raises(RuntimeError, match="entered before"):
            block.__enter__()
    with pytest.raises(RuntimeError, match="entered before"):
        block.__enter__()


def test_block_of_another_thread_cannot_be_left(memory: quoracy.sync.Connection) -> None:
    lock = memory.lock("mine")
    with lock, ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="another thread"):
            pool.submit(lock.__exit__, None, None, None).result()


def test_exit_stack_of_a_thread_that_is_over_can_be_closed(memory: quoracy.sync.Connection) -> None:
    stack, lock = contextlib.ExitStack(), memory.lock("handed-on")
    thread = threading.Thread(target=lambda: stack.enter_context(lock))
    thread.start()
    thread.join()
    assert len(lock.contenders()) == 1
    stack.close()
    assert lock.contenders() == ()


def test_block_that_is_entered_although_its_wait_was_cancelled_is_left(
    memory: quoracy.sync.Connection,
) -> None:
    steps: list[str] = []

    class Stubborn:
        async def __aenter__(self) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                steps.append("waits")
                await asyncio.sleep(3600)
            steps.append("entered")

        async def __aexit__(self, *_: object) -> None:
            steps.append("left")

    block: quoracy.sync.Block[None] = quoracy.sync.Block(memory._portal, Stubborn(), same)

    def enter() -> None:
        with pytest.raises(quoracy.StoreClosed):
            block.__enter__()

    thread = threading.Thread(target=enter)
    thread.start()
    while not steps:
        memory.lock("x").contenders()
    memory.close()
    thread.join(30)
    assert steps == ["waits", "entered", "left"]


def test_leader_is_followed_and_told_of_its_loss(connect: Connect) -> None:
    one, other = connect(), connect()
    seen: list[str] = []

    def stand() -> None:
        with other.election("chief").lead("second", timeout=30) as term:
            term.proclaim("second, really")
            seen.append(term.value)

    with one.election("chief").observe() as leaders:
        with pytest.raises(quoracy.LeadershipLost):
            with one.election("chief").lead("first") as term:
                shown = [next(leaders).value]
                thread = threading.Thread(target=stand)
                thread.start()
                revoke(one, term)
                assert term.lost.wait(30)
        thread.join()
        while shown[-1] != "second, really":
            shown.append(next(leaders).value)
    assert shown == ["first", "second", "second, really"]
    assert seen == ["second, really"]


def test_release_by_another_thread_wakes_the_waiter(memory: quoracy.sync.Connection) -> None:
    held = memory.lock("handed").acquire()
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(memory.lock("handed").acquire().token))
    waiter.start()
    while len(memory.lock("handed").contenders()) < 2:
        threading.Event().wait(0.001)
    held.release()
    waiter.join(30)
    assert got > [held.token]


@pytest.mark.parametrize(
    "enter",
    [lambda q: q.cache("x", str), lambda q: q.config("y", Settings)],
)
def test_what_is_entered_and_gives_itself_does_so(
    memory: quoracy.sync.Connection,
    enter: Callable[[quoracy.sync.Connection], contextlib.AbstractContextManager[object]],
) -> None:
    entered = enter(memory)
    with entered as inside:
        assert inside is entered
