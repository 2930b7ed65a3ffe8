"""Records as a client sends them, field by field; this shares nothing with the decoder."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def i32(number: int) -> bytes:
    return struct.pack(">i", number)


def i64(number: int) -> bytes:
    return struct.pack(">q", number)


def buf(data: bytes | None) -> bytes:
    return i32(-1) if data is None else i32(len(data)) + data


def vector(elements: Iterable[bytes]) -> bytes:
    encoded = list(elements)
    return i32(len(encoded)) + b"".join(encoded)


def acl_entry(perms: int, scheme: bytes | None, id_: bytes | None) -> bytes:
    return i32(perms) + buf(scheme) + buf(id_)


def multi_header(kind: int, *, done: int = 0, err: int = -1) -> bytes:
    return i32(kind) + bytes([done]) + i32(err)


OPEN = vector([acl_entry(31, b"world", b"anyone")])
END = multi_header(-1, done=1)
