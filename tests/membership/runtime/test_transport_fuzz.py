"""Whatever arrives, from whoever: it is counted and dropped, and members go on hearing each other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.membership.machine import SendPacket, SendStream
from quoracy.membership.runtime.endpoint import Endpoint, open_endpoint
from quoracy.membership.runtime.envelope import (
    CONTROL_CHANNEL,
    DropReason,
    Envelope,
    EnvelopeSettings,
    FrameReader,
    Kind,
    Opened,
    frame,
)
from quoracy.membership.runtime.keyring import KeyRing
from tests.membership.runtime.recorder import Recorder
from tests.support.asking import until
from tests.support.profiles import examples

KEY, OTHER_KEY = b"k" * 16, b"o" * 16
BOMB = zlib.compress(bytes(1_000_000), 9)
LIMITS = EnvelopeSettings(message_bytes_max=8_192)


def envelope(key: bytes | None, rng: random.Random | None = None) -> Envelope:
    entropy = os.urandom if rng is None else rng.randbytes
    return Envelope(entropy=entropy, keyring=None if key is None else KeyRing(key), settings=LIMITS)


keys = st.none() | st.just(KEY)
kinds = st.sampled_from(Kind)
# Looks like ours at the beginning, so that it gets further than the first byte.
almost = st.builds(
    lambda first, flags, label, rest: bytes((first, flags)) + label + rest,
    st.sampled_from([0xD1, 0xD1, 0xD1, 0xD2]),
    st.integers(0, 255),
    st.just(bytes(4)) | st.binary(min_size=4, max_size=4),
    st.binary(max_size=80) | st.binary(max_size=80).map(zlib.compress),
)


@given(data=st.binary(max_size=2_000) | almost, kind=kinds, key=keys)
@settings(max_examples=examples(400))
def test_any_bytes_are_opened_or_dropped_and_never_raise(
    data: bytes, kind: Kind, key: bytes | None
) -> None:
    opened = envelope(key).unwrap(data, kind=kind, wall_ms=0)
    if isinstance(opened, Opened):
        assert key is None  # what nobody sealed is never believed where there is a key
        assert data[:1] == b"\xd1"
        assert len(opened.payload) <= LIMITS.message_bytes_max
    else:
        assert isinstance(opened, DropReason)


@given(
    payload=st.binary(max_size=700) | st.integers(0, 1_300).map(bytes),
    seed=st.integers(0, 2**32),
    kind=kinds,
    key=keys,
)
@settings(max_examples=examples(300))
def test_a_mutated_envelope_is_dropped_and_under_a_key_always(
    payload: bytes, seed: int, kind: Kind, key: bytes | None
) -> None:
    rng = random.Random(seed)
    wire = envelope(key, rng).wrap(payload, channel=1, kind=kind, wall_ms=0)
    mutated = mutate(wire, rng)
    opened = envelope(key).unwrap(mutated, kind=kind, wall_ms=0)
    if key is not None and mutated != wire:
        assert isinstance(opened, DropReason)
    assert isinstance(envelope(OTHER_KEY).unwrap(mutated, kind=kind, wall_ms=0), DropReason)


@given(size=st.integers(0, 3_000_000), level=st.integers(1, 9), kind=kinds, key=keys)
@settings(max_examples=examples(40))
def test_nothing_inflates_beyond_its_limit(
    size: int, level: int, kind: Kind, key: bytes | None
) -> None:
    here, there = envelope(key), envelope(key)
    limit = there.packet_payload_max if kind is Kind.PACKET else LIMITS.message_bytes_max
    body = zlib.compress(bytes(size), level)
    if key is None:
        wire = bytes((0xD1, 0x80 | kind)) + bytes(4) + body
    else:
        header = bytes((0xD1, 0xC0 | kind)) + bytes(4)
        wire = header + bytes(12) + KeyRing(key).encrypt(bytes(12), bytes(6) + body, header)
    opened = there.unwrap(wire, kind=kind, wall_ms=0)
    assert opened == (Opened(0, bytes(size)) if size <= limit else DropReason.TOO_BIG)
    assert here.unwrap(wire[:-1], kind=kind, wall_ms=0) in (
        DropReason.MALFORMED, DropReason.WRONG_KEY, DropReason.TOO_BIG,
    )  # fmt: skip


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 60))
@settings(max_examples=examples(200))
def test_frames_are_the_same_however_the_bytes_are_cut(
    pieces: list[bytes], frame_bytes_max: int
) -> None:
    def frames(*parts: bytes) -> list[bytes | None]:
        reader, found = FrameReader(frame_bytes_max), list[bytes | None]()
        with contextlib.suppress(ProtocolError):
            for part in parts:
                reader.feed(part)
                while (data := reader.next_frame()) is not None:
                    assert len(data) <= frame_bytes_max
                    found.append(data)
            return found
        return [*found, None]

    assert frames(*pieces) == frames(b"".join(pieces))
    whole = [frame(piece) for piece in pieces if len(piece) <= frame_bytes_max]
    assert frames(*whole) == frames(b"".join(whole)) == [piece[4:] for piece in whole]


# -- on sockets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY], ids=["clear", "sealed"])
@pytest.mark.parametrize("seed", range(3))
async def test_rubbish_packets_change_nothing(key: bytes | None, seed: int) -> None:
    rng = random.Random(seed)
    ring = None if key is None else KeyRing(key)
    async with open_endpoint(keyring=ring) as a, open_endpoint(keyring=ring) as b:
        machine, other = attached(a), attached(b)
        sent = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.connect(place(b))
            for _ in range(10):
                for data in (rubbish(rng) for _ in range(30)):
                    stranger.send(data)
                    sent += 1
                await until(lambda: b.statistics().packets_in == sent)  # noqa: B023
        told = len(other.log)  # without a key, rubbish may look right; with one it cannot
        assert told == 0 if key else told <= sent
        counts = b.statistics()
        assert counts.dropped_count + told == sent, f"seed {seed}"
        a.call(0, lambda now: [SendPacket(b.address, b"still"), SendStream(b.address, b"here")])
        await until(lambda: {event[1] for event in other.log[told:]} == {b"still", b"here"})
        assert machine.log == []
        assert not b.is_stopped


@pytest.mark.parametrize("key", [None, KEY], ids=["clear", "sealed"])
@pytest.mark.parametrize("seed", range(3))
async def test_rubbish_on_streams_changes_nothing(key: bytes | None, seed: int) -> None:
    rng = random.Random(seed)
    ring = None if key is None else KeyRing(key)
    async with open_endpoint(keyring=ring) as a, open_endpoint(keyring=ring) as b:
        attached(a)
        other = attached(b)
        for _ in range(30):
            reader, writer = await asyncio.open_connection(*place(b))
            writer.write(b"".join(stream_rubbish(rng) for _ in range(rng.randint(1, 5))))
            with contextlib.suppress(ConnectionError):
                writer.write_eof()
                async with asyncio.timeout(20):
                    while await reader.read(65_536):
                        pass
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await until(lambda: b._streams.connections_count == 0)
        assert b._streams.gathered_bytes == b._streams.outgoing_bytes == 0, f"seed {seed}"
        if key is not None:
            assert other.log == []
        assert b.statistics().dropped_count > 10
        a.call(0, lambda now: [SendStream(b.address, b"still here")])
        await until(lambda: ("stream", b"still here", a.address) in other.log)
        assert not b.is_stopped


def attached(endpoint: Endpoint) -> Recorder:
    machine = Recorder()
    endpoint.attach(0, machine, machine.told)
    return machine


def place(endpoint: Endpoint) -> tuple[str, int]:
    host, _, port = endpoint.bound.rpartition(":")
    return host, int(port)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double, insert: one to three times."""
    mutated = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(mutated) + 1)
        match rng.randrange(4):
            case 0 if at < len(mutated):
                mutated[at] ^= 1 << rng.randrange(8)
            case 1:
                del mutated[at:]
            case 2:
                mutated += mutated[at:]
            case _:
                mutated[at:at] = rng.randbytes(rng.randint(1, 20))
    return bytes(mutated)


def rubbish(rng: random.Random, kind: Kind = Kind.PACKET) -> bytes:
    payload = rng.choice((rng.randbytes(rng.randrange(300)), bytes(1_200)))
    sealer = envelope(rng.choice((None, KEY, OTHER_KEY)), rng)
    # Long ago, so that even what is sealed with the right key and not damaged is too old.
    wire = sealer.wrap(payload, channel=rng.choice((0, 3, CONTROL_CHANNEL)), kind=kind, wall_ms=0)
    bomb = bytes((0xD1, 0x80 | kind)) + bytes(4) + BOMB
    return rng.choice((rng.randbytes(rng.randrange(2_000)), mutate(wire, rng), wire, bomb, b""))


def stream_rubbish(rng: random.Random) -> bytes:
    hello = envelope(None).wrap(b"H127.0.0.1:9", channel=CONTROL_CHANNEL, kind=Kind.STREAM, wall_ms=0)
    framed = frame(rubbish(rng, Kind.STREAM))
    return rng.choice(
        (
            frame(hello),
            framed,
            frame(hello) + framed,
            mutate(framed, rng),
            rng.randbytes(rng.randrange(99)),
        )
    )
