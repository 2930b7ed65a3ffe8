"""Bytes from outside are understood, or refused; and what is refused changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.membership.elections import Bully, CollectingRing, Elector, Ring, Terms
from quoracy.membership.elections import messages as m
from quoracy.membership.elections.ring import RingLink
from tests.membership.elections.test_terms import VOTERS
from tests.support.profiles import examples

NAMES = ["a", "b", "c", "d", "e"]

ELECTORS: dict[str, Callable[[], Elector]] = {
    "bully": lambda: Bully("c", NAMES, rng=random.Random(1)),
    "ring": lambda: Ring("c", NAMES, rng=random.Random(1)),
    "collecting": lambda: CollectingRing("c", NAMES, rng=random.Random(1)),
    "terms": lambda: Terms("c", NAMES, rng=random.Random(1)),
}
CODECS = {
    "bully": m.bully_codec,
    "ring": m.ring_codec,
    "collecting": m.ring_codec,
    "terms": m.terms_codec,
}

_names = st.sampled_from(NAMES)
_terms = st.integers(0, 6) | st.integers(0, m.TERM_MAX)
_numbers = st.integers(0, 3) | st.integers(0, 2**63 - 1)
_hops = st.integers(1, 6)
_voters = st.just(VOTERS)
_times = st.floats(-5.0, 20.0)

MESSAGES: dict[str, st.SearchStrategy[object]] = {
    "bully": st.one_of(
        st.builds(m.Election, _numbers, _terms),
        st.builds(m.Answer, _numbers, _terms),
        st.builds(m.Coordinator, _terms),
    ),
    "ring": st.one_of(
        st.builds(m.Candidacy, _numbers, _names, _numbers, _hops, _terms),
        st.builds(m.Announcement, _numbers, _names, _numbers, _hops, _names, _terms),
        st.builds(m.HopAck, _numbers),
        st.builds(m.Hello),
        st.builds(m.Alive),
    ),
    "terms": st.one_of(
        st.builds(m.PreVote, _voters, _terms),
        st.builds(m.PreVoteReply, _voters, _terms, st.booleans()),
        st.builds(m.VoteRequest, _voters, _terms),
        st.builds(m.VoteReply, _voters, _terms, st.booleans()),
        st.builds(m.Heartbeat, _voters, _terms, _times),
        st.builds(m.HeartbeatReply, _voters, _terms, _times),
    ),
}
_lists = st.lists(_names, min_size=1, max_size=5).map(tuple)
MESSAGES["collecting"] = MESSAGES["ring"] | st.builds(
    m.Collection, _numbers, _names, _numbers, _lists, _terms
)


Arrival: TypeAlias = tuple[object, str, float, tuple[int, bytes] | None]


def arrivals(kind: str) -> st.SearchStrategy[list[Arrival]]:
    """Messages, who sends them, the time before each, and how some are damaged on their way."""
    damage = st.none() | st.tuples(st.integers(0, 200), st.binary(max_size=4))
    senders = st.sampled_from([*NAMES, "x"])
    pauses = st.sampled_from([0.0, 0.1, 0.6, 1.5])
    return st.lists(st.tuples(MESSAGES[kind], senders, pauses, damage), max_size=10)


def state(elector: Elector) -> str:
    """Everything an elector remembers, its random numbers included."""

    def show(value: object) -> str:
        if isinstance(value, random.Random):
            return str(hash(value.getstate()))
        if not isinstance(value, Elector | RingLink):
            return repr(value)  # plain values, which show all there is
        names = getattr(type(value), "__slots__", None) or vars(value)
        return ", ".join(f"{name}={show(getattr(value, name))}" for name in names)

    return show(elector)


@pytest.mark.parametrize("kind", ELECTORS)
@settings(max_examples=examples(80))
@given(data=st.data())
def test_any_sequence_of_messages_is_taken_or_refused_without_a_trace(
    kind: str, data: st.DataObject
) -> None:
    elector, now = ELECTORS[kind](), 0.0
    elector.start(now)
    codec: m.Codec[object] = CODECS[kind]  # type: ignore[assignment]
    term = elector.term
    for message, sender, pause_s, damage in data.draw(arrivals(kind)):
        now += pause_s
        if now >= elector.next_due:
            elector.tick(now)
        packet = codec.encode(message)
        if damage is not None:
            at = damage[0] % len(packet)
            packet = packet[:at] + damage[1] + packet[at + 1 :]
        before = state(elector)
        try:
            elector.receive(packet, sender, now)
        except ProtocolError:
            assert state(elector) == before
        assert elector.term >= term
        assert (elector.leader == elector.name) == elector.is_leader
        term = elector.term


@pytest.mark.parametrize("kind", ELECTORS)
@settings(max_examples=examples(100))
@given(noise=st.binary(max_size=80))
def test_noise_is_refused_and_changes_nothing(kind: str, noise: bytes) -> None:
    elector = ELECTORS[kind]()
    elector.start(0.0)
    before = state(elector)
    for packet in (noise, b"\x01" + noise):
        with pytest.raises(ProtocolError):
            elector.receive(packet, "a", 0.0)
        assert state(elector) == before


@pytest.mark.parametrize("kind", ELECTORS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_every_message_survives_the_wire(kind: str, data: st.DataObject) -> None:
    message = data.draw(MESSAGES[kind])
    codec: m.Codec[object] = CODECS[kind]  # type: ignore[assignment]
    packet = codec.encode(message)
    assert codec.decode(packet) == message
    for cut in range(len(packet)):
        with pytest.raises(ProtocolError):
            codec.decode(packet[:cut])
    with pytest.raises(ProtocolError):
        codec.decode(packet + b"\x00")


def raw(*fields: object) -> bytes:
    return b"\x01" + msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x02" + raw("coordinator", 1)[1:],
        raw("coordinator", -1),
        raw("coordinator", m.TERM_MAX + 1),
        raw("coordinator", 1, 2),
        raw("coordinator", "1"),
        raw("coordinator"),
        raw("usurper", 1),
        raw(1, 1),
        b"\x01" + msgspec.msgpack.encode({"term": 1}),
        b"\x01" + b"\x91" * 50_000,
        b"\x01" * (m.MESSAGE_BYTES_MAX + 1),
    ],
)
def test_what_no_peer_sends_is_refused(packet: bytes) -> None:
    with pytest.raises(ProtocolError):
        m.bully_codec.decode(packet)


def test_the_largest_list_that_can_be_collected_fits_into_a_message() -> None:
    names = tuple(f"{number:04d}".ljust(128, "x") for number in range(1_000))
    message = m.Collection(1, names[0], 1, names, m.TERM_MAX)
    assert m.ring_codec.decode(m.ring_codec.encode(message)) == message
