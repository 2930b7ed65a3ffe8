"""Restarts, impostors, and owners who are gone: generations and what is forgotten."""

from __future__ import annotations

import pytest

from quoracy.errors import InvalidRequest
from quoracy.membership.gossip import Gossip, GossipMode, GossipSettings
from quoracy.membership.gossip.messages import Delta, Digest, Entry, News, encode
from tests.membership.gossip.wire import Wire, participant

SHORT = GossipSettings(forget_s=100.0, tombstone_s=50.0)


def pair(settings: GossipSettings | None = None) -> tuple[Gossip, Gossip, Wire]:
    a, b = (participant(name, settings=settings) for name in "ab")
    wire = Wire(a, b)
    wire.know_each_other()
    return a, b, wire


def replace(wire: Wire, machine: Gossip) -> None:
    wire.machines[machine.name] = machine
    wire.know_each_other()


def test_a_restarted_owner_beats_its_past_with_fewer_versions() -> None:
    a, b, wire = pair()
    for number in range(9):
        wire.carry("a", a.set("old", f"{number}".encode(), wire.now))
        wire.run(1.0)
    again = participant("a", generation=2, now=wire.now)
    replace(wire, again)
    wire.carry("a", again.set("new", b"1", wire.now))
    wire.run(5.0)
    assert dict(b.of("a")) == {"new": b"1"}
    assert ("old", None) in [(change.key, change.value) for change in wire.told["b"]]


@pytest.mark.parametrize("mode", [GossipMode.PUSH_PULL, GossipMode.MIXED])
def test_a_restarted_owner_that_writes_nothing_ends_its_past_all_the_same(mode: GossipMode) -> None:
    a, b, wire = pair(GossipSettings(mode=mode))
    wire.carry("a", a.set("old", b"1", 0.0))
    wire.run(5.0)
    assert b.of("a") == {"old": b"1"}
    replace(wire, participant("a", generation=2, now=wire.now, settings=GossipSettings(mode=mode)))
    wire.run(5.0)
    assert dict(b.of("a")) == {}
    assert b.version_of("a") == (2, 1)


@pytest.mark.parametrize(
    "claim",
    [
        Delta("a", 1, 0, 99, 0, [Entry("k", 99, b"theirs")]),
        Delta("a", 7, 0, 1, 0, [Entry("k", 1, b"theirs")]),
        Delta("a", 1, 1, 99, 0, [Entry("k", 99, None)]),
    ],
)
def test_nobody_else_writes_our_keys_and_our_generation_skips_ahead(claim: Delta) -> None:
    a, b, wire = pair()
    wire.carry("a", a.set("k", b"mine", 0.0))
    wire.run(5.0)
    for machine in (a, b):
        sender = "x"
        wire.carry(machine.name, machine.receive(encode(News([claim])), sender, wire.now))
    assert dict(a.of("a")) == {"k": b"mine"}
    assert a.generation == claim.generation + 1
    assert a.statistics().skips == 1
    wire.run(5.0)
    assert dict(b.of("a")) == {"k": b"mine"}
    assert b.version_of("a") == a.version_of("a")


def test_a_hint_or_digest_of_more_than_we_wrote_makes_us_skip_ahead_too() -> None:
    a, _, wire = pair()
    wire.carry("a", a.set("k", b"mine", 0.0))
    a.receive(encode(News([], [], [Digest("a", 5, 3)])), "x", 0.0)
    assert a.generation == 6
    assert a.get("a", "k") == b"mine"


def test_claims_that_cannot_be_exceeded_change_nothing() -> None:
    a, _, wire = pair()
    wire.carry("a", a.set("k", b"mine", 0.0))
    a.receive(encode(News([], [], [Digest("a", 2**62, 3)])), "x", 0.0)
    a.receive(encode(News([Delta("a", 2**62, 0, 3, 0, [Entry("k", 3, b"theirs")])])), "x", 0.0)
    assert a.version_of("a") == (1, 1)
    assert dict(a.of("a")) == {"k": b"mine"}


