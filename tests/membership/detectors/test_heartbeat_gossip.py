"""Gossiped heartbeat counters: one peer by itself, told what it is told."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.detectors import (
    Beat,
    Detector,
    HeartbeatChange,
    HeartbeatChangeKind,
    HeartbeatGossip,
    HeartbeatSettings,
)
from quoracy.membership.detectors.heartbeat_messages import Row, packed, unpacked
from quoracy.membership.machine import Effect, Machine, SendPacket, Tell
from tests.support.profiles import examples

APPEARED, SUSPECTED = HeartbeatChangeKind.APPEARED, HeartbeatChangeKind.SUSPECTED
RECOVERED, RESTARTED = HeartbeatChangeKind.RECOVERED, HeartbeatChangeKind.RESTARTED
FORGOTTEN = HeartbeatChangeKind.FORGOTTEN


def gossip(*seeds: str, peers_max: int = 100, generation: int = 0) -> HeartbeatGossip:
    """Suspects after 10 s, forgets after 20 s."""
    peer = HeartbeatGossip(
        "me",
        rng=random.Random(5),
        seeds=seeds,
        settings=HeartbeatSettings(interval_s=1.0, fail_s=10.0, peers_max=peers_max),
        generation=generation,
    )
    peer.start(0.0)
    return peer


def table(*rows: tuple[str, int, int]) -> bytes:
    data, count = packed([Row(peer, Beat(*number)) for peer, *number in rows], 60_000)
    assert count == len(rows)
    return data


def told(effects: Sequence[Effect]) -> list[tuple[HeartbeatChangeKind, str]]:
    found = []
    for effect in effects:
        if isinstance(effect, Tell):
            assert isinstance(effect.event, HeartbeatChange)
            found.append((effect.event.kind, effect.event.peer))
    return found


def sent(effects: Sequence[Effect]) -> list[SendPacket]:
    return [effect for effect in effects if isinstance(effect, SendPacket)]


def test_it_is_a_machine_and_its_views_are_detectors() -> None:
    machine: Machine = gossip()
    detector: Detector = gossip().detector("a")
    assert machine.unreachable("a", 1.0) == []
    assert detector.threshold == 1.0


def test_the_life_of_a_peer_that_stops() -> None:
    me = gossip()
    assert told(me.receive(table(("a", 0, 5)), "a", 1.0)) == [(APPEARED, "a")]
    assert told(me.tick(10.9)) == []
    assert told(me.tick(11.0)) == [(SUSPECTED, "a")]
    assert (me.present, me.suspected) == ((), ("a",))
    assert told(me.tick(20.9)) == []
    assert told(me.tick(21.0)) == [(FORGOTTEN, "a")]
    assert me.grew_at("a") is None


@pytest.mark.parametrize("stale", [(0, 0), (0, 4), (0, 5)])
def test_a_stale_counter_neither_keeps_a_peer_alive_nor_brings_it_back(stale: tuple[int, int]) -> None:
    me = gossip()
    me.receive(table(("a", 0, 5)), "a", 1.0)
    effects: list[tuple[HeartbeatChangeKind, str]] = []
    for second in range(2, 21):
        effects += told(me.receive(table(("a", *stale)), "b", float(second)))
    assert effects == [(SUSPECTED, "a")]
    assert me.grew_at("a") == 1.0
    assert me.detector("a").is_suspected(20.0)


def test_growth_ends_a_suspicion() -> None:
    me = gossip()
    me.receive(table(("a", 0, 5)), "a", 1.0)
    assert told(me.receive(table(("a", 0, 6)), "b", 15.0)) == [(SUSPECTED, "a"), (RECOVERED, "a")]
    assert me.present == ("a",)
    assert told(me.tick(24.9)) == []
    assert told(me.tick(25.0)) == [(SUSPECTED, "a")]


def test_the_larger_of_two_counters_is_kept_in_any_order() -> None:
    orders = ([1, 2, 3], [3, 2, 1], [2, 3, 1])
    for order in orders:
        me = gossip("a")
        for counter in order:
            me.receive(table(("a", 0, counter)), "b", 1.0)
        [packet] = sent(me.tick(2.0))
        assert Row("a", Beat(0, 3)) in unpacked(packet.data, "me")


def test_a_restarted_peer_with_a_larger_generation_is_news_at_once() -> None:
    me = gossip()
    me.receive(table(("a", 7, 500)), "a", 1.0)
    assert told(me.receive(table(("a", 8, 0)), "a", 2.0)) == [(RESTARTED, "a")]
    assert told(me.receive(table(("a", 7, 999)), "b", 3.0)) == []  # the earlier life is over
    assert me.grew_at("a") == 2.0
    assert told(me.tick(12.0)) == [(SUSPECTED, "a")]
    assert told(me.receive(table(("a", 9, 0)), "a", 13.0)) == [(RESTARTED, "a")]
    assert me.present == ("a",)


def test_one_that_begins_too_low_skips_ahead_of_its_earlier_life() -> None:
    me = gossip("a", generation=2)
    me.receive(table(("me", 2, 40)), "a", 0.5)
    assert me.beat > Beat(2, 40)
    me.receive(table(("me", 1, 99)), "a", 0.6)
    me.receive(table(("me", 2, 41)), "a", 0.7)
    assert me.beat == Beat(3, 0)
    assert "me" not in me.present


def test_one_does_not_skip_beyond_what_can_be_sent() -> None:
    me = gossip("a")
    me.receive(table(("me", 2**53, 0), ("me", 2**53 - 1, 0)), "a", 0.5)
    assert me.beat == Beat(0, 0)


def test_the_own_counter_grows_with_each_interval_and_leads_each_table() -> None:
    me = gossip("a")
    counters = []
    for second in range(1, 6):
        [packet] = sent(me.tick(float(second)))
        row = unpacked(packet.data, "me")[0]
        assert (packet.to, row.peer) == ("a", "me")
        counters.append(row.beat.counter)
    assert counters == [1, 2, 3, 4, 5]


def test_a_tick_too_early_does_nothing() -> None:
    me = gossip("a")
    due = me.next_due
    assert 0 < due < 1
    assert me.tick(due - 1e-6) == []
    assert me.beat == Beat(0, 0)
    assert sent(me.tick(due))


def test_it_asks_to_be_called_when_a_verdict_falls() -> None:
    me = gossip()
    me.receive(table(("a", 0, 1)), "a", 1.25)
    dues: set[tuple[float, HeartbeatChangeKind, str]] = set()
    while me.next_due < 25:
        now = me.next_due
        dues.update((now, *change) for change in told(me.tick(now)))
    assert dues == {(11.25, SUSPECTED, "a"), (21.25, FORGOTTEN, "a")}


def test_missed_rounds_are_not_made_up_for() -> None:
    me = gossip("a")
    me.tick(1.0)
    assert len(sent(me.tick(600.0))) == 1
    assert me.tick(600.0) == []
    assert 600.0 < me.next_due <= 601.0


def test_a_suspected_peer_is_not_passed_on_but_is_tried_again() -> None:
    me = gossip()
    me.receive(table(("gone", 0, 1)), "gone", 0.0)
    me.receive(table(("here", 0, 1)), "here", 9.0)
    me.tick(10.0)
    targets: set[str] = set()
    for second in range(11, 19):
        for packet in sent(me.tick(float(second))):
            targets.add(packet.to)
            assert [row.peer for row in unpacked(packet.data, "me")] == ["me", "here"]
    assert targets == {"here", "gone"}


def test_a_forgotten_seed_is_tried_again_for_ever() -> None:
    me = gossip("seed")
    me.receive(table(("seed", 0, 1)), "seed", 0.5)
    me.receive(table(("a", 0, 1)), "a", 25.0)
    targets: set[str] = set()
    for second in range(26, 46):
        me.receive(table(("a", 0, second)), "a", float(second))
        targets.update(packet.to for packet in sent(me.tick(float(second))))
    assert targets == {"a", "seed"}


def test_a_full_table_refuses_newcomers_and_counts_them() -> None:
    me = gossip(peers_max=2)
    effects = me.receive(table(("a", 0, 1), ("b", 0, 1), ("c", 0, 1), ("d", 0, 1)), "a", 1.0)
    assert told(effects) == [(APPEARED, "a"), (APPEARED, "b")]
    assert me.statistics().refused_by_full_table == 2
    me.tick(11.0)
    me.receive(table(("c", 0, 2)), "c", 12.0)  # who is suspected still has its place
    assert me.statistics().peers == 2
    me.tick(21.0)
    assert told(me.receive(table(("c", 0, 3)), "c", 22.0)) == [(APPEARED, "c")]


def test_a_table_that_does_not_fit_goes_out_in_random_parts() -> None:
    me = gossip(peers_max=500)
    names = [f"10.1.{number // 250}.{number % 250}:7946" for number in range(400)]
    passed_on: set[str] = set()
    for second in range(1, 101):
        me.receive(table(*((name, 0, second) for name in names)), "x", float(second))
        for packet in sent(me.tick(float(second))):
            assert len(packet.data) <= 1_350
            rows = unpacked(packet.data, "me")
            assert len(rows) > 40
            assert len({row.peer for row in rows}) == len(rows)
            passed_on.update(row.peer for row in rows)
    assert passed_on == {"me", *names}


@given(
    st.integers(60, 2_000), st.lists(st.tuples(st.text(min_size=1, max_size=60), st.integers(0, 2**53)))
)
def test_a_packet_is_within_its_bound_and_has_the_first_that_fit(
    bytes_max: int, rows: list[tuple[str, int]]
) -> None:
    values = [Row(peer, Beat(counter, counter)) for peer, counter in rows]
    data, count = packed(values, bytes_max)
    assert len(data) <= bytes_max
    assert unpacked(data, "me") == values[:count]
    if count < len(values):
        more, _ = packed(values[: count + 1], 100_000)
        assert len(more) > bytes_max - 8  # but for the frame, as large as it can get


@given(
    st.binary(max_size=60),
    st.binary(max_size=3),
    st.integers(0, 60),
    st.integers(0, 3),
)
def test_a_damaged_table_is_taken_or_refused_but_nothing_else(
    garbage: bytes, inserted: bytes, at: int, removed: int
) -> None:
    intact = table(("a", 1, 70_000), ("b", 2**40, 3), ("me", 0, 1), ("c" * 20, 9, 9))
    for data in (intact[:at] + inserted + intact[at + removed :], intact[:at] + garbage):
        me = gossip("a")
        before = me.statistics(), me.next_due, me.beat
        try:
            me.receive(data, "a", 1.0)
        except ProtocolError:
            assert (me.statistics(), me.next_due, me.beat) == before
        else:
            assert me.statistics().packets_received == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x92\xa3\x00\x00\x80",  # a tag that is no text
        b"\x92\xa3hb1\x91\x92\xa1\xff\x92\x00\x01",  # an address that is none
        b"\x93\xa3hb1\x90" + b"\x91" * 100_000,  # deeper than anything can be decoded
        b"\x92\xa3hb1\xdd\xff\xff\xff\xff",  # four billion rows, it says
    ],
)
def test_garbage_with_a_purpose_is_refused(data: bytes) -> None:
    me = gossip("a")
    with pytest.raises(ProtocolError, match="no table of heartbeats"):
        me.receive(data, "a", 99.0)
    assert me.statistics().packets_received == 0


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_changes_nothing(data: bytes) -> None:
    me = gossip("a")
    before = me.statistics(), me.next_due, me.beat
    with pytest.raises(ProtocolError):
        me.receive(data, "a", 99.0)
    assert (me.statistics(), me.next_due, me.beat) == before


@pytest.mark.parametrize(
    "rows",
    [
        [["a", [0, -1]]],
        [["a", [0, 2**53 + 1]]],
        [["a", [2**60, 0]]],
        [["", [0, 1]]],
        [["x" * 256, [0, 1]]],
        [["ü" * 200, [0, 1]]],
        [["a", [0.5, 1]]],
        [["fine", [0, 1]], ["a", None]],
    ],
)
def test_rows_beyond_the_limits_are_refused_with_their_packet(rows: list[object]) -> None:
    me = gossip("a")
    with pytest.raises(ProtocolError):
        me.receive(msgspec.msgpack.encode(["hb1", rows]), "a", 1.0)
    assert me.statistics().peers == 0


def test_a_table_of_another_protocol_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no table of heartbeats"):
        gossip().receive(msgspec.msgpack.encode(["hb2", []]), "a", 1.0)


def test_a_reliable_message_is_refused() -> None:
    with pytest.raises(ProtocolError, match="datagrams"):
        gossip().receive_stream(b"", "a", 1.0)


def test_a_view_follows_the_table() -> None:
    me = gossip()
    view = me.detector("a")
    assert (view.level(5.0), view.suspected_at()) == (0, None)
    me.receive(table(("a", 0, 1)), "a", 5.0)
    assert (view.level(10.0), view.suspected_at()) == (0.5, 15.0)
    me.receive(table(("a", 0, 2)), "b", 10.0)
    assert (view.level(10.0), view.suspected_at()) == (0.0, 20.0)
    assert view.is_suspected(20.0)


def test_a_view_stays_suspicious_of_who_is_forgotten() -> None:
    me = gossip()
    me.receive(table(("a", 0, 1)), "a", 0.0)
    view = me.detector("a")
    levels = []
    for second in range(60):
        me.tick(float(second))
        levels.append(view.level(float(second)))
    assert me.grew_at("a") is None
    assert levels == sorted(levels)
    assert levels[-1] == 5.9


def test_what_is_heard_on_another_way_counts_in_its_view_only() -> None:
    me = gossip()
    me.receive(table(("a", 0, 1)), "a", 0.0)
    view, other = me.detector("a"), me.detector("a")
    view.heartbeat(8.0)
    assert (view.is_suspected(12.0), other.is_suspected(12.0)) == (False, True)
    assert told(me.tick(12.0)) == [(SUSPECTED, "a")]


def test_a_reset_view_waits_for_growth() -> None:
    me = gossip()
    me.receive(table(("a", 0, 1)), "a", 0.0)
    view = me.detector("a")
    view.reset()
    assert view.level(100.0) == 0
    me.receive(table(("a", 1, 0)), "a", 5.0)
    assert view.suspected_at() == 15.0


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.floats(0, 6),
            st.lists(
                st.tuples(st.sampled_from("abcdef"), st.integers(0, 2), st.integers(0, 30)), max_size=6
            ),
        ),
        max_size=40,
    )
)
def test_any_history_keeps_the_invariants(
    history: list[tuple[float, list[tuple[str, int, int]]]],
) -> None:
    me, now = gossip(peers_max=4), 0.0
    views = {name: me.detector(name) for name in "abcdef"}
    highest: dict[str, tuple[int, int]] = {}
    present: set[str] = set()
    for step, rows in history:
        now += step
        changes = told(me.receive(table(*rows), "x", now) + me.tick(now))
        for kind, name in changes:
            present.discard(name) if kind in (SUSPECTED, FORGOTTEN) else present.add(name)
            if kind is FORGOTTEN:
                highest.pop(name, None)
        for name, *number in rows:
            if name in me.present:
                highest[name] = max(highest.get(name, (0, 0)), (number[0], number[1]))
        assert set(me.present) == present
        assert len(present) + len(me.suspected) <= 4
        assert me.next_due > now
        for name in me.present:
            assert not views[name].is_suspected(now)
            assert views[name].level(now) == (now - (me.grew_at(name) or 0.0)) / 10.0
        for name in me.suspected:
            assert views[name].is_suspected(now)
    for packet in sent(me.tick(now + 1)):
        for row in unpacked(packet.data, "me")[1:]:
            assert row.beat == Beat(*highest[row.peer])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval_s", 0.0),
        ("interval_s", math.nan),
        ("fail_s", 1.0),
        ("fail_s", math.inf),
        ("packet_bytes_max", 500),
        ("peers_max", 0),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=name):
        msgspec.structs.replace(HeartbeatSettings(), **{name: value})


@pytest.mark.parametrize("address", ["", "x" * 256, "ü" * 128])
def test_an_address_has_a_length(address: str) -> None:
    for own, seeds in ((address, []), ("me", [address])):
        with pytest.raises(InvalidRequest, match="address"):
            HeartbeatGossip(own, rng=random.Random(1), seeds=seeds)


def test_a_generation_fits_a_packet() -> None:
    with pytest.raises(InvalidRequest, match="generation"):
        gossip(generation=2**53)


def test_more_seeds_than_places_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="peers_max"):
        gossip("a", "b", "c", peers_max=2)
