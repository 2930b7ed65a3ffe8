"""Varints and other primitives, called by the generated encoders and decoders.

The generated code handles the common case itself (a varint of one byte) and calls these functions
for the rest.  The references are the official encoding document (protobuf.dev, "Encoding") and,
where it leaves a choice, the behaviour of the official parsers.

Invariants
    * Reading past the end of the data raises IndexError; the generated decoder turns it into a
      `ProtocolError` that names the message.  The decoder also detects a field that reaches past
      the end of its own message, because the position then misses that end.
    * A varint is read in at most ten steps, however many continuation bytes follow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from quoracy.errors import InvalidRequest, ProtocolError

DEPTH_MAX: Final = 100
"""How deep messages may nest; the limit of the official parsers."""

UINT64_MAX: Final = (1 << 64) - 1
REMEMBERED_MAX: Final = 1024
"""The size of the caches of large numbers; the least recently used are dropped."""

# Groups of seven bits: the last group of a number, and a group that others follow.  Tables of two
# groups would save little time and take 1.8 MB.
_LAST: Final = tuple(bytes((group,)) for group in range(128))
_MORE: Final = tuple(bytes((group | 128,)) for group in range(128))


# -- writing ---------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """The varint of a value from 0 to 2**64 - 1, which is not checked."""
    if value < 1 << 7:
        return _LAST[value]
    if value < 1 << 14:
        return _MORE[value & 0x7F] + _LAST[value >> 7]
    return _MORE[value & 0x7F] + _MORE[value >> 7 & 0x7F] + varint(value >> 14)


def int64(value: int) -> bytes:
    """An int64.  Revisions are always new; leases are large and come again, so they are cached."""
    return varint(value) if 0 <= value < 1 << 42 else _long_int64(value)


@lru_cache(maxsize=REMEMBERED_MAX)
def _long_int64(value: int) -> bytes:
    if not -1 << 63 <= value < 1 << 63:
        raise out_of_range(value, "int64")
    return varint(value & UINT64_MAX)


@lru_cache(maxsize=REMEMBERED_MAX)
def uint64(value: int) -> bytes:
    """A uint64: the ids of clusters and members, of which there are few."""
    if not 0 <= value <= UINT64_MAX:
        raise out_of_range(value, "uint64")
    return varint(value)


def int32(value: int) -> bytes:
    """An int32.  Negative numbers take ten bytes, as 64-bit numbers do: the format requires it."""
    if not -1 << 31 <= value < 1 << 31:
        raise out_of_range(value, "int32")
    return varint(value & UINT64_MAX)


def uint32(value: int) -> bytes:
    if not 0 <= value < 1 << 32:
        raise out_of_range(value, "uint32")
    return varint(value)


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"text {text[:80]!r} cannot be sent: {error.reason} at character {error.start}. "
            "Send text without surrogates, or use a field that takes bytes."
        ) from None


def out_of_range(value: int, kind: str) -> InvalidRequest:
    return InvalidRequest(f"{value} does not fit the {kind} that is sent. Use a smaller number.")


def two_of_oneof(message: str, oneof: str) -> InvalidRequest:
    return InvalidRequest(f"{message} has more than one member of its oneof {oneof!r} set. Set one.")


def nested_too_deep(message: str) -> InvalidRequest:
    return InvalidRequest(f"{message} nests more than {DEPTH_MAX} messages deep. Flatten it.")


# -- reading ---------------------------------------------------------------------------------


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A value of several bytes, truncated to 64 bits, and the position after it."""
    first, second = data[pos], data[pos + 1]
    if second < 128:
        return first + (second << 7) - 0x80, pos + 2
    third = data[pos + 2]
    if third < 128:
        return first + (second << 7) + (third << 14) - 0x4080, pos + 3
    fourth = data[pos + 3]
    if fourth < 128:
        return first + (second << 7) + (third << 14) + (fourth << 21) - 0x204080, pos + 4
    value, size = _read_long(data[pos : pos + 10])
    return value, pos + size


@lru_cache(maxsize=REMEMBERED_MAX)
def _read_long(data: bytes) -> tuple[int, int]:
    """The value and the size of the varint that `data` starts with."""
    value = 0
    for index in range(10):
        byte = data[index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value & UINT64_MAX, index + 1
    raise ProtocolError("a varint is longer than ten bytes.")


def read_size(data: bytes, pos: int) -> tuple[int, int]:
    """A length, which takes at most five bytes, and the position after it."""
    size, after = read_varint(data, pos)
    if size >= 1 << 31 or after - pos > 5:
        raise ProtocolError("a field claims to be longer than 2 GiB.")
    return size, after


def read_uint32(data: bytes, pos: int) -> tuple[int, int]:
    value, pos = read_varint(data, pos)
    return value & 0xFFFFFFFF, pos


def read_int32(data: bytes, pos: int) -> tuple[int, int]:
    value, pos = read_varint(data, pos)
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, pos


def read_bool(data: bytes, pos: int) -> tuple[bool, int]:
    value, pos = read_varint(data, pos)
    return value != 0, pos


def read_tag(data: bytes, pos: int) -> tuple[int, int]:
    """A tag of several bytes (a field number above 15, or a small one written the long way), and the
    position of its last byte."""
    tag, after = read_varint(data, pos)
    if tag > 0xFFFFFFFF or after - pos > 5:
        raise ProtocolError("a field number is too large.")
    return tag, after - 1


def skip(data: bytes, pos: int, end: int, tag: int, depth: int) -> int:
    """The position after an unknown field.

    Its bytes are not kept, because messages are never forwarded.
    """
    groups: list[int] = []
    while True:
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ProtocolError("a field has the number 0.")
        if wire == 0:
            pos = pos + 1 if data[pos] < 128 else read_varint(data, pos)[1]
        elif wire == 1:
            pos += 8
        elif wire == 2:
            size, pos = (data[pos], pos + 1) if data[pos] < 128 else read_size(data, pos)
            pos += size
        elif wire == 5:
            pos += 4
        elif wire == 3:
            groups.append(number)
            if len(groups) > depth:
                raise ProtocolError(f"groups nest more than {DEPTH_MAX} deep.")
        elif wire == 4 and groups and groups.pop() == number:
            pass
        else:
            raise ProtocolError(f"a field has the wire type {wire}, which does not belong there.")
        if not groups:
            return pos
        if pos >= end:
            raise IndexError
        tag, pos = (data[pos], pos) if data[pos] < 128 else read_tag(data, pos)
        pos += 1


def cut_short(message: str) -> ProtocolError:
    return ProtocolError(f"{message} ends in the middle of a field.")


def too_deep(message: str) -> ProtocolError:
    return ProtocolError(f"{message} is nested more than {DEPTH_MAX} messages deep.")


def not_utf8(message: str, error: UnicodeDecodeError) -> ProtocolError:
    return ProtocolError(f"{message} has text that is not UTF-8: {error.reason}.")
