"""Whose word changes what: every rule of two messages about one member."""

from __future__ import annotations

import random

import pytest

from quoracy.errors import InvalidRequest
from quoracy.membership.model import (
    INCARNATION_MAX,
    Conflict,
    Member,
    MemberChange,
    MemberChangeKind,
    MemberState,
)
from quoracy.membership.swim.messages import Alive, Dead, Suspect
from tests.membership.swim.hands import Mind, alive, events
from tests.membership.swim.schedules import is_legal

ALIVE, SUSPECT, DEAD, LEFT = MemberState


def alive_b(incarnation: int, meta: bytes = b"", address: str = "b:1") -> Alive:
    return Alive("b", address, incarnation, meta)


def mind_with(state: MemberState, incarnation: int = 5, **settings: object) -> Mind:
    """One who believes this of `b`, and knows a few others."""
    mind = Mind(alive("b", incarnation=incarnation) + alive("c", "d", "e", "f"), **settings)
    match state:
        case MemberState.SUSPECT:
            mind.states.hear_suspect(Suspect("b", incarnation, "c"), 0.0)
        case MemberState.DEAD:
            mind.states.hear_dead(Dead("b", incarnation, "c"), 0.0)
        case MemberState.LEFT:
            mind.states.hear_dead(Dead("b", incarnation, "b"), 0.0)
    assert mind.state("b") == (state, incarnation)
    mind.told()
    mind.said()
    return mind


# Known of b, what is heard, what is known then, what is told, and whether it is passed on.
RULES: list[tuple[MemberState, Alive | Suspect | Dead, MemberState, int, list[str], bool]] = [
    # Of alive: the same number or a lower one says nothing new.
    (ALIVE, alive_b(4), ALIVE, 5, [], False),
    (ALIVE, alive_b(5), ALIVE, 5, [], False),
    (ALIVE, alive_b(6), ALIVE, 6, [], True),
    (ALIVE, alive_b(6, b"new"), ALIVE, 6, ["b updated"], True),
    (ALIVE, Suspect("b", 4, "c"), ALIVE, 5, [], False),
    (ALIVE, Suspect("b", 5, "c"), SUSPECT, 5, ["b suspected"], True),
    (ALIVE, Suspect("b", 9, "c"), SUSPECT, 9, ["b suspected"], True),
    (ALIVE, Dead("b", 4, "c"), ALIVE, 5, [], False),
    (ALIVE, Dead("b", 5, "c"), DEAD, 5, ["b died"], True),
    (ALIVE, Dead("b", 5, "b"), LEFT, 5, ["b left"], True),
    (ALIVE, Dead("b", 9, "c"), DEAD, 9, ["b died"], True),
    # Suspect beats alive of the same number; a higher one refutes.
    (SUSPECT, alive_b(5), SUSPECT, 5, [], False),
    (SUSPECT, alive_b(6), ALIVE, 6, ["b recovered"], True),
    (SUSPECT, alive_b(6, b"new"), ALIVE, 6, ["b recovered", "b updated"], True),
    (SUSPECT, Suspect("b", 4, "d"), SUSPECT, 5, [], False),
    (SUSPECT, Suspect("b", 5, "c"), SUSPECT, 5, [], False),
    (SUSPECT, Suspect("b", 5, "d"), SUSPECT, 5, [], True),  # a confirmation
    (SUSPECT, Suspect("b", 6, "d"), SUSPECT, 6, [], True),
    (SUSPECT, Dead("b", 4, "c"), SUSPECT, 5, [], False),
    (SUSPECT, Dead("b", 5, "c"), DEAD, 5, ["b died"], True),
    (SUSPECT, Dead("b", 5, "b"), LEFT, 5, ["b left"], True),
    # Dead beats both; only a higher alive brings it back.
    (DEAD, alive_b(5), DEAD, 5, [], False),
    (DEAD, alive_b(6), ALIVE, 6, ["b joined"], True),
    (DEAD, Suspect("b", 5, "c"), DEAD, 5, [], False),
    (DEAD, Suspect("b", 9, "c"), DEAD, 5, [], False),
    (DEAD, Dead("b", 5, "d"), DEAD, 5, [], False),
    (DEAD, Dead("b", 5, "b"), LEFT, 5, ["b left"], True),
    # Who left is not dead by the same number, and is back by a higher.
    (LEFT, alive_b(5), LEFT, 5, [], False),
    (LEFT, alive_b(6), ALIVE, 6, ["b joined"], True),
    (LEFT, Suspect("b", 9, "c"), LEFT, 5, [], False),
]


