"""Probes: one at a time, first directly, then through others, then an accusation."""

from __future__ import annotations

import pytest

from quoracy.membership.machine import Effect
from quoracy.membership.model import MemberState
from quoracy.membership.swim import Swim
from quoracy.membership.swim.messages import Ack, Alive, Dead, Nack, Ping, PingRequest, Suspect, encode
from tests.membership.swim.hands import address, changes, packet, packets, streams, swim


def first_probe(machine: Swim) -> tuple[float, str, Ping]:
    """When it begins, whom it is for, and the ping."""
    now = machine.next_due
    ((to, ping),) = [each for each in packets(machine.tick(now)) if isinstance(each[1], Ping)]
    assert isinstance(ping, Ping)
    return now, to, ping


def until(machine: Swim, time: float) -> list[Effect]:
    """Tick whenever it is due, up to a time."""
    effects: list[Effect] = []
    while machine.next_due <= time:
        effects += machine.tick(machine.next_due)
    return effects


def test_a_probe_begins_within_the_first_interval() -> None:
    starts = {swim(f"m{number}", "b", now=100.0).next_due for number in range(20)}
    assert all(100.0 <= at <= 101.0 for at in starts)
    assert len(starts) == 20  # not in step


def test_an_answer_ends_a_probe_and_the_next_waits_for_its_time() -> None:
    machine = swim("a", "b")
    now, to, ping = first_probe(machine)
    assert (to, ping.target, ping.source) == ("b:1", "b", "a")
    machine.receive(packet(Ack(ping.seq)), to, now + 0.01)
    assert machine.rtt_s("b") == pytest.approx(0.01)
    assert machine.next_due == pytest.approx(now + 1.0)
    assert machine.members["b"].state is MemberState.ALIVE
    assert machine.statistics().probes_failed == 0


def test_an_answer_to_another_question_changes_nothing() -> None:
    machine = swim("a", "b")
    now, to, ping = first_probe(machine)
    machine.receive(packet(Ack(ping.seq + 1)), to, now + 0.01)
    assert machine.next_due == pytest.approx(now + 0.3)


def test_without_an_answer_others_are_asked_and_a_stream_is_tried_beside_that() -> None:
    machine = swim("a", "b", "c", "d", "e", "f")
    now, to, ping = first_probe(machine)
    assert machine.next_due == pytest.approx(now + 0.3)
    effects = machine.tick(machine.next_due)
    asked = {where: message for where, message in packets(effects) if isinstance(message, PingRequest)}
    assert len(asked) == 3
    assert to not in asked
    assert set(asked.values()) == {PingRequest(ping.seq, ping.target, to, wants_nack=True)}
    assert streams(effects) == [(to, ping)]


@pytest.mark.parametrize("by_stream", [False, True])
def test_one_that_others_reach_or_a_stream_is_alive(by_stream: bool) -> None:
    machine = swim("a", "b", "c")
    now, to, ping = first_probe(machine)
    machine.tick(machine.next_due)
    if by_stream:
        machine.receive_stream(encode(Ack(ping.seq)), to, now + 0.5)
    else:
        machine.receive(packet(Ack(ping.seq)), "c:1", now + 0.5)
    until(machine, now + 0.99)
    assert machine.members[ping.target].state is MemberState.ALIVE
    assert machine.rtt_s(ping.target) is None  # not that of a direct answer
    assert machine.statistics().streams_only == (1 if by_stream else 0)


def test_one_that_nobody_reaches_is_suspected_when_the_interval_is_over() -> None:
    machine = swim("a", "b", "c", "d", "e", "f", nacks=False)
    now, _, ping = first_probe(machine)
    assert changes(until(machine, now + 0.99)) == []
    effects = machine.tick(now + 1.0)
    assert changes(effects) == [f"{ping.target} suspected"]
    statistics = machine.statistics()
    assert (statistics.probes_failed, statistics.suspicions) == (1, 1)


