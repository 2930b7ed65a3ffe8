"""The whole machine: pauses, goodbyes, users' messages, and what is refused."""

from __future__ import annotations

import math
import random

import pytest

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Effect, SendPacket, Tell
from quoracy.membership.model import Member, MemberState, Message
from quoracy.membership.settings import META_BYTES_MAX, NAME_BYTES_MAX, SwimSettings
from quoracy.membership.swim import Swim
from quoracy.membership.swim.messages import Ack, Alive, Dead, Direct, Shout, Suspect, encode
from tests.membership.swim.hands import alive, changes, events, packet, packets, streams, swim


def until(machine: Swim, time: float) -> list[Effect]:
    effects: list[Effect] = []
    while machine.next_due <= time:
        effects += machine.tick(machine.next_due)
    return effects


def test_a_tick_that_comes_too_early_does_nothing() -> None:
    machine = swim("a", "b")
    due = machine.next_due
    assert machine.tick(due / 2) == []
    assert machine.next_due == due


def test_the_same_calls_with_the_same_luck_give_the_same() -> None:
    def life(seed: int) -> list[Effect]:
        machine = Swim("a", "a:1", rng=random.Random(seed), members=alive(*"bcdefgh"))
        effects = machine.start(0.0)
        machine.receive(packet(Suspect("b", 1, "c")), "c:1", 0.5)
        while machine.next_due < 30.0:
            effects += machine.tick(machine.next_due)
        return effects

    assert life(1) == life(1)
    assert life(1) != life(2)


# -- pauses -------------------------------------------------------------------------------------------


def test_one_that_was_stopped_gives_everyone_that_time() -> None:
    machine = swim("a", *"bcdef")
    until(machine, 0.0)
    machine.receive(
        packet(Suspect("b", 1, "c"), Suspect("b", 1, "d"), Suspect("b", 1, "e")), "c:1", 1.0
    )
    # Six present, confirmed by all who count: dead at 5.0 - but we are away from then on.
    until(machine, 4.999)
    assert machine.next_due == 5.0
    assert "b died" not in changes(machine.tick(20.0))
    assert machine.statistics().pauses == 1
    assert machine.health > 0
    effects = until(machine, 21.0)
    assert "b died" in changes(effects)


def test_a_pause_is_noticed_although_packets_are_read_first() -> None:
    machine = swim("a", *"bcdef")
    machine.receive(
        packet(Suspect("b", 1, "c"), Suspect("b", 1, "d"), Suspect("b", 1, "e")), "c:1", 1.0
    )
    until(machine, 4.999)
    machine.receive(packet(Ack(1)), "f:1", 20.0)
    assert "b died" not in changes(machine.tick(20.0))
    assert machine.statistics().pauses == 1


def test_a_confirmation_that_comes_late_is_no_pause() -> None:
    machine = swim("a", *"bcdef", stream_probe=False)
    machine.receive(packet(Suspect("b", 1, "c")), "c:1", 0.0)
    machine.receive(packet(Suspect("b", 1, "d")), "c:1", 0.0)
    # After all, a third: it should have been dead at 4.0.
    until(machine, 10.0)
    machine.receive(packet(Suspect("b", 1, "e")), "c:1", 10.0)
    assert machine.next_due == 10.0
    assert "b died" in changes(machine.tick(10.0))
    assert machine.statistics().pauses == 0


@pytest.mark.parametrize("minds_pauses", [True, False])
@pytest.mark.parametrize("stopped_after", [0.1, 0.5])  # before others were asked, and after
def test_answers_that_wait_after_a_pause_are_heard_before_anyone_is_blamed(
    stopped_after: float, minds_pauses: bool
) -> None:
    machine = swim("a", "b", minds_pauses=minds_pauses)
    now = machine.next_due
    machine.tick(now)
    until(machine, now + stopped_after)
    assert (changes(machine.tick(now + 9.0)) == []) == minds_pauses
    assert changes(until(machine, now + 9.2)) == []


# -- goodbye ------------------------------------------------------------------------------------------


def test_who_leaves_says_so_as_often_as_planned_and_then_has_left() -> None:
    machine = swim("a", "b", "c")
    effects = machine.leave(5.0)
    assert machine.me.state is MemberState.LEFT
    before = machine.has_left
    effects += until(machine, 10.0)
    said = [message for _, message in packets(effects) if message == Dead("a", 1, "a")]
    assert len(said) == 4
    assert (before, machine.has_left) == (False, True)
    assert machine.tick(11.0) == []  # what was handed out is not handed out again
    assert machine.next_due == math.inf  # no probes any more