@pytest.mark.parametrize(
    ("known", "heard", "state", "incarnation", "told", "passed_on"), RULES, ids=str
)
def test_the_stronger_word_wins(
    known: MemberState,
    heard: Alive | Suspect | Dead,
    state: MemberState,
    incarnation: int,
    told: list[str],
    passed_on: bool,
) -> None:
    mind = mind_with(known)
    match heard:
        case Alive():
            mind.states.hear_alive(heard, 1.0)
        case Suspect():
            mind.states.hear_suspect(heard, 1.0)
        case Dead():
            mind.states.hear_dead(heard, 1.0)
    assert mind.state("b") == (state, incarnation)
    assert mind.told() == told
    assert mind.said() == ([heard] if passed_on else [])


@pytest.mark.parametrize("accusation", [Suspect("b", 5, "c"), Dead("b", 5, "c")], ids=str)
def test_one_who_missed_a_goodbye_makes_it_heard_again(accusation: Suspect | Dead) -> None:
    mind = mind_with(LEFT)
    if isinstance(accusation, Suspect):
        mind.states.hear_suspect(accusation, 1.0)
    else:
        mind.states.hear_dead(accusation, 1.0)
    assert mind.state("b") == (LEFT, 5)
    assert mind.told() == []
    assert mind.said() == [Dead("b", 5, "b")]
    # Its own goodbye does not.
    mind.states.hear_dead(Dead("b", 5, "b"), 2.0)
    assert mind.said() == []


def test_of_one_never_heard_of_only_alive_counts() -> None:
    mind = Mind()
    mind.states.hear_suspect(Suspect("z", 1, "c"), 0.0)
    mind.states.hear_dead(Dead("z", 1, "c"), 0.0)
    assert mind.state("z") is None
    mind.states.hear_alive(Alive("z", "z:1", 7, b"m"), 0.0)
    assert mind.states.table.get("z") == Member("z", "z:1", 7, ALIVE, b"m")
    assert mind.told() == ["z joined"]


# -- of ourselves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("accused", [1, 2, 17])
def test_a_refutation_exceeds_the_accused_number(accused: int) -> None:
    for accusation in (Suspect("a", accused, "c"), Dead("a", accused, "c"), Dead("a", accused, "a")):
        mind = Mind(alive("c"))
        if isinstance(accusation, Suspect):
            mind.states.hear_suspect(accusation, 0.0)
        else:
            mind.states.hear_dead(accusation, 0.0)
        assert mind.state("a") == (ALIVE, accused + 1)
        assert mind.said() == [Alive("a", "a:1", accused + 1, b"")]
        assert mind.told() == []
        assert mind.states.health.score == 1


def test_an_accusation_that_was_answered_is_not_answered_again() -> None:
    mind = Mind(alive("c"))
    mind.states.hear_suspect(Suspect("a", 5, "c"), 0.0)
    mind.said()
    mind.states.hear_suspect(Suspect("a", 5, "d"), 0.0)
    mind.states.hear_dead(Dead("a", 4, "d"), 0.0)
    assert mind.state("a") == (ALIVE, 6)
    assert mind.said() == []


def test_one_that_was_restarted_goes_beyond_what_is_known_of_it() -> None:
    mind = Mind(alive("c"))
    mind.states.hear_alive(Alive("a", "a:1", 8, b"old"), 0.0)
    assert mind.state("a") == (ALIVE, 9)
    assert mind.said() == [Alive("a", "a:1", 9, b"")]


def test_our_own_word_coming_back_is_no_accusation() -> None:
    mind = Mind(alive("c"))
    mind.states.hear_alive(Alive("a", "a:1", 1, b""), 0.0)
    assert mind.state("a") == (ALIVE, 1)
    assert mind.said() == []


def test_metadata_of_an_earlier_life_is_outbid_even_with_the_same_number() -> None:
    mind = Mind(alive("c"))
    mind.states.hear_alive(Alive("a", "a:1", 1, b"old"), 0.0)
    assert mind.state("a") == (ALIVE, 2)


def test_one_who_leaves_does_not_object() -> None:
    mind = Mind(alive("c"))
    mind.states.say_goodbye()
    assert mind.said() == [Dead("a", 1, "a")]
    mind.states.hear_suspect(Suspect("a", 4, "c"), 0.0)
    mind.states.hear_dead(Dead("a", 4, "c"), 0.0)
    mind.states.hear_alive(Alive("a", "a:1", 9, b""), 0.0)
    assert mind.state("a") == (LEFT, 1)
    assert mind.said() == []


def test_at_the_end_of_the_numbers_nothing_breaks() -> None:
    mind = Mind(alive("c"))
    mind.states.hear_suspect(Suspect("a", INCARNATION_MAX - 1, "c"), 0.0)
    assert mind.state("a") == (ALIVE, INCARNATION_MAX - 1)
    (said,) = mind.said()
    assert isinstance(said, Alive)


