"""Random schedules: bounded, calm at the end, printable as code, the same for the same seed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest
from quoracy.membership.simulator import (
    Crash,
    Fault,
    Heal,
    Leave,
    Loss,
    Network,
    Partition,
    Restart,
    World,
    faults,
    random_faults,
)
from quoracy.membership.simulator.faults import KINDS, as_code, describe, down_at_end
from tests.membership.simulator.beats import Beats
from tests.support.profiles import examples

SEEDS = st.integers(0, 2**32)
NAMES = [f"m{number}" for number in range(9)]


def drawn(seed: int, **options: int) -> tuple[Fault, ...]:
    return random_faults(seed, NAMES, seconds=100.0, calm_s=40.0, **options)  # type: ignore[arg-type]


@settings(max_examples=examples(200))
@given(seed=SEEDS)
def test_everything_that_ends_has_ended_before_the_calm(seed: int) -> None:
    schedule = drawn(seed, faults_max=20)
    assert 0 < len(schedule) <= 20
    for fault in schedule:
        assert 0 <= fault.at <= getattr(fault, "until", fault.at) <= 60.0
    assert [fault.at for fault in schedule] == sorted(fault.at for fault in schedule)


@settings(max_examples=examples(200))
@given(seed=SEEDS, down_max=st.integers(0, 8))
def test_no_more_are_down_than_allowed_and_only_those_who_crashed_come_back(
    seed: int, down_max: int
) -> None:
    down: set[str] = set()
    left: set[str] = set()
    schedule = drawn(seed, faults_max=30, down_max=down_max)
    for fault in schedule:
        match fault:
            case Crash(address):
                assert address not in down | left
                down.add(address)
            case Leave(address):
                assert address not in down | left
                left.add(address)
            case Restart(address):
                assert address in down
                down.discard(address)
            case _:
                pass
        assert len(down | left) <= down_max
    assert down_at_end(schedule) == down | left


@settings(max_examples=examples(100))
@given(seed=SEEDS)
def test_the_spared_neither_crash_nor_leave(seed: int) -> None:
    schedule = random_faults(
        seed, NAMES, seconds=100.0, calm_s=40.0, faults_max=30, spared=NAMES[:4], down_max=9
    )
    gone = {fault.address for fault in schedule if isinstance(fault, Crash | Leave)}
    assert not gone & set(NAMES[:4])


@settings(max_examples=examples(100))
@given(seed=SEEDS)
def test_a_schedule_is_code_that_makes_it_again(seed: int) -> None:
    schedule = drawn(seed)
    scope = {kind.__name__: kind for kind in KINDS}
    assert tuple(eval(as_code(schedule), scope)) == schedule


def test_faults_without_an_end_are_code_too() -> None:
    schedule: list[Fault] = [Loss(0.5, at=1.0, members=("a",)), Partition((("a",),), at=2.0), Heal(3.0)]
    scope = {"Loss": Loss, "Partition": Partition, "Heal": Heal}
    assert "inf" not in as_code(schedule)
    assert eval(as_code(schedule), scope) == schedule


def test_the_same_seed_gives_the_same_schedule_whatever_the_order_of_kinds() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert random_faults(3, NAMES, seconds=9.0, calm_s=1.0, kinds={Crash, Loss}) == random_faults(
        3, NAMES, seconds=9.0, calm_s=1.0, kinds=[Loss, Crash]
    )


def test_every_kind_of_fault_is_drawn_some_time_and_only_those_asked_for() -> None:
    seen = {type(fault) for seed in range(60) for fault in drawn(seed, faults_max=20)}
    assert seen == set(KINDS)
    only = {
        type(fault)
        for seed in range(20)
        for fault in random_faults(seed, NAMES, seconds=9.0, calm_s=1.0, kinds=(Crash, Restart))
    }
    assert only == {Crash, Restart}


@settings(max_examples=examples(40))
@given(seed=SEEDS)
def test_any_schedule_can_be_run_and_the_network_is_whole_in_the_end(seed: int) -> None:
    world = World(seed, network=Network(loss=0.1))
    for name in NAMES:
        world.add(
            name,
            Beats(name, NAMES, rng=world.rng(name)),
            factory=lambda rng, name=name: Beats(name, NAMES, rng=rng),  # type: ignore[misc]
        )
    schedule = drawn(seed, faults_max=15)
    world.schedule(schedule)
    world.run(until=100.0)
    assert set(world.up) == set(NAMES) - down_at_end(schedule)
    assert not any(world.is_stopped(name) for name in NAMES)
    assert not any(world.links.is_blocked(a, b) for a in NAMES for b in NAMES)
    assert world.links.loss == 0.1
    assert world.links.is_plain
    for name in world.up:
        machine = world.machine(name)
        assert isinstance(machine, Beats)
        assert machine.ticked[-1] == pytest.approx(100.0, abs=3.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_faults(1, NAMES, seconds=10.0, calm_s=10.0), "calm_s .* must be less"),
        (lambda: random_faults(1, ["a"], seconds=10.0, calm_s=1.0), "two members or more"),
        (lambda: Crash("a", at=-1.0), "0 <= at"),
        (lambda: Partition((("a",),), at=5.0, until=4.0), "at <= until"),
        (lambda: Partition((("a",), ("a",)), at=5.0), "two groups"),
    ],
)
def test_schedules_that_cannot_be_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidRequest, match=message):
        make()


def test_every_fault_can_be_described_in_words() -> None:
    made: list[Fault] = [
        Crash("a", 1.0, "machine"), Restart("a", 1.0), faults.Join("a", 1.0), Leave("a", 1.0),
        Partition((("a",), ("b", "c")), 1.0, 2.0), faults.OneWay(("a",), ("b",), 1.0), Heal(1.0),
        faults.Stall("a", 1.0, 2.0, timers_run=True), faults.Stall("a", 1.0, 2.0),
        faults.Stall("a", 1.0, 9.0, 2.0, 0.1), Loss(0.05, 1.0, 2.0),
        faults.Slow("a", 0.1, 1.0), faults.Drift("a", -0.01, 1.0),
    ]  # fmt: skip
    assert [describe(fault) for fault in made] == [
        "crash of a (machine)",
        "restart of a",
        "join of a",
        "leave of a",
        "partition 1 | 2 until 2 s",
        "blocked: 1 to 1",
        "all ways healed",
        "a is held up until 2 s",
        "a is stopped until 2 s",
        "a stops 2 s, runs 0.1 s until 9 s",
        "loss of 5% until 2 s",
        "a needs 0.1 s per message",
        "clock of a drifts by -1.00%",
    ]
