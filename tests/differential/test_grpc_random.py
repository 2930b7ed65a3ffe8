"""Random calls over gRPC: Quoracy answers as etcd 3.5 does, in every field and every error text.

QUORACY_FAULTS=long   20,000 calls, from seeds of its own
QUORACY_SEED=17       only the sequence of that seed
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quoracy.wire.etcd import rpc
from tests.differential.grpc_lockstep import Lockstep, in_lockstep
from tests.differential.grpc_requests import LEASES, RequestMaker
from tests.differential.grpc_sides import running_servers
from tests.differential.grpc_watches import StreamPair

_LONG = os.environ.get("QUORACY_FAULTS") == "long"
_SEED = os.environ.get("QUORACY_SEED")
_CALLS = 20_000 if _LONG else 2_000
_CALLS_ON_DISK = 5_000 if _LONG else 300
_STEPS = 120
_WATCHES_MAX = 40


@pytest.mark.faults
@pytest.mark.timeout(3_600 if _LONG else 120)
async def test_random_calls_get_the_same_answers(tmp_path: Path) -> None:
    with running_servers(tmp_path) as ports:
        async with in_lockstep(ports) as lockstep:
            await _run(lockstep, calls=_CALLS)
            if _SEED is None:
                _assert_it_was_not_too_easy(lockstep)


@pytest.mark.faults
@pytest.mark.timeout(3_600 if _LONG else 120)
async def test_random_calls_get_the_same_answers_from_a_store_on_disk(tmp_path: Path) -> None:
    with running_servers(tmp_path, engine=f"sqlite:{tmp_path / 'quoracy.db'}") as ports:
        async with in_lockstep(ports) as lockstep:
            await _run(lockstep, calls=_CALLS_ON_DISK)


async def _run(lockstep: Lockstep, *, calls: int) -> None:
    if _SEED is not None:
        await _sequence(lockstep, int(_SEED))
        return
    # A quick run is the same everywhere; a long one looks somewhere new.
    seed = random.SystemRandom().randrange(2**32) if _LONG else 0
    while lockstep.calls < calls:
        await _sequence(lockstep, seed)
        seed += 1


def _assert_it_was_not_too_easy(lockstep: Lockstep) -> None:
    assert lockstep.calls >= _CALLS
    assert lockstep.events >= _CALLS // 4
    texts = {refusal.text.removeprefix("etcdserver: ") for refusal in lockstep.refused}
    assert texts >= {
        "key is not provided",
        "key not found",
        "value is provided",
        "lease is provided",
        "too many operations in txn request",
        "duplicate key given in txn request",
        "requested lease not found",
        "lease already exists",
        "too large lease TTL",
        "mvcc: required revision has been compacted",
        "mvcc: required revision is a future revision",
    }
    assert set(lockstep.news) >= {
        "created",
        "compacted",
        "cancel",
        "progress",
        "mvcc: watcher range is empty",
        "mvcc: duplicate watch ID provided on the WatchStream",
    }


async def _sequence(lockstep: Lockstep, seed: int) -> None:
    lockstep.name = f"seed {seed} (QUORACY_SEED={seed} replays it)"
    try:
        await _steps(lockstep, RequestMaker(random.Random(seed)))
    except Exception as error:
        error.add_note(f"{lockstep.name}, call {lockstep.calls}")
        raise


async def _steps(lockstep: Lockstep, maker: RequestMaker) -> None:
    await _begin(lockstep, maker)
    streams = [lockstep.open_stream() for _ in range(3)]
    for _ in range(_STEPS):
        maker.at(revision=lockstep.revision, compact_revision=lockstep.compact_revision)
        await maker.weighted(_STEPS_BY_WEIGHT)(lockstep, maker, maker.one_of(streams))
    await lockstep.settle()
    await lockstep.close_streams()


async def _begin(lockstep: Lockstep, maker: RequestMaker) -> None:
    """No keys, no leases but those of the beginning, no history."""
    for lease in LEASES:
        await lockstep.ask(rpc.LeaseRevokeRequest(ID=lease))
    for grant in maker.grants():
        await lockstep.ask(grant)
    await lockstep.ask(rpc.DeleteRangeRequest(key=b"\0", range_end=b"\0"))
    for _ in range(3):
        await lockstep.ask(rpc.PutRequest(key=b"a"))
    await lockstep.ask(rpc.CompactionRequest(revision=lockstep.revision, physical=True))


async def _ask(lockstep: Lockstep, maker: RequestMaker, stream: StreamPair) -> None:
    await lockstep.ask(maker.request())


async def _compact(lockstep: Lockstep, maker: RequestMaker, stream: StreamPair) -> None:
    await lockstep.settle()  # compacted or not, what watches have not heard yet would be a race
    maker.at(revision=lockstep.revision, compact_revision=lockstep.compact_revision)
    await lockstep.ask(maker.compaction())


async def _watch(lockstep: Lockstep, maker: RequestMaker, stream: StreamPair) -> None:
    if len(stream.watches) < _WATCHES_MAX:
        await lockstep.watch(stream, maker.watch())


async def _cancel(lockstep: Lockstep, maker: RequestMaker, stream: StreamPair) -> None:
    await lockstep.settle()  # what is on the way when a watch is canceled may come or not
    ids = [*stream.watches, *sorted(stream.spent), 3, -1]
    await lockstep.cancel(stream, maker.one_of(ids))


async def _progress(lockstep: Lockstep, maker: RequestMaker, stream: StreamPair) -> None:
    await lockstep.settle()
    # With a watch that is yet to begin, ours says nothing and etcd 3.5.1 speaks for it  [etcd#20221].
    if not any(watch.is_ahead_of(lockstep.revision) for watch in stream.watches.values()):
        await lockstep.progress(stream)


async def _say_nothing(lockstep: Lockstep, maker: RequestMaker, stream: StreamPair) -> None:
    """A message without content; nobody answers it."""
    await stream.say(rpc.WatchRequest())


async def _let_it_choose(lockstep: Lockstep, maker: RequestMaker, stream: StreamPair) -> None:
    """A lease whose id each server chooses, so that nobody can ask for it again."""
    await lockstep.ask(rpc.LeaseGrantRequest(TTL=5))


_STEPS_BY_WEIGHT: dict[Callable[[Lockstep, RequestMaker, StreamPair], Awaitable[None]], int] = {
    _ask: 82,
    _compact: 2,
    _watch: 8,
    _cancel: 4,
    _progress: 2,
    _say_nothing: 1,
    _let_it_choose: 1,
}
