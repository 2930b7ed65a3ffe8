"""What goes over the wire, and what it leads to."""

from __future__ import annotations

import math

import pytest

from quoracy.membership.gossip import Gossip, GossipMode, GossipSettings
from quoracy.membership.gossip.messages import Delta, Digest, Digests, Entry, News, Parts, Sync, encode
from tests.membership.gossip.wire import Wire, participant

EXCHANGES = [GossipMode.PULL, GossipMode.PUSH_PULL]


def knowing(name: str, owners_count: int, settings: GossipSettings, newest: str = "1") -> Gossip:
    """One that knows so many owners, the first of which wrote `newest`."""
    gossip = participant(name, settings=settings)
    for number in range(owners_count):
        version, value = (2, newest.encode()) if number == 0 and newest != "1" else (1, b"1")
        delta = Delta(f"owner {number}", 1, 0, version, 0, [Entry("k", version, value)])
        gossip.receive(encode(News([delta])), "", 0.0)
    Wire(gossip).run(3_600.0)
    return gossip


@pytest.mark.parametrize("owners_count", [0, 3, 1_000])
def test_an_exchange_between_equals_is_one_small_packet(owners_count: int) -> None:
    settings = GossipSettings(mode=GossipMode.PUSH_PULL)
    a, b = (knowing(name, owners_count, settings) for name in "ab")
    assert len(a.owners) == owners_count
    assert a.root == b.root
    wire = Wire(a, b)
    wire.now = 3_600.0
    a.set_peers(["b"])
    wire.run(0.5)
    [sent] = wire.sent
    assert isinstance(sent.message, Sync)
    assert len(sent.data) < 24


def test_one_difference_among_a_thousand_owners_costs_few_packets() -> None:
    settings = GossipSettings(mode=GossipMode.PUSH_PULL)
    a, b = knowing("a", 1_000, settings), knowing("b", 1_000, settings, newest="2")
    assert a.root != b.root
    wire = Wire(a, b)
    wire.now = 3_600.0
    a.set_peers(["b"])
    wire.run(0.5)
    assert [type(sent.message) for sent in wire.sent] == [Sync, Parts, Digests, News]
    assert max(len(sent.data) for sent in wire.sent) <= settings.packet_bytes_max
    digests = wire.sent[2].message
    assert isinstance(digests, Digests)
    assert len(digests.digests) < 20
    assert a.get("owner 0", "k") == b"2"
    assert a.root == b.root


@pytest.mark.parametrize("mode", EXCHANGES)
def test_the_one_who_asks_learns_what_the_other_knows(mode: GossipMode) -> None:
    a, b = (participant(name, settings=GossipSettings(mode=mode)) for name in "ab")
    b.set("k", b"b's", 0.0)
    wire = Wire(a, b)
    a.set_peers(["b"])
    wire.run(0.5)
    assert a.get("b", "k") == b"b's"
    [change] = wire.told["a"]
    assert (change.owner, change.key, change.value) == ("b", "k", b"b's")


@pytest.mark.parametrize("mode", EXCHANGES)
def test_only_push_pull_teaches_the_one_who_was_asked(mode: GossipMode) -> None:
    a, b = (participant(name, settings=GossipSettings(mode=mode)) for name in "ab")
    a.set("k", b"a's", 0.0)
    wire = Wire(a, b)
    a.set_peers(["b"])
    wire.run(5.0)
    assert b.get("a", "k") == (b"a's" if mode is GossipMode.PUSH_PULL else None)


def test_push_sends_news_unasked_for_as_long_as_it_is_hot_and_then_is_silent() -> None:
    settings = GossipSettings(mode=GossipMode.PUSH, push_fanout=2, push_mult=3)
    machines = [participant(name, settings=settings) for name in "abcdefgh"]
    wire = Wire(*machines)
    wire.know_each_other()
    wire.carry("a", machines[0].set("k", b"v", 0.0))
    wire.run(60.0)
    assert [machine.get("a", "k") for machine in machines] == [b"v"] * 8
    # 3 * ceil(log10(9)) times to two peers each.
    assert len(wire.sent) == 8 * 3 * 2
    assert {type(sent.message) for sent in wire.sent} == {News}
    assert [machine.next_due for machine in machines] == [math.inf] * 8


def test_a_rumour_with_a_gap_makes_the_hearer_ask() -> None:
    settings = GossipSettings(mode=GossipMode.PUSH, push_mult=1, push_fanout=1)
    a, b = (participant(name, settings=settings) for name in "ab")
    wire = Wire(a, b)
    wire.know_each_other()
    wire.loses = lambda sent: True
    wire.carry("a", a.set("first", b"1", 0.0))
    wire.run(10.0)
    wire.loses = lambda sent: False
    wire.carry("a", a.set("second", b"2", wire.now))
    wire.run(1.0)
    assert dict(b.of("a")) == {"first": b"1", "second": b"2"}
    assert b.statistics().gaps == 1
    assert [change.key for change in wire.told["b"]] == ["first", "second"]  # in the owner's order


