"""HPACK's Huffman code (RFC 7541, section 5.2), decoded a byte at a time.

The code's tree is walked by whole bytes: what a byte means at an inner node (which symbols end in it,
and at which node it stops) is found out once and kept.  A client with deadlines sends another string
with every call, so this is on the way of requests; the `hpack` package walks by half bytes.

Invariants
    * There are 256 inner nodes and 256 bytes, so at most 65,536 steps are kept, for all connections.
"""

from __future__ import annotations

from typing import Final

from quoracy.wire.http2.hpack_constants import CODE_LENGTHS

__all__ = ["NotHuffman", "decode"]

_END_OF_STRING: Final = 256
# Node -> what follows a 0 and a 1: another node, or a symbol as its complement (negative).
_TREE: Final[list[list[int]]] = [[0, 0]]


class NotHuffman(Exception):
    """The bytes are not a Huffman-coded string."""


def decode(encoded: bytes) -> bytes:
    node = 0
    parts = []
    for byte in encoded:
        node, symbols = _STEPS[node << 8 | byte]
        if symbols:
            parts.append(symbols)
    if node not in _ENDS:
        raise NotHuffman
    return b"".join(parts)


class _Steps(dict[int, tuple[int, bytes]]):
    """(node, byte) as one number -> (the node where the byte ends, the symbols that ended in it)."""

    __slots__ = ()

    def __missing__(self, key: int) -> tuple[int, bytes]:
        node, byte = key >> 8, key & 0xFF
        symbols = bytearray()
        for shift in range(7, -1, -1):
            node = _TREE[node][byte >> shift & 1]
            if node < 0:
                symbol = ~node
                if symbol == _END_OF_STRING:
                    raise NotHuffman
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
    """Where a string may end: its last byte is filled up with at most seven 1 bits."""
    nodes = [0]
    for _ in range(7):
        nodes.append(_TREE[nodes[-1]][1])
    return frozenset(nodes)


_grow_tree()
_ENDS: Final = _nodes_after_ones()
_STEPS: Final = _Steps()