def test_when_all_who_could_know_have_failed_there_is_nothing_to_wait_for() -> None:
    machine = swim("a", "b", "c", "d", "e", "f")
    now, to, ping = first_probe(machine)
    helpers = [
        where
        for where, message in packets(machine.tick(machine.next_due))
        if isinstance(message, PingRequest)
    ]
    for helper in helpers:
        assert changes(machine.receive(packet(Nack(ping.seq)), helper, now + 0.6)) == []
    assert changes(machine.unreachable(to, now + 0.65)) == [f"{ping.target} suspected"]
    assert machine.health == 0  # they all reach us


# -- how well we are ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("nacks", "score"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_a_failed_probe_counts_as_many_as_helpers_were_silent(nacks: int, score: int) -> None:
    machine = swim("a", "b", "c", "d", "e", "f")
    now, _, ping = first_probe(machine)
    helpers = [
        where
        for where, message in packets(machine.tick(machine.next_due))
        if isinstance(message, PingRequest)
    ]
    for helper in helpers[:nacks]:
        machine.receive(packet(Nack(ping.seq)), helper, now + 0.6)
    until(machine, now + 1.0)
    assert machine.health == score


def test_a_failed_probe_counts_one_where_nobody_can_help() -> None:
    machine = swim("a", "b")
    now, _, _ = first_probe(machine)
    until(machine, now + 1.0)
    assert machine.health == 1


def test_an_answered_probe_makes_well() -> None:
    machine = swim("a", "b")
    now, to, ping = first_probe(machine)
    machine.receive(packet(Suspect("a", 1, "b")), "b:1", now)
    assert machine.health == 1
    machine.receive(packet(Ack(ping.seq)), to, now + 0.01)
    assert machine.health == 0


def test_doubt_stretches_the_interval_but_not_the_timeout() -> None:
    machine = swim("a", "b", "c")
    for number in range(1, 4):
        machine.receive(packet(Suspect("a", number, "b")), "b:1", 0.0)
    assert machine.health == 3
    until(machine, 0.0)
    probes = machine.statistics().probes
    while machine.statistics().probes == probes:
        now = machine.next_due
        effects = machine.tick(now)
    ((_, ping),) = [each for each in packets(effects) if isinstance(each[1], Ping)]
    assert isinstance(ping, Ping)
    asked = until(machine, now + 0.31)
    assert any(isinstance(message, PingRequest) for _, message in packets(asked))
    until(machine, now + 3.99)
    assert machine.members[ping.target].state is MemberState.ALIVE
    until(machine, now + 4.01)
    assert machine.members[ping.target].state is MemberState.SUSPECT


# -- the buddy ----------------------------------------------------------------------------------------


def test_a_suspect_that_is_probed_is_told_that_it_is_suspected() -> None:
    machine = swim("a", "b", retransmit_mult=1)
    machine.receive(packet(Suspect("b", 1, "c")), "c:1", 0.0)
    until(machine, 0.0)  # the news went out: what follows is not it
    effects = until(machine, 1.0)
    to_b = [message for _, message in packets(effects, "b:1")]
    assert isinstance(to_b[0], Ping)
    assert Suspect("b", 1, "a") in to_b


def test_without_the_buddy_it_is_not() -> None:
    machine = swim("a", "b", retransmit_mult=1, buddy=False)
    machine.receive(packet(Suspect("b", 1, "c")), "c:1", 0.0)
    until(machine, 0.0)
    assert Suspect("b", 1, "a") not in [message for _, message in packets(until(machine, 1.0))]


@pytest.mark.parametrize(("accuser", "word"), [("c", Dead("b", 1, "a")), ("b", Dead("b", 1, "a"))])
def test_one_who_is_gone_for_us_and_pings_us_learns_it(accuser: str, word: Dead) -> None:
    machine = swim("a", "b", "c", retransmit_mult=1)
    machine.receive(packet(Dead("b", 1, accuser)), "c:1", 0.0)
    answer = [message for _, message in packets(machine.receive(packet(Ping(9, "a", "b")), "b:1", 0.1))]
    assert answer[0] == Ack(9)
    assert word in answer


# -- for others ---------------------------------------------------------------------------------------


