"""Same seed, same run: within a process, across processes, and whatever else is in the world."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from quoracy.membership.simulator import Crash, LogNormal, Network, Restart, Stall, Trace, World
from tests.membership.simulator.beats import Beats

ROOT = Path(__file__).parents[3]


def traced(seed: int) -> Trace:
    network = Network(latency=LogNormal(0.01, 1.0), loss=0.1, duplicate=0.1, reorder=0.1)
    world = World(seed, network=network)
    trace = Trace(world)
    names = [f"m{number}" for number in range(20)]
    for name in names:
        world.add(
            name,
            Beats(name, names, rng=world.rng(name), every_s=0.1),
            drift=0.001 * len(name),
            factory=lambda rng, name=name: Beats(name, names, rng=rng, every_s=0.1),  # type: ignore[misc]
        )
    world.schedule([Crash("m3", at=2.0), Restart("m3", at=4.0), Stall("m5", 1.0, 6.0, 0.5, 0.3)])
    world.partition(names[:7], at=3.0, until=5.0)
    world.run(until=8.0)
    return trace


def test_the_same_seed_gives_the_same_run_to_the_last_step() -> None:
    one, two = traced(7), traced(7)
    assert one.count > 2_000
    assert (one.count, one.digest) == (two.count, two.digest)
    assert one.steps == two.steps


def test_another_seed_gives_another_run() -> None:
    assert traced(7).digest != traced(8).digest


def test_the_run_is_the_same_in_every_process_whatever_its_hash_seed() -> None:
    here = "tests.membership.simulator.test_determinism"
    program = f"from {here} import traced; print(traced(7).digest, end='')"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {traced(7).digest}


def test_a_members_luck_does_not_depend_on_the_others() -> None:
    def first_ticks(names: list[str]) -> list[float]:
        world = World(seed=3)
        for name in names:
            world.add(name, Beats(name, [], rng=world.rng(name)))
        world.run(until=2.0)
        machine = world.machine("b")
        assert isinstance(machine, Beats)
        return machine.ticked

    assert first_ticks(["a", "b", "c"]) == first_ticks(["b"]) != []


def test_running_in_slices_changes_nothing() -> None:
    def digest(slices: int) -> str:
        world = World(seed=5, network=Network(loss=0.2))
        trace = Trace(world)
        for name in "abc":
            world.add(name, Beats(name, list("abc"), rng=world.rng(name), every_s=0.1))
        for number in range(1, slices + 1):
            world.run(until=10.0 * number / slices)
        assert trace.count > 100
        return trace.digest

    assert digest(1) == digest(64)


def test_the_digest_knows_when_things_happened() -> None:
    def digest(at: float) -> str:
        world = World(seed=5)
        trace = Trace(world)
        world.add("a", Beats("a", [], rng=world.rng("a"), every_s=1e9), at=at)
        world.run(until=5.0)
        assert [step.what for step in trace.steps] == ["start", "tell"]
        return trace.digest

    assert digest(1.0) == digest(1.0) != digest(2.0)


def test_a_trace_keeps_the_newest_steps_and_counts_them_all() -> None:
    world = World(seed=5)
    trace = Trace(world, steps_max=10)
    world.add("a", Beats("a", [], rng=world.rng("a"), every_s=0.1))
    world.run(until=5.0)
    assert len(trace.steps) == 10
    assert trace.count > 40
    assert trace.steps[-1].time > 4.8
