"""Bully, message by message."""

from __future__ import annotations

import random

import pytest

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.elections import Bully, BullySettings, LeaderElected, LeaderLost, LossReason
from quoracy.membership.elections.messages import Answer, Coordinator, Election, bully_codec
from quoracy.membership.machine import SendPacket, SendStream, Tell
from quoracy.membership.simulator import Network, Uniform, World
from tests.membership.elections.table import Table

NAMES = ["a", "b", "c", "d"]


def a_bully(name: str, priorities: dict[str, int] | None = None) -> Bully:
    return Bully(name, NAMES, rng=random.Random(name), priorities=priorities)


def a_table(*, refuses: bool = True, priorities: dict[str, int] | None = None) -> Table:
    return Table([a_bully(name, priorities) for name in NAMES], refuses=refuses)


def everyone(table: Table, leader: str) -> bool:
    return set(table.leaders.values()) == {leader} and len(table.terms) == 1


def test_the_highest_leads_from_the_start() -> None:
    table = a_table()
    table.start()
    assert everyone(table, "d")
    assert table.peers["d"].is_leader
    assert not table.peers["c"].is_leader


def test_a_priority_comes_before_the_name() -> None:
    table = a_table(priorities={"b": 5, "c": 5, "d": -1})
    table.start()
    assert everyone(table, "c")


def test_a_silent_leader_is_replaced_by_the_next() -> None:
    table = a_table(refuses=False)
    table.start()
    table.dead.add("d")
    table.run(1.9)
    assert everyone(table, "d")
    table.run(5.0)
    assert everyone(table, "c")
    assert ("a", LeaderLost("d", 1, LossReason.SILENT)) in table.events
    assert table.terms == {2}


def test_a_suspicion_replaces_the_leader_without_waiting_for_its_silence() -> None:
    table = a_table()
    table.start()
    table.dead.add("d")
    for name in ("a", "b", "c"):
        table.do(name, table.peers[name].suspect("d", table.now), deliver=False)
    table.deliver()
    assert everyone(table, "c")
    assert ("c", LeaderLost("d", 1, LossReason.SUSPECTED)) in table.events


def test_one_wrong_suspicion_leaves_the_leader_where_it_is() -> None:
    table = a_table()
    table.start()
    table.do("a", table.peers["a"].suspect("d", table.now))
    assert everyone(table, "d")
    assert table.terms == {1}


def test_a_suspect_that_is_heard_is_waited_for_again() -> None:
    bully = a_bully("c")
    bully.start(0.0)
    bully.suspect("d", 0.0)
    assert bully.is_leader, "nobody else is higher"
    bully.receive(bully_codec.encode(Coordinator(2)), "d", 0.1)
    assert bully.leader == "d"
    bully.tick(bully.next_due)  # d is silent
    assert bully.leader is None, "its answer is waited for"


def test_one_right_suspicion_is_enough() -> None:
    table = a_table()
    table.start()
    table.dead.add("d")
    table.do("a", table.peers["a"].suspect("d", table.now))
    table.run(1.6)  # before the others would miss it
    assert everyone(table, "c")


def test_an_election_takes_about_as_many_messages_as_pairs_of_peers() -> None:
    names = [f"p{number:02d}" for number in range(20)]
    world = World(seed=3, network=Network(latency=Uniform(0.001, 0.02)))
    for name in names:
        world.add(
            name,
            Bully(name, names, rng=world.rng(name)),
            factory=lambda rng, name=name: Bully(name, names, rng=rng),  # type: ignore[misc]
        )

    def streams(until: float) -> int:
        before = world.counters().streams_sent
        world.run(until)
        leaders = {world.machine(name).leader for name in world.up}  # type: ignore[attr-defined]
        assert leaders == {max(world.up)}
        return world.counters().streams_sent - before

    assert streams(10.0) <= len(names) ** 2
    assert streams(20.0) == 0
    world.crash(names[0])
    world.restart(names[0], at=20.1)
    assert streams(30.0) <= 3 * len(names), "one that comes up disturbs nobody"
    world.crash(names[-1])
    assert streams(40.0) <= len(names) ** 2


def test_a_higher_one_that_comes_up_takes_over() -> None:
    table = a_table()
    table.dead.add("d")
    table.start("a", "b", "c")
    assert everyone(table, "c")
    table.dead.clear()
    table.start("d")
    assert everyone(table, "d")


def test_a_leader_of_an_old_term_learns_the_new_one_and_bullies_back() -> None:
    table = a_table()
    table.start()
    cut = {"d"}
    table.drops = lambda sender, to, _: (sender in cut) != (to in cut)
    table.run(5.0)
    assert table.leaders == {"a": "c", "b": "c", "c": "c", "d": "d"}  # two leaders, as it says
    cut.clear()
    table.run(8.0)
    assert everyone(table, "d")
    assert ("d", LeaderLost("d", 1, LossReason.SUPERSEDED)) in table.events
    assert table.terms == {3}


