"""Bully and the two rings under random faults: in calm, everyone who lives follows the highest."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from quoracy.membership.elections import Bully, CollectingRing, Elector, Ring
from quoracy.membership.machine import Effect
from quoracy.membership.simulator import Counters
from tests.faults.scale import rounds
from tests.membership.elections.schedules import CHAOS_S, Run, seeds

KINDS = (Bully, Ring, CollectingRing)
pytestmark = pytest.mark.faults

CHUNKS = rounds(1, 20)
CHUNK_SIZE = rounds(80, 250)

# What went on the network in the chaos may arrive 10 s later; an election may have to begin again.
SETTLED_S = CHAOS_S + 30.0
STABLE_S = 8.0


def a_run(kind: type[Bully | Ring], seed: int) -> Run:
    def make(run: Run, name: str, rng: random.Random) -> Elector:
        return kind(name, run.ring, rng=rng, priorities=run.priorities)

    return Run(seed, make)


def highest(run: Run) -> str:
    return max((run.priorities[elector.name], elector.name) for elector in run.live)[1]


def views(run: Run) -> set[tuple[str | None, int]]:
    return {(elector.leader, elector.term) for elector in run.live}


def check_quiet(run: Run, sent: Counters, seconds: float) -> None:
    """Only heartbeats, and a question to each who is skipped: nobody holds an election."""
    beats = seconds / 0.5 + 2 if isinstance(run.live[0], Bully) else seconds / 1.0 + 2
    live, dead = len(run.live), len(run.names) - len(run.live)
    if isinstance(run.live[0], Bully):
        assert sent.streams_sent == 0, run.describe()
        assert sent.packets_sent <= beats * (len(run.names) - 1), run.describe()
    else:
        assert sent.streams_sent <= 2 * beats * live, run.describe()
        assert sent.packets_sent <= 2 * beats * live * dead, run.describe()


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("kind", KINDS)
def test_in_calm_all_who_live_follow_the_highest_in_one_term(
    kind: type[Bully | Ring], chunk: int
) -> None:
    for seed in seeds(chunk, CHUNK_SIZE):
        run = a_run(kind, seed)
        run.world.run(CHAOS_S)
        before = run.world.counters()
        run.world.run(SETTLED_S)
        if not run.live:
            continue
        assert {leader for leader, _ in views(run)} == {highest(run)}, run.describe()
        assert len(views(run)) == 1, run.describe()
        assert [e.name for e in run.live if e.is_leader] == [highest(run)], run.describe()
        # Without the heartbeats of the ring, what is left was needed to elect.
        sent = run.world.counters() - before
        beats = 0 if kind is Bully else 2 * len(run.names) * (SETTLED_S - CHAOS_S + 2)
        assert sent.streams_sent <= beats + 8 * len(run.names) ** 2, run.describe()
        events_count, before = len(run.events), run.world.counters()
        run.world.run(SETTLED_S + STABLE_S)
        assert len(run.events) == events_count, run.describe()
        check_quiet(run, run.world.counters() - before, STABLE_S)
        assert run.world.counters().rejected == 0, run.describe()


class _Meek(Bully):
    """A planted bug: it follows whoever announces itself."""

    def _bully(self, now: float) -> list[Effect]:
        self._newest = (self._term_seen, self._newest[1])
        return []


class _Forgetful(Ring):
    """A planted bug: a peer that is skipped is never asked whether it is back."""

    def _done(self, effects: list[Effect], now: float) -> list[Effect]:
        self._link._hello_due = 1e9
        return super()._done(effects, now)


class _ForgetfulCollecting(_Forgetful, CollectingRing):
    """The same bug in the other variant."""


def _not_settled(kind: type[Bully | Ring], tries: int) -> Iterator[int]:
    for seed in range(tries):
        run = a_run(kind, seed)
        run.world.run(SETTLED_S)
        if run.live and {leader for leader, _ in views(run)} != {highest(run)}:
            yield seed


@pytest.mark.parametrize("kind", [_Meek, _Forgetful, _ForgetfulCollecting])
def test_these_schedules_notice_a_planted_bug(kind: type[Bully | Ring]) -> None:
    assert next(_not_settled(kind, 200), None) is not None


def test_the_same_seed_is_the_same_run() -> None:
    for kind in KINDS:
        one, two = a_run(kind, 5), a_run(kind, 5)
        one.world.run(CHAOS_S)
        two.world.run(CHAOS_S)
        assert one.events
        assert one.events == two.events
        assert one.world.counters() == two.world.counters()