# -- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [ALIVE, SUSPECT, DEAD])
def test_a_name_is_kept_by_who_has_it(state: MemberState) -> None:
    mind = mind_with(state)
    mind.states.hear_alive(alive_b(9, address="other:1"), 29.0)
    assert mind.state("b") == (state, 5)
    effects = mind.out.take()
    (conflict,) = events(effects, Conflict)
    assert (conflict.known.address, conflict.claimed_by) == ("b:1", "other:1")
    assert mind.said() == []


def test_the_name_of_the_dead_is_free_after_a_while() -> None:
    mind = mind_with(DEAD, reclaim_s=30.0)
    mind.states.hear_alive(alive_b(9, address="other:1"), 30.5)
    assert mind.states.table.get("b") == Member("b", "other:1", 9)
    assert mind.told() == ["b joined"]


def test_the_name_of_one_who_left_is_free_at_once() -> None:
    mind = mind_with(LEFT)
    mind.states.hear_alive(alive_b(6, address="other:1"), 0.1)
    assert mind.states.table.get("b") == Member("b", "other:1", 6)


def test_another_with_our_name_is_told_of_and_not_outbid() -> None:
    mind = Mind(alive("c"))
    mind.states.hear_alive(Alive("a", "other:1", 5, b""), 0.0)
    (conflict,) = events(mind.out.take(), Conflict)
    assert conflict.claimed_by == "other:1"
    assert mind.state("a") == (ALIVE, 1)
    assert mind.said() == []


def test_a_name_that_is_too_long_in_bytes_is_turned_away() -> None:
    mind = Mind()
    mind.states.hear_alive(Alive("ö" * 100, "z:1", 1, b""), 0.0)
    mind.states.hear_alive(Alive("z", "ö" * 200, 1, b""), 0.0)
    assert len(mind.states.table) == 1
    assert mind.states.turned_away_count == 2
    mind.states.hear_alive(Alive("ö" * 64, "z:1", 1, b""), 0.0)
    assert len(mind.states.table) == 2


# -- suspicions ---------------------------------------------------------------------------------------


def test_a_suspect_that_says_nothing_in_time_is_dead() -> None:
    mind = mind_with(ALIVE)  # six present: at least 4 s, at most 24 s
    mind.states.hear_suspect(Suspect("b", 5, "c"), 100.0)
    assert mind.states.suspicion_due == 124.0
    mind.states.expire(123.9)
    assert mind.state("b") == (SUSPECT, 5)
    mind.said()
    mind.states.expire(124.0)
    assert mind.state("b") == (DEAD, 5)
    assert mind.said() == [Dead("b", 5, "a")]


def test_others_who_suspect_it_too_shorten_its_time() -> None:
    mind = mind_with(ALIVE)
    for accuser in "cde":
        mind.states.hear_suspect(Suspect("b", 5, accuser), 100.0)
    mind.states.expire(103.9)
    assert mind.state("b") == (SUSPECT, 5)
    mind.states.expire(104.0)
    assert mind.state("b") == (DEAD, 5)


def test_where_too_few_could_confirm_it_the_time_is_short() -> None:
    mind = Mind(alive("b", "c"))
    mind.states.hear_suspect(Suspect("b", 1, "c"), 100.0)
    assert mind.states.suspicion_due == 104.0


def test_an_answer_in_time_ends_a_suspicion_for_good() -> None:
    mind = mind_with(SUSPECT)
    mind.states.hear_alive(alive_b(6), 1.0)
    mind.states.expire(1000.0)
    assert mind.state("b") == (ALIVE, 6)


def test_a_pause_of_ours_gives_suspects_more_time() -> None:
    mind = mind_with(ALIVE)
    mind.states.hear_suspect(Suspect("b", 5, "c"), 100.0)
    mind.states.postpone(50.0, at_least=150.3)
    mind.states.expire(173.9)
    assert mind.state("b") == (SUSPECT, 5)
    mind.states.expire(174.0)
    assert mind.state("b") == (DEAD, 5)


# -- records of others --------------------------------------------------------------------------------


def test_nobody_is_dead_on_the_word_of_a_record() -> None:
    mind = mind_with(ALIVE)
    mind.states.hear_record(Member("b", "b:1", 5, DEAD), 0.0)
    assert mind.state("b") == (SUSPECT, 5)


def test_a_record_of_one_who_left_is_believed() -> None:
    mind = mind_with(ALIVE)
    mind.states.hear_record(Member("b", "b:1", 5, LEFT), 0.0)
    assert mind.state("b") == (LEFT, 5)


