"""HPACK, the compression of HTTP/2 headers (RFC 7541): a stateless encoder and a caching decoder.

A busy client sends the same few header blocks again and again.  Once its HPACK table has settled, the
same bytes mean the same headers, so the decoder caches each `HeaderBlock` under its encoded bytes.

Huffman-coded strings are decoded a byte at a time: for each inner node of the code's tree and each
byte, the symbols that end in that byte and the node where it stops are computed once and kept.
Clients with deadlines send a new string with every call, so this is on the path of every request.

Invariants
    * A block is cached only if decoding it did not change the table, and the cache is emptied when the
      table changes: a cached answer is always the one that decoding would give.
    * The encoder uses only the static table, so an encoded block is valid on every connection.
      Credentials are marked as never to be indexed.
    * A block over the limits is still decoded to its end, because our copy of the peer's table must
      stay correct, but its headers are not kept.
    * The Huffman tree has 256 inner nodes, so at most 65,536 steps are kept, for all connections
      together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from quoracy.errors import ProtocolError
from quoracy.wire.http2.codes import ErrorCode
from quoracy.wire.http2.header_block import MALFORMED, PSEUDO, HeaderBlock, field_flags
from quoracy.wire.http2.limits import Http2Limits

__all__ = [
    "CODE_LENGTHS",
    "STATIC_TABLE",
    "TABLE_BYTES",
    "ConnectionFailure",
    "HeaderDecoder",
    "decode_huffman",
    "encode_headers",
]


class ConnectionFailure(ProtocolError):
    """The peer broke a rule, and the connection ends.  `Connection.receive` never raises it."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


# ---- Constants (RFC 7541, appendices A and B)

# The size of a connection's table until another one is agreed on (RFC 9113, section 6.5.2).
TABLE_BYTES: Final = 4_096

# Names and values.  The numbering starts at 1.
STATIC_TABLE: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
)

# Bits of the Huffman code of each byte, and of the end of a string.  The code is canonical: codes of
# the same length are numbers one after the other, in the order of what they stand for, and the first of
# the next length follows the last of the one before.
CODE_LENGTHS: Final = bytes((
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
))  # fmt: skip


# ---- Encoding

_STATIC_PAIRS: Final = {pair: index for index, pair in enumerate(STATIC_TABLE, 1)}
_STATIC_NAMES: Final = {name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE, 1)))}
_SECRET: Final = frozenset(
    {b"authorization", b"cookie", b"proxy-authorization", b"set-cookie", b"token"}
)


