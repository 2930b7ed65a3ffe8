"""Who has a key is understood, nobody else, and keys change without an interruption."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest, Unsupported
from quoracy.membership.runtime.keyring import KEYS_MAX, TAG_BYTES, KeyRing, generate_key
from tests.support.profiles import examples

NONCE = bytes(12)
OLD, NEW, OTHER = b"o" * 16, b"n" * 24, b"x" * 32


def understands(reader: KeyRing, writer: KeyRing) -> bool:
    return reader.decrypt(NONCE, writer.encrypt(NONCE, b"hello", b"header"), b"header") == b"hello"


def test_each_size_of_key_seals_and_opens_as_bytes_and_as_text() -> None:
    for key in (OLD, NEW, OTHER):
        assert understands(KeyRing(key), KeyRing(base64.b64encode(key).decode()))
        assert len(KeyRing(key).encrypt(NONCE, b"12345", b"")) == 5 + TAG_BYTES


def test_what_was_changed_on_the_way_is_not_opened() -> None:
    ring = KeyRing(OLD)
    sealed = bytearray(ring.encrypt(NONCE, b"hello", b"header"))
    assert ring.decrypt(NONCE, bytes(sealed), b"headed") is None
    assert ring.decrypt(b"1" * 12, bytes(sealed), b"header") is None
    sealed[0] ^= 1
    assert ring.decrypt(NONCE, bytes(sealed), b"header") is None


def test_sealed_with_the_primary_and_opened_with_any() -> None:
    ring = KeyRing(OLD, NEW)
    assert understands(KeyRing(OLD), ring)
    assert not understands(KeyRing(NEW), ring)
    assert understands(ring, KeyRing(NEW))
    assert not understands(ring, KeyRing(OTHER))
    ring.use(NEW)
    assert understands(KeyRing(NEW), ring)
    assert not understands(KeyRing(OLD), ring)
    assert understands(ring, KeyRing(OLD))


def test_a_removed_key_is_not_understood_any_more() -> None:
    ring = KeyRing(OLD, NEW)
    ring.remove(NEW)
    assert not understands(ring, KeyRing(NEW))
    assert understands(ring, KeyRing(OLD))


def test_the_primary_cannot_be_removed() -> None:
    ring = KeyRing(OLD, NEW)
    with pytest.raises(InvalidRequest, match="is the primary"):
        ring.remove(OLD)
    assert understands(KeyRing(OLD), ring)


def test_a_key_can_be_named_by_its_fingerprint() -> None:
    ring = KeyRing(OLD, NEW)
    old, new = ring.fingerprints
    ring.use(new)
    assert ring.fingerprints == (new, old)
    ring.remove(old)
    assert list(ring.fingerprints) == [new]


def test_a_key_that_is_not_there_cannot_be_used_or_removed() -> None:
    ring = KeyRing(OLD)
    for act in (ring.use, ring.remove):
        with pytest.raises(InvalidRequest, match="not on the ring"):
            act(NEW)


def test_adding_a_key_twice_changes_nothing() -> None:
    ring = KeyRing(OLD, NEW)
    ring.add(OLD)
    assert ring.fingerprints == KeyRing(OLD, NEW).fingerprints


def test_a_ring_is_bounded() -> None:
    ring = KeyRing(*(generate_key() for _ in range(KEYS_MAX)))
    with pytest.raises(InvalidRequest, match="at most 8"):
        ring.add(OLD)


@pytest.mark.parametrize(
    "key", [b"", b"short", b"x" * 17, b"x" * 33, "", "no base64!", "c2hvcnQ=", "é"]
)
def test_what_is_no_key_is_refused_and_not_shown(key: bytes | str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        KeyRing(key)
    assert not key or str(key) not in str(refusal.value)


def test_neither_repr_nor_fingerprints_show_a_key() -> None:
    key = generate_key()
    shown = repr(KeyRing(key)) + str(KeyRing(key).fingerprints)
    assert key not in shown
    assert base64.b64decode(key).hex()[:8] not in shown


def test_a_key_file_has_one_key_per_line_and_the_primary_first() -> None:
    text = (
        f"# ours\n\n{base64.b64encode(NEW).decode()}  # since May\n{base64.b64encode(OLD).decode()}\n"
    )
    assert KeyRing.from_text(text).fingerprints == KeyRing(NEW, OLD).fingerprints


def test_a_key_file_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no key"):
        KeyRing.from_text("# later\n\n")


@pytest.mark.parametrize("size", [0, 8, 33])
def test_keys_of_other_sizes_are_not_generated(size: int) -> None:
    with pytest.raises(InvalidRequest):
        generate_key(size=size)


def test_without_cryptography_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(Unsupported, match=r"quoracy\[membership\]"):
        KeyRing(OLD)


@given(st.integers(2, 6).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=3, max_size=3)))
@settings(max_examples=examples(60))
def test_members_understand_each_other_at_every_moment_of_a_rotation(orders: list[list[int]]) -> None:
    rings = [KeyRing(OLD) for _ in orders[0]]
    steps: list[tuple[Callable[[KeyRing, bytes], None], bytes]] = [
        (KeyRing.add, NEW), (KeyRing.use, NEW), (KeyRing.remove, OLD),
    ]  # fmt: skip
    for (step, key), order in zip(steps, orders, strict=True):
        for member in order:
            step(rings[member], key)
            for reader, writer in product(rings, rings):
                assert understands(reader, writer)
    assert all(ring.fingerprints == KeyRing(NEW).fingerprints for ring in rings)
