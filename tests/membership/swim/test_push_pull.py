"""Joining, comparing whole tables, and contacting the dead."""

from __future__ import annotations

import itertools
import random
from collections import deque

from quoracy.membership.machine import Effect, SendPacket, SendStream
from quoracy.membership.model import JoinAnswered, Member, MemberState
from quoracy.membership.settings import SwimSettings
from quoracy.membership.swim import Swim
from quoracy.membership.swim.member_table import bucket_of
from quoracy.membership.swim.messages import (
    Ack,
    Alive,
    Dead,
    Join,
    PacketMessage,
    Ping,
    StreamMessage,
    Suspect,
    SyncBuckets,
    SyncRecords,
    SyncRoot,
    Welcome,
    encode,
)
from tests.membership.swim.hands import address, alive, changes, events, packet, packets, streams, swim


def converse(machines: dict[str, Swim], effects: list[Effect], sender: str, now: float) -> list[str]:
    """Deliver every stream, and what it brings about, until all is said; what kinds there were."""
    said: list[str] = []
    waiting = deque((sender, effect) for effect in effects)
    while waiting:
        source, effect = waiting.popleft()
        if isinstance(effect, SendStream) and effect.to in machines:
            said.append(type(streams([effect])[0][1]).__name__)
            target = machines[effect.to]
            for each in target.receive_stream(effect.data, source, now):
                waiting.append((effect.to, each))
        else:
            assert not isinstance(effect, SendPacket) or effect.data
    return said


def pair(one: list[Member], other: list[Member]) -> dict[str, Swim]:
    return {
        address(name): Swim(name, address(name), rng=random.Random(name), members=members)
        for name, members in (("a", one), ("b", other))
    }


def compare(machines: dict[str, Swim]) -> list[str]:
    asked = SyncRoot(machines["a:1"]._states.table.root)
    return converse(machines, [SendStream("b:1", encode(asked))], "a:1", 1.0)


def test_who_joins_and_who_takes_in_know_the_same_afterwards() -> None:
    machines = pair(alive("x", "y"), alive("y", "z"))
    a, b = machines.values()
    said = converse(machines, a.join(["b:1"], 0.0), "a:1", 0.0)
    assert said == ["Join", "Welcome"]
    assert sorted(a.members) == sorted(b.members) == ["a", "b", "x", "y", "z"]


def test_a_join_is_answered_and_that_is_told() -> None:
    a, b = swim("a"), swim("b", "c")
    ((to, join),) = streams(a.join(["b:1", "a:1"], 0.0))  # not to itself
    assert (to, type(join)) == ("b:1", Join)
    answer = b.receive_stream(encode(join), "a:1", 0.1)
    assert changes(answer) == ["a joined"]
    ((_, welcome),) = streams(answer)
    assert isinstance(welcome, Welcome)
    effects = a.receive_stream(encode(welcome), "b:1", 0.2)
    assert events(effects, JoinAnswered) == [JoinAnswered("b:1", 3)]
    assert sorted(changes(effects)) == ["b joined", "c joined"]


def test_the_one_who_takes_in_passes_the_newcomer_on() -> None:
    b = swim("b", "c")
    b.receive_stream(encode(Join([])), "x:1", 0.0)
    assert b.statistics().news_waiting == 0
    ((_, join),) = streams(swim("a").join(["b:1"], 0.0))
    b.receive_stream(encode(join), "a:1", 0.0)
    assert b.statistics().news_waiting == 1


def test_one_that_was_restarted_beats_its_old_incarnation_as_it_joins() -> None:
    for old in (
        Member("a", "a:1", 7),
        Member("a", "a:1", 7, MemberState.SUSPECT),
        Member("a", "a:1", 7, MemberState.DEAD),
        Member("a", "a:1", 7, MemberState.LEFT),
    ):
        b = swim("b", "c")
        b.receive(packet(*_history(old)), "c:1", 0.0)
        assert b.members["a"] == old
        a = swim("a")
        machines = {"a:1": a, "b:1": b}
        converse(machines, a.join(["b:1"], 1.0), "a:1", 1.0)
        assert a.incarnation == 8
        for effect in a.tick(a.next_due):
            if isinstance(effect, SendPacket) and effect.to == "b:1":
                b.receive(effect.data, "a:1", 1.5)
        assert b.members["a"] == Member("a", "a:1", 8)


