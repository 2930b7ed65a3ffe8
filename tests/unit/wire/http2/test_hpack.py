"""HPACK: what the encoder writes, what the decoder refuses, when a decoded block is used again."""

from __future__ import annotations

import hpack
import pytest

from quoracy.wire.http2 import ErrorCode, Http2Limits, encode_headers
from quoracy.wire.http2.hpack import ConnectionFailure, HeaderDecoder
from tests.unit.wire.http2.peer import REQUEST

BASE = encode_headers(REQUEST)


def decoder(limits: Http2Limits | None = None) -> HeaderDecoder:
    return HeaderDecoder(limits or Http2Limits(), client_side=False)


# ---- Encoding


def test_encoder_uses_the_static_table() -> None:
    assert encode_headers(((b":status", b"200"), (b":method", b"POST"))) == b"\x88\x83"
    assert encode_headers(((b":status", b"418"),)) == b"\x08\x03418"
    assert encode_headers(((b"grpc-status", b"0"),)) == b"\x00\x0bgrpc-status\x010"
    assert encode_headers(((b"content-type", b"a"),)) == b"\x0f\x10\x01a"


@pytest.mark.parametrize("name", [b"authorization", b"token", b"cookie"])
def test_credentials_are_never_indexed(name: bytes) -> None:
    (field,) = hpack.Decoder().decode(encode_headers(((name, b"secret"),)), raw=True)
    assert isinstance(field, hpack.NeverIndexedHeaderTuple)


@pytest.mark.parametrize("size", [0, 126, 127, 128, 254, 255, 16_510, 16_511, 100_000])
def test_lengths_are_encoded_right(size: int) -> None:
    pairs = [(b"n" * max(1, size), b"v" * size)]
    theirs = hpack.Decoder(max_header_list_size=1_000_000)
    assert list(theirs.decode(encode_headers(pairs), raw=True)) == pairs


# ---- Decoding


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x80", "index 0"),
        (b"\xbe", "index beyond the table"),
        (b"\xff\x80\x01", "large index beyond the table"),
        (b"\x7f\x80\x01\x00", "name beyond the table"),
        (b"\xff", "integer cut off"),
        (b"\xff\xff\xff\xff\xff\x0f", "integer too long"),
        (b"\x00\x05ab", "name cut off"),
        (b"\x00\x01a\x05b", "value cut off"),
        (b"\x00\x01a", "value missing"),
        (b"\x00", "name missing"),
        (b"\x00\x01a\x81\x00", "Huffman padding of zeros"),
        (b"\x00\x01a\x82\x1f\xff", "Huffman padding of a whole byte"),
        (b"\x00\x01a\x84\xff\xff\xff\xff", "Huffman end of string"),
        (b"\x3f\xe2\x1f", "table larger than allowed"),
        (b"\x82\x20", "resize after a field"),
        (b"\x20" * 9, "many resizes"),
    ],
)
def test_broken_block_is_refused(block: bytes, why: str) -> None:
    with pytest.raises(ConnectionFailure) as failure:
        decoder().decode(block)
    assert failure.value.code == ErrorCode.COMPRESSION_ERROR, why


def test_table_must_shrink_when_our_setting_was_acknowledged() -> None:
    ours = decoder(Http2Limits(header_table_bytes_max=100))
    ours.decode(b"\x40\x01a\x01b" + BASE)  # the default size holds until then
    ours.allow_table_bytes(100)
    with pytest.raises(ConnectionFailure):
        ours.decode(BASE)
    ours = decoder(Http2Limits(header_table_bytes_max=100))
    ours.allow_table_bytes(100)
    assert ours.decode(b"\x3f\x45" + BASE).pairs == REQUEST


def test_entry_larger_than_the_table_empties_it() -> None:
    ours = decoder()
    ours.decode(b"\x40\x01a\x01b" + BASE)
    assert ours.decode(b"\xbe" + BASE).pairs[0] == (b"a", b"b")
    ours.decode(b"\x40\x01a\x7f\x81\x1f" + b"x" * 4_096 + BASE)
    with pytest.raises(ConnectionFailure):
        ours.decode(b"\xbe" + BASE)


# ---- The cache


def test_block_that_changed_nothing_is_decoded_once() -> None:
    ours = decoder()
    assert ours.decode(BASE) is ours.decode(BASE)


def test_block_that_changed_the_table_is_not_kept_and_drops_what_was() -> None:
    ours = decoder()
    first = ours.decode(BASE)
    insert = BASE + b"\x40\x01a\x01b"
    assert ours.decode(insert) is not ours.decode(insert)
    again = ours.decode(BASE)
    assert again is not first
    assert ours.decode(BASE) is again


def test_same_bytes_mean_something_else_after_an_insertion() -> None:
    ours = decoder()
    ours.decode(BASE + b"\x40\x01a\x011")
    newest = BASE + b"\xbe"
    assert ours.decode(newest).get(b"a") == b"1"
    ours.decode(BASE + b"\x40\x01a\x012")
    assert ours.decode(newest).get(b"a") == b"2"


def test_resize_drops_what_was_kept() -> None:
    ours = decoder()
    ours.decode(BASE + b"\x40\x01a\x011")
    ours.decode(BASE + b"\xbe")
    ours.decode(b"\x20" + BASE)
    with pytest.raises(ConnectionFailure):
        ours.decode(BASE + b"\xbe")


def test_insertion_into_a_table_of_size_0_changes_nothing() -> None:
    ours = decoder()
    ours.decode(b"\x20" + BASE)
    insert = BASE + b"\x40\x01a\x01b"
    assert ours.decode(insert) is ours.decode(insert)


def test_cache_is_bounded_in_blocks() -> None:
    ours = decoder(Http2Limits(cached_blocks_max=3))
    blocks = [BASE + encode_headers(((b"n", b"%d" % number),)) for number in range(4)]
    decoded = [ours.decode(each) for each in blocks]
    assert [ours.decode(each) for each in blocks[1:]] == decoded[1:]
    assert ours.decode(blocks[0]) is not decoded[0]
    assert len(ours.cache) == 3


def test_cache_is_bounded_in_bytes() -> None:
    ours = decoder(Http2Limits(cached_bytes_max=10_000))
    for number in range(50):
        ours.decode(BASE + encode_headers(((b"n", b"%050d" % number * 20),)))
        assert ours._cached_bytes <= 10_000
        assert len(ours.cache) <= 4
    ours.decode(BASE + b"\x40\x01a\x01b")
    assert (ours._cached_bytes, len(ours.cache)) == (0, 0)


def test_block_too_large_for_the_cache_is_not_kept() -> None:
    ours = decoder(Http2Limits(cached_bytes_max=1_000))
    large = BASE + encode_headers(((b"n", bytes(300)),))
    assert ours.decode(large) is not ours.decode(large)
    assert not ours.cache
