"""The benchmark of locks: real clients that pass a lock down a queue.  No test asks how fast."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.recipes import Shape, children, hand_offs_of, one_queue, section
from bench.recipes_clients import LIBRARIES
from bench.rounds import Rounds
from bench.servers import serve_quoracy, serve_redis

IN_PROCESS = "Quoracy in process, SQLite"


def test_hand_off_is_from_the_release_to_the_next_turn() -> None:
    turns = [(3.0, 4.0), (0.0, 1.0), (1.5, 2.0)]
    assert hand_offs_of(turns) == [0.5, 1.0]


def test_turns_that_overlap_are_refused() -> None:
    with pytest.raises(RuntimeError, match="two clients held the lock at once"):
        hand_offs_of([(0.0, 1.0), (0.9, 2.0)])


def test_every_waiter_gets_the_lock_once(tmp_path: Path) -> None:
    with children(IN_PROCESS, f"sqlite:{tmp_path}/locks.db", 1) as processes:
        assert processes[0].cycles(0.05) > 0
        for _ in range(2):  # the same clients again
            assert len(one_queue(processes, Shape(processes=1, clients=3, settle_s=0.1))) == 3


def test_clients_of_several_processes_wait_in_one_queue(tmp_path: Path) -> None:
    with serve_quoracy(tmp_path / "quoracy.db") as server:
        address = f"127.0.0.1:{server.port}"
        with (
            children("Quoracy, asyncio", address, 1) as tasks,
            children("Quoracy, threads", address, 1) as threads,
        ):
            shape = Shape(processes=2, clients=2, settle_s=0.2)
            assert len(one_queue([*tasks, *threads], shape)) == 4


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_clients_that_are_threads_do_the_same(tmp_path: Path) -> None:
    with serve_redis(tmp_path / "redis") as server:
        with children("redis-py on Redis, threads", f"127.0.0.1:{server.port}", 1) as processes:
            assert processes[0].cycles(0.05) > 0
            assert len(one_queue(processes, Shape(processes=1, clients=2, settle_s=0.1))) == 2


def test_clients_that_fail_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with children(IN_PROCESS, f"sqlite:{tmp_path}/file/locks.db", 1) as processes:
        with pytest.raises(RuntimeError, match=r"in process, SQLite: 'cycles 1' failed"):
            processes[0].cycles(1)
    assert "cannot be used" in capfd.readouterr().err


def test_goals_are_held_against_the_faster_redis_and_the_median_hand_off() -> None:
    rates = {name: [100.0, 100.0, 100.0] for name in LIBRARIES}
    rates["Quoracy, asyncio"] = [600.0, 900.0, 500.0]
    rates["kazoo on ZooKeeper"] = [200.0, 200.0, 200.0]
    rates["redis-py on Redis, asyncio"] = [1200.0, 1200.0, 1200.0]
    hand_offs = {name: [[0.001, 0.002, 0.009]] for name in LIBRARIES}
    hand_offs["Quoracy, asyncio"] = [[0.0005, 0.0005, 5.0]]
    at_once = {"Quoracy, asyncio": [[0.0004] * 3], "kazoo on ZooKeeper": [[0.001] * 3]}
    by_hold = {0.0: at_once, 0.005: hand_offs}
    made = section(Rounds(rates), hand_offs, by_hold, Shape(processes=1, clients=3, settle_s=0))
    reached = {target.what.rpartition(" of ")[2]: target for target in made.targets[:3]}
    assert {name: target.value for name, target in reached.items()} == {
        "kazoo on ZooKeeper": 3.0,
        "aetcd on etcd": 6.0,
        "redis-py on Redis, asyncio": 0.5,
    }
    assert [target.met for target in reached.values()] == [True, True, False]
    passed_on, held = made.targets[3:]
    assert (passed_on.value, passed_on.met) == (0.4, False)
    assert (held.value, held.met) == (0.25, True)
    assert "Not installed here" not in made.note
