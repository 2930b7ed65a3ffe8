"""Jute, ZooKeeper's serialization, written for tests: no code of ours is on both sides.

Sending refuses nothing: an absent string, a path that is not UTF-8 and a count that lies are what tests
want to send.  Reading is exact: bytes that are missing or left over are an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["JuteReader", "Unreadable", "boolean", "buffer", "int32", "int64", "text", "vector"]

T = TypeVar("T")


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


def boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def buffer(value: bytes | None) -> bytes:
    return int32(-1) if value is None else int32(len(value)) + value


def text(value: str | bytes | None) -> bytes:
    """Bytes go as they are, so that they need not be UTF-8."""
    return buffer(value.encode() if isinstance(value, str) else value)


def vector(items: Iterable[bytes] | None) -> bytes:
    """Of items that are encoded; None is a vector of length -1."""
    if items is None:
        return int32(-1)
    encoded = list(items)
    return int32(len(encoded)) + b"".join(encoded)


class Unreadable(Exception):
    """The bytes are not what they should be."""


class JuteReader:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def boolean(self) -> bool:
        return self._take(1) != b"\0"

    def buffer(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def text(self) -> str | None:
        data = self.buffer()
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def vector(self, read: Callable[[], T]) -> list[T] | None:
        count = self.int32()
        if count == -1:
            return None
        if not 0 <= count <= len(self._data):
            raise Unreadable(f"a vector of {count} items")
        return [read() for _ in range(count)]

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise Unreadable(f"{size} bytes wanted at {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]