def test_a_forgotten_owner_does_not_return_by_stale_gossip() -> None:
    a, b, c = (participant(name, settings=SHORT) for name in "abc")
    wire = Wire(a, b, c)
    wire.know_each_other()
    wire.carry("a", a.set("k", b"v", 0.0))
    wire.run(5.0)
    del wire.machines["a"]
    wire.carry("b", b.forget("a", wire.now))
    assert [change.value for change in wire.told["b"]] == [b"v", None]
    wire.run(90.0)
    assert c.get("a", "k") == b"v"
    assert "a" not in b.owners
    assert b.statistics().revenants > 0
    # Its time is over, and nobody told the other one: now it comes back.
    wire.run(30.0)
    assert b.get("a", "k") == b"v"


def test_when_all_forget_an_owner_it_stays_away() -> None:
    a, b, c = (participant(name, settings=SHORT) for name in "abc")
    wire = Wire(a, b, c)
    wire.know_each_other()
    wire.carry("a", a.set("k", b"v", 0.0))
    wire.run(5.0)
    del wire.machines["a"]
    for machine in (b, c):
        wire.carry(machine.name, machine.forget("a", wire.now))
        wire.run(3.0)
    wire.run(500.0)
    assert b.owners == c.owners == frozenset()
    assert b.statistics().forgotten_count == 0


def test_a_forgotten_owner_returns_with_its_next_generation() -> None:
    a, b, wire = pair()
    wire.carry("a", a.set("k", b"v", 0.0))
    wire.run(5.0)
    del wire.machines["a"]
    wire.carry("b", b.forget("a", wire.now))
    again = participant("a", generation=2, now=wire.now)
    replace(wire, again)
    wire.carry("a", again.set("k", b"again", wire.now))
    wire.run(5.0)
    assert b.get("a", "k") == b"again"
    assert b.statistics().forgotten_count == 0


@pytest.mark.parametrize("mode", [GossipMode.PUSH_PULL, GossipMode.MIXED])
def test_an_owner_that_was_forgotten_by_mistake_hears_of_it_and_returns(mode: GossipMode) -> None:
    a, b, wire = pair(GossipSettings(mode=mode))
    wire.carry("a", a.set("k", b"v", 0.0))
    wire.run(5.0)
    wire.carry("b", b.forget("a", wire.now))
    assert b.get("a", "k") is None
    wire.run(5.0)
    assert b.get("a", "k") == b"v"
    assert a.generation == 2


def test_what_is_still_a_rumour_can_be_forgotten() -> None:
    a, b, wire = pair()
    wire.carry("a", a.set("k", b"v", 0.0))
    assert b.statistics().hot_count == 1
    del wire.machines["a"]
    wire.carry("b", b.forget("a", 0.0))
    wire.run(5.0)
    assert (b.statistics().hot_count, b.owners) == (0, frozenset())


def test_forgetting_oneself_is_refused_and_forgetting_a_stranger_does_nothing() -> None:
    a = participant("a")
    with pytest.raises(InvalidRequest, match="delete keys"):
        a.forget("a", 0.0)
    assert a.forget("stranger", 0.0) == []
    assert a.statistics().forgotten_count == 0


def test_a_deletion_reaches_one_who_was_away_for_longer_than_it_is_remembered() -> None:
    a, b, c = (participant(name, settings=SHORT) for name in "abc")
    wire = Wire(a, b, c)
    wire.know_each_other()
    wire.carry("a", a.set("k", b"v", 0.0))
    wire.carry("a", a.set("stays", b"s", 0.0))
    wire.run(10.0)
    wire.loses = lambda sent: "c" in (sent.sender, sent.to)
    wire.carry("a", a.delete("k", wire.now))
    wire.run(200.0)
    assert c.get("a", "k") == b"v"
    assert a._state.mine.floor == b._state.table.replicas["a"].floor == 3
    wire.loses = lambda sent: False
    wire.run(10.0)
    assert [dict(machine.of("a")) for machine in (a, b, c)] == [{"stays": b"s"}] * 3
    assert wire.told["c"][-1].value is None


def test_names_and_generations_are_checked() -> None:
    for name, generation in (("", 1), ("x" * 129, 1), ("a", 0), ("a", 2**62)):
        with pytest.raises(InvalidRequest):
            participant(name, generation=generation)