def test_a_goodbye_is_not_wasted_on_the_dead() -> None:
    machine = swim("a", "b", "c", "d")
    machine.receive(packet(Dead("c", 1, "b"), Dead("d", 1, "b")), "b:1", 0.0)
    until(machine, 5.0)
    told = [
        to
        for to, message in packets(machine.leave(5.0) + until(machine, 9.0))
        if message == Dead("a", 1, "a")
    ]
    assert told == ["b:1"] * 4


def test_who_leaves_alone_has_left_at_once() -> None:
    machine = swim("a")
    machine.leave(0.0)
    assert machine.has_left


def test_leaving_twice_is_leaving_once() -> None:
    machine = swim("a", "b")
    machine.leave(0.0)
    until(machine, 5.0)
    assert machine.leave(6.0) == []
    assert machine.has_left


def test_who_has_left_neither_joins_nor_speaks() -> None:
    machine = swim("a", "b")
    machine.leave(0.0)
    with pytest.raises(InvalidRequest, match="has left"):
        machine.join(["b:1"], 1.0)
    with pytest.raises(InvalidRequest, match="has left"):
        machine.update_meta(b"x", 1.0)
    with pytest.raises(InvalidRequest, match="has left"):
        machine.broadcast(b"x", 1.0)


# -- metadata and messages ----------------------------------------------------------------------------


def test_new_metadata_is_a_new_incarnation_and_news() -> None:
    machine = swim("a", "b")
    machine.update_meta(b"v2", 0.0)
    assert machine.me == Member("a", "a:1", 2, meta=b"v2")
    assert ("b:1", Alive("a", "a:1", 2, b"v2")) in packets(until(machine, 1.0))
    machine.update_meta(b"v2", 1.0)
    assert machine.incarnation == 2


def test_a_message_to_one_goes_as_a_datagram_if_it_fits() -> None:
    machine = swim("a", "b")
    assert packets(machine.send("b", b"hello", 0.0)) == [("b:1", Direct("a", b"hello"))]
    large = b"x" * 2_000
    assert streams(machine.send("b", large, 0.0)) == [("b:1", Direct("a", large))]
    heard = swim("b", "a")
    for effects in (
        heard.receive(packet(Direct("a", b"hello")), "a:1", 0.0),
        heard.receive_stream(encode(Direct("a", b"hello")), "a:1", 0.0),
    ):
        assert effects == [Tell(Message("a", b"hello", is_broadcast=False))]


def test_the_largest_message_that_goes_as_a_datagram_fits_exactly() -> None:
    machine = swim("a", "b")
    sizes = set()
    for size in range(1_300, 1_400):
        (effect,) = machine.send("b", b"x" * size, 0.0)
        if isinstance(effect, SendPacket):
            sizes.add(len(effect.data))
    assert max(sizes) <= 1_350
    assert max(sizes) >= 1_345


def test_nothing_is_sent_to_one_who_is_not_here() -> None:
    machine = swim("a", "b")
    machine.receive(packet(Dead("b", 1, "c")), "c:1", 0.0)
    for name in ("b", "unknown"):
        with pytest.raises(InvalidRequest, match=f"no member '{name}'"):
            machine.send(name, b"", 0.0)


def test_a_broadcast_is_told_once_and_passed_on() -> None:
    machine = swim("b", "a", "c")
    shout = packet(Shout("a", 7, b"fire"))
    assert events(machine.receive(shout, "a:1", 0.0), Message) == [Message("a", b"fire", True)]
    assert machine.receive(shout, "c:1", 0.1) == []
    sent = [message for _, message in packets(until(machine, 5.0)) if isinstance(message, Shout)]
    assert sent == [Shout("a", 7, b"fire")] * 4
    assert machine.receive(shout, "c:1", 9.0) == []


def test_our_own_broadcast_does_not_come_back_to_us() -> None:
    machine = swim("a", "b")
    machine.broadcast(b"fire", 0.0)
    ((_, shout),) = {(to, m) for to, m in packets(until(machine, 0.1)) if isinstance(m, Shout)}
    assert machine.receive(packet(shout), "b:1", 0.2) == []


def test_two_broadcasts_are_two_even_if_they_say_the_same() -> None:
    a, b = swim("a", "b"), swim("b", "a")
    a.broadcast(b"again", 0.0)
    a.broadcast(b"again", 0.0)
    heard = []
    for effect in until(a, 0.5):
        if isinstance(effect, SendPacket):
            heard += events(b.receive(effect.data, "a:1", 0.6), Message)
    assert len(heard) == 2


def test_a_broadcast_that_is_larger_than_a_packet_is_refused() -> None:
    machine = swim("a", "b")
    with pytest.raises(InvalidRequest, match="must fit into one packet"):
        machine.broadcast(b"x" * 1_350, 0.0)
    assert machine.statistics().news_waiting == 0


