"""Calls from threads: interruption, functions of the caller, listeners, closing, and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import signal
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import quoracy
import quoracy.sync
from quoracy.threads.listeners import PENDING_MAX, Listeners
from quoracy.threads.portal import Portal
from quoracy.threads.proxies import Stream, same
from tests.faults.scale import LONG, rounds
from tests.faults.server_process import ServerProcess

from .conftest import Connect


@dataclass(eq=False)
class Odd:
    """Equal to nothing but itself."""

    n: int


@dataclass(frozen=True)
class Settings:
    """Of a program."""

    workers: int = 4


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def portal_of(q: quoracy.sync.Connection) -> Portal:
    return q._portal


def tasks_named(q: quoracy.sync.Connection, name: str) -> int:
    """How many tasks of a kind there are on the loop."""
    portal = portal_of(q)
    return portal.call(lambda: sum(task.get_name() == name for task in asyncio.all_tasks(portal.loop)))


@pytest.fixture
def brief() -> Iterator[quoracy.sync.Connection]:
    """A connection whose session is looked after often: its end is noticed soon."""
    with quoracy.sync.connect("memory:", session_ttl=0.6) as connection:
        yield connection


@contextlib.contextmanager
def interrupted_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C for this thread, the main one, when something is so."""
    main = threading.main_thread().ident
    assert main == threading.get_ident()

    def interrupt() -> None:
        eventually(condition)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        thread.join()


# -- interruption ----------------------------------------------------------------------------


def test_interrupted_wait_leaves_no_place_in_the_queue(connect: Connect) -> None:
    one, other = connect(), connect()
    lock = other.lock("busy")
    with one.lock("busy") as held:
        with interrupted_when(lambda: len(one.lock("busy").contenders()) == 2):
            lock.acquire()
        eventually(lambda: len(one.lock("busy").contenders()) == 1)
        with interrupted_when(lambda: len(one.lock("busy").contenders()) == 2):
            lock.__enter__()
        eventually(lambda: len(one.lock("busy").contenders()) == 1)
        assert held.is_held
    with lock.hold(timeout=30):
        pass


def test_interrupted_wait_has_cleaned_up_when_it_raises(memory: quoracy.sync.Connection) -> None:
    portal, cleaned = portal_of(memory), []
    started = threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    with interrupted_when(started.is_set):
        portal.run(work)
    assert cleaned == [True]


def test_result_that_comes_with_the_interruption_is_given_back(memory: quoracy.sync.Connection) -> None:
    portal, given_back = portal_of(memory), []
    started = threading.Event()

    async def work() -> int:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return 42  # it was there already
        return 0

    async def undo(result: int) -> None:
        given_back.append(result)

    with interrupted_when(started.is_set):
        portal.run(work, undo=undo)
    assert given_back == [42]


def test_lock_that_comes_with_the_interruption_is_released(memory: quoracy.sync.Connection) -> None:
    lock, portal = memory.lock("late"), portal_of(memory)
    started = threading.Event()

    async def work() -> object:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return await lock._it.acquire()

    with interrupted_when(started.is_set):
        portal.run(work)
    assert lock.contenders() == ()


def test_interrupted_function_of_the_caller_ends_the_operation(memory: quoracy.sync.Connection) -> None:
    value = memory.value("v", int, default=0)

    def interrupt(_: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        value.update(interrupt)
    assert value.get().revision == 0
    with pytest.raises(KeyboardInterrupt):
        memory.once("o", int).run(lambda: interrupt(0))
    assert memory.once("o", int).run(lambda: 7) == 7


def test_interrupted_iteration_loses_no_item(memory: quoracy.sync.Connection) -> None:
    value = memory.value("v", int)
    with value.changes(after=1) as changes:
        with interrupted_when(lambda: tasks_named(memory, "quoracy-sync-stream") == 1):
            next(changes)
        value.set(1)
        value.set(2)
        assert [next(changes).value for _ in range(2)] == [1, 2]


# -- functions of the caller -----------------------------------------------------------------


def test_function_of_an_update_runs_in_the_thread_that_calls_and_may_use_the_connection(
    connect: Connect,
) -> None:
    q = connect()
    value, seen = q.value("v", int, default=0), []

    def add_one(current: int) -> int:
        seen.append(threading.current_thread())
        with q.lock("inside").hold(timeout=30):
            return current + q.value("step", int, default=1).update(lambda step: step).value

    def work() -> None:
        for _ in range(3):
            value.update(add_one)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(work) for _ in range(3)]:
            future.result()
    assert value.get().value == 9
    assert all(thread.name.startswith("ThreadPool") for thread in seen)


