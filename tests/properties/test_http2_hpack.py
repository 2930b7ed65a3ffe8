"""HPACK against the `hpack` package: blocks remembered, blocks forgotten, blocks that are nonsense."""

from __future__ import annotations

import hpack
from hpack.huffman_constants import REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman as their_decode_huffman
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quoracy.wire.http2 import Http2Limits, encode_headers
from quoracy.wire.http2.hpack import (
    CODE_LENGTHS,
    STATIC_TABLE,
    TABLE_BYTES,
    ConnectionFailure,
    HeaderDecoder,
    decode_huffman,
)

Pair = tuple[bytes, bytes]

_names = st.one_of(
    st.sampled_from([b":path", b":method", b"content-type", b"grpc-timeout", b"a", b"authorization"]),
    st.binary(min_size=1, max_size=10),
)
_values = st.one_of(
    st.sampled_from([b"", b"POST", b"/", b"application/grpc", b"1S"]),
    st.binary(max_size=20),
    st.binary(min_size=100, max_size=300),
)
_lists = st.lists(st.tuples(_names, _values), max_size=8)
_few_lists = st.lists(_lists, min_size=1, max_size=3)

LARGE = Http2Limits(header_list_bytes_max=10_000_000, header_count_max=1_000_000)
UNCACHED = replace(LARGE, cached_bytes_max=0, cached_blocks_max=0)


def decoded_by(theirs: hpack.Decoder, encoded: bytes) -> list[Pair]:
    return [(bytes(name), bytes(value)) for name, value in theirs.decode(encoded, raw=True)]


@given(data=st.data(), lists=_few_lists)
def test_cache_never_answers_other_than_the_decoder(
    data: st.DataObject, lists: list[list[Pair]]
) -> None:
    """A few header lists again and again, indexed as `hpack` likes, with table sizes that change."""
    encoder = hpack.Encoder()
    cached = HeaderDecoder(LARGE, client_side=False)
    uncached = HeaderDecoder(UNCACHED, client_side=False)
    theirs = hpack.Decoder(max_header_list_size=10_000_000)
    steps = data.draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4_096)), max_size=40))
    for choice, size in steps:
        if choice == 12:
            encoder.header_table_size = size
        pairs = lists[choice % len(lists)]
        encoded = encoder.encode(pairs, huffman=choice % 4 > 0)
        ours, again = cached.decode(encoded), uncached.decode(encoded)
        assert list(ours.pairs) == list(again.pairs) == decoded_by(theirs, encoded) == pairs
        assert ours.is_malformed == again.is_malformed
        assert cached._entries == uncached._entries
        assert cached._table_bytes_max == uncached._table_bytes_max
        assert not uncached.cache


@given(pairs=_lists)
def test_what_we_encode_means_the_same_to_hpack(pairs: list[Pair]) -> None:
    assert decoded_by(hpack.Decoder(max_header_list_size=10_000_000), encode_headers(pairs)) == pairs


_fields = st.one_of(
    st.integers(0x80, 0xFF).map(lambda byte: bytes((byte,))),
    st.sampled_from([b"\x40\x01a\x01b", b"\x41\x01x", b"\x10\x01n\x00", b"\x7e\x01c", b"\xbe"]),
    st.sampled_from([b"\x20", b"\x3f\x45", b"\x3f\xe1\x1f", b"\x3f\xe2\x1f"]),
    st.binary(max_size=6),
)


@given(blocks=st.lists(st.lists(_fields, max_size=6).map(b"".join), max_size=4))
def test_nonsense_is_refused_or_means_what_it_means_to_hpack(blocks: list[bytes]) -> None:
    ours = HeaderDecoder(LARGE, client_side=False)
    theirs = hpack.Decoder(max_header_list_size=10_000_000)
    for block in blocks:
        expected: list[Pair] | None
        try:
            expected = decoded_by(theirs, block)
        except hpack.HPACKError:
            expected = None
        try:
            got = list(ours.decode(block).pairs)
        except ConnectionFailure as failure:
            # We also refuse what is legal and absurd: long-winded integers, a dozen resizes in a row.
            assert expected is None or "too long" in failure.reason or "resize" in failure.reason
            return
        assert got == expected


def test_constants_are_those_of_hpack() -> None:
    assert STATIC_TABLE == HeaderTable.STATIC_TABLE
    assert TABLE_BYTES == HeaderTable.DEFAULT_SIZE
    assert list(CODE_LENGTHS) == REQUEST_CODES_LENGTH


_huffman = hpack.Encoder().huffman_coder


@given(text=st.binary(max_size=100))
def test_huffman_code_is_read_back(text: bytes) -> None:
    assert decode_huffman(_huffman.encode(text)) == text


@given(encoded=st.one_of(st.binary(max_size=12), st.binary(max_size=6).map(lambda end: end + b"\xff")))
def test_huffman_nonsense_is_refused_exactly_if_hpack_refuses_it(encoded: bytes) -> None:
    expected: bytes | None
    try:
        expected = their_decode_huffman(encoded)
    except hpack.HPACKError:
        expected = None
    try:
        got = decode_huffman(encoded)
    except ConnectionFailure:
        assert expected is None
    else:
        assert got == expected
