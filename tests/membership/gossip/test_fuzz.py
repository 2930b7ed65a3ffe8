"""Whatever arrives: it makes sense, or `ProtocolError` and nothing has changed."""

from __future__ import annotations

import random
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.membership.gossip import Gossip, GossipSettings
from quoracy.membership.gossip.messages import (
    Delta,
    Digest,
    Digests,
    Entry,
    Message,
    News,
    Parts,
    Sync,
    decode,
    encode,
)
from quoracy.membership.gossip.replica import hash64
from quoracy.membership.machine import Effect, SendPacket, SendStream
from tests.membership.gossip.wire import participant
from tests.support.profiles import examples

SETTINGS = GossipSettings(owners_max=8, entries_max=4, tombstones_max=2, buckets=4)
NAMES = st.sampled_from(["me", "b", "c", "d", "x" * 128])
NUMBERS = st.integers(0, 6) | st.sampled_from([2**62 - 2, 2**62 - 1, 2**62])
ENTRIES = st.builds(Entry, st.sampled_from("klmno"), NUMBERS, st.none() | st.binary(max_size=4))
DELTAS = st.builds(Delta, NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.lists(ENTRIES, max_size=4))
DIGESTS = st.builds(Digest, NAMES, NUMBERS, NUMBERS)
MESSAGES = st.one_of(
    st.builds(Sync, st.integers(0, 2**63 - 1)),
    st.builds(Parts, st.binary(max_size=40)),
    st.builds(
        Digests,
        st.booleans(),
        st.integers(1, 5),
        st.lists(st.integers(0, 4), max_size=5),
        st.lists(DIGESTS, max_size=5),
    ),
    st.builds(
        News,
        st.lists(DELTAS, max_size=3),
        st.lists(DIGESTS, max_size=3),
        st.lists(DIGESTS, max_size=3),
        st.lists(DIGESTS, max_size=3),
    ),
)
VALID: list[Message] = [
    Sync(77),
    Parts(bytes(16)),
    Digests(False, 4, [0, 1, 3], [Digest("b", 1, 1), Digest("c", 2, 9)]),
    News(
        [Delta("c", 1, 0, 4, 1, [Entry("k", 2, b"v"), Entry("l", 4, None)])],
        [Digest("b", 0, 0)],
        [Digest("d", 1, 1)],
        [Digest("e", 1, 0)],
    ),
    News([Delta("b", 1, 2, 3, 0, [Entry("m", 3, b"w" * 20)])]),
]


def knowing_something() -> Gossip:
    gossip = participant("me", settings=SETTINGS)
    gossip.set_peers(["b", "c"])
    gossip.set("mine", b"1", 0.0)
    b = Delta("b", 1, 0, 2, 0, [Entry("k", 1, b"v"), Entry("l", 2, None)])
    gossip.receive(encode(News([b, Delta("gone", 1, 0, 1, 0, [])])), "b", 0.0)
    gossip.forget("gone", 0.0)
    return gossip


def view(gossip: Gossip) -> object:
    replicas = gossip._state.table.replicas
    return (
        gossip.root,
        gossip.next_due,
        gossip.statistics(),
        {owner: (r.rank, r.floor, dict(r.entries)) for owner, r in replicas.items()},
        list(gossip._state.rumours),
    )


def assert_sound(gossip: Gossip) -> None:
    """The invariants of the tables."""
    table = gossip._state.table
    assert len(table.replicas) <= SETTINGS.owners_max + 1
    root = 0
    for owner, replica in table.replicas.items():
        root ^= hash64(f"{replica.generation} {replica.version} {owner}")
        versions = [entry.version for entry in replica.entries.values()]
        assert versions == sorted(versions)
        assert replica.floor <= replica.version
        assert all(version <= replica.version for version in versions)
        assert list(replica.tombstones) == [k for k, e in replica.entries.items() if e.value is None]
        assert len(replica.tombstones) <= SETTINGS.tombstones_max
        assert replica.live_count <= SETTINGS.entries_max
    assert table.root == root
    whole = sum(int.from_bytes(table.sums(4)[at : at + 4], "big") for at in range(0, 16, 4))
    assert (whole == 0) <= (root == 0)
    assert table.sums(1) == (root & 0xFFFFFFFF).to_bytes(4, "big")


def assert_bounded(effects: list[Effect]) -> None:
    for effect in effects:
        match effect:
            case SendPacket(_, data):
                assert len(data) <= SETTINGS.packet_bytes_max
                decode(data, bytes_max=SETTINGS.packet_bytes_max)
            case SendStream(_, data):
                assert len(data) <= SETTINGS.stream_bytes_max
                decode(data, bytes_max=SETTINGS.stream_bytes_max)


