"""Random requests over ZooKeeper's protocol: Quoracy answers as ZooKeeper does.

QUORACY_FAULTS=long   20,000 requests, from seeds of its own
QUORACY_SEED=17       only the sequence of that seed
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.differential.zk_generator import StepMaker, moved_below
from tests.differential.zk_lockstep import Lockstep
from tests.differential.zk_shrink import explained
from tests.differential.zk_sides import ON_CELL, ON_ETCD, running_pair
from tests.faults.scale import LONG, rounds
from tests.support.zookeeper_server import zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=str(zookeeper_missing()))

_SEED = os.environ.get("QUORACY_SEED")
_REQUESTS = rounds(2_000, 20_000)
_REQUESTS_ELSEWHERE = rounds(300, 5_000)
_REQUESTS_AT_ONCE = rounds(800, 10_000)
_AT_ONCE = 4
_STEPS = 120


@pytest.mark.faults
@pytest.mark.timeout(3_600 if LONG else 180)
def test_random_requests_get_the_same_answers(tmp_path: Path) -> None:
    with _pairs(tmp_path, "memory")() as lockstep:
        _run(lockstep, _pairs(tmp_path / "shrinking", "memory"), requests=_REQUESTS)
        if _SEED is None:
            _assert_it_was_not_too_easy(lockstep)


@pytest.mark.faults
@pytest.mark.timeout(3_600 if LONG else 180)
@pytest.mark.parametrize("engine", ["sqlite", "cell", *(["etcd"] if LONG else [])])
def test_random_requests_get_the_same_answers_from_other_stores(tmp_path: Path, engine: str) -> None:
    with _pairs(tmp_path, engine)() as lockstep:
        _run(lockstep, _pairs(tmp_path / "shrinking", engine), requests=_REQUESTS_ELSEWHERE)


@pytest.mark.faults
@pytest.mark.timeout(3_600 if LONG else 180)
@pytest.mark.parametrize("engine", ["memory", "sqlite", *(["etcd", "cell"] if LONG else [])])
def test_those_who_ask_at_the_same_time_get_the_same_answers(tmp_path: Path, engine: str) -> None:
    """Each in a part of the tree of its own, where nobody else decides what it is answered."""
    with _pairs(tmp_path, engine)() as lockstep, ThreadPoolExecutor(_AT_ONCE) as pool:
        first = random.SystemRandom().randrange(2**32) if LONG else 1_000_000
        working = [
            pool.submit(_one_of_many, lockstep.beside(f"/own{number}"), f"/own{number}", first + number)
            for number in range(_AT_ONCE)
        ]
        for work in working:
            work.result()


def _one_of_many(lockstep: Lockstep, root: str, first_seed: int) -> None:
    seed = first_seed
    try:
        while lockstep.requests < _REQUESTS_AT_ONCE // _AT_ONCE:
            lockstep.begin()
            steps = StepMaker(random.Random(seed)).sequence(_STEPS)
            lockstep.take_all(moved_below(root, steps))
            seed += _AT_ONCE
    except AssertionError as error:
        error.add_note(f"seed {seed}, below {root}, while others asked as well")
        raise
    finally:
        lockstep.close()


def _pairs(directory: Path, engine: str) -> Callable[[], AbstractContextManager[Lockstep]]:
    """What starts two new servers in a directory of their own, each time it is called."""
    numbers = itertools.count()

    @contextmanager
    def pair() -> Iterator[Lockstep]:
        own = directory / str(next(numbers))
        own.mkdir(parents=True)
        urls = {
            "memory": "memory:",
            "sqlite": f"sqlite:{own / 'quoracy.db'}",
            "etcd": ON_ETCD,
            "cell": ON_CELL,
        }
        with running_pair(own, engine=urls[engine]) as lockstep:
            yield lockstep

    return pair


def _run(
    lockstep: Lockstep, new_pair: Callable[[], AbstractContextManager[Lockstep]], *, requests: int
) -> None:
    if _SEED is not None:
        _sequence(lockstep, new_pair, int(_SEED))
        return
    # A quick run is the same everywhere; a long one looks somewhere new.
    seed = random.SystemRandom().randrange(2**32) if LONG else 0
    while lockstep.requests < requests:
        _sequence(lockstep, new_pair, seed)
        seed += 1


def _sequence(
    lockstep: Lockstep, new_pair: Callable[[], AbstractContextManager[Lockstep]], seed: int
) -> None:
    steps = StepMaker(random.Random(seed)).sequence(_STEPS)
    lockstep.begin()
    try:
        lockstep.take_all(steps)
    except AssertionError as error:
        told = explained(error, steps, new_pair)
        raise AssertionError(f"seed {seed} (QUORACY_SEED={seed} replays it)\n{told}") from None


def _assert_it_was_not_too_easy(lockstep: Lockstep) -> None:
    assert lockstep.requests >= _REQUESTS
    assert sum(lockstep.events.values()) >= _REQUESTS // 20
    assert set(lockstep.events) == {1, 2, 3, 4}
    answered = set(lockstep.answered)
    assert {op for op, err in answered if err == 0} >= {
        "add_watch",
        "auth",
        "check_watches",
        "close_session",
        "create",
        "create2",
        "create_container",
        "create_ttl",
        "delete",
        "exists",
        "get_acl",
        "get_all_children_number",
        "get_children",
        "get_children2",
        "get_data",
        "get_ephemerals",
        "multi",
        "multi_read",
        "ping",
        "remove_watches",
        "set_acl",
        "set_data",
        "set_watches",
        "set_watches2",
        "sync",
        "who_am_i",
    }
    no_node, no_auth, bad_version, exists, not_empty = -101, -102, -103, -110, -111
    bad_arguments, marshalling, unimplemented, invalid_acl = -8, -5, -6, -114
    no_children_for_ephemerals, auth_failed, no_watcher, reconfig_disabled = -108, -115, -121, -123
    assert {err for _, err in answered} >= {
        no_node,
        no_auth,
        bad_version,
        exists,
        not_empty,
        bad_arguments,
        marshalling,
        unimplemented,
        invalid_acl,
        no_children_for_ephemerals,
        auth_failed,
        no_watcher,
        reconfig_disabled,
    }
    assert {err for op, err in answered if op == "multi part"} >= {
        0,
        -2,
        no_node,
        bad_version,
        exists,
        not_empty,
        bad_arguments,
    }
