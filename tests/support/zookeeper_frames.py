"""Requests of ZooKeeper's protocol as bytes, right or wrong: for tests that write them by hand."""

from __future__ import annotations

import struct

__all__ = [
    "MULTI_END",
    "OPEN",
    "acl",
    "auth_body",
    "connect_frame",
    "create_body",
    "frame",
    "get_body",
    "multi_header",
    "request",
    "set_body",
    "text",
]


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def acl(*entries: tuple[int, bytes, bytes]) -> bytes:
    packed = [struct.pack(">i", perms) + text(scheme) + text(id) for perms, scheme, id in entries]
    return struct.pack(">i", len(entries)) + b"".join(packed)


OPEN = acl((31, b"world", b"anyone"))


def request(xid: int, op: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">ii", xid, op) + body)


def connect_frame(
    *,
    timeout_ms: int = 10_000,
    session_id: int = 0,
    password: bytes = bytes(16),
    zxid: int = 0,
    read_only: bytes = b"\0",
) -> bytes:
    head = struct.pack(">iqiq", 0, zxid, timeout_ms, session_id)
    return frame(head + text(password) + read_only)


def create_body(path: bytes, data: bytes = b"", *, acls: bytes = OPEN, flags: int = 0) -> bytes:
    return text(path) + text(data) + acls + struct.pack(">i", flags)


def get_body(path: bytes, *, watch: bool = False) -> bytes:
    return text(path) + bytes((watch,))


def set_body(path: bytes, data: bytes, version: int = -1) -> bytes:
    return text(path) + text(data) + struct.pack(">i", version)


def auth_body(scheme: bytes, proof: bytes) -> bytes:
    return struct.pack(">i", 0) + text(scheme) + text(proof)


def multi_header(op: int) -> bytes:
    """What stands before each operation of a multi."""
    return struct.pack(">i?i", op, False, -1)


MULTI_END = struct.pack(">i?i", -1, True, -1)
