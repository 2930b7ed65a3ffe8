"""A replica is what its owner had at some version, however it came to be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.membership.gossip import GossipSettings
from quoracy.membership.gossip.messages import Delta, News, decode, encode
from quoracy.membership.gossip.model import GossipStatistics
from quoracy.membership.gossip.replica import Replica, pieces
from quoracy.membership.gossip.state import State
from tests.support.profiles import examples

Write = tuple[str, bytes | None]
WRITES = st.lists(
    st.tuples(st.sampled_from("abcde"), st.none() | st.binary(max_size=40)), min_size=1, max_size=30
)
KEEP = 1e9


def history(writes: Sequence[Write]) -> list[dict[str, bytes]]:
    """What the owner had at each version."""
    found: list[dict[str, bytes]] = [{}]
    for key, value in writes:
        after = {other: kept for other, kept in found[-1].items() if other != key}
        found.append(after if value is None else {**after, key: value})
    return found


def replica_of(writes: Sequence[Write], upto: int, generation: int = 1) -> Replica:
    replica = Replica("o", generation=generation)
    for key, value in writes[:upto]:
        replica.write(key, value, forget_at=KEEP)
    return replica


@settings(max_examples=examples(120))
@given(WRITES, st.data())
def test_a_delta_makes_of_any_earlier_replica_what_the_owner_has(
    writes: list[Write], data: st.DataObject
) -> None:
    truth = history(writes)
    upto = data.draw(st.integers(1, len(writes)))
    known = data.draw(st.integers(0, upto - 1))
    after = data.draw(st.integers(0, known))
    early, late = replica_of(writes, known), replica_of(writes, upto)
    late.forget_deletions(KEEP if data.draw(st.booleans()) else 0.0, tombstones_max=2)
    changes = early.apply(late.delta_after(after), forget_at=KEEP)
    assert dict(early.live()) == truth[upto]
    assert early.version == upto
    assert early.live_bytes == sum(len(key) + len(value) for key, value in truth[upto].items())
    # What is told takes an observer from the one to the other.
    seen = dict(truth[known])
    for change in changes:
        assert seen.get(change.key) != change.value
        if change.value is None:
            del seen[change.key]
        else:
            seen[change.key] = change.value
    assert seen == truth[upto]


@settings(max_examples=examples(120))
@given(WRITES, st.integers(40, 200), st.data())
def test_every_piece_of_a_delta_ends_at_something_the_owner_had(
    writes: list[Write], bytes_max: int, data: st.DataObject
) -> None:
    truth = history(writes)
    known = data.draw(st.integers(0, len(writes) - 1))
    replica = replica_of(writes, known)
    delta = replica_of(writes, len(writes)).delta_after(known)
    parts = pieces(delta, bytes_max)
    if parts is None:
        assert len(encode(delta)) > bytes_max
        return
    for part in parts:
        assert len(encode(part)) <= bytes_max
        replica.apply(part, forget_at=KEEP)
        assert dict(replica.live()) == truth[part.upto]
    assert replica.version == len(writes)


def test_a_delta_of_many_new_keys_is_cut_into_pieces() -> None:
    replica = replica_of([(f"key {number}", bytes(100)) for number in range(30)], 30)
    parts = pieces(replica.delta_after(0), 1_000)
    assert parts is not None
    assert len(parts) > 3


@settings(max_examples=examples(100))
@given(WRITES, st.integers(0, 5))
def test_deletions_are_remembered_up_to_the_bound_and_the_oldest_goes_first(
    writes: list[Write], tombstones_max: int
) -> None:
    replica = replica_of(writes, len(writes))
    deleted = [entry for entry in replica.entries.values() if entry.value is None]
    replica.forget_deletions(0.0, tombstones_max)
    kept = [entry for entry in replica.entries.values() if entry.value is None]
    assert kept == deleted[max(0, len(deleted) - tombstones_max) :]
    assert replica.floor == max((entry.version for entry in deleted if entry not in kept), default=0)
    assert dict(replica.live()) == history(writes)[-1]


@pytest.mark.parametrize("known", range(5))
def test_a_deletion_that_is_forgotten_still_reaches_those_who_missed_it(known: int) -> None:
    writes: list[Write] = [("k", b"1"), ("l", b"2"), ("k", None), ("m", b"3"), ("l", b"4")]
    owner = replica_of(writes, 5)
    owner.forget_deletions(KEEP, tombstones_max=100)
    assert owner.floor == 3
    stale = replica_of(writes, known)
    stale.apply(owner.delta_after(known), forget_at=KEEP)
    assert dict(stale.live()) == {"m": b"3", "l": b"4"}


# -- merging is a join: all orders lead to the same


OWNERS = ("o", "p")
Known = tuple[tuple[int, int], ...]  # for each owner, generation and version


def state_of(known: Known, histories: dict[str, dict[int, list[Write]]]) -> State:
    state = State("me", generation=1, settings=GossipSettings(), counters=GossipStatistics())
    for owner, (generation, version) in zip(OWNERS, known, strict=True):
        if generation and version:
            replica = Replica(owner, generation=generation)
            for key, value in histories[owner][generation][:version]:
                replica.write(key, value, forget_at=KEEP)
            state.merge(replica.delta_after(0), 0.0)
    return state


def join(left: State, right: State) -> State:
    """All that the right one knows goes into the left one, as messages would bring it."""
    for replica in list(right.table.replicas.values()):
        delta = right.beyond(left.table.digest(replica.owner))
        if delta is not None:
            assert left.merge(delta, 0.0) is not None
    return left


def view(state: State) -> object:
    replicas = state.table.replicas.values()
    return (state.table.root, {r.owner: (r.rank, dict(r.live())) for r in replicas})


@st.composite
def three_states(draw: st.DrawFn) -> tuple[dict[str, dict[int, list[Write]]], list[Known]]:
    histories = {owner: {1: draw(WRITES), 2: draw(WRITES)} for owner in OWNERS}

    def known(owner: str) -> st.SearchStrategy[tuple[int, int]]:
        return st.integers(1, 2).flatmap(
            lambda generation: st.tuples(
                st.just(generation), st.integers(0, len(histories[owner][generation]))
            )
        )

    return histories, draw(st.lists(st.tuples(*map(known, OWNERS)), min_size=3, max_size=3))


@settings(max_examples=examples(80))
@given(three_states())
def test_merging_is_commutative_associative_and_idempotent(
    drawn: tuple[dict[str, dict[int, list[Write]]], list[Known]],
) -> None:
    histories, knowns = drawn

    def make(number: int) -> State:
        return state_of(knowns[number], histories)

    assert view(join(make(0), make(1))) == view(join(make(1), make(0)))
    assert view(join(join(make(0), make(1)), make(2))) == view(join(make(0), join(make(1), make(2))))
    assert view(join(make(0), make(0))) == view(make(0))
    once = join(make(0), make(1))
    assert view(join(once, make(1))) == view(join(make(0), make(1)))


@settings(max_examples=examples(80))
@given(WRITES, WRITES, st.data())
def test_deltas_in_any_order_with_gaps_and_repeats_never_make_what_was_not(
    first: list[Write], second: list[Write], data: st.DataObject
) -> None:
    truths = {1: history(first), 2: history(second)}
    deltas: list[Delta] = []
    for generation, writes in ((1, first), (2, second)):
        for upto in range(1, len(writes) + 1):
            replica = replica_of(writes, upto, generation)
            deltas.append(replica.delta_after(data.draw(st.integers(0, upto - 1))))
    state = State("me", generation=1, settings=GossipSettings(), counters=GossipStatistics())
    before = (0, 0)
    for delta in data.draw(st.permutations(deltas + deltas[::3])):
        [same] = decode(encode(News([delta])), bytes_max=10**6).deltas  # type: ignore[union-attr]
        state.merge(same, 0.0)
        replica_now = state.table.get("o")
        if replica_now is not None:
            generation, version = replica_now.rank
            assert dict(replica_now.live()) == truths[generation][version]
            assert replica_now.rank >= before
            before = replica_now.rank
    state.merge(replica_of(second, len(second), 2).delta_after(0), 0.0)
    found = state.table.get("o")
    assert found is not None
    assert found.rank == (2, len(second))
