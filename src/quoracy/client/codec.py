"""Values of a type, as bytes in the store: bytes as they are, str as UTF-8, all others as JSON.

    codec = codec_of(Settings)            # any type msgspec knows: Struct, dataclass, list[int], ...
    codec.decode(key, codec.encode(value))

What is decoded is checked: a value of another type raises `ValueUnreadable`, which names the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from quoracy.errors import InvalidRequest, ValueUnreadable

__all__ = ["Codec", "codec_of"]

T = TypeVar("T")


class Codec(Generic[T]):
    """The encoding of values of one type."""

    __slots__ = ("_decode", "_encode", "type_name")

    def __init__(
        self, type_name: str, encode: Callable[[T], bytes], decode: Callable[[bytes], T]
    ) -> None:
        self.type_name, self._encode, self._decode = type_name, encode, decode

    def encode(self, value: T) -> bytes:
        try:
            return self._encode(value)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"{value!r} cannot be stored as {self.type_name}: {error}.") from error

    def decode(self, key: bytes, data: bytes) -> T:
        """`key` is for the message."""
        try:
            return self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueUnreadable(key, wanted=self.type_name, why=str(error)) from error
        except Exception as error:  # the `__post_init__` of a type is the program's own
            raise ValueUnreadable(key, wanted=self.type_name, why=repr(error)) from error


def codec_of(type: type[T]) -> Codec[T]:
    """The codec for a type.  Raises `InvalidRequest` for one that cannot be stored."""
    name = getattr(type, "__name__", str(type))
    if type is bytes:
        return cast("Codec[T]", Codec("bytes", _same_bytes, bytes))
    if type is str:
        return cast("Codec[T]", Codec("str", _utf8, lambda data: data.decode()))
    try:
        decoder = msgspec.json.Decoder(type)
    except TypeError as error:
        raise InvalidRequest(f"{name} cannot be stored: {error}. See msgspec's types.") from error
    return Codec(name, msgspec.json.encode, decoder.decode)


def _same_bytes(value: bytes) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"it is a {value.__class__.__name__}")
    return bytes(value)


def _utf8(value: str) -> bytes:
    return value.encode()
