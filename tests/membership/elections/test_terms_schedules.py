"""Elections by majority under random faults: never two leaders in one term, whatever happens.

Besides what `schedules` does to all elections, peers die in the middle of a call: before their vote is
saved, or after it is saved and before anyone hears of it.  Every second schedule makes votes collide:
the random span of the timeouts is small, and messages take long.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from quoracy.membership.elections import Elector, SaveVote, Terms, TermsSettings
from quoracy.membership.elections.messages import VoteRequest
from quoracy.membership.machine import Effect, Tell
from quoracy.membership.simulator import Heal, OneWay
from tests.faults.scale import rounds
from tests.membership.elections.schedules import CHAOS_S, Run, Watched, seeds

pytestmark = pytest.mark.faults

CHUNKS = rounds(1, 20)
CHUNK_SIZE = rounds(80, 250)
SETTLED_S = CHAOS_S + 20.0
STABLE_S = 5.0

COLLIDING = TermsSettings(election_timeout_max_s=1.05)


class Broken(Exception):
    """A promise of the election was broken."""


class TermsRun(Run):
    """A run of `Terms` whose votes are saved, and whose leases are compared at every step."""

    def __init__(self, seed: int, kind: type[Terms] = Terms, *, forgets: bool = False) -> None:
        self.collides = seed % 2 == 1
        self.votes: dict[str, SaveVote] = {}
        self.confirmed_count = 0
        self._kind = kind
        self._forgets = forgets
        self._deaths = random.Random(f"deaths {seed}")
        self._death_chance = self._deaths.choice([0.0, 0.0, 0.05, 0.3])
        super().__init__(
            seed,
            self._make_terms,
            latencies_s=(0.002, 0.1, 0.4) if self.collides else (0.002, 0.01, 0.03),
            on_look=self._on_terms,
        )

    def _make_terms(self, run: Run, name: str, rng: random.Random) -> Elector:
        return self._kind(
            name,
            run.names,
            rng=rng,
            settings=COLLIDING if self.collides else TermsSettings(),
            saved=None if self._forgets else self.votes.get(name),
        )

    def _on_terms(self, _: Run, name: str, effects: list[Effect]) -> list[Effect]:
        votes = [effect.event for effect in effects if isinstance(effect, Tell)]
        saves = [vote for vote in votes if isinstance(vote, SaveVote)]
        if saves:
            assert effects[0] == Tell(saves[-1]), effects
            if self.world.now < CHAOS_S - 4 and self._deaths.random() < self._death_chance:
                if self._deaths.random() < 0.5:
                    self.votes[name] = saves[-1]
                self.die(name, again_after_s=self._deaths.uniform(0.01, 3.0))
                return []
            self.votes[name] = saves[-1]
        self._compare_leases()
        return effects

    def _compare_leases(self) -> None:
        confirmed = []
        for name in self.world.up:
            machine = self.world.machine(name)
            assert isinstance(machine, Watched)
            elector = machine.elector
            assert isinstance(elector, Terms)
            # A nanosecond, since the simulator rounds when it converts clocks.
            if not machine.is_dead and self.local(name) < elector.confirmed_until - 1e-9:
                confirmed.append(name)
        self.confirmed_count += len(confirmed)
        if len(confirmed) > 1:
            raise Broken(f"{confirmed} rely on their leases at {self.world.now}; {self.describe()}")

    def check_terms(self) -> None:
        for term, leaders in self.leaders_of_term.items():
            if len(leaders) > 1:
                raise Broken(f"term {term} was led by {sorted(leaders)}; {self.describe()}")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_term_has_one_leader_and_calm_brings_one(chunk: int) -> None:
    confirmed_count = 0
    for seed in seeds(chunk, CHUNK_SIZE):
        run = TermsRun(seed)
        run.world.run(SETTLED_S)
        run.check_terms()
        confirmed_count += run.confirmed_count
        has_majority = len(run.live) > len(run.names) // 2
        if has_majority and not run.collides:
            events_count = len(run.events)
            run.world.run(SETTLED_S + STABLE_S)
            views = {(elector.leader, elector.term) for elector in run.live}
            assert len(views) == 1, run.describe()
            assert [e.name for e in run.live if e.is_leader] == [run.live[0].leader], run.describe()
            assert len(run.events) == events_count, run.describe()
        elif not has_majority:
            assert not any(elector.is_leader for elector in run.live), run.describe()
        assert run.world.counters().rejected == 0, run.describe()
    assert confirmed_count > 0


class _VotesForAnyone(Terms):
    """A planted bug: a second candidate of a term gets the vote as well."""

    def _vote(self, request: VoteRequest, sender: str, now: float) -> list[Effect]:
        if request.term == self.term and not self._in_favour:
            self._voted_for = None
        return super()._vote(request, sender, now)


class _HalfIsEnough(Terms):
    """A planted bug: half of the voters count as a majority."""

    def start(self, now: float) -> list[Effect]:
        self._majority = max(1, len(self._peers) // 2)
        return super().start(now)


class _LongLease(Terms):
    """A planted bug: it relies on its lease for longer than others wait."""

    @property
    def confirmed_until(self) -> float:
        return super().confirmed_until + 1.5


class _NeverStepsDown(_LongLease):
    """A planted bug: one that misses its majority goes on leading."""

    def _check_quorum(self, now: float) -> list[Effect]:
        return []

    def _quorum_due(self) -> float:
        return float("inf")


def _broken(kind: type[Terms], *, forgets: bool = False, tries: int = 300) -> Iterator[str]:
    for seed in range(tries):
        run = TermsRun(seed, kind, forgets=forgets)
        try:
            run.world.run(CHAOS_S)
            run.check_terms()
        except Broken as broken:
            yield str(broken)


def test_these_schedules_notice_votes_that_are_not_saved() -> None:
    found = next(_broken(Terms, forgets=True), None)
    assert found is not None
    assert "was led by" in found


@pytest.mark.parametrize("kind", [_VotesForAnyone, _HalfIsEnough])
def test_these_schedules_notice_a_second_leader(kind: type[Terms]) -> None:
    assert next(_broken(kind), None) is not None


@pytest.mark.parametrize("kind", [_LongLease, _NeverStepsDown])
def test_these_schedules_notice_a_lease_that_is_too_long(kind: type[Terms]) -> None:
    assert any("rely on their leases" in found for found in _broken(kind))


def _calm(name_count: int, seed: int = 1) -> Run:
    def make(run: Run, name: str, rng: random.Random) -> Elector:
        return Terms(name, run.names, rng=rng)

    return Run(seed, make, count=name_count, faults=[])


def test_a_peer_that_comes_back_from_a_partition_does_not_disturb() -> None:
    run = _calm(5)
    run.world.run(10.0)
    leader, term = run.live[0].leader, run.live[0].term
    away = next(name for name in run.names if name != leader)
    run.world.partition([away], at=10.0, until=40.0)
    run.world.run(41.0)
    run.world.run(60.0)
    assert {(elector.leader, elector.term) for elector in run.live} == {(leader, term)}


def test_a_leader_that_hears_no_majority_steps_down_before_another_is_needed() -> None:
    run = _calm(5)
    run.world.run(10.0)
    leader = run.live[0].leader
    assert leader is not None
    others = tuple(name for name in run.names if name != leader)
    # The others hear the leader, but it does not hear them: without check-quorum it would stay.
    run.world.schedule([OneWay(others, (leader,), at=10.0), Heal(at=30.0)])
    run.world.run(12.0)
    assert not run.elector(leader).is_leader
    run.world.run(29.0)
    assert run.elector(others[0]).leader in others
    run.world.run(40.0)
    assert len({(elector.leader, elector.term) for elector in run.live}) == 1
