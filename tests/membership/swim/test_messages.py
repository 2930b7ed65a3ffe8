"""Bytes from anywhere: they are messages, or they are refused and change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.membership.model import INCARNATION_MAX, Member, MemberState
from quoracy.membership.swim import Swim
from quoracy.membership.swim.messages import (
    BUCKETS,
    Ack,
    Alive,
    Dead,
    Direct,
    Join,
    Nack,
    PacketMessage,
    Ping,
    PingRequest,
    Shout,
    StreamMessage,
    Suspect,
    SyncBuckets,
    SyncRecords,
    SyncRoot,
    Welcome,
    compose,
    decode_packet,
    decode_stream,
    encode,
)
from tests.membership.swim.hands import packet, swim
from tests.support.profiles import examples

PACKET_MESSAGES: tuple[PacketMessage, ...] = (
    Ping(1, "a", "b"),
    Ack(2),
    Nack(3),
    PingRequest(4, "c", "c:1", wants_nack=True),
    Alive("b", "b:1", 5, b"meta"),
    Suspect("b", 6, "c"),
    Suspect("a", 6, "c"),
    Dead("c", 7, "b"),
    Dead("b", 7, "b"),
    Direct("b", b"hello"),
    Shout("b", 8, b"everyone"),
)
STREAM_MESSAGES: tuple[StreamMessage, ...] = (
    Ping(1, "a", "b"),
    Ack(2),
    Direct("b", b"hello" * 1000),
    Join([Member("b", "b:1", 2, MemberState.ALIVE, b"")]),
    Welcome(
        [Member("a", "a:1", 9, MemberState.DEAD, b""), Member("d", "d:1", 1, MemberState.LEFT, b"")]
    ),
    SyncRoot(2**62),
    SyncBuckets(bytes(8 * BUCKETS)),
    SyncRecords([0, 255], [Member("c", "c:1", 3, MemberState.SUSPECT, b"m")], wants_answer=True),
)


@pytest.mark.parametrize("message", PACKET_MESSAGES, ids=repr)
def test_a_packet_message_is_what_it_was_after_the_journey(message: PacketMessage) -> None:
    assert decode_packet(packet(message)) == [message]


@pytest.mark.parametrize("message", STREAM_MESSAGES, ids=lambda message: type(message).__name__)
def test_a_stream_message_is_what_it_was_after_the_journey(message: StreamMessage) -> None:
    assert decode_stream(encode(message)) == message


@pytest.mark.parametrize("count", [0, 1, 15, 16, 300])
def test_a_packet_holds_any_number_of_messages(count: int) -> None:
    assert decode_packet(compose([encode(Ack(number)) for number in range(count)])) == [
        Ack(number) for number in range(count)
    ]


def test_a_member_is_the_same_after_it_was_sent() -> None:
    member = Member("a", "a:1", 3, MemberState.LEFT, b"x")
    assert decode_stream(encode(Join([member]))) == Join([member])


@pytest.mark.parametrize(
    "message",
    [
        [6, "b", -1, "c"],
        [6, "b", INCARNATION_MAX, "c"],
        [6, "", 1, "c"],
        [6, "b" * 129, 1, "c"],
        [5, "b", "b:1", 1, b"m" * 513],
        [5, "b", "h" * 271, 1, b""],
        [5, "b", "b:1", 1],
        [5, "b", "b:1", "1", b""],
        [99, 1],
        [],
        "text",
        None,
    ],
    ids=repr,
)
def test_what_is_beyond_the_bounds_is_refused(message: object) -> None:
    with pytest.raises(ProtocolError):
        decode_packet(msgspec.msgpack.encode([message]))


def test_hashes_of_the_wrong_number_of_parts_are_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_stream(encode(SyncBuckets(bytes(8))))
    with pytest.raises(ProtocolError):
        decode_stream(encode(SyncRecords([BUCKETS], [], wants_answer=False)))


# -- fuzz ---------------------------------------------------------------------------------------------


def picture(machine: Swim) -> object:
    """All that can be seen of a machine."""
    return dict(machine.members), machine.statistics(), machine.next_due, machine.me


def feed(handle: Callable[[bytes, str, float], object], machine: Swim, data: bytes) -> bool:
    """Whether it was taken; if it was refused, nothing has changed."""
    before = picture(machine)
    try:
        handle(data, "x:1", 1.0)
    except ProtocolError:
        assert picture(machine) == before
        return False
    return True


@given(data=st.binary(max_size=200))
@settings(max_examples=examples(200))
def test_random_bytes_are_refused_or_harmless(data: bytes) -> None:
    machine = swim("a", "b", "c", now=0.0)
    feed(machine.receive, machine, data)
    feed(machine.receive_stream, machine, data)


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0 if out:
                out[at % len(out)] = rng.randrange(256)
            case 1:
                out.insert(at, rng.randrange(256))
            case 2 if out:
                del out[at % len(out)]
            case _:
                del out[at:]
    return bytes(out)


@pytest.mark.parametrize("seed", range(4))
def test_packets_with_flipped_lost_and_added_bytes_are_refused_or_harmless(seed: int) -> None:
    rng = random.Random(seed)
    machine = swim("a", "b", "c", now=0.0)
    taken = refused = 0
    for _ in range(1500):
        messages = rng.choices(PACKET_MESSAGES, k=rng.randint(1, 4))
        if feed(machine.receive, machine, mutated(packet(*messages), rng)):
            taken += 1
        else:
            refused += 1
        stream = encode(rng.choice(STREAM_MESSAGES))
        feed(machine.receive_stream, machine, mutated(stream, rng))
    assert taken > 20
    assert refused > 50
    # It still works: what is due is done, whatever it was told.
    for _ in range(20):
        machine.tick(machine.next_due)
    assert machine.me.is_present


def test_one_bad_message_spoils_the_whole_packet() -> None:
    machine = swim("a", "b", now=0.0)
    good = encode(Alive("z", "z:1", 1, b""))
    assert not feed(machine.receive, machine, compose([good, b"\x92\x06"]))
    assert "z" not in machine.members