def _history(member: Member) -> list[PacketMessage]:
    words: list[PacketMessage] = [Alive(member.name, member.address, member.incarnation, member.meta)]
    if member.state is MemberState.SUSPECT:
        words.append(Suspect(member.name, member.incarnation, "c"))
    elif member.state is MemberState.DEAD:
        words.append(Dead(member.name, member.incarnation, "c"))
    elif member.state is MemberState.LEFT:
        words.append(Dead(member.name, member.incarnation, member.name))
    return words


def test_equal_tables_cost_one_message() -> None:
    members = alive("a", "b", "c", "d")
    machines = pair(members, members)
    assert compare(machines) == ["SyncRoot"]
    assert len(streams(machines["a:1"].start(0.0))) == 0


def test_tables_that_differ_exchange_only_the_parts_that_do() -> None:
    many = alive("a", "b", *(f"m{number}" for number in range(200)))
    machines = pair([*many, *alive("only a")], [*many, *alive("only b")])
    a, b = machines.values()
    assert compare(machines) == ["SyncRoot", "SyncBuckets", "SyncRecords", "SyncRecords"]
    assert dict(a.members) == dict(b.members)
    assert {"only a", "only b"} <= set(a.members)
    assert b.statistics().differences == 1
    assert compare(machines) == ["SyncRoot"]


def test_only_records_of_the_parts_that_differ_are_sent() -> None:
    many = [f"m{number}" for number in range(500)]
    a = swim("a", *many)
    b = swim("b", *many, "new")
    digests = b._states.table.digests
    ((_, records),) = streams(a.receive_stream(encode(SyncBuckets(digests)), "b:1", 0.0))
    assert isinstance(records, SyncRecords)
    # a does not know b, b does not know a, and there is one more.
    assert set(records.buckets) == {bucket_of("a"), bucket_of("b"), bucket_of("new")}
    assert {bucket_of(record.name) for record in records.records} <= set(records.buckets)
    assert len(records.records) < 30


def test_a_higher_incarnation_is_a_difference() -> None:
    machines = pair(alive("a", "b", "c"), [*alive("a", "b"), *alive("c", incarnation=2)])
    assert len(compare(machines)) > 1
    assert machines["a:1"].members["c"].incarnation == 2


def syncs(machine: Swim, seconds: float) -> list[tuple[float, str, StreamMessage]]:
    """Comparisons that it begins, while all its probes are answered."""
    found: list[tuple[float, str, StreamMessage]] = []
    while machine.next_due <= seconds:
        now = machine.next_due
        effects = machine.tick(now)
        found += [
            (now, to, message) for to, message in streams(effects) if isinstance(message, SyncRoot)
        ]
        for to, message in packets(effects):
            if isinstance(message, Ping):
                machine.receive(packet(Ack(message.seq)), to, now)
    return found


def test_tables_are_compared_now_and_then() -> None:
    machine = swim("a", "b")
    times = [now for now, _, _ in syncs(machine, 300.0)]
    assert 9 <= len(times) <= 11
    assert all(abs(later - now - 30.0) < 1e-6 for now, later in itertools.pairwise(times))


def test_the_dead_are_asked_whether_they_are_back_and_those_who_left_are_not() -> None:
    for accuser, is_asked in (("c", True), ("b", False)):
        machine = swim("a", "b")
        machine.receive(packet(Dead("b", 1, accuser)), "c:1", 0.0)
        asked = [to for _, to, _ in syncs(machine, 100.0)]
        assert (asked.count("b:1") >= 5) == is_asked


def test_one_that_was_dead_for_us_comes_back_by_being_called() -> None:
    machines = {name: swim(name[0], "c", "b" if name == "a:1" else "a") for name in ("a:1", "b:1")}
    a, b = machines.values()
    a.receive(packet(Dead("b", 1, "c")), "c:1", 0.0)
    assert a.members["b"].state is MemberState.DEAD
    ((now, to, call), *_) = syncs(a, 60.0)
    assert to == "b:1"
    converse(machines, [SendStream(to, encode(call))], "a:1", now)
    assert b.incarnation == 2  # it knows what is said of it
    converse(machines, [SendStream(to, encode(call))], "a:1", now + 10.0)
    assert a.members["b"] == Member("b", "b:1", 2)


def test_larger_clusters_compare_less_often() -> None:
    small, large = (
        Swim(
            "a",
            "a:1",
            rng=random.Random(1),
            settings=SwimSettings(stream_probe=False),
            members=alive(*(f"m{number}" for number in range(size))),
        )._push_pull._sync_interval_s()
        for size in (10, 1023)
    )
    assert (small, large) == (30.0, 30.0 * 6)