def test_update_under_contention_counts_every_one(connect: Connect) -> None:
    connections = [connect(), connect()]

    def work(q: quoracy.sync.Connection) -> None:
        value = q.value("n", int, default=0)
        for _ in range(10):
            value.update(lambda n: n + 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, connections * 2))
    assert connections[0].value("n", int, default=0).get().value == 40


def test_what_the_function_of_an_update_raises_is_raised(memory: quoracy.sync.Connection) -> None:
    value = memory.value("v", int, default=3)
    with pytest.raises(ZeroDivisionError):
        value.update(lambda n: n // 0)
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        value.update(lambda _: next(iter([])))
    assert isinstance(raised.value.__cause__, StopIteration)
    assert value.update(lambda n: n * 2).value == 6


def test_value_that_is_not_equal_to_itself_can_be_updated(memory: quoracy.sync.Connection) -> None:
    odd = memory.value("odd", Odd)
    odd.set(Odd(1))
    assert odd.update(lambda found: Odd((found.n if found else 0) + 1)).value.n == 2


def test_wait_for_a_value_ends_in_its_time(memory: quoracy.sync.Connection) -> None:
    value, stop = memory.value("ticks", int, default=0), threading.Event()

    def tick() -> None:
        while not stop.is_set():
            value.update(lambda n: n + 1)

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        began = time.monotonic()
        with pytest.raises(quoracy.TimedOut, match=r"not within 0\.3 s") as late:
            value.wait_until(lambda n: n < 0, timeout=0.3)
        assert late.value.timeout_s == 0.3
        assert time.monotonic() - began >= 0.299  # timers count in milliseconds
        assert value.wait_until(lambda n: n > 20, timeout=30).value > 20
    finally:
        stop.set()
        ticking.join()


def test_step_and_work_run_in_the_thread_that_calls(connect: Connect) -> None:
    q = connect()
    me = threading.current_thread()

    def step(token: int) -> str:
        assert threading.current_thread() is me
        with q.lock("within", reentrant=True).hold(timeout=30):
            return f"done with {token > 0}"

    once = q.once("step", str)
    assert once.run_fenced(step) == "done with True"
    assert once.run(lambda: pytest.fail("run twice")) == "done with True"

    @q.singleton("work")
    def work(term: quoracy.sync.Term) -> int:
        """Doc."""
        assert threading.current_thread() is me
        assert isinstance(term, quoracy.sync.Term)
        term.check()
        q.value("done", int).set(term.token)
        return term.token

    assert work.__doc__ == "Doc."
    first, second = work(), work()
    assert second > first
    assert q.singleton("work").run(lambda: 5) == 5
    found = q.value("done", int).get()
    assert found is not None
    assert found.value == second


def test_work_of_a_singleton_that_lost_its_term_ends_before_the_next_begins(
    memory: quoracy.sync.Connection,
) -> None:
    running, most, runs = 0, 0, 0

    def work(term: quoracy.sync.Term) -> int:
        nonlocal running, most, runs
        running, runs = running + 1, runs + 1
        most = max(most, running)
        if runs == 1:
            (kv,) = memory.store.range(term.key).kvs
            memory.store.revoke(kv.lease)
            assert term.lost.wait(30)
            time.sleep(0.05)
        running -= 1
        return runs

    assert memory.singleton("moved").run(work, timeout=30) == 2
    assert most == 1


def test_context_variables_of_the_caller_are_seen(memory: quoracy.sync.Connection) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody's")
    variable.set("the caller's")

    async def look() -> str:
        return variable.get()

    assert portal_of(memory).run(look) == "the caller's"


# -- listeners -------------------------------------------------------------------------------


def test_listener_runs_off_the_loop_and_may_use_the_connection(brief: quoracy.sync.Connection) -> None:
    q = brief
    told: list[tuple[quoracy.SessionState, str]] = []
    done = threading.Event()

    def listener(state: quoracy.SessionState) -> None:
        told.append((state, threading.current_thread().name))
        if state is quoracy.SessionState.CONNECTED:
            # What python-etcd3 hangs on: to ask for more from inside a callback.
            q.on_state(lambda _: None)()
            with q.lock("from-a-listener").hold(timeout=30):
                done.set()

    remove = q.on_state(listener)
    with pytest.raises(quoracy.LockLost):
        with q.lock("any") as held:
            (kv,) = q.store.range(held.key).kvs
            q.store.revoke(kv.lease)
            assert held.lost.wait(30)
            assert done.wait(30)
    assert [state.value for state, _ in told] == ["lost", "connected"]
    assert {name for _, name in told} == {"quoracy-sync-listeners"}
    remove()
    remove()


def test_listener_that_raises_disturbs_nobody(
    memory: quoracy.sync.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()
    held = memory.lock("x").acquire()
    held.on_loss(lambda _: 1 / 0)
    held.on_loss(lambda _: told.set())
    (kv,) = memory.store.range(held.key).kvs
    memory.store.revoke(kv.lease)
    assert told.wait(30)
    assert "a listener failed" in caplog.text


def test_listener_that_uses_what_is_being_closed_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    q = quoracy.sync.connect("memory:")
    told: list[quoracy.SessionState] = []

    def listener(state: quoracy.SessionState) -> None:
        told.append(state)
        q.lock("x")

    q.on_state(listener)
    q.close()
    assert told == [quoracy.SessionState.LOST]
    assert caplog.text == ""


def test_listener_that_is_far_behind_misses_the_oldest(caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []
    listeners, go_on = Listeners(lambda: False), threading.Event()
    hold = listeners.off_loop(lambda: go_on.wait(30))
    notify = listeners.off_loop(told.append)
    hold()
    eventually(lambda: not listeners._pending)
    for number in range(PENDING_MAX + 3):
        notify(number)
    go_on.set()
    listeners.stop()
    assert told == list(range(3, PENDING_MAX + 3))
    assert caplog.text.count("miss the oldest") == 1
    notify(0)
    assert len(told) == PENDING_MAX


def test_change_of_a_config_is_told_in_a_thread(memory: quoracy.sync.Connection) -> None:
    told: list[tuple[int, str]] = []
    done = threading.Event()
    with memory.config("app", Settings) as config:

        def changed(change: quoracy.ConfigChange[Settings]) -> None:
            told.append((change.value.workers, threading.current_thread().name))
            assert config.value.workers >= change.value.workers
            done.set()

        remove = config.on_change(changed)
        config.set(workers=9)
        assert done.wait(30)
        remove()
        revision = config.update(lambda settings: Settings(settings.workers + 1))
        config.wait_revision(revision, timeout=30)
        assert config.value.workers == 10
    assert told == [(9, "quoracy-sync-listeners")]


def test_connection_can_be_closed_by_its_listener(brief: quoracy.sync.Connection) -> None:
    closed, q = threading.Event(), brief

    def close(state: quoracy.SessionState) -> None:
        q.close()
        closed.set()

    q.on_state(close)
    held = q.lock("x").acquire()
    (kv,) = q.store.range(held.key).kvs
    with contextlib.suppress(quoracy.StoreClosed):
        q.store.revoke(kv.lease)
    assert closed.wait(30)
    with pytest.raises(quoracy.StoreClosed):
        q.lock("y")


# -- closing ---------------------------------------------------------------------------------


def test_closed_connection_raises_and_close_is_idempotent(connect: Connect) -> None:
    q = connect()
    lock, held = q.lock("x"), q.lock("y").acquire()
    stream = q.election("e").observe()
    q.close()
    q.close()
    uses: list[Callable[[], object]] = [
        lambda: q.lock("z"),
        lambda: q.state,
        lock.acquire,
        lock.__enter__,
        held.release,
        lambda: held.is_held,
        held.check,
        lambda: next(stream),
        lambda: q.store.put(b"k"),
        q.__enter__,
    ]
    for use in uses:
        with pytest.raises(quoracy.StoreClosed):
            use()
    stream.close()
    assert (held.name, held.token > 0, q.identity != "") == ("y", True, True)


def test_close_wakes_everyone_who_waits(connect: Connect) -> None:
    other, q = connect(), connect()
    other.lock("busy").acquire()
    raised: list[type[BaseException]] = []

    def wait(what: Callable[[], object]) -> None:
        try:
            what()
        except quoracy.QuoracyError as error:
            raised.append(type(error))

    waits: list[Callable[[], object]] = [
        lambda: q.lock("busy").acquire(),
        lambda: q.lock("busy").__enter__(),
        lambda: next(q.value("v", int).changes()),
        lambda: q.wait_state(quoracy.SessionState.SUSPENDED),
        lambda: q.queue("jobs", str).get(),
    ]
    threads = [threading.Thread(target=wait, args=(what,)) for what in waits]
    for thread in threads:
        thread.start()
    eventually(lambda: len(other.lock("busy").contenders()) == 3)
    q.close()
    for thread in threads:
        thread.join(30)
    assert raised == [quoracy.StoreClosed] * len(waits)
    assert len(other.lock("busy").contenders()) == 1


def test_block_of_a_connection_that_is_closed_raises_the_loss() -> None:
    entered, closed = threading.Event(), threading.Event()
    q = quoracy.sync.connect("memory:")
    raised: list[BaseException] = []

    def work() -> None:
        try:
            with q.lock("x") as held:
                entered.set()
                assert closed.wait(30)
                assert held.lost.is_set()
        except quoracy.QuoracyError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(30)
    q.close()
    closed.set()
    thread.join(30)
    assert [type(error) for error in raised] == [quoracy.LockLost]
    assert "closed" in str(raised[0])


def test_many_threads_may_close_at_once() -> None:
    for _ in range(20):
        q = quoracy.sync.connect("memory:")
        q.lock("x").acquire()
        with ThreadPoolExecutor(6) as pool:
            for future in [pool.submit(q.close) for _ in range(6)]:
                future.result()
        assert "quoracy-sync" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.faults
def test_threads_that_call_while_it_is_closed_never_hang() -> None:
    for _ in range(rounds(25, 1000)):
        q = quoracy.sync.connect("memory:")
        lock = q.lock("x")

        def work(lock: quoracy.sync.Lock = lock) -> None:
            with contextlib.suppress(quoracy.StoreClosed, quoracy.LockLost):
                while True:
                    with lock:
                        pass

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        lock.contenders()
        q.close()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def test_server_that_cannot_be_reached_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(quoracy.Unavailable):
        quoracy.sync.connect("quoracy://127.0.0.1:1", request_timeout=0.2)
    with pytest.raises(quoracy.InvalidRequest):
        quoracy.sync.connect("nonsense:")
    eventually(lambda: threading.active_count() == before)


def test_interrupted_connect_leaves_nothing() -> None:
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"quoracy://127.0.0.1:{silent.getsockname()[1]}"
        # It is interrupted when it has called the server, which says nothing.
        with interrupted_when(lambda: bool(select.select([silent], [], [], 30)[0])):
            quoracy.sync.connect(url)
    assert threading.active_count() == before


@pytest.mark.faults
@pytest.mark.skipif(not LONG, reason="it takes seconds: QUORACY_FAULTS=long")
def test_close_is_bounded_although_the_server_is_silent(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        server.start()
        server.wait_greeting()
        q = quoracy.sync.connect(server.url, session_ttl=60)
        q.lock("x").acquire()
        server.signal(signal.SIGSTOP)
        began = time.monotonic()
        q.close()
        assert time.monotonic() - began < 10
        server.signal(signal.SIGCONT)
    assert "quoracy-sync" not in {thread.name for thread in threading.enumerate()}


def test_one_thread_serves_all_connections(connect: Connect) -> None:
    connections = [connect() for _ in range(3)]
    for q in connections:
        q.lock("x").contenders()
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("quoracy-sync") == 1
    assert all(thread.daemon for thread in threading.enumerate() if "quoracy" in thread.name)


def test_store_of_another_loop_is_refused() -> None:
    async def open_there() -> None:
        async with quoracy.open_store("memory:") as store:
            with pytest.raises(quoracy.InvalidRequest, match="URL"):
                await asyncio.to_thread(quoracy.sync.connect, store)  # type: ignore[arg-type]

    asyncio.run(open_there())


# -- where it is refused ---------------------------------------------------------------------


def test_thread_that_runs_a_loop_is_told_to_use_the_other_face(memory: quoracy.sync.Connection) -> None:
    lock, block = memory.lock("x"), memory.lock("x").hold()

    async def use() -> None:
        uses: list[Callable[[], Any]] = [
            lambda: quoracy.sync.connect("memory:"),
            lambda: memory.lock("y"),
            lock.acquire,
            block.__enter__,
            lambda: memory.state,
            memory.close,
        ]
        for each in uses:
            with pytest.raises(RuntimeError, match=r"quoracy\.connect"):
                each()
        held = await asyncio.to_thread(lock.acquire)
        await asyncio.to_thread(held.release)

    asyncio.run(use())


# -- iterators -------------------------------------------------------------------------------


def test_iterator_that_is_left_early_closes_its_source(connect: Connect) -> None:
    q = connect()
    q.value("v", int).set(1)
    for change in q.value("v", int).changes():
        assert change.value == 1
        assert tasks_named(q, "quoracy-sync-stream") == 1
        break
    del change
    gc.collect()
    eventually(lambda: tasks_named(q, "quoracy-sync-stream") == 0)
    with contextlib.closing(q.value("v", int).changes()) as changes:
        next(changes)
    assert tasks_named(q, "quoracy-sync-stream") == 0
    assert list(changes) == []


def test_closed_iterator_has_closed_its_source(memory: quoracy.sync.Connection) -> None:
    portal, closed = portal_of(memory), []

    async def count() -> AsyncGenerator[int, None]:
        try:
            for number in range(1000):
                yield number
        finally:
            await asyncio.sleep(0.01)
            closed.append(True)

    source = count()
    with Stream(portal, source, same) as numbers:
        assert [next(numbers), next(numbers)] == [0, 1]
        assert closed == []
    assert closed == [True]
    numbers.close()
    unread = count()
    Stream(portal, unread, same).close()
    assert closed == [True]


def test_iterator_that_times_out_goes_on(q: quoracy.sync.Connection) -> None:
    value = q.value("v", int)
    with value.changes() as changes:
        with pytest.raises(quoracy.TimedOut):
            changes.next(timeout=0.05)
        value.set(5)
        assert changes.next(timeout=30).value == 5


def test_iterator_closed_by_another_thread_ends(memory: quoracy.sync.Connection) -> None:
    changes = memory.value("v", int).changes()
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.extend(changes))
    thread.start()
    eventually(lambda: tasks_named(memory, "quoracy-sync-stream") == 1)
    changes.close()
    thread.join(30)
    assert not thread.is_alive()
    assert got == []


def test_threads_that_share_an_iterator_take_turns(memory: quoracy.sync.Connection) -> None:
    value = memory.value("v", int)
    first = value.set(0)
    for n in range(1, 41):
        value.set(n)
    with value.changes(after=first) as changes, ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(next, changes) for _ in range(40)]
        assert sorted(future.result().value or 0 for future in futures) == list(range(1, 41))


def test_queue_is_an_iterator(memory: quoracy.sync.Connection) -> None:
    jobs = memory.queue("jobs", str)
    jobs.put_many(["a", "b"])
    assert [job for _, job in zip(range(2), jobs, strict=False)] == ["a", "b"]


def test_error_of_an_iterator_is_raised_and_ends_it(memory: quoracy.sync.Connection) -> None:
    memory.store.put(b"n", b"no number")
    changes = memory.value("n", int).changes()
    with pytest.raises(quoracy.ValueUnreadable):
        next(changes)
    assert list(changes) == []


def test_watch_of_the_store_is_a_block_and_an_iterator(q: quoracy.sync.Connection) -> None:
    revision = q.store.put(b"watched", b"1").revision
    with q.store.watch(b"watched", after=revision - 1) as batches:
        assert [event.kv.value for event in next(batches).events] == [b"1"]


def test_cache_is_read_like_a_mapping(memory: quoracy.sync.Connection) -> None:
    memory.store.put(b"services/a", b"1")
    with memory.cache("services", str) as cache:
        assert (cache["a"], cache.get("b"), cache.get("b", "none")) == ("1", None, "none")
        assert len(cache) == 1
        assert list(cache) == ["a"]
        assert "a" in cache
        assert cache.items() == [("a", "1")]