def test_a_suspect_that_is_new_to_us_is_known_and_suspected() -> None:
    mind = Mind()
    mind.states.hear_record(Member("z", "z:1", 5, SUSPECT, b"m"), 0.0)
    assert mind.states.table.get("z") == Member("z", "z:1", 5, SUSPECT, b"m")
    assert mind.told() == ["z joined", "z suspected"]


# -- the gone -----------------------------------------------------------------------------------------


def test_the_gone_are_forgotten_after_a_while() -> None:
    mind = mind_with(DEAD, forget_s=100.0)
    mind.states.expire(99.0)
    assert mind.state("b") == (DEAD, 5)
    assert mind.states.forget_due == 100.0
    mind.states.expire(100.0)
    assert mind.state("b") is None
    assert mind.told() == ["b forgotten"]
    assert not mind.states.has_dead
    assert mind.states.forget_due is None


def test_the_dead_are_told_news_for_a_while_and_those_who_left_are_not() -> None:
    mind = mind_with(DEAD, gossip_to_dead_s=30.0)
    mind.states.hear_dead(Dead("c", 1, "c"), 1.0)
    assert [member.name for member in mind.states.recently_dead(30.0)] == ["b"]
    assert mind.states.recently_dead(31.0) == []


def test_members_beyond_the_bound_are_turned_away() -> None:
    mind = Mind(alive("b"), members_max=3)
    for name in ("c", "d", "e"):
        mind.states.hear_alive(Alive(name, f"{name}:1", 1, b""), 0.0)
    assert sorted(mind.states.table.members) == ["a", "b", "c"]
    assert mind.states.turned_away_count == 2


def test_at_the_bound_the_longest_gone_makes_room() -> None:
    mind = Mind(alive("b", "c"), members_max=3)
    mind.states.hear_dead(Dead("b", 1, "c"), 0.0)
    mind.states.hear_alive(Alive("d", "d:1", 1, b""), 1.0)
    assert sorted(mind.states.table.members) == ["a", "c", "d"]
    assert mind.told() == ["b died", "b forgotten", "d joined"]


def test_nobody_starts_with_the_dead() -> None:
    with pytest.raises(InvalidRequest, match="dead or left"):
        Mind([Member("b", "b:1", 1, DEAD)])


# -- any words in any order ---------------------------------------------------------------------------


def any_word(rng: random.Random) -> Alive | Suspect | Dead | Member:
    name, other = rng.choice("abcd"), rng.choice("abcd")
    number = rng.randint(1, 6)
    match rng.randrange(4):
        case 0:
            where = f"{name}:1" if rng.random() < 0.9 else "elsewhere:1"
            return Alive(name, where, number, rng.choice((b"", b"x")))
        case 1:
            return Suspect(name, number, other)
        case 2:
            return Dead(name, number, other)
        case _:
            return Member(name, f"{name}:1", number, rng.choice(list(MemberState)), b"")


@pytest.mark.parametrize("seed", range(150))
def test_incarnations_only_grow_and_all_that_is_told_makes_sense(seed: int) -> None:
    rng = random.Random(seed)
    mind = Mind(reclaim_s=3.0, forget_s=rng.choice((20.0, 1000.0)), members_max=rng.choice((3, 100)))
    told: dict[str, Member] = {}
    known: dict[str, int] = {}
    now = 0.0
    for _ in range(80):
        now += rng.choice((0.0, 0.1, 5.0))
        word = any_word(rng)
        match word:
            case Alive():
                mind.states.hear_alive(word, now)
            case Suspect():
                mind.states.hear_suspect(word, now)
            case Dead():
                mind.states.hear_dead(word, now)
            case Member():
                mind.states.hear_record(word, now)
        mind.states.expire(now)
        members = mind.states.table.members
        for change in events(mind.out.take(), MemberChange):
            name = change.member.name
            assert name != "a", f"seed {seed}: told {change} of itself"
            assert is_legal(told.get(name), change), f"seed {seed}: {change} after {told.get(name)}"
            if change.kind is MemberChangeKind.FORGOTTEN:
                del told[name], known[name]
            else:
                told[name] = change.member
        for name, member in members.items():
            assert member.incarnation >= known.get(name, 0), f"seed {seed}: {name} went back"
            known[name] = member.incarnation
        assert members["a"].state is ALIVE, f"seed {seed}"
        assert len(members) <= mind.settings.members_max
        # Who is suspected has a time to live, who is gone a time to be forgotten, and nobody else.
        suspects = {name for name, member in members.items() if member.state is SUSPECT}
        assert set(mind.states._suspicions) == suspects
        assert set(mind.states._gone_since) == {n for n, m in members.items() if not m.is_present}
        assert set(mind.states.dead_names) == {n for n, m in members.items() if m.state is DEAD}
