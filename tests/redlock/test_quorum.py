"""The arithmetic of a Redlock: majorities, drift, and until when a lock is held."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.redlock.quorum import Answer, Terms, Validity, Verdict, explain
from tests.support.profiles import examples

YES, NO, SILENT = Answer(Verdict.YES), Answer(Verdict.NO), Answer(Verdict.SILENT, "timed out")

answers_of_five = st.lists(st.sampled_from([YES, NO, SILENT]), min_size=5, max_size=5)


@pytest.mark.parametrize(("servers_count", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_quorum_is_the_smallest_majority(servers_count: int, quorum: int) -> None:
    assert Terms(servers_count, 1000).quorum == quorum


@given(st.integers(1, 50))
def test_two_quorums_have_a_server_in_common(servers_count: int) -> None:
    quorum = Terms(servers_count, 1000).quorum
    assert 2 * quorum > servers_count
    assert quorum <= servers_count  # and one can be had


def test_validity_is_what_the_published_algorithm_says() -> None:
    validity = Validity(Terms(3, ttl_ms=10_000, drift_factor=0.01))
    assert validity.asked([YES, YES, NO], at=50.0)
    # ttl - elapsed - drift, where drift = ttl * 0.01 + 2 ms
    assert validity.remaining(50.3) == pytest.approx(10 - 0.3 - (0.1 + 0.002))


@given(
    st.integers(1, 100_000),
    st.floats(0, 0.5),
    st.floats(0, 1e6),
    st.floats(0, 1000),
)
def test_validity_never_exceeds_the_ttl_less_the_time_that_passed(
    ttl_ms: int, drift_factor: float, started: float, elapsed: float
) -> None:
    validity = Validity(Terms(1, ttl_ms, drift_factor))
    validity.asked([YES], at=started)
    remaining_s = validity.remaining(started + elapsed)
    exact = ttl_ms / 1000 - elapsed - (ttl_ms * drift_factor + 2) / 1000
    assert remaining_s == pytest.approx(max(0.0, exact), abs=1e-6)
    assert remaining_s < ttl_ms / 1000


def test_minority_holds_nothing() -> None:
    validity = Validity(Terms(5, 10_000))
    assert not validity.asked([YES, YES, NO, SILENT, SILENT], at=1.0)
    assert validity.remaining(1.0) == 0.0
    assert validity.deadline == -math.inf


@st.composite
def rounds_of_some_servers(draw: st.DrawFn) -> list[tuple[list[Answer], float]]:
    count = draw(st.integers(1, 6))
    answers = st.lists(st.sampled_from([YES, NO, SILENT]), min_size=count, max_size=count)
    return draw(st.lists(st.tuples(answers, st.floats(0, 20)), min_size=1, max_size=6))


@given(rounds_of_some_servers())
def test_deadline_is_the_latest_moment_that_a_majority_keeps_the_key(
    rounds: list[tuple[list[Answer], float]],
) -> None:
    count = len(rounds[0][0])
    validity = Validity(Terms(count, 10_000))
    kept: list[float] = [-math.inf] * count
    gone: set[int] = set()
    for answers, at in rounds:
        validity.asked(answers, at=at)
        for index, answer in enumerate(answers):
            if answer is NO:
                gone.add(index)
            if answer is YES:
                kept[index] = max(kept[index], validity.terms.kept_until(at))
    candidates = [kept[index] for index in range(count) if index not in gone]
    by_hand = max(
        (moment for moment in candidates if sum(each >= moment for each in candidates) > count / 2),
        default=-math.inf,
    )
    assert validity.deadline == by_hand
    assert validity.gone_count == len(gone)


@given(answers_of_five, st.floats(0.001, 20))
def test_silence_changes_nothing(answers: list[Answer], at: float) -> None:
    validity = Validity(Terms(5, 10_000))
    validity.asked(answers, at=0.0)
    before = validity.deadline
    assert not validity.asked([SILENT] * 5, at=at)
    assert validity.deadline == before


def test_extension_by_a_minority_keeps_the_old_deadline() -> None:
    validity = Validity(Terms(5, 10_000))
    validity.asked([YES] * 5, at=0.0)
    before = validity.deadline
    assert not validity.asked([YES, YES, SILENT, SILENT, SILENT], at=5.0)
    assert validity.deadline == before


def test_lock_is_lost_when_those_that_granted_it_are_no_majority_any_more() -> None:
    # Five servers could still be asked, but only three ever had the key, and one of them lost it.
    validity = Validity(Terms(5, 10_000))
    validity.asked([YES, YES, YES, SILENT, SILENT], at=0.0)
    assert not validity.asked([NO, YES, YES, SILENT, SILENT], at=1.0)
    assert validity.remaining(1.0) == 0.0


def test_key_that_is_gone_does_not_come_back_with_a_late_yes() -> None:
    validity = Validity(Terms(1, 10_000))
    validity.asked([YES], at=0.0)
    validity.asked([NO], at=2.0)
    validity.asked([YES], at=1.0)  # was asked before, was heard after
    assert validity.remaining(2.0) == 0.0


def test_hold_max_ends_it_whatever_the_servers_say() -> None:
    validity = Validity(Terms(1, 10_000), ends_at=12.0)
    validity.asked([YES], at=0.0)
    assert validity.asked([YES], at=9.0)  # confirmed, and yet
    assert validity.deadline == 12.0


def test_explanation_names_who_did_not_answer_and_why() -> None:
    text = explain(["a:1", "b:2", "c:3"], [YES, NO, SILENT])
    assert text == "1 of 3 servers said yes, 1 said no, c:3 did not answer (timed out)"


# Two contenders and servers whose clocks run fast or slow, as a simulation with times chosen at random.


@dataclass
class Redis:
    """A key on a server: whose, and until when."""

    rate: float  # how fast its clock runs
    owner: str | None = None
    until: float = -math.inf

    def ask(self, what: str, who: str, now: float, ttl_s: float) -> Answer:
        if now >= self.until:
            self.owner = None
        if (what == "take" and self.owner is None) or (what == "extend" and self.owner == who):
            self.owner, self.until = who, now + ttl_s / self.rate
            return YES
        return NO


@dataclass
class Contender:
    name: str
    validity: Validity | None = None
    attempts: int = 0
    held: list[list[float]] = field(default_factory=list)  # from, until


def simulate(seed: int, *, terms: Terms, skew: float) -> list[list[list[float]]]:
    """From when to when each contender held the lock by its own reckoning."""
    rng = random.Random(seed)
    servers = [Redis(1 + rng.uniform(-skew, skew)) for _ in range(terms.servers_count)]
    contenders = [Contender("a"), Contender("b")]
    order = itertools.count()
    events: list[tuple[float, int, object]] = []

    def at(moment: float, what: object) -> None:
        heapq.heappush(events, (moment, next(order), what))

    def ask(contender: Contender, now: float) -> None:
        validity = contender.validity
        what = "extend"
        if validity is None or validity.remaining(now) == 0:
            what, validity = "take", Validity(terms)
            contender.attempts += 1
            contender.validity = None
        who = f"{contender.name}{contender.attempts}"
        answers = [SILENT] * terms.servers_count
        # Up to nearly a whole time to live on the way: a round may take so long that nothing is left.
        delays = [rng.choice([0.001, 0.2, 0.9]) * rng.random() for _ in servers]
        for index, delay in enumerate(delays):
            if rng.random() < 0.9:  # the request arrives; whether its answer does is another matter
                loses_answer = rng.random() < 0.1
                at(now + delay, ("arrive", index, what, who, answers, loses_answer))
        at(now + max(delays) * rng.uniform(1, 1.5), ("end", contender, what, validity, answers, now))

    for contender in contenders:
        at(rng.random(), ("ask", contender))
    for _ in range(400):
        now, _, event = heapq.heappop(events)
        match event:
            case ("ask", Contender() as contender):
                ask(contender, now)
            case ("arrive", int(index), str(what), str(who), list(answers), bool(loses_answer)):
                answer = servers[index].ask(what, who, now, terms.ttl_s)
                if not loses_answer:
                    answers[index] = answer
            case (
                "end",
                Contender() as contender,
                what,
                Validity() as validity,
                list(answers),
                float(sent),
            ):
                was_held = what == "extend" and validity.remaining(now) > 0
                if what == "take" or was_held:
                    validity.asked(list(answers), at=sent)
                    if validity.remaining(now) > 0:
                        contender.validity = validity
                        if not was_held:
                            contender.held.append([now, now])
                    if contender.held and (was_held or contender.validity is validity):
                        contender.held[-1][1] = max(now, validity.deadline)
                at(now + rng.random() * 0.4, ("ask", contender))
    return [contender.held for contender in contenders]


def overlaps(held: list[list[list[float]]]) -> bool:
    first, second = held
    return any(a[0] < b[1] and b[0] < a[1] for a in first for b in second)


TERMS = Terms(5, ttl_ms=1000, drift_factor=0.05)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_two_never_hold_it_at_once_while_clocks_keep_within_the_drift(seed: int) -> None:
    assert not overlaps(simulate(seed, terms=TERMS, skew=0.05))


def test_simulation_would_notice_clocks_that_run_further_apart() -> None:
    # The promise ends where the drift factor ends: with clocks twice as fast, two do hold it at once.
    assert any(overlaps(simulate(seed, terms=TERMS, skew=0.7)) for seed in range(300))


def test_both_contenders_get_their_turns_in_the_simulation() -> None:
    held = [simulate(seed, terms=TERMS, skew=0.05) for seed in range(50)]
    assert sum(bool(first and second) for first, second in held) > 10