def test_only_the_one_who_is_meant_answers() -> None:
    machine = swim("a", "b")
    assert packets(machine.receive(packet(Ping(3, "a", "b")), "b:1", 0.0)) == [("b:1", Ack(3))]
    assert machine.receive(packet(Ping(3, "x", "b")), "b:1", 0.0) == []
    assert streams(machine.receive_stream(encode(Ping(4, "a", "b")), "b:1", 0.0)) == [("b:1", Ack(4))]
    assert machine.receive_stream(encode(Ping(4, "x", "b")), "b:1", 0.0) == []


def relayed(machine: Swim, request: PingRequest, now: float) -> Ping:
    ((to, ping),) = packets(machine.receive(packet(request), "b:1", now))
    assert to == request.address
    assert isinstance(ping, Ping)
    return ping


def test_a_helper_passes_the_answer_on_with_the_number_of_who_asked() -> None:
    machine = swim("a", "b", "c")
    ping = relayed(machine, PingRequest(77, "c", "c:1", wants_nack=True), 10.0)
    assert (ping.target, ping.source) == ("c", "a")
    assert packets(machine.receive(packet(Ack(ping.seq)), "c:1", 10.1)) == [("b:1", Ack(77))]
    # Once.
    assert machine.receive(packet(Ack(ping.seq)), "c:1", 10.2) == []
    later = packets(until(machine, 12.0), "b:1")
    assert not [message for _, message in later if isinstance(message, Nack)]


def test_a_helper_without_an_answer_says_so_after_its_own_timeout() -> None:
    machine = swim("a", "b", "c")
    until(machine, 1.0)
    ping = relayed(machine, PingRequest(77, "c", "c:1", wants_nack=True), 1.0)
    before = packets(until(machine, 1.29), "b:1")
    after = packets(until(machine, 1.31), "b:1")
    assert ("b:1", Nack(77)) not in before
    assert ("b:1", Nack(77)) in after
    # An answer that comes after all is worth passing on.
    late = packets(machine.receive(packet(Ack(ping.seq)), "c:1", 1.4))
    assert ("b:1", Ack(77)) in late


def test_a_helper_that_is_not_asked_for_a_nack_sends_none() -> None:
    machine = swim("a", "b", "c")
    relayed(machine, PingRequest(77, "c", "c:1", wants_nack=False), 0.0)
    assert ("b:1", Nack(77)) not in packets(until(machine, 5.0), "b:1")


def test_only_so_many_probes_are_run_for_others() -> None:
    machine = swim("a", "b", "c")
    sent = 0
    for number in range(1_500):
        sent += len(packets(machine.receive(packet(PingRequest(number, "c", "c:1", True)), "b:1", 0.0)))
    assert sent == 1_024
    # Later there is room again.
    assert packets(machine.receive(packet(PingRequest(1, "c", "c:1", True)), "b:1", 5.0)) == []
    until(machine, 5.0)
    assert (
        len(packets(machine.receive(packet(PingRequest(1, "c", "c:1", True)), "b:1", 5.0), "c:1")) > 0
    )


def test_round_trips_are_kept_of_those_who_are_known() -> None:
    machine = swim("a", "b", forget_s=5.0)
    now, to, ping = first_probe(machine)
    machine.receive(packet(Ack(ping.seq)), to, now + 0.01)
    machine.receive(packet(Dead("b", 1, "b")), "b:1", now + 0.02)
    machine.receive(packet(Alive("c", address("c"), 1, b""), Alive("d", address("d"), 1, b"")), to, 6.0)
    for _ in range(200):
        now = machine.next_due
        for where, message in packets(machine.tick(now)):
            if isinstance(message, Ping):
                machine.receive(packet(Ack(message.seq)), where, now + 0.01)
        if now > 20.0:
            break
    assert "b" not in machine.members
    assert machine.rtt_s("c") is not None
    machine.receive(packet(Dead("c", 1, "c"), Dead("d", 1, "d")), to, now)
    machine.receive(packet(Alive("e", address("e"), 1, b"")), to, now)
    for _ in range(60):
        now = machine.next_due
        for where, message in packets(machine.tick(now)):
            if isinstance(message, Ping):
                machine.receive(packet(Ack(message.seq)), where, now + 0.01)
    assert [machine.rtt_s(name) for name in "bcd"] == [None, None, None]
    assert machine.rtt_s("e") == pytest.approx(0.01)