def test_a_broadcast_that_would_never_fit_is_told_but_not_kept() -> None:
    machine = swim("a", "b")
    effects = machine.receive(packet(Shout("b", 1, b"x" * 5_000)), "b:1", 0.0)
    assert len(events(effects, Message)) == 1
    assert machine.statistics().news_waiting == 0


def test_only_so_many_broadcasts_are_remembered() -> None:
    machine = swim("a", "b", updates_max=10)
    for number in range(5_000):
        machine.receive(packet(Shout("b", number, b"x")), "b:1", 0.0)
    assert len(machine._shouts_heard) == 4_096
    statistics = machine.statistics()
    assert (statistics.news_waiting, statistics.news_dropped) == (10, 4_990)


def test_updates_beyond_the_bound_are_dropped_and_counted() -> None:
    machine = swim("a", "b", updates_max=5)
    for number in range(8):
        machine.receive(packet(Alive(f"m{number}", f"m{number}:1", 1, b"")), "b:1", 0.0)
    statistics = machine.statistics()
    assert (statistics.news_waiting, statistics.news_dropped) == (5, 3)
    assert len(machine.members) == 10


def test_a_packet_is_never_larger_than_allowed() -> None:
    machine = swim("a", *(f"m{number}" for number in range(40)), packet_bytes_max=960)
    rng = random.Random(1)
    for number in range(100):
        name = f"{number}".ljust(rng.randint(4, NAME_BYTES_MAX), "n")
        meta = bytes(rng.randint(0, META_BYTES_MAX))
        machine.receive(packet(Alive(name, "h" * rng.randint(1, 270), 1, meta)), "b:1", 0.0)
        machine.receive(packet(Shout("b", number, bytes(rng.randint(0, 900)))), "b:1", 0.0)
    sizes = [len(effect.data) for effect in until(machine, 300.0) if isinstance(effect, SendPacket)]
    assert max(sizes) <= 960
    assert max(sizes) > 900
    assert machine.statistics().news_waiting == 0  # and all of it went out


def test_the_recently_dead_are_told_that_they_are() -> None:
    machine = swim("a", "b", "c", retransmit_mult=10)
    machine.receive(packet(Dead("b", 1, "c"), Alive("d", "d:1", 1, b"")), "c:1", 0.0)
    told = {message for _, message in packets(until(machine, 5.0), "b:1")}
    assert told == {Dead("b", 1, "a")}  # only of itself
    until(machine, 35.0)
    machine.update_meta(b"more news", 35.0)
    assert packets(until(machine, 40.0), "b:1") == []


def test_gossip_rests_when_there_is_no_news() -> None:
    machine = swim("a", "b", "c", "d", stream_probe=False)
    effects = until(machine, 0.9)
    assert len(packets(effects)) <= 4  # a ping, and requests to helpers
    assert machine.next_due > 0.5


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "n" * 129, "ö" * 65])
def test_a_name_has_its_bounds(name: str) -> None:
    with pytest.raises(InvalidRequest, match="name has 1 to 128 bytes"):
        Swim(name, "a:1", rng=random.Random(1))


def test_an_address_and_metadata_have_their_bounds() -> None:
    with pytest.raises(InvalidRequest, match="address"):
        Swim("a", "", rng=random.Random(1))
    with pytest.raises(InvalidRequest, match="metadata has at most 512 bytes"):
        Swim("a", "a:1", rng=random.Random(1), meta=bytes(513))
    machine = swim("a", "b")
    with pytest.raises(InvalidRequest, match="metadata has at most 512 bytes"):
        machine.update_meta(bytes(513), 0.0)
    assert machine.incarnation == 1


@pytest.mark.parametrize(
    "setting",
    [
        {"probe_interval_s": 0},
        {"probe_timeout_s": 1.0},
        {"packet_bytes_max": 800},
        {"helpers": -1},
        {"gossip_interval_s": math.inf},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(setting))):
        SwimSettings(**setting)  # type: ignore[arg-type]


def test_without_lifeguard_nothing_of_it_is_left() -> None:
    plain = SwimSettings().without_lifeguard()
    machine = Swim("a", "a:1", rng=random.Random(1), settings=plain, members=alive(*"bcdefg"))
    machine.start(0.0)
    machine.receive(packet(Suspect("a", 1, "b"), Suspect("b", 1, "c")), "c:1", 0.0)
    assert machine.health == 0
    # Suspected for the shortest time at once: 7 present, 4 s.
    assert "b died" not in changes(until(machine, 3.99))
    assert "b died" in changes(until(machine, 4.01))
