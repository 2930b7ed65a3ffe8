"""The table: whom to probe next, and whether two tables are the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.membership.model import Member, MemberState
from quoracy.membership.swim.member_table import MemberTable, bucket_of
from quoracy.membership.swim.messages import BUCKETS
from tests.membership.swim.hands import alive
from tests.support.profiles import examples


def lap(table: MemberTable, rng: random.Random, count: int) -> list[str]:
    found = [table.next_probed(rng) for _ in range(count)]
    return [member.name for member in found if member is not None]


@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_a_lap_visits_everyone_exactly_once(count: int) -> None:
    names = [f"m{number}" for number in range(count)]
    table, rng = MemberTable("me", alive("me", *names)), random.Random(count)
    laps = [lap(table, rng, count) for _ in range(5)]
    assert all(sorted(each) == sorted(names) for each in laps)
    if count > 20:
        assert len({tuple(each) for each in laps}) == 5  # each in an order of its own


def test_every_order_is_equally_likely() -> None:
    seen: dict[str, int] = {}
    for seed in range(3000):
        table = MemberTable("me", alive("a", "b", "c"))
        order = "".join(lap(table, random.Random(seed), 3))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert 420 < min(seen.values()) < max(seen.values()) < 580  # 500 each, give or take


def test_a_newcomer_is_probed_within_the_lap() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        table = MemberTable("me", alive("a", "b", "c", "d"))
        first = lap(table, rng, 2)
        (new,) = alive("new")
        table.put(new)
        assert sorted(first + lap(table, rng, 3)) == ["a", "b", "c", "d", "new"]


def test_the_gone_are_not_probed_and_come_back_when_they_do() -> None:
    rng = random.Random(1)
    table = MemberTable("me", alive("a", "b", "c"))
    table.put(Member("b", "b:1", 1, MemberState.DEAD))
    table.put(Member("c", "c:1", 1, MemberState.SUSPECT))
    assert sorted(lap(table, rng, 2) + lap(table, rng, 2)) == ["a", "a", "c", "c"]
    table.put(Member("b", "b:1", 2))
    table.next_probed(rng)
    assert "b" in lap(table, rng, 5)


def test_with_nobody_else_there_is_nobody_to_probe() -> None:
    rng = random.Random(1)
    assert MemberTable("me").next_probed(rng) is None
    table = MemberTable("me", alive("me", "a"))
    table.put(Member("a", "a:1", 1, MemberState.LEFT))
    assert table.next_probed(rng) is None
    assert table.some(3, rng, lambda member: member.is_present) == []


@pytest.mark.parametrize("size", [2, 5, 100])
def test_some_are_others_that_are_wanted_none_twice(size: int) -> None:
    table = MemberTable("me", alive("me", *(f"m{number}" for number in range(size))))
    for seed in range(50):
        found = [m.name for m in table.some(3, random.Random(seed), lambda m: m.name != "m1")]
        assert len(found) == len(set(found)) == min(3, size - 1)
        assert not {"me", "m1"} & set(found)


def test_some_finds_the_one_who_is_wanted_in_a_crowd() -> None:
    table = MemberTable("me", alive(*(f"m{number}" for number in range(500))))
    (found,) = table.some(3, random.Random(1), lambda member: member.name == "m77")
    assert found.name == "m77"


def test_who_dies_within_a_lap_takes_nobody_s_turn() -> None:
    for seed in range(30):
        table, rng = MemberTable("me", alive("a", "b", "c", "d")), random.Random(seed)
        first = lap(table, rng, 2)
        gone = rng.choice("abcd")
        table.put(Member(gone, f"{gone}:1", 1, MemberState.DEAD))
        left = {"a", "b", "c", "d"} - {*first, gone}
        assert set(lap(table, rng, len(left))) == left


def test_who_is_forgotten_is_not_known() -> None:
    table, rng = MemberTable("me", alive("a", "b", "c", "d")), random.Random(3)
    table.put(Member("b", "b:1", 1, MemberState.LEFT))
    assert (len(table), table.present_count) == (4, 3)
    table.forget("b")
    assert (len(table), table.present_count, table.get("b")) == (3, 3, None)
    assert sorted(lap(table, rng, 3)) == ["a", "c", "d"]


MEMBERS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(8)]),
    st.tuples(st.integers(1, 3), st.sampled_from(MemberState)),
)


def present(members: dict[str, tuple[int, MemberState]]) -> set[tuple[str, int]]:
    return {(name, number) for name, (number, state) in members.items() if state <= MemberState.SUSPECT}


@given(one=MEMBERS, other=MEMBERS, history=MEMBERS)
@settings(max_examples=examples(60))
def test_hashes_are_equal_exactly_when_the_same_are_here(
    one: dict[str, tuple[int, MemberState]],
    other: dict[str, tuple[int, MemberState]],
    history: dict[str, tuple[int, MemberState]],
) -> None:
    mine, theirs = MemberTable("x"), MemberTable("y")
    for name, (number, state) in history.items():  # what was known before leaves no trace
        mine.put(Member(name, name, number, state))
        mine.put(Member(name, name, number, MemberState.DEAD))
        mine.forget(name)
    for table, members in ((mine, one), (theirs, other)):
        for name, (number, state) in members.items():
            table.put(Member(name, name, 1))
            table.put(Member(name, name, number, state))
    same = present(one) == present(other)
    assert (mine.root == theirs.root) == same
    assert (mine.differing(theirs.digests) == []) == same
    names = {name for name, _ in present(one) ^ present(other)}
    assert set(mine.differing(theirs.digests)) == {bucket_of(name) for name in names}
    assert mine.present_count == len(present(one))


def test_parts_have_everyone_with_the_gone() -> None:
    table = MemberTable("me", alive("a", "b"))
    table.put(Member("b", "b:1", 1, MemberState.DEAD))
    assert {member.name for member in table.within(range(BUCKETS))} == {"a", "b"}
    assert [member.name for member in table.within([bucket_of("b")])] == ["b"]


def test_a_copy_knows_the_same_and_goes_its_own_way() -> None:
    table = MemberTable("", alive("a", "b", "c"))
    copy = table.copy("b")
    assert copy.root == table.root
    assert sorted(lap(copy, random.Random(1), 2)) == ["a", "c"]
    copy.put(Member("d", "d:1", 1))
    assert "d" not in table.members
    assert copy.root != table.root
    again = copy.copy("c")
    assert sorted(lap(again, random.Random(1), 3)) == ["a", "b", "d"]