def test_what_many_offer_at_once_is_asked_of_one_and_later_of_another() -> None:
    a = participant("a")
    hint = encode(News([], [], [Digest("owner", 1, 5)]))
    asked = [len(a.receive(hint, peer, now)) for now in (0.0, 0.1, 0.3) for peer in "bcd"]
    assert asked == [1, 0, 0, 0, 0, 0, 1, 0, 0]
    more = encode(News([], [], [Digest("owner", 1, 6)]))
    assert len(a.receive(more, "b", 0.3)) == 1


@pytest.mark.parametrize("mode", [GossipMode.PUSH, GossipMode.MIXED, *EXCHANGES])
def test_values_that_no_datagram_holds_go_as_a_reliable_message_once(mode: GossipMode) -> None:
    settings = GossipSettings(mode=mode)
    a, b = (participant(name, settings=settings) for name in "ab")
    wire = Wire(a, b)
    wire.know_each_other()
    wire.carry("a", a.set("k", bytes(8_000), 0.0))
    wire.run(30.0)
    assert b.get("a", "k") == bytes(8_000)
    assert len([sent for sent in wire.sent if sent.is_stream]) == 1
    assert all(sent.is_stream or len(sent.data) <= settings.packet_bytes_max for sent in wire.sent)


def test_moderately_much_goes_in_several_packets_and_more_as_one_message() -> None:
    for keys_count, streams in ((30, 0), (200, 1)):
        a, b = (participant(name, settings=GossipSettings(mode=GossipMode.PULL)) for name in "ab")
        for number in range(keys_count):
            b.set(f"key {number}", bytes(100), 0.0)
        wire = Wire(a, b)
        a.set_peers(["b"])
        wire.run(0.5)
        assert a.of("b") == b.of("b")
        assert sum(sent.is_stream for sent in wire.sent) == streams
        news = [sent for sent in wire.sent if isinstance(sent.message, News)]
        assert len(news) == (1 if streams else 3)


def test_a_newcomer_gets_everything_in_its_first_exchange() -> None:
    settings = GossipSettings(mode=GossipMode.MIXED)
    old, new = knowing("old", 500, settings), participant("new", settings=settings, now=3_600.0)
    wire = Wire(old, new)
    wire.now = 3_600.0
    new.set_peers(["old"])
    assert new.next_due <= wire.now
    wire.run(0.0)
    assert new.owners == old.owners
    assert len([sent for sent in wire.sent if sent.is_stream]) == 1


def test_one_who_knows_much_and_asks_one_who_knows_little_sends_one_packet_of_digests() -> None:
    settings = GossipSettings(mode=GossipMode.PUSH_PULL)
    old, new = knowing("old", 1_000, settings), participant("new", settings=settings, now=3_600.0)
    wire = Wire(old, new)
    wire.now = 3_600.0
    old.set_peers(["new"])
    wire.run(0.5)
    [digests] = [sent for sent in wire.sent if isinstance(sent.message, Digests)]
    assert not digests.is_stream
    assert 20 < len(new.owners) < 1_000
    wire.run(120.0)
    assert new.root == old.root


def test_a_burst_of_writes_is_one_packet_for_each_round() -> None:
    a = participant("a", settings=GossipSettings(mode=GossipMode.PUSH, push_fanout=1))
    a.set_peers(["b"])
    effects = [effect for number in range(50) for effect in a.set(f"{number}", b"v", 0.0)]
    assert len(effects) == 1
    assert a.next_due == pytest.approx(0.2)


def test_writing_the_same_again_and_deleting_nothing_say_nothing() -> None:
    a = participant("a")
    a.set("k", b"v", 0.0)
    version = a.version_of("a")
    a.set("k", b"v", 1.0)
    a.delete("no such key", 1.0)
    assert a.version_of("a") == version == (1, 1)


def test_participants_with_other_numbers_of_parts_understand_each_other() -> None:
    a = knowing("a", 100, GossipSettings(mode=GossipMode.PUSH_PULL, buckets=256))
    b = knowing("b", 100, GossipSettings(mode=GossipMode.PUSH_PULL, buckets=64), newest="2")
    for asking, asked in ((a, b), (b, a)):
        wire = Wire(a, b)
        wire.now = 3_700.0
        asking.set_peers([asked.name])
        wire.run(1.1)
        assert a.root == b.root
        asked.set("k", asking.name.encode(), wire.now)
        wire.run(1.1)
        assert asking.get(asked.name, "k") == asking.name.encode()


def test_differences_that_the_short_hashes_of_parts_hide_are_found_in_the_end() -> None:
    settings = GossipSettings(mode=GossipMode.PUSH_PULL, buckets=4, owners_max=1_000)
    a, b = knowing("a", 100, settings), knowing("b", 100, settings, newest="2")
    wire = Wire(a, b)
    wire.now = 3_600.0
    same = Parts(a._state.table.sums(4))  # as if b's hashes of parts were those of a
    a.set_peers(["b"])
    rounds = 0
    while a.root != b.root and rounds < 100:
        wire.carry("a", a.receive(encode(same), "b", wire.now))
        rounds += 1
    assert a.root == b.root
