"""What holds in every schedule of faults, thousands of them with QUORACY_FAULTS=long.

A run that fails says its seed and its schedule; `run(draw(seed))` is the same run again.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from quoracy.compiled import is_compiled
from quoracy.membership.model import MemberState
from quoracy.membership.settings import SwimSettings
from quoracy.membership.simulator import Crash, Leave, Network, OneWay, Partition, Restart, Stall
from quoracy.membership.simulator.faults import Fault
from quoracy.membership.swim.member_states import MemberStates
from tests.faults.scale import rounds
from tests.membership.swim.schedules import ROUGH_S, Judge, Schedule, Wrong, draw, run

_BATCH = 15


@pytest.mark.parametrize("batch", range(rounds(8, 300)))
def test_after_any_faults_all_who_live_agree_and_nobody_else_is_there(batch: int) -> None:
    heard = wanted = 0
    for seed in range(batch * _BATCH, (batch + 1) * _BATCH):
        judge = run(draw(seed))
        heard += len(judge.broadcasts_heard[b"hello"])
        wanted += len(judge.living) + 1
    # A broadcast is gossip and nothing else: in clusters this small a few miss one now and then.
    assert heard >= 0.95 * wanted, f"seeds {batch * _BATCH} to {(batch + 1) * _BATCH - 1}"


def test_a_schedule_runs_the_same_again() -> None:
    def trace(seed: int) -> list[object]:
        judge = Judge(draw(seed))
        told: list[object] = []
        judge.world.on_event = lambda now, name, event: told.append((now, name, event))
        judge.world.run(until=ROUGH_S)
        return told

    assert trace(3) == trace(3)
    assert trace(3)


# -- single faults, as long as they come --------------------------------------------------------------

FIVE = ("m0", "m1", "m2", "m3", "m4")


def schedule(faults: Iterable[Fault], seed: int = 1, **network: float) -> Schedule:
    return Schedule(
        seed=seed,
        founders=FIVE,
        joiners=(),
        faults=tuple(faults),
        network=Network(**network),  # type: ignore[arg-type]
        resume="timers",
        begins_converged=True,
    )


@pytest.mark.parametrize(
    "fault",
    [
        Partition((("m0", "m1"),), 5.0, ROUGH_S),
        Partition((("m0",), ("m1",), ("m2",), ("m3",), ("m4",)), 5.0, ROUGH_S),
        OneWay(("m0",), ("m1", "m2", "m3", "m4"), 5.0, ROUGH_S),
        OneWay(("m1", "m2", "m3", "m4"), ("m0",), 5.0, ROUGH_S),
        Stall("m0", 5.0, ROUGH_S),
        Stall("m0", 5.0, ROUGH_S, stopped_s=6.0, running_s=0.001),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_who_was_out_of_reach_for_long_is_back_with_everyone(fault: Fault) -> None:
    judge = run(schedule([fault]))
    assert judge.world.now > ROUGH_S
    # It was long enough to be taken for dead by somebody.
    assert any(judge.swim(name).statistics().deaths for name in judge.living)


def test_a_crash_is_known_to_everyone_within_the_bound() -> None:
    for seed in range(10):
        judge = Judge(schedule([Crash("m3", 5.0)], seed))
        # Two laps until it is probed, an interval for the probe, and at most 6 * 4 s of suspicion.
        judge.world.run(until=5.0 + 2 * 4 + 1 + 24 + 1)
        for name in judge.living:
            assert judge.swim(name).members["m3"].state is MemberState.DEAD, f"seed {seed}: {name}"


def test_one_that_is_restarted_before_anyone_noticed_is_never_missed() -> None:
    for seed in range(10):
        judge = run(schedule([Crash("m3", 5.0), Restart("m3", 5.2)], seed))
        assert {judge.swim(name).statistics().deaths for name in judge.living} == {0}


def test_who_left_is_left_to_everyone_and_stays_so() -> None:
    for seed in range(10):
        judge = Judge(schedule([Leave("m3", 5.0)], seed, loss=0.2))
        judge.world.run(until=ROUGH_S)
        states = {judge.swim(name).members["m3"].state for name in judge.living}
        assert states == {MemberState.LEFT}, f"seed {seed}"


def test_plain_swim_keeps_the_same_promises() -> None:
    plain = SwimSettings().without_lifeguard()
    for seed in range(rounds(10, 500)):
        run(draw(seed), plain)


# -- the judge is awake -------------------------------------------------------------------------------

mutated = pytest.mark.skipif(
    is_compiled(), reason="methods of what is compiled cannot be replaced: QUORACY_PURE=1"
)


def first_noticed(seeds: int = 25) -> str | None:
    for seed in range(seeds):
        try:
            run(draw(seed))
        except Wrong as wrong:
            return str(wrong)
    return None


@mutated
def test_the_judge_notices_refutations_that_do_not_exceed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refute(self: MemberStates, accused: int) -> None:
        del accused
        self.say_alive()

    monkeypatch.setattr(MemberStates, "_refute", refute)
    assert "of calm" in (first_noticed() or "nothing")


@mutated
def test_the_judge_notices_that_the_dead_are_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    # In the first half minute after a death, gossip may do it; here that time is over.
    parted = schedule([Partition((("m0", "m1"),), 5.0, ROUGH_S)])
    settings = SwimSettings(gossip_to_dead_s=1.0)
    run(parted, settings)
    monkeypatch.setattr(MemberStates, "has_dead", property(lambda _: False))
    monkeypatch.setattr(MemberStates, "dead_names", property(lambda _: []))
    with pytest.raises(Wrong, match="of calm"):
        run(parted, settings)


@mutated
def test_the_judge_notices_that_nobody_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberStates, "accuse", lambda *_: None)
    assert "who is gone" in (first_noticed() or "nothing")