def encode_headers(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """An encoded block, valid on any connection.  Names are lower case; pseudo headers come first."""
    block = bytearray()
    for pair in pairs:
        index = _STATIC_PAIRS.get(pair)
        if index is not None:
            block.append(0x80 | index)
            continue
        name, value = pair
        kind = 0x10 if name in _SECRET else 0x00
        index = _STATIC_NAMES.get(name, 0)
        _append_integer(block, kind, 0x0F, index)
        if not index:
            _append_integer(block, 0, 0x7F, len(name))
            block += name
        _append_integer(block, 0, 0x7F, len(value))
        block += value
    return bytes(block)


def _append_integer(block: bytearray, kind: int, mask: int, number: int) -> None:
    """RFC 7541, section 5.1."""
    if number < mask:
        block.append(kind | number)
        return
    block.append(kind | mask)
    number -= mask
    while number >= 0x80:
        block.append(0x80 | (number & 0x7F))
        number >>= 7
    block.append(number)


# ---- Huffman code (RFC 7541, section 5.2), decoded a byte at a time

_END_OF_STRING: Final = 256
# For each node, its successors for the bits 0 and 1: another node, or the complement of a symbol (< 0).
_TREE: Final[list[list[int]]] = [[0, 0]]


class _NotHuffman(Exception):
    """The bytes are not a Huffman-coded string."""


def decode_huffman(encoded: bytes) -> bytes:
    """The text of a Huffman-coded string.  Raises `ConnectionFailure` for anything else."""
    try:
        return _walk(encoded)
    except _NotHuffman:
        raise _broken("a string is not Huffman code") from None


def _walk(encoded: bytes) -> bytes:
    node = 0
    parts = []
    for byte in encoded:
        node, symbols = _STEPS[node << 8 | byte]
        if symbols:
            parts.append(symbols)
    if node not in _ENDS:
        raise _NotHuffman
    return b"".join(parts)


class _Steps(dict[int, tuple[int, bytes]]):
    """Maps (node, byte), as one number, to the node where the byte ends and the symbols in it."""

    __slots__ = ()

    def __missing__(self, key: int) -> tuple[int, bytes]:
        node, byte = key >> 8, key & 0xFF
        symbols = bytearray()
        for shift in range(7, -1, -1):
            node = _TREE[node][byte >> shift & 1]
            if node < 0:
                symbol = ~node
                if symbol == _END_OF_STRING:
                    raise _NotHuffman
                symbols.append(symbol)
                node = 0
        step = self[key] = (node, bytes(symbols))
        return step


def _grow_tree() -> None:
    code = length_before = 0
    for symbol in sorted(range(len(CODE_LENGTHS)), key=lambda symbol: (CODE_LENGTHS[symbol], symbol)):
        length = CODE_LENGTHS[symbol]
        code <<= length - length_before
        length_before = length
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if not _TREE[node][bit]:
                _TREE.append([0, 0])
                _TREE[node][bit] = len(_TREE) - 1
            node = _TREE[node][bit]
        _TREE[node][code & 1] = ~symbol
        code += 1


def _nodes_after_ones() -> frozenset[int]:
    """The nodes where a string may end: its last byte is padded with at most seven 1 bits."""
    nodes = [0]
    for _ in range(7):
        nodes.append(_TREE[nodes[-1]][1])
    return frozenset(nodes)


_grow_tree()
_ENDS: Final = _nodes_after_ones()
_STEPS: Final = _Steps()


# ---- Decoding

# A field in a table: its name and value, its size as RFC 7541 counts it, and its flags.
_Entry: TypeAlias = tuple[tuple[bytes, bytes], int, int]

_ENTRY_OVERHEAD: Final = 32
_STATIC: Final[tuple[_Entry, ...]] = tuple(
    ((name, value), len(name) + len(value) + _ENTRY_OVERHEAD, field_flags(name, value))
    for name, value in STATIC_TABLE
)
_STATIC_COUNT: Final = len(_STATIC)
# An encoder needs two (RFC 7541, section 4.2); some send one per change of the setting.
_RESIZES_PER_BLOCK_MAX: Final = 8
_OVERSIZE_TOLERATED: Final = 4


class HeaderDecoder:
    """Decodes one direction of one connection."""

    __slots__ = (
        "_cached_bytes", "_client_side", "_entries", "_entries_bytes", "_limits", "_table_bytes_max",
        "cache", "changes", "resizes", "table_bytes_allowed",
    )  # fmt: skip

    def __init__(self, limits: Http2Limits, *, client_side: bool) -> None:
        self._limits = limits
        self._client_side = client_side
        self.cache: dict[bytes, HeaderBlock] = {}
        self._cached_bytes = 0
        self._entries: deque[_Entry] = deque()  # newest first, as they are numbered
        self._entries_bytes = 0
        self._table_bytes_max = TABLE_BYTES
        self.table_bytes_allowed = max(TABLE_BYTES, limits.header_table_bytes_max)
        # How often the table was changed at all, and how often it was resized by the peer.
        self.changes = 0
        self.resizes = 0

    def decode(self, encoded: bytes) -> HeaderBlock:
        block = self.cache.get(encoded)
        return block if block is not None else self.decode_new(encoded)

    def allow_table_bytes(self, allowed: int) -> None:
        """The peer acknowledged our setting: from the next block on, its table must fit."""
        if allowed != self.table_bytes_allowed:
            self.table_bytes_allowed = allowed
            self._forget()

    def decode_new(self, encoded: bytes) -> HeaderBlock:
        """Decodes a block that is not in the cache."""
        limit = self._limits.header_block_bytes_max
        if len(encoded) > limit:
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block of over {limit:,} bytes"
            )
        changes = self.changes
        try:
            block, size = self._decode(encoded)
        except IndexError:
            raise _broken("it ends inside a field, or names an entry that is not there") from None
        if self._table_bytes_max > self.table_bytes_allowed:
            raise _broken("the table was not shrunk to the acknowledged setting")
        if self.changes != changes:
            self._forget()
        elif not block.is_oversize:
            self._remember(encoded, block, size + len(encoded))
        return block

    def _remember(self, encoded: bytes, block: HeaderBlock, size: int) -> None:
        limits, cache = self._limits, self.cache
        if size > limits.cached_bytes_max // 4 or not limits.cached_blocks_max:
            return
        while cache and (
            len(cache) >= limits.cached_blocks_max
            or self._cached_bytes + size > limits.cached_bytes_max
        ):
            oldest = next(iter(cache))
            self._cached_bytes -= len(oldest) + _size_of(cache.pop(oldest))
        cache[encoded] = block
        self._cached_bytes += size

    def _forget(self) -> None:
        if self.cache:
            self.cache.clear()
            self._cached_bytes = 0

    def _decode(self, encoded: bytes) -> tuple[HeaderBlock, int]:
        bytes_max, count_max = self._limits.header_list_bytes_max, self._limits.header_count_max
        entries = self._entries
        pairs: list[tuple[bytes, bytes]] = []
        size = flags = position = resizes = 0
        regular_came = oversize = False
        end = len(encoded)
        while position < end:
            first = encoded[position]
            if first & 0x80:
                index = first & 0x7F
                position += 1
                if index == 0x7F:
                    index, position = _integer(encoded, position, 0x7F)
                if index > _STATIC_COUNT:
                    entry = entries[index - _STATIC_COUNT - 1]
                elif index:
                    entry = _STATIC[index - 1]
                else:
                    raise _broken("there is no entry 0 in the table")
            elif first & 0x40:
                entry, position = self._literal(encoded, position, first, 0x3F)
                self._insert(entry)
            elif first & 0x20:
                resizes += 1
                if size or resizes > _RESIZES_PER_BLOCK_MAX:
                    raise _broken("a table resize where none may be")
                position = self._resize(encoded, position, first)
                continue
            else:
                entry, position = self._literal(encoded, position, first, 0x0F)
            pair, entry_size, kind = entry
            size += entry_size
            if size > bytes_max or len(pairs) == count_max:
                self._check_bomb(size)
                oversize = True
                continue
            pairs.append(pair)
            if not kind & PSEUDO:
                regular_came = True
            elif regular_came:
                flags |= MALFORMED
            flags |= kind
        if oversize:
            block = HeaderBlock()
            block.is_oversize = True
        else:
            block = HeaderBlock.of(pairs, flags, client_side=self._client_side)
        return block, size

    def _check_bomb(self, size: int) -> None:
        if size > _OVERSIZE_TOLERATED * self._limits.header_list_bytes_max:
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"headers decode to over {_OVERSIZE_TOLERATED} times the "
                f"{self._limits.header_list_bytes_max:,} bytes allowed",
            )

    def _literal(self, encoded: bytes, position: int, first: int, mask: int) -> tuple[_Entry, int]:
        index = first & mask
        position += 1
        if index == mask:
            index, position = _integer(encoded, position, mask)
        if index > _STATIC_COUNT:
            name = self._entries[index - _STATIC_COUNT - 1][0][0]
        elif index:
            name = _STATIC[index - 1][0][0]
        else:
            name, position = _string(encoded, position)
        value, position = _string(encoded, position)
        size = len(name) + len(value) + _ENTRY_OVERHEAD
        return ((name, value), size, field_flags(name, value)), position

    def _insert(self, entry: _Entry) -> None:
        """RFC 7541, section 4.4: entries are evicted first; one that is too large empties the table."""
        if entry[1] > self._table_bytes_max and not self._entries:
            return
        self.changes += 1
        self._entries_bytes += entry[1]
        self._entries.appendleft(entry)
        self._evict()

    def _resize(self, encoded: bytes, position: int, first: int) -> int:
        size = first & 0x1F
        position += 1
        if size == 0x1F:
            size, position = _integer(encoded, position, 0x1F)
        if size > self.table_bytes_allowed:
            raise _broken(f"a table of {size:,} bytes; {self.table_bytes_allowed:,} are allowed")
        self.changes += 1
        self.resizes += 1
        self._table_bytes_max = size
        self._evict()
        return position

    def _evict(self) -> None:
        while self._entries_bytes > self._table_bytes_max:
            self._entries_bytes -= self._entries.pop()[1]


def _size_of(block: HeaderBlock) -> int:
    return sum(len(name) + len(value) + _ENTRY_OVERHEAD for name, value in block.pairs)


def _integer(encoded: bytes, position: int, number: int) -> tuple[int, int]:
    """The rest of an integer whose prefix was full (RFC 7541, section 5.1).

    Four more bytes make 2**28: more than any size or index here can be.
    """
    for shift in (0, 7, 14, 21):
        byte = encoded[position]
        position += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise _broken("an integer is too long")


def _string(encoded: bytes, position: int) -> tuple[bytes, int]:
    first = encoded[position]
    length = first & 0x7F
    position += 1
    if length == 0x7F:
        length, position = _integer(encoded, position, 0x7F)
    end = position + length
    if end > len(encoded):
        raise _broken("it ends inside a string")
    text = encoded[position:end]
    if first & 0x80:
        text = decode_huffman(text)
    return text, end


def _broken(what: str) -> ConnectionFailure:
    return ConnectionFailure(ErrorCode.COMPRESSION_ERROR, f"a header block cannot be decoded: {what}")
