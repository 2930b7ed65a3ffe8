"""A decoded list of headers, checked against the rules of RFC 9113, section 8.

Each field is checked when it is decoded (`field_flags`; an entry of the HPACK table is checked only
once), and all fields together when a block is complete (`HeaderBlock.of`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Self

__all__ = ["EDGE_SPACE", "LENGTH", "MALFORMED", "PSEUDO", "HeaderBlock", "field_flags"]

Pair = tuple[bytes, bytes]

# Flags of a single field.
MALFORMED: Final = 1
PSEUDO: Final = 2
LENGTH: Final = 4
EDGE_SPACE: Final = 8

_NAME_IS_LEGAL: Final = re.compile(rb"[a-z0-9!#$%&'*+\-.^_`|~]+").fullmatch
_VALUE_IS_ILLEGAL: Final = re.compile(rb"[\x00\r\n]").search
_REQUEST_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_PSEUDO: Final = _REQUEST_PSEUDO | {b":status"}
_CONNECTION_SPECIFIC: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
# No legitimate length has more digits.
_LENGTH_DIGITS_MAX: Final = 18


def field_flags(name: bytes, value: bytes) -> int:
    """The flags of one field: 0 for an ordinary one, else MALFORMED, PSEUDO, LENGTH, EDGE_SPACE."""
    flags = 0
    if name[:1] == b":":
        flags = PSEUDO if name in _PSEUDO else PSEUDO | MALFORMED
    elif not _NAME_IS_LEGAL(name) or name in _CONNECTION_SPECIFIC:
        flags = MALFORMED
    elif name == b"te":
        flags = 0 if value.lower() == b"trailers" else MALFORMED
    elif name == b"content-length":
        legal = value.isdigit() and len(value) <= _LENGTH_DIGITS_MAX
        flags = LENGTH if legal else MALFORMED
    if _VALUE_IS_ILLEGAL(value):
        flags |= MALFORMED
    if value != value.strip(b" \t"):
        flags |= EDGE_SPACE
    return flags


class HeaderBlock:
    """Headers in the order received; pseudo headers are also attributes (None if absent).

    The same encoded bytes give the same object again, so the layer above can keep what it derives
    from a block in `note`.
    """

    __slots__ = (
        "authority", "content_length", "is_malformed", "is_oversize", "is_trailers", "method", "note",
        "pairs", "path", "scheme", "status",
    )  # fmt: skip

    def __init__(self, pairs: Sequence[Pair] = ()) -> None:
        self.pairs: tuple[Pair, ...] = tuple(pairs)
        self.method: bytes | None = None
        self.path: bytes | None = None
        self.authority: bytes | None = None
        self.scheme: bytes | None = None
        self.status: bytes | None = None
        self.content_length: int | None = None
        self.note: object | None = None
        # Malformed as the head of a message; a block without pseudo headers can only be trailers.
        self.is_malformed = False
        self.is_trailers = False
        # Over the limits on size or count; `pairs` is incomplete.
        self.is_oversize = False

    @classmethod
    def of(cls, pairs: Sequence[Pair], flags: int, *, client_side: bool) -> Self:
        """`flags` combines those of all fields; MALFORMED also means that a pseudo header came late."""
        block = cls(pairs)
        malformed = bool(flags & MALFORMED)
        # Differs from RFC 9113, 8.2.1: values of a response may begin or end with a space, because
        # grpc-go sends error texts unchanged.
        if flags & EDGE_SPACE and not client_side:
            malformed = True
        if flags & PSEUDO:
            legal = block._read_status() if client_side else block._read_request()
            malformed = malformed or not legal
        else:
            block.is_trailers = True
        if flags & LENGTH:
            lengths = {int(value) for name, value in pairs if name == b"content-length"}
            block.content_length = max(lengths)
            malformed = malformed or len(lengths) > 1
        block.is_malformed = malformed
        return block

    def get(self, name: bytes) -> bytes | None:
        """The first value with that name."""
        for each, value in self.pairs:
            if each == name:
                return value
        return None

    def __repr__(self) -> str:
        return f"HeaderBlock({self.pairs!r})"

    def _read_request(self) -> bool:
        """RFC 9113, section 8.3.1."""
        found = {}
        for name, value in self.pairs:
            if name[:1] != b":":
                break
            if name in found or name not in _REQUEST_PSEUDO:
                return False
            found[name] = value
        self.method = method = found.get(b":method")
        self.scheme = scheme = found.get(b":scheme")
        self.path = path = found.get(b":path")
        self.authority = found.get(b":authority")
        if not method:
            return False
        if method == b"CONNECT":
            return scheme is None and path is None and bool(self.authority)
        if not scheme or not path:
            return False
        return path[:1] == b"/" or (path == b"*" and method == b"OPTIONS")

    def _read_status(self) -> bool:
        """RFC 9113, section 8.3.2: only `:status`.  101 has no meaning in HTTP/2 (section 8.6)."""
        (name, status), *others = self.pairs
        self.status = status
        return (
            name == b":status"
            and len(status) == 3
            and status.isdigit()
            and status[:1] in b"12345"
            and status != b"101"
            and not any(each[:1] == b":" for each, _ in others)
        )