def give(gossip: Gossip, data: bytes, *, stream: bool = False) -> None:
    before, own = view(gossip), dict(gossip.of("me"))
    receive = gossip.receive_stream if stream else gossip.receive
    try:
        effects = receive(data, "b", 1.0)
    except ProtocolError:
        assert view(gossip) == before
    else:
        assert_bounded(effects)
        assert_sound(gossip)
    assert gossip.of("me") == own


@settings(max_examples=examples(300))
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_change_nothing(data: bytes, stream: bool) -> None:
    give(knowing_something(), data, stream=stream)


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0 if at < len(changed):
                changed[at] = rng.randrange(256)
            case 1 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = rng.randbytes(rng.randint(1, 5))
            case _:
                del changed[at : at + rng.randint(1, 4)]
    return bytes(changed)


@pytest.mark.parametrize("number", range(len(VALID)))
def test_mutated_messages_make_sense_or_change_nothing(number: int) -> None:
    rng = random.Random(number)
    gossip = knowing_something()
    refused = 0
    for _ in range(examples(1_000)):
        data = mutated(rng, encode(VALID[number]))
        before = gossip.statistics()
        give(gossip, data)
        refused += gossip.statistics() == before
    assert refused > 0


@settings(max_examples=examples(150))
@given(st.lists(MESSAGES, max_size=12))
def test_messages_of_every_shape_keep_the_tables_sound_and_our_own_map_as_it_is(
    messages: list[Message],
) -> None:
    gossip = knowing_something()
    for message in messages:
        give(gossip, encode(message))


@settings(max_examples=examples(200))
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.binary(max_size=8)
        | st.text(),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=20,
    ),
    st.integers(0, 5),
)
def test_well_formed_msgpack_that_is_no_message_changes_nothing(body: object, tag: int) -> None:
    parts = body if isinstance(body, list) else [body]
    give(knowing_something(), msgspec.msgpack.encode([tag, *parts]))


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    gossip = knowing_something()
    with pytest.raises(ProtocolError, match="at most"):
        gossip.receive(bytes(65_536), "b", 0.0)
    with pytest.raises(ProtocolError, match="at most"):
        gossip.receive_stream(bytes(SETTINGS.stream_bytes_max + 1), "b", 0.0)


@pytest.mark.parametrize(
    "data",
    [
        b"\x94\x03\xc2\x01\xdd\xff\xff\xff\xff",  # four thousand million parts, none of which follow
        b"\x92\x02\xc6\xff\xff\xff\xff",  # as many bytes
        b"\x91" * 60_000,  # lists in lists
        msgspec.msgpack.encode([4, [], [["n", 1, 1]] * 5_000, [], []]),
        msgspec.msgpack.encode([3, False, 65_536, list(range(12_000)), []]),
    ],
)
def test_small_messages_cannot_take_much_memory(data: bytes) -> None:
    gossip = knowing_something()
    tracemalloc.start()
    try:
        give(gossip, data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4_000_000 + 64 * len(data)


ONE, TWO = Entry("k", 1, b"v"), Entry("l", 2, b"w")


@pytest.mark.parametrize(
    "message",
    [
        News([Delta("b", 0, 0, 2, 0, [ONE, TWO])]),  # a generation that nobody has
        News([Delta("b", 1, 2, 2, 0, [])]),  # from somewhere to there
        News([Delta("b", 1, 0, 2, 3, [ONE, TWO])]),  # a floor above the end
        News([Delta("b", 1, 1, 2, 1, [TWO])]),  # a floor where none is needed
        News([Delta("b", 1, 0, 2, 0, [TWO, ONE])]),  # out of order
        News([Delta("b", 1, 1, 2, 0, [ONE, TWO])]),  # before its beginning
        News([Delta("b", 1, 0, 1, 0, [ONE, TWO])]),  # beyond its end
        News([Delta("b", 1, 0, 2, 0, [ONE, Entry("k", 2, b"w")])]),  # a key twice
        News([Delta("b", 2**62 + 1, 0, 1, 0, [ONE])]),
        News([Delta("", 1, 0, 1, 0, [ONE])]),
        News([Delta("b" * 129, 1, 0, 1, 0, [ONE])]),
        News([Delta("b", 1, 0, 1, 0, [Entry("", 1, b"v")])]),
        News([], [Digest("b", -1, 0)]),
        Parts(b""),
        Parts(b"12345"),
        Digests(False, 4, [4], []),
        Digests(False, 4, [1, 1], []),
        Sync(-1),
    ],
)
def test_what_no_participant_says_is_refused(message: Message) -> None:
    gossip = knowing_something()
    before = view(gossip)
    with pytest.raises(ProtocolError, match="gossip"):
        gossip.receive(encode(message), "b", 1.0)
    assert view(gossip) == before
