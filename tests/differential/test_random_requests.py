"""Random sequences of requests and watches: the embedded engine answers as etcd does.

QUORACY_SOAK=1    fifty times as many, from a seed of its own
QUORACY_SEED=17   only the sequence of that seed
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from quoracy.errors import (
    Compacted,
    DuplicateKey,
    FutureRevision,
    InvalidRequest,
    KeyNotFound,
    LeaseExists,
    LeaseNotFound,
)
from quoracy.store.model import KeyRange, Range
from tests.differential.asking import Leases, LeasesHeld, TimeToLive
from tests.differential.lockstep import Lockstep, Pair, running_pair
from tests.differential.random_requests import RequestMaker

_SOAK = bool(os.environ.get("QUORACY_SOAK"))
_SEED = os.environ.get("QUORACY_SEED")
_SEQUENCES = 40 * (50 if _SOAK else 1)
_REQUESTS = 80
_WATCHES = 5
_REQUESTS_MIN = 2_000


def _seeds(count: int) -> range:
    if _SEED is not None:
        return range(int(_SEED), int(_SEED) + 1)
    # A quick run is the same everywhere; a soak looks somewhere new.
    first = random.SystemRandom().randrange(2**32) if _SOAK else 0
    return range(first, first + count)


@pytest.mark.timeout(7_200 if _SOAK else 120)
def test_random_requests_and_watches_get_the_same_answers(pair: Pair) -> None:
    lockstep = pair.lockstep
    lockstep.asked.clear()
    lockstep.refused.clear()
    for seed in _seeds(_SEQUENCES):
        pair.run(_sequence(lockstep, seed))
    if _SEED is None:
        # Otherwise it was easy to agree.
        assert lockstep.asked.total() >= _REQUESTS_MIN
        assert set(lockstep.refused) >= {
            Compacted,
            DuplicateKey,
            FutureRevision,
            InvalidRequest,
            KeyNotFound,
            LeaseExists,
            LeaseNotFound,
        }


@pytest.mark.timeout(7_200 if _SOAK else 120)
def test_answers_stay_the_same_when_our_store_is_opened_again(etcd: str, tmp_path: Path) -> None:
    """etcd runs on: what a store on disk knows after a restart is what it knew before."""
    with running_pair(etcd, tmp_path, url=f"sqlite:{tmp_path / 'store.db'}") as pair:
        for seed in _seeds(_SEQUENCES // 4):
            pair.run(_sequence(pair.lockstep, seed))
            pair.reopen()
            pair.run(_read_everything(pair.lockstep))
            pair.run(_look_back(pair.lockstep, RequestMaker(random.Random(seed))))


async def _sequence(lockstep: Lockstep, seed: int) -> None:
    """Requests, then requests while watches run, then watches of the past."""
    maker = RequestMaker(random.Random(seed))

    async def ask() -> None:
        for _ in range(_REQUESTS // 2):
            request = maker.request(
                revision=lockstep.revision, compact_revision=lockstep.compact_revision
            )
            await lockstep.ask(request)

    await lockstep.begin(f"seed {seed}; QUORACY_SEED={seed} replays it")
    for grant in maker.grants():
        await lockstep.ask(grant)
    await ask()
    live = [maker.live_watch(revision=lockstep.revision) for _ in range(_WATCHES)]
    await lockstep.watch(live, meanwhile=ask)
    await _look_back(lockstep, maker)


async def _look_back(lockstep: Lockstep, maker: RequestMaker) -> None:
    watches = [
        maker.watch(revision=lockstep.revision, compact_revision=lockstep.compact_revision)
        for _ in range(_WATCHES)
    ]
    await lockstep.watch(watches)


async def _read_everything(lockstep: Lockstep) -> None:
    """Every revision that is kept, and every lease."""
    for revision in range(max(1, lockstep.compact_revision), lockstep.revision + 1):
        await lockstep.ask(Range(KeyRange.everything(), at=revision))
    held = await lockstep.ask(Leases())
    assert isinstance(held, LeasesHeld)
    for lease in held.ids:
        await lockstep.ask(TimeToLive(lease))
