"""A server that dies under its clients: what it told them holds, and their watches go on by themselves.

Fifty clients work one server over the network while it is killed, or told to stop, and started again
on the same file and port.  They are not told; afterwards history must bear out every answer they got.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from quoracy.engines.opening import open_embedded
from quoracy.opening import open_store
from quoracy.store.api import Store
from tests.faults.judge import KEEP_ALL, read_history
from tests.faults.scale import rounds
from tests.faults.server_ledger import History, Ledger, Outcome
from tests.faults.server_load import Load
from tests.faults.server_process import ServerProcess
from tests.faults.tracing import Trace

pytestmark = pytest.mark.faults

_MOMENTS = ["answering", "working", "working", "back", "ready", "opening"]

_WRITES_AT_THE_END = 100

# By write, of which a commit has several: time for an answer to overtake it, if it is sent too early.
_WRITE_US = 1_000


@pytest.mark.timeout(1500)
async def test_what_a_server_told_its_clients_outlives_kill_9(
    tmp_path: Path, seed: int, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    moments = (rng.choice(_MOMENTS) for _ in itertools.count())
    with ServerProcess(tmp_path) as server, _no_errors_logged(caplog):
        ledger = await _kill_again_and_again(server, moments, rounds(3, 100), seed, rng)
    assert ledger.count(Outcome.UNSURE) > 0, "no kill met a write"
    assert ledger.count(Outcome.NOT_DONE) > 0, "nobody asked while the server was away"


@pytest.mark.timeout(1500)
async def test_no_answer_of_a_server_overtakes_its_disk(
    tmp_path: Path, seed: int, rng: random.Random, caplog: pytest.LogCaptureFixture, strace: str
) -> None:
    """Killed the moment an answer arrives, on a disk so slow that the next commit is under way."""
    slowed = Trace(strace, tmp_path / "trace", calls="pwrite64", inject=f"delay_enter={_WRITE_US}")
    program, *options = slowed.command
    moments = itertools.repeat("answering")
    # -D: the server is our child, and strace its; so the kill meets the right one.
    with ServerProcess(tmp_path, under=(program, "-D", *options)) as server, _no_errors_logged(caplog):
        ledger = await _kill_again_and_again(server, moments, rounds(2, 50), seed, rng)
    assert ledger.count(Outcome.UNSURE) > 0, "no kill met a write"


@pytest.mark.timeout(1500)
async def test_a_server_that_is_told_to_stop_under_load_loses_nothing(
    tmp_path: Path, seed: int, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger()
    history = History(ledger)
    with ServerProcess(tmp_path) as server, _no_errors_logged(caplog):
        async with _nothing_left_behind(), _judged_load(server, ledger, seed) as (load, witness):
            for number in range(1, rounds(2, 50) + 1):
                with _noted(f"in round {number}"):
                    await load.acknowledged(rng.randint(1, 500))
                    await _let_pass(rng.random() * 0.005)
                    await server.stop()
                    server.start()
                    await server.wait_ready()
                    await _judge(history, witness)
        await _judge_whole(history, ledger, server)


# -- the course of a test ------------------------------------------------------------------------


async def _kill_again_and_again(
    server: ServerProcess, moments: Iterator[str], count: int, seed: int, rng: random.Random
) -> Ledger:
    ledger = Ledger()
    history = History(ledger)
    async with _nothing_left_behind():
        async with _judged_load(server, ledger, seed) as (load, witness):
            for number, moment in enumerate(itertools.islice(moments, count), start=1):
                with _noted(f"in round {number}, killed while {moment}"):
                    await _kill_at(moment, server, load, rng)
                    server.start()
                    await server.wait_ready()
                    await _judge(history, witness)
        await _judge_whole(history, ledger, server)
    return ledger


@contextlib.asynccontextmanager
async def _judged_load(
    server: ServerProcess, ledger: Ledger, seed: int
) -> AsyncIterator[tuple[Load, Store]]:
    """A server with clients at work, and a store to judge it by; at the end every call is over."""
    server.start()
    await server.wait_ready()
    async with open_store(server.url, timeout_s=60.0) as witness:
        load = Load(server.url, ledger, seed)
        async with load.running():
            yield load, witness
            # Whoever was cut off last is back, too, and its watches have something to show.
            await load.acknowledged(_WRITES_AT_THE_END)


async def _kill_at(moment: str, server: ServerProcess, load: Load, rng: random.Random) -> None:
    """Let the server work up to a moment of this kind, then kill it."""
    match moment:
        case "answering":
            await load.acknowledged(rng.randint(1, 100))
        case "working":
            await load.acknowledged(rng.randint(1, 600))
            await _let_pass(rng.random() * 0.005)
        case "back":  # killed once more as soon as the first clients are back
            await server.kill()
            server.start()
            await server.wait_ready()
            await load.acknowledged(rng.randint(1, 10))
        case "ready":
            await server.kill()
            server.start()
            await server.wait_ready()
            await _let_pass(rng.random() * 0.02)
        case "opening":
            await server.kill()
            server.start()
            await _let_pass(rng.random() * 0.5)
    await server.kill()


async def _let_pass(seconds: float) -> None:
    # The moment of a kill is what these tests choose at random: no event marks it.
    await asyncio.sleep(seconds)


async def _judge(history: History, witness: Store) -> None:
    """What was told up to now, by what the server has now; the clients meanwhile go on."""
    await history.read_on(witness)
    history.check_writes()
    await history.check_leases(witness)


async def _judge_whole(history: History, ledger: Ledger, server: ServerProcess) -> None:
    """Once every call is over: by the network and by the file itself, from the first revision on."""
    async with open_store(server.url, timeout_s=60.0) as store:
        await history.read_on(store)
        await history.check_leases(store, all_keys=True)
        by_network = await read_history(store, after=0)
    await server.stop()
    server.check_log()
    history.check_complete()
    async with open_embedded(f"sqlite:{server.path}", retention=KEEP_ALL) as embedded:
        by_file = await read_history(embedded, after=0)
    assert by_network == by_file == history.changes()
    for watched in ledger.watched:
        if not watched.keys.is_single:
            assert watched.events_count > 0, f"the watch of {watched.keys} had nothing to show"


# -- what a test must not leave behind -----------------------------------------------------------


@contextlib.asynccontextmanager
async def _nothing_left_behind() -> AsyncIterator[None]:
    """No task, no connection, and no exception that nobody took."""
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    connections, tasks = _connections(), asyncio.all_tasks()
    try:
        yield
        assert asyncio.all_tasks() == tasks
        assert _connections() <= connections
        gc.collect()  # a future whose exception nobody took tells when it is collected
        await asyncio.sleep(0)
        assert not unhandled
    finally:
        loop.set_exception_handler(before)


def _connections() -> set[tuple[int, object]]:
    return {(each.fd, each.laddr) for each in psutil.Process().net_connections("inet")}


@contextlib.contextmanager
def _no_errors_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A lost server is news for a client, not an error of its own."""
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@contextlib.contextmanager
def _noted(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise
