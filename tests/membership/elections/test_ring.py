"""Both elections on a ring, token by token."""

from __future__ import annotations

import random

import msgspec
import pytest

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.elections import (
    CollectingRing,
    LeaderLost,
    LossReason,
    Ring,
    RingSettings,
)
from quoracy.membership.elections.messages import (
    Announcement,
    Candidacy,
    Collection,
    HopAck,
    RingMessage,
    Token,
    ring_codec,
)
from quoracy.membership.elections.ring import HOPS_WAITING_MAX, RingLink
from quoracy.membership.machine import Effect, SendStream
from tests.membership.elections.table import Table

RING = ["c", "a", "d", "b"]
KINDS = (Ring, CollectingRing)
each_kind = pytest.mark.parametrize("kind", KINDS)


def a_table(kind: type[Ring], ring: list[str] = RING, *, refuses: bool = True) -> Table:
    return Table([kind(name, ring, rng=random.Random(name)) for name in ring], refuses=refuses)


def everyone(table: Table, leader: str) -> bool:
    return set(table.leaders.values()) == {leader} and len(table.terms) == 1


def tokens(effects: object) -> list[RingMessage]:
    assert isinstance(effects, list)
    sent = [ring_codec.decode(e.data) for e in effects if isinstance(e, SendStream)]
    return [message for message in sent if not isinstance(message, HopAck)]


@each_kind
def test_the_highest_leads_when_all_begin_at_once(kind: type[Ring]) -> None:
    table = a_table(kind)
    table.start()
    table.run(0.5)
    assert everyone(table, "d")


@each_kind
def test_the_highest_leads_whoever_begins(kind: type[Ring]) -> None:
    for first in RING:
        table = a_table(kind)
        table.start(first)
        table.run(0.5)
        assert everyone(table, "d"), first


@each_kind
def test_a_priority_comes_before_the_name(kind: type[Ring]) -> None:
    peers = [kind(name, RING, rng=random.Random(name), priorities={"a": 1}) for name in RING]
    table = Table(peers)
    table.start()
    table.run(0.5)
    assert everyone(table, "a")


@each_kind
@pytest.mark.parametrize("refuses", [True, False])
def test_dead_successors_are_skipped(kind: type[Ring], *, refuses: bool) -> None:
    table = a_table(kind, refuses=refuses)
    table.dead |= {"a", "d"}
    table.start("c", "b")
    table.run(3.0)
    assert everyone(table, "c")
    assert table.peers["c"].skipped == {"a", "d"}  # type: ignore[attr-defined]


@each_kind
def test_a_peer_that_is_alone_leads_itself(kind: type[Ring]) -> None:
    table = a_table(kind)
    table.dead |= {"a", "c", "d"}
    table.start("b")
    table.run(10.0)
    assert table.leaders == {"b": "b"}
    only = Table([kind("x", ["x"], rng=random.Random(1))])
    only.start()
    only.run(20.0)
    assert only.leaders == {"x": "x"}
    assert only.sent["stream"] == 0


@each_kind
def test_a_silent_leader_is_replaced(kind: type[Ring]) -> None:
    table = a_table(kind)
    table.start()
    table.run(2.0)
    table.dead.add("d")
    table.run(12.0)
    assert everyone(table, "c")
    assert LossReason.SILENT in {e.reason for _, e in table.events if isinstance(e, LeaderLost)}


@each_kind
def test_a_suspicion_replaces_the_leader_at_once(kind: type[Ring]) -> None:
    table = a_table(kind)
    table.start()
    table.run(2.0)
    table.dead.add("d")
    table.do("a", table.peers["a"].suspect("d", table.now))
    table.run(2.5)
    assert everyone(table, "c")


@each_kind
def test_a_higher_one_that_comes_up_takes_over(kind: type[Ring]) -> None:
    table = a_table(kind)
    table.dead.add("d")
    table.start("a", "b", "c")
    table.run(3.0)
    assert everyone(table, "c")
    table.dead.clear()
    table.start("d")
    table.run(3.5)
    assert everyone(table, "d")


@each_kind
def test_a_lower_one_that_comes_up_follows_without_a_new_term(kind: type[Ring]) -> None:
    table = a_table(kind)
    table.dead.add("a")
    table.start("b", "c", "d")
    table.run(3.0)
    (term,) = table.terms
    table.dead.clear()
    table.start("a")
    table.run(4.5)
    assert everyone(table, "d")
    assert table.terms == {term}


@each_kind
def test_two_halves_become_one_ring_again(kind: type[Ring]) -> None:
    table = a_table(kind)
    side = {"a", "b"}
    table.drops = lambda sender, to, _: (sender in side) != (to in side)
    table.start()
    table.run(9.0)
    assert table.leaders == {"a": "b", "b": "b", "c": "d", "d": "d"}  # two leaders, as it says
    side.clear()
    table.run(25.0)
    assert everyone(table, "d")


@each_kind
def test_a_lost_token_is_begun_again(kind: type[Ring]) -> None:
    table = a_table(kind)

    def drops(_sender: str, _to: str, data: bytes) -> bool:
        # Nobody notices (see below): as if the next one had taken the token, and died with it.
        return isinstance(ring_codec.decode(data), Candidacy | Collection) and table.now < 3.0

    table.drops = drops
    for peer in table.peers.values():
        peer._link._hop_timeout_s = 99.0  # type: ignore[attr-defined]
    table.start()
    table.run(3.0)
    assert set(table.leaders.values()) == {None}
    table.run(6.0)
    assert everyone(table, "d")


def test_chang_and_roberts_pass_on_only_what_outranks_them() -> None:
    ring = Ring("c", RING, rng=random.Random(1))
    ring.start(0.0)
    higher = ring.receive_stream(ring_codec.encode(Candidacy(1, "d", 7, 1, 3)), "b", 0.0)
    (passed,) = tokens(higher)
    assert isinstance(passed, Candidacy)
    assert (passed.origin, passed.hops, passed.term_seen) == ("d", 2, 3)
    lower = ring.receive_stream(ring_codec.encode(Candidacy(2, "a", 8, 1, 0)), "b", 0.0)
    assert tokens(lower) == [], "its own candidacy is under way already"


def test_chang_and_roberts_take_the_fewest_and_the_most_hops_that_the_paper_says() -> None:
    def hops(ring: list[str]) -> int:
        table = a_table(Ring, ring)
        table.start()
        # Each hop is acknowledged; the round of the announcement is not part of the election.
        assert everyone(table, max(ring))
        return table.sent["stream"] // 2 - len(ring)

    rising = [f"p{number}" for number in range(9)]
    assert hops(rising) == 2 * 9 - 1
    assert hops(rising[::-1]) == 9 * 10 // 2


def test_the_collecting_variant_takes_two_rounds_for_one_that_begins() -> None:
    table = a_table(CollectingRing)
    table.start("a")
    # A round to collect, one to announce, and the first heartbeat of the new leader.
    assert table.sent["stream"] == 2 * 3 * len(RING)


@each_kind
def test_a_token_whose_owner_is_gone_ends(kind: type[Ring]) -> None:
    table = a_table(kind)
    table.start()
    table.run(2.0)
    table.dead.add("d")
    orphan: Candidacy | Collection = Candidacy(1, "d", 99, 1, 0)
    if kind is CollectingRing:
        orphan = Collection(1, "d", 99, ("d",), 0)
    table.do("b", table.peers["b"].receive_stream(ring_codec.encode(orphan), "d", table.now))
    before = table.sent["stream"]
    table.run(2.9)
    assert table.sent["stream"] == before
    table.run(14.0)
    assert everyone(table, "c")


@each_kind
def test_no_token_passes_twice_and_each_arrival_is_acknowledged(kind: type[Ring]) -> None:
    ring = kind("a", RING, rng=random.Random(1))
    ring.start(0.0)
    news = ring_codec.encode(Announcement(5, "d", 1, 3, "d", 2))
    assert len(tokens(ring.receive_stream(news, "c", 0.0))) == 1
    again = ring.receive_stream(news, "c", 0.0)
    assert again == [SendStream("c", ring_codec.encode(HopAck(5)))]


@each_kind
def test_a_token_of_ours_from_an_election_that_is_over_elects_nobody(kind: type[Ring]) -> None:
    ring = kind("d", RING, rng=random.Random(1))
    (mine,) = tokens(ring.start(0.0))
    assert isinstance(mine, Candidacy | Collection)
    old = msgspec.structs.replace(mine, nonce=mine.nonce ^ 1)
    ring.receive_stream(ring_codec.encode(old), "a", 0.1)
    assert ring.leader is None
    ring.receive_stream(ring_codec.encode(mine), "a", 0.1)
    assert ring.term == 1
    ring.receive_stream(ring_codec.encode(mine), "a", 0.1)
    assert ring.term == 1, "it comes home once"


def test_a_token_that_was_everywhere_goes_no_further() -> None:
    ring = Ring("c", RING, rng=random.Random(1))
    ring.start(0.0)
    assert tokens(ring.receive(ring_codec.encode(Candidacy(1, "d", 7, 3, 0)), "b", 0.0))
    assert not tokens(ring.receive(ring_codec.encode(Candidacy(2, "d", 8, 4, 0)), "b", 0.0))
    collecting = CollectingRing("c", RING, rng=random.Random(1))
    collecting.start(0.0)
    for nonce, peers, goes_on in ((7, ("d", "b"), True), (8, ("d", "b", "c", "a"), False)):
        token = Collection(1, "d", nonce, peers, 0)
        assert bool(tokens(collecting.receive(ring_codec.encode(token), "b", 0.0))) is goes_on


@each_kind
def test_a_leader_answers_a_newcomer_soon_and_a_crowd_of_them_once(kind: type[Ring]) -> None:
    ring = kind("d", RING, rng=random.Random(1))
    (mine,) = tokens(ring.start(0.0))
    ring.receive_stream(ring_codec.encode(mine), "a", 0.0)
    assert ring.is_leader
    for nonce, name in enumerate("abc"):
        newcomer: Candidacy | Collection = Candidacy(1, name, nonce, 1, 1)
        if kind is CollectingRing:
            newcomer = Collection(1, name, nonce, (name,), 1)
        assert not tokens(ring.receive_stream(ring_codec.encode(newcomer), "a", 0.1))
    for hop in (1, 2):  # the candidacy and the announcement
        ring.receive_stream(ring_codec.encode(HopAck(hop)), "b", 0.1)
    (beat,) = tokens(ring.tick(0.5))
    assert isinstance(beat, Announcement)
    assert (beat.leader, beat.term) == ("d", 1)
    assert tokens(ring.tick(0.6)) == []


@each_kind
def test_nobody_follows_one_that_it_outranks(kind: type[Ring]) -> None:
    ring = kind("c", RING, rng=random.Random(1))
    ring.start(0.0)
    ring.receive_stream(ring_codec.encode(Announcement(5, "d", 1, 1, "d", 4)), "b", 0.0)
    news = ring_codec.encode(Announcement(6, "b", 2, 1, "b", 5))
    passed_on, objection = tokens(ring.receive_stream(news, "b", 0.0))
    assert isinstance(passed_on, Announcement)
    assert isinstance(objection, Candidacy | Collection)
    assert (objection.origin, objection.term_seen) == ("c", 5)
    assert ring.leader == "d"


@each_kind
def test_a_leader_that_hears_of_a_newer_term_of_a_lower_one_stops_leading(kind: type[Ring]) -> None:
    ring = kind("d", RING, rng=random.Random(1))
    ring.start(0.0)
    ring.receive_stream(ring_codec.encode(Announcement(5, "c", 1, 1, "d", 4)), "a", 0.0)
    assert ring.is_leader
    ring.receive_stream(ring_codec.encode(Announcement(6, "c", 2, 1, "c", 5)), "a", 0.0)
    assert ring.leader is None


@each_kind
def test_a_leader_whose_heartbeat_does_not_come_home_holds_an_election(kind: type[Ring]) -> None:
    ring = kind("d", RING, rng=random.Random(1))
    begun = []

    def acknowledge(effects: list[Effect], now: float) -> None:
        """The next one takes every token; what comes after it is not our concern."""
        for effect in effects:
            message = ring_codec.decode(effect.data) if isinstance(effect, SendStream) else None
            if isinstance(effect, SendStream) and isinstance(message, Token):
                ring.receive_stream(ring_codec.encode(HopAck(message.hop)), effect.to, now)

    acknowledge(ring.start(0.0), 0.0)
    news = ring_codec.encode(Announcement(5, "c", 1, 1, "d", 4))
    acknowledge(ring.receive_stream(news, "a", 0.0), 0.0)
    while ring.next_due < 7.0:
        sent = ring.tick(now := ring.next_due)
        begun += [token for token in tokens(sent) if not isinstance(token, Announcement)]
        acknowledge(sent, now)
    assert len(begun) == 1
    assert ring.is_leader


@each_kind
def test_an_old_announcement_changes_nothing_and_goes_no_further(kind: type[Ring]) -> None:
    ring = kind("a", RING, rng=random.Random(1))
    ring.start(0.0)
    ring.receive_stream(ring_codec.encode(Announcement(5, "c", 1, 1, "c", 4)), "c", 0.0)
    old = ring.receive_stream(ring_codec.encode(Announcement(6, "d", 2, 3, "d", 3)), "c", 0.0)
    assert tokens(old) == []
    assert (ring.leader, ring.term) == ("c", 4)


def test_the_announced_leader_of_a_collection_learns_it_and_leads() -> None:
    ring = CollectingRing("d", RING, rng=random.Random(1))
    ring.start(0.0)
    ring.receive_stream(ring_codec.encode(Announcement(5, "c", 1, 2, "d", 4)), "a", 0.0)
    assert (ring.leader, ring.term, ring.is_leader) == ("d", 4, True)


def test_a_link_remembers_a_bounded_number_of_tokens() -> None:
    link = RingLink("a", ["a", "b"], hop_timeout_s=1.0, hello_interval_s=1.0)
    for nonce in range(HOPS_WAITING_MAX + 50):
        link.send(Candidacy(0, "a", nonce, 1, 0), 0.0)
    link.skip("b", 0.5)
    assert len(link.take_returned()) == HOPS_WAITING_MAX


def test_an_acknowledgement_by_another_is_none() -> None:
    link = RingLink("a", ["a", "b", "c"], hop_timeout_s=1.0, hello_interval_s=1.0)
    link.send(Candidacy(0, "a", 1, 1, 0), 0.0)
    link.acknowledged(HopAck(1), "c")
    assert link.next_due == 1.0
    link.acknowledged(HopAck(1), "b")
    assert link.next_due > 1.0


@each_kind
@pytest.mark.parametrize(
    ("message", "sender"),
    [
        (Announcement(1, "x", 1, 1, "a", 1), "b"),
        (Announcement(1, "a", 1, 1, "x", 1), "b"),
        (Collection(1, "a", 1, ("a", "x"), 1), "b"),
        (Collection(1, "a", 1, ("b", "a"), 1), "b"),
        (Collection(1, "a", 1, ("a", "b", "b"), 1), "b"),
        (Candidacy(1, "x", 1, 1, 1), "b"),
        (HopAck(1), "x"),
        (HopAck(1), "c"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: type[Ring], message: RingMessage, sender: str) -> None:
    ring = kind("c", RING, rng=random.Random(1))
    ring.start(0.0)
    with pytest.raises(ProtocolError):
        ring.receive_stream(ring_codec.encode(message), sender, 0.0)


def test_the_tokens_of_the_other_variant_are_refused() -> None:
    ring, collecting = (kind("c", RING, rng=random.Random(1)) for kind in KINDS)
    ring.start(0.0)
    collecting.start(0.0)
    with pytest.raises(ProtocolError, match="other variant"):
        ring.receive(ring_codec.encode(Collection(1, "a", 1, ("a",), 1)), "a", 0.0)
    with pytest.raises(ProtocolError, match="other variant"):
        collecting.receive(ring_codec.encode(Candidacy(1, "a", 1, 1, 1)), "a", 0.0)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="election_timeout_s"):
        RingSettings(election_timeout_s=0.5)
    with pytest.raises(InvalidRequest, match="leader_timeout_s"):
        RingSettings(leader_timeout_s=1.0)
    with pytest.raises(InvalidRequest, match="more than 0"):
        RingSettings(hop_timeout_s=-1.0)
    with pytest.raises(InvalidRequest, match="stranger"):
        Ring("c", RING, rng=random.Random(1)).suspect("stranger", 0.0)
