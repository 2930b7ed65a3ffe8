"""What is put into an envelope comes out of it, and of no other one."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest, TooLarge
from quoracy.membership.runtime.envelope import (
    CONTROL_CHANNEL,
    DATAGRAM_BYTES_MAX,
    OVERHEAD_BYTES,
    DropReason,
    Envelope,
    EnvelopeSettings,
    Kind,
    Opened,
    ReplayWindow,
)
from quoracy.membership.runtime.keyring import KeyRing
from quoracy.membership.settings import SwimSettings
from tests.support.profiles import examples

NOW_MS = 1_700_000_000_000
KEY = b"k" * 32
USUAL = EnvelopeSettings()


def envelope(
    *, label: str = "", key: bytes | None = None, settings: EnvelopeSettings = USUAL
) -> Envelope:
    ring = None if key is None else KeyRing(key)
    return Envelope(entropy=os.urandom, label=label, keyring=ring, settings=settings)


def wrapped(by: Envelope, payload: bytes = b"payload", *, kind: Kind = Kind.PACKET) -> bytes:
    return by.wrap(payload, channel=2, kind=kind, wall_ms=NOW_MS)


def unwrapped(
    by: Envelope, data: bytes, *, kind: Kind = Kind.PACKET, wall_ms: int = NOW_MS
) -> Opened | DropReason:
    return by.unwrap(data, kind=kind, wall_ms=wall_ms)


payloads = st.binary(max_size=600) | st.builds(
    lambda part, n: part * n, st.binary(max_size=9), st.integers(0, 150)
)


@given(
    payload=payloads,
    channel=st.integers(0, CONTROL_CHANNEL),
    kind=st.sampled_from(Kind),
    label=st.text(max_size=16),
    key=st.none() | st.just(KEY),
)
@settings(max_examples=examples(300))
def test_what_goes_in_comes_out(
    payload: bytes, channel: int, kind: Kind, label: str, key: bytes | None
) -> None:
    here, there = envelope(label=label, key=key), envelope(label=label, key=key)
    wire = here.wrap(payload, channel=channel, kind=kind, wall_ms=NOW_MS)
    assert len(wire) <= len(payload) + OVERHEAD_BYTES
    assert there.unwrap(wire, kind=kind, wall_ms=NOW_MS + 5) == Opened(channel, payload)


def test_the_overhead_is_what_is_stated() -> None:
    payload = os.urandom(100)
    assert len(wrapped(envelope(label="a label", key=KEY), payload)) == 100 + OVERHEAD_BYTES
    assert len(wrapped(envelope(label="a label"), payload)) == 100 + 6


@pytest.mark.parametrize("key", [None, KEY])
def test_the_largest_packet_of_a_machine_fits_one_datagram(key: bytes | None) -> None:
    payload = os.urandom(SwimSettings().packet_bytes_max)
    wire = wrapped(envelope(label="x" * 64, key=key), payload)
    assert len(wire) <= DATAGRAM_BYTES_MAX
    opened = unwrapped(envelope(label="x" * 64, key=key), wire)
    assert opened == Opened(2, payload)


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("kind", list(Kind))
def test_the_limit_itself_fits_and_one_more_does_not(key: bytes | None, kind: Kind) -> None:
    limits = EnvelopeSettings(message_bytes_max=5_000)
    here, there = envelope(key=key, settings=limits), envelope(key=key, settings=limits)
    limit = here.packet_payload_max if kind is Kind.PACKET else 5_000
    for payload in (os.urandom(limit), bytes(limit)):
        assert unwrapped(there, wrapped(here, payload, kind=kind), kind=kind) == Opened(2, payload)
    with pytest.raises(TooLarge):
        wrapped(here, bytes(limit + 1), kind=kind)
    # Somebody else's limit may be larger.
    generous = EnvelopeSettings(datagram_bytes_max=9_000, message_bytes_max=9_000)
    for payload in (os.urandom(limit + 1), bytes(limit + 1)):
        wire = wrapped(envelope(key=key, settings=generous), payload, kind=kind)
        assert unwrapped(there, wire, kind=kind) is DropReason.TOO_BIG


def test_only_what_gets_smaller_is_compressed() -> None:
    here = envelope(settings=EnvelopeSettings(compress_over=100))
    assert len(wrapped(here, b"a" * 101)) < 40
    assert len(wrapped(here, b"a" * 100)) == 106
    noise = os.urandom(1_000)
    assert wrapped(here, noise).endswith(noise)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_bomb_is_not_inflated_beyond_the_limit(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    there = envelope(settings=EnvelopeSettings(message_bytes_max=4_096))
    limit = there.packet_payload_max if kind is Kind.PACKET else 4_096
    inflated: list[int] = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self) -> None:
            self._inflater = real()

        def decompress(self, data: bytes, size_max: int = 0) -> bytes:
            out = self._inflater.decompress(data, size_max)
            inflated.append(len(out))
            return out

        @property
        def eof(self) -> bool:
            return self._inflater.eof

        @property
        def unused_data(self) -> bytes:
            return self._inflater.unused_data

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    bomb = wrapped(envelope(), b"", kind=kind)
    bomb = bytes((bomb[0], bomb[1] | 0x80)) + bomb[2:] + zlib.compress(bytes(1_000_000), 9)
    assert unwrapped(there, bomb, kind=kind) is DropReason.TOO_BIG
    assert inflated == [limit + 1]


@pytest.mark.parametrize(
    "spoil",
    [lambda body: body[:-1], lambda body: body + b"x", lambda body: b"x" + body, lambda body: b""],
    ids=["cut", "longer", "no zlib", "empty"],
)
def test_compressed_data_must_be_whole_and_nothing_else(spoil: Callable[[bytes], bytes]) -> None:
    wire = wrapped(envelope(), b"a" * 1_000)
    assert unwrapped(envelope(), wire[:6] + spoil(wire[6:])) is DropReason.MALFORMED


def test_other_versions_and_other_protocols_are_told_apart() -> None:
    wire = wrapped(envelope())
    assert unwrapped(envelope(), b"\xd2" + wire[1:]) is DropReason.WRONG_VERSION
    assert unwrapped(envelope(), b"\x12" + wire[1:]) is DropReason.MALFORMED
    assert unwrapped(envelope(), wire[:5]) is DropReason.MALFORMED
    assert unwrapped(envelope(), b"") is DropReason.MALFORMED


def test_reserved_bits_are_refused_so_that_they_can_mean_something_one_day() -> None:
    wire = wrapped(envelope())
    for bit in (0x08, 0x10):
        assert unwrapped(envelope(), bytes((wire[0], wire[1] | bit)) + wire[2:]) is DropReason.MALFORMED


@pytest.mark.parametrize("key", [None, KEY])
def test_clusters_with_different_labels_do_not_merge(key: bytes | None) -> None:
    for ours, theirs in (("blue", "green"), ("", "green"), ("blue", "")):
        wire = wrapped(envelope(label=theirs, key=key))
        assert unwrapped(envelope(label=ours, key=key), wire) is DropReason.WRONG_LABEL


def test_a_packet_is_no_message_on_a_stream() -> None:
    for kind, other in ((Kind.PACKET, Kind.STREAM), (Kind.STREAM, Kind.PACKET)):
        assert unwrapped(envelope(), wrapped(envelope(), kind=kind), kind=other) is DropReason.MALFORMED
        sealed = wrapped(envelope(key=KEY), kind=kind)
        assert unwrapped(envelope(key=KEY), sealed, kind=other) is DropReason.MALFORMED
        forged = bytes((sealed[0], sealed[1] ^ 0x20)) + sealed[2:]
        assert unwrapped(envelope(key=KEY), forged, kind=other) is DropReason.WRONG_KEY


def test_every_bit_of_a_sealed_message_is_guarded() -> None:
    wire = wrapped(envelope(key=KEY), b"a" * 20)
    for at in range(8 * len(wire)):
        forged = bytearray(wire)
        forged[at // 8] ^= 1 << at % 8
        assert isinstance(unwrapped(envelope(key=KEY), bytes(forged)), DropReason)
    assert isinstance(unwrapped(envelope(key=KEY), wire), Opened)


def test_with_a_key_nothing_in_the_clear_is_taken() -> None:
    assert unwrapped(envelope(key=KEY), wrapped(envelope())) is DropReason.UNENCRYPTED


def test_without_a_key_or_with_another_one_nothing_sealed_is_taken() -> None:
    wire = wrapped(envelope(key=KEY))
    assert unwrapped(envelope(), wire) is DropReason.WRONG_KEY
    assert unwrapped(envelope(key=b"o" * 32), wire) is DropReason.WRONG_KEY
    assert unwrapped(envelope(key=KEY), wire[: OVERHEAD_BYTES - 1]) is DropReason.MALFORMED


def test_a_secret_cannot_be_read_on_the_way() -> None:
    secret = b"the quick brown fox jumps over the lazy dog"
    assert secret not in wrapped(envelope(key=KEY), secret)
    assert wrapped(envelope(key=KEY), secret) != wrapped(envelope(key=KEY), secret)


def test_a_sealed_message_is_believed_once() -> None:
    there = envelope(key=KEY)
    wire = wrapped(envelope(key=KEY))
    assert unwrapped(there, wire) == Opened(2, b"payload")
    assert unwrapped(there, wire) is DropReason.REPLAYED
    assert unwrapped(there, wire, wall_ms=NOW_MS + 60_000) is DropReason.REPLAYED
    assert unwrapped(there, wire, wall_ms=NOW_MS + 60_001) is DropReason.TOO_OLD


def test_age_is_judged_both_ways_and_with_a_key_only() -> None:
    for off_ms, is_taken in ((60_000, True), (-60_000, True), (60_001, False), (-60_001, False)):
        sealed = unwrapped(envelope(key=KEY), wrapped(envelope(key=KEY)), wall_ms=NOW_MS + off_ms)
        assert sealed == (Opened(2, b"payload") if is_taken else DropReason.TOO_OLD)
        clear = unwrapped(envelope(), wrapped(envelope()), wall_ms=NOW_MS + off_ms)
        assert clear == Opened(2, b"payload")


def test_rubbish_does_not_fill_the_memory_of_nonces() -> None:
    window = ReplayWindow(age_max_s=60.0, nonces_max=2)
    there = envelope(key=KEY, settings=EnvelopeSettings(nonces_max=2))
    there._window = window
    for _ in range(10):
        unwrapped(there, wrapped(envelope(key=b"o" * 32)))
    assert len(window) == 0


def test_at_the_bound_the_window_gets_shorter_and_never_leaks() -> None:
    window = ReplayWindow(age_max_s=60.0, nonces_max=3)
    for second in range(4):
        assert window.admit(b"%d" % second, sent_ms=second * 1_000, now_ms=4_000) is None
    assert len(window) == 3
    assert window.admit(b"0", sent_ms=0, now_ms=4_000) is DropReason.TOO_OLD
    assert window.admit(b"late", sent_ms=999, now_ms=4_000) is DropReason.TOO_OLD
    assert window.admit(b"1", sent_ms=1_000, now_ms=4_000) is DropReason.REPLAYED


def test_what_is_too_old_anyway_is_forgotten() -> None:
    window = ReplayWindow(age_max_s=10.0, nonces_max=1_000)
    for second in range(100):
        assert window.admit(b"n", sent_ms=second * 1_000, now_ms=second * 1_000) is None
    assert len(window) <= 12


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 2_500), st.integers(-4_000, 4_000)), max_size=120
    ),
    st.integers(1, 8),
    st.sampled_from([1.0, 3.0, math.inf]),
)
@settings(max_examples=examples(200))
def test_nothing_is_admitted_twice(
    arrivals: list[tuple[int, int, int]], nonces_max: int, age_max_s: float
) -> None:
    window = ReplayWindow(age_max_s=age_max_s, nonces_max=nonces_max)
    sent: dict[bytes, int] = {}
    admitted: set[bytes] = set()
    now_ms = 100_000
    for number, passed_ms, off_ms in arrivals:
        now_ms += passed_ms
        nonce = b"%d" % number
        sent_ms = sent.setdefault(nonce, now_ms + off_ms)  # a recording keeps the time of its sending
        if window.admit(nonce, sent_ms=sent_ms, now_ms=now_ms) is None:
            assert nonce not in admitted
            admitted.add(nonce)
        assert len(window) <= nonces_max


@pytest.mark.parametrize("age_max_s", [0.0, -1.0, math.nan])
def test_an_age_that_admits_nothing_is_refused(age_max_s: float) -> None:
    with pytest.raises(InvalidRequest, match="age_max_s"):
        envelope(settings=EnvelopeSettings(age_max_s=age_max_s))


def test_settings_that_cannot_work_are_refused() -> None:
    for wrong in (
        {"datagram_bytes_max": 70_000},
        {"message_bytes_max": 3},
        {"datagram_bytes_max": 100},
    ):
        with pytest.raises(InvalidRequest, match=next(iter(wrong))):
            EnvelopeSettings(**wrong)
    with pytest.raises(InvalidRequest, match="label"):
        envelope(label="x" * 65)