def test_an_old_announcement_that_arrives_late_is_ignored() -> None:
    bully = a_bully("a")
    bully.start(0.0)
    bully.receive(bully_codec.encode(Coordinator(5)), "c", 0.0)
    assert bully.receive(bully_codec.encode(Coordinator(4)), "d", 0.0) == []
    assert (bully.leader, bully.term) == ("c", 5)


def test_of_two_announcements_of_one_term_the_higher_rank_wins_in_any_order() -> None:
    for order in (["b", "c"], ["c", "b"]):
        bully = a_bully("a")
        bully.start(0.0)
        for sender in order:
            bully.receive(bully_codec.encode(Coordinator(5)), sender, 0.0)
        assert (bully.leader, bully.term) == ("c", 5)


def test_nobody_follows_one_that_it_outranks() -> None:
    bully = a_bully("c")
    bully.start(0.0)
    bully.receive(bully_codec.encode(Coordinator(1)), "d", 0.0)
    asked = bully.receive(bully_codec.encode(Coordinator(7)), "b", 0.0)
    assert [effect.to for effect in asked if isinstance(effect, SendStream)] == ["d"]
    assert bully.leader == "d"
    told = bully.tick(bully.next_due)  # d does not answer
    assert told[:2] == [
        Tell(LeaderLost("d", 1, LossReason.SUPERSEDED)),
        Tell(LeaderElected("c", 8)),
    ]


def test_an_answer_is_waited_for_and_then_the_question_asked_again() -> None:
    bully = a_bully("c")
    bully.start(0.0)
    bully.receive_stream(bully_codec.encode(Answer(1, 0)), "d", 0.1)
    assert bully.next_due == pytest.approx(1.6)
    assert bully.tick(1.5) == []
    again = bully.tick(1.6)
    assert again == [SendStream("d", bully_codec.encode(Election(2, 0)))]
    late = bully.receive_stream(bully_codec.encode(Answer(1, 0)), "d", 1.7)
    assert late == []
    assert bully.next_due == pytest.approx(2.1), "an answer to the first question is none to the second"
    bully.tick(2.1)
    assert bully.is_leader


def test_a_leader_that_is_asked_by_one_who_knows_a_newer_term_announces_a_newer_one() -> None:
    bully = a_bully("d")
    bully.start(0.0)
    assert bully.term == 1
    bully.receive_stream(bully_codec.encode(Election(1, 9)), "a", 0.1)
    assert (bully.leader, bully.term) == ("d", 10)


def test_a_leader_beats_on_and_only_the_leader_does() -> None:
    table = a_table()
    table.start()
    table.sent.clear()
    table.run(10.0)
    assert table.sent["stream"] == 0
    assert 3 * 19 <= table.sent["packet"] <= 3 * 21


def test_a_term_from_an_earlier_life_is_not_used_again() -> None:
    bully = Bully("d", NAMES, rng=random.Random(1), term=41)
    bully.start(0.0)
    assert bully.term == 42


@pytest.mark.parametrize(
    ("message", "sender"),
    [
        (Election(1, 0), "d"),  # only lower ones ask
        (Answer(1, 0), "a"),  # only higher ones answer
        (Coordinator(1), "stranger"),
        (Coordinator(1), "b"),  # ourselves
    ],
)
def test_what_makes_no_sense_is_refused(message: Election | Answer | Coordinator, sender: str) -> None:
    bully = a_bully("b")
    bully.start(0.0)
    with pytest.raises(ProtocolError):
        bully.receive(bully_codec.encode(message), sender, 0.0)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="coordinator_timeout_s"):
        BullySettings(answer_timeout_s=2.0)
    with pytest.raises(InvalidRequest, match="leader_timeout_s"):
        BullySettings(heartbeat_interval_s=1.5)
    with pytest.raises(InvalidRequest, match="more than 0"):
        BullySettings(answer_timeout_s=0.0)
    with pytest.raises(InvalidRequest, match="stranger"):
        a_bully("b").suspect("stranger", 0.0)


def test_heartbeats_are_datagrams_and_elections_are_reliable() -> None:
    bully = a_bully("c")
    assert all(isinstance(effect, SendStream) for effect in bully.start(0.0))
    effects = bully.tick(bully.next_due)
    assert {type(effect) for effect in effects} == {Tell, SendStream, SendPacket}
    assert {type(effect) for effect in bully.tick(bully.next_due)} == {SendPacket}
