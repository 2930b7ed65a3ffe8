"""Decoding of what comes from outside: whatever msgspec raises becomes a `ProtocolError`."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from quoracy.errors import ProtocolError

__all__ = ["UNREADABLE", "decode"]

# Text that is not UTF-8 and arrays nested a thousand deep have exceptions of their own.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T_co = TypeVar("T_co", covariant=True)


class _Decoder(Protocol[T_co]):
    def decode(self, buf: bytes | memoryview, /) -> T_co: ...


def decode(decoder: _Decoder[T_co], data: bytes | memoryview, otherwise: str) -> T_co:
    """What the bytes say.  Raises `ProtocolError`, beginning with `otherwise`, if they are damaged."""
    try:
        return decoder.decode(data)
    except UNREADABLE as error:
        raise ProtocolError(f"{otherwise}: {error}") from error
