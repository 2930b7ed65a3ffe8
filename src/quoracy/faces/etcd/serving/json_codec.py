"""Messages as JSON, the way etcd 3.5's gateway writes and reads them.  Sans-IO.

Written: names as in the proto files, fields with default values left out, 64-bit integers as strings,
bytes as padded base64, enums by name.

Read: either name of a field (the camelCase one counts if both are there), integers as numbers or as
strings, enums by name or number, null for absent; fields nobody knows are ignored and the last of two
equal keys counts, both as in etcd; of two members of a oneof, the later in the proto file counts.

Differs from etcd 3.5: base64 may be URL-safe and unpadded (as etcd 3.6 allows); text that is not UTF-8
is refused instead of patched; what is wrong with a value is said with the field's name instead of Go's
types.

Invariants
    * Input raises `ProtocolError`, or `GrpcError` with RESOURCE_EXHAUSTED when it is too large, and
      nothing else, whatever it is.
    * Cutting a stream into objects keeps at most `size_max` bytes and a piece, and looks at each byte
      once.
    * How messages map is worked out once for each class.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, TypeAlias, TypeVar, assert_never, cast

import msgspec

from quoracy.errors import ProtocolError
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.protobuf import FieldSpec, Kind, Message, fields_of

__all__ = [
    "ObjectSplitter",
    "decode_first_json",
    "decode_json",
    "encode_json",
    "too_large",
]

MessageT = TypeVar("MessageT", bound=Message)

# Far more than any request nests, and far less than what would exhaust the interpreter's stack.
DEPTH_MAX = 100
_EXCERPT_CHARS_MAX = 40

_SPACE = b" \t\r\n"
# What matters next, outside and inside a string.
_NEXT = (re.compile(rb'["{}\[\]]'), re.compile(rb'["\\]'))
_DECIMAL = re.compile(r"\s*-?(0|[1-9][0-9]{0,19})\s*", re.ASCII)
_INT_BOUNDS = {
    Kind.INT32: (-(1 << 31), (1 << 31) - 1),
    Kind.INT64: (-(1 << 63), (1 << 63) - 1),
    Kind.UINT32: (0, (1 << 32) - 1),
    Kind.UINT64: (0, (1 << 64) - 1),
}
# The URL-safe alphabet is taken as well; line ends are left out, as Go's decoder does.
_TO_STANDARD_BASE64 = str.maketrans({"-": "+", "_": "/", "\r": None, "\n": None})

_parser = msgspec.json.Decoder()


# -- writing ---------------------------------------------------------------------------------

_Writer: TypeAlias = Callable[[Any], Any]


def encode_json(cls: type[Message], message: object) -> bytes:
    """One message as JSON text.

    By its declared class, not the object's own: another one with the same attributes may stand in.
    """
    return msgspec.json.encode(_write_message(cls, message))


def _write_message(cls: type[Message], message: object) -> dict[str, Any]:
    written = {}
    for spec, write in _writers(cls):
        value = getattr(message, spec.name)
        if spec.repeated:
            if value:
                written[spec.name] = [write(each) for each in value]
        elif value is not None if spec.oneof is not None or spec.kind is Kind.MESSAGE else value:
            written[spec.name] = write(value)
    return written


@cache
def _writers(cls: type[Message]) -> tuple[tuple[FieldSpec, _Writer], ...]:
    return tuple((spec, _writer(spec)) for spec in fields_of(cls))


def _writer(spec: FieldSpec) -> _Writer:
    match spec.kind:
        case Kind.INT64 | Kind.UINT64:
            return str
        case Kind.BYTES:
            return _write_bytes
        case Kind.ENUM:
            enum = spec.enum
            assert enum is not None
            names = {member.value: name for name, member in enum.__members__.items()}
            return lambda value: names.get(value, value)
        case Kind.MESSAGE:
            inner = cast(type[Message], spec.message)
            return lambda value: _write_message(inner, value)
        case Kind.INT32 | Kind.UINT32 | Kind.BOOL | Kind.STRING:
            return lambda value: value
        case _:
            assert_never(spec.kind)


def _write_bytes(value: bytes) -> str:
    return b64encode(value).decode("ascii")


# -- reading ---------------------------------------------------------------------------------

# What a reader gets: a value as parsed, and how many messages are around it.
_Reader: TypeAlias = Callable[[Any, int], Any]


def decode_json(cls: type[MessageT], text: bytes) -> MessageT:
    """One JSON object as a message; null is a message without fields."""
    return _as_message(cls, _parse(text))


def decode_first_json(cls: type[MessageT], text: bytes) -> MessageT:
    """The first JSON object of a text as a message, or one without fields if the text is empty.

    What comes after the object is ignored, as etcd does.
    """
    text = text.strip(_SPACE)
    return _as_message(cls, _parse_first(text) if text else None)


def _as_message(cls: type[MessageT], value: object) -> MessageT:
    return cls() if value is None else cast(MessageT, _read_message(cls, value, 1))


def _parse(text: bytes) -> object:
    try:
        return _parser.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a string is not UTF-8: {error.reason}") from None
    except msgspec.DecodeError as error:
        raise _Malformed(str(error)) from None


def _parse_first(text: bytes) -> object:
    try:
        return _parse(text)
    except _Malformed:
        # Is it the object that is wrong, or is there something behind it?  The standard library's
        # parser tells where a value ends; whether it is one is still for ours to say.
        from json import JSONDecodeError, JSONDecoder  # 0.1 MiB, for requests that are wrong

        characters = text.decode("utf-8", "surrogateescape")
        try:
            _, end = JSONDecoder().raw_decode(characters)
        except RecursionError:
            raise _too_deep() from None
        except JSONDecodeError as error:
            if error.pos >= len(characters) or error.msg.startswith("Unterminated string"):
                raise _cut_short() from None
            raise ProtocolError(f"JSON is malformed: {error.msg} (character {error.pos})") from None
        except ValueError:
            end = len(characters)  # an integer of thousands of digits: what ours said stands
        if end == len(characters):
            raise
        return _parse(characters[:end].encode("utf-8", "surrogateescape"))


class _Malformed(ProtocolError):
    """What was parsed is not JSON, or not only JSON."""


def _read_message(cls: type[Message], value: object, depth: int) -> Message:
    if not isinstance(value, dict):
        raise ProtocolError(f"{cls.__name__} is a JSON object, not {_excerpt(value)}")
    if depth > DEPTH_MAX:
        raise _too_deep()
    fields: dict[str, Any] = {}
    taken: dict[str, str] = {}
    for spec, read in _readers(cls):
        given = value.get(spec.name)
        if spec.json_name != spec.name:
            given = value.get(spec.json_name, given)
        if given is None:
            continue
        fields[spec.name] = read(given, depth)
        if spec.oneof is not None:
            fields.pop(taken.pop(spec.oneof, ""), None)
            taken[spec.oneof] = spec.name
    return cls(**fields)


@cache
def _readers(cls: type[Message]) -> tuple[tuple[FieldSpec, _Reader], ...]:
    return tuple((spec, _reader(cls, spec)) for spec in fields_of(cls))


def _reader(cls: type[Message], spec: FieldSpec) -> _Reader:
    where = f"{cls.__name__}.{spec.name}"
    read = _reader_of_one(where, spec)
    if not spec.repeated:
        return read

    def read_all(value: object, depth: int) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(where, "a JSON array", value)
        return [read(each, depth) for each in value]

    return read_all


def _reader_of_one(where: str, spec: FieldSpec) -> _Reader:
    match spec.kind:
        case Kind.INT32 | Kind.INT64 | Kind.UINT32 | Kind.UINT64:
            return _int_reader(where, spec.kind)
        case Kind.BYTES:
            return lambda value, _: _read_bytes(where, value)
        case Kind.STRING:
            return lambda value, _: _read_exactly(str, where, "a string", value)
        case Kind.BOOL:
            return lambda value, _: _read_exactly(bool, where, "true or false", value)
        case Kind.ENUM:
            assert spec.enum is not None
            return _enum_reader(where, spec.enum)
        case Kind.MESSAGE:
            inner = cast(type[Message], spec.message)
            # A null in a list of messages is one without fields.
            return lambda value, depth: _read_message(inner, {} if value is None else value, depth + 1)
        case _:
            assert_never(spec.kind)


def _read_exactly(wanted: type[Any], where: str, what: str, value: object) -> Any:
    if type(value) is not wanted:
        raise _wrong(where, what, value)
    return value


def _int_reader(where: str, kind: Kind) -> _Reader:
    low, high = _INT_BOUNDS[kind]

    def read(value: object, _: int) -> int:
        number = value
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            number = int(value)
        if type(number) is not int or not low <= number <= high:
            raise _wrong(where, f"an {kind.value}" if low else f"a {kind.value}", value)
        return number

    return read


def _enum_reader(where: str, enum: type[IntEnum]) -> _Reader:
    members: Mapping[str, int] = enum.__members__
    numbers = {member.value: member for member in enum}
    read_number = _int_reader(where, Kind.INT32)

    def read(value: object, depth: int) -> int:
        if isinstance(value, str):
            if value not in members:
                raise _wrong(where, f"one of {', '.join(members)}", value)
            return members[value]
        number: int = read_number(value, depth)
        return numbers.get(number, number)

    return read


def _read_bytes(where: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise _wrong(where, "bytes as a base64 string", value)
    text = value.translate(_TO_STANDARD_BASE64)
    if "=" not in text:
        text += "=" * (-len(text) % 4)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise _wrong(where, "base64", value) from None


def _wrong(where: str, what: str, value: object) -> ProtocolError:
    return ProtocolError(f"{where} is {what}, not {_excerpt(value)}")


def _excerpt(value: object) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case None | bool():
            return str(value).lower() if value is not None else "null"
        case int() if value.bit_length() > 128:
            return "a number that large"
        case _:
            text = str(value)
            cut = text if len(text) <= _EXCERPT_CHARS_MAX else f"{text[:_EXCERPT_CHARS_MAX]}..."
            return f"{cut!r}" if isinstance(value, str) else cut


def _cut_short() -> ProtocolError:
    return ProtocolError("unexpected EOF")


def _too_deep() -> ProtocolError:
    return ProtocolError(f"JSON nested too deeply: at most {DEPTH_MAX} messages may be in one another")


# -- streams ---------------------------------------------------------------------------------


class ObjectSplitter:
    """Cuts a stream of JSON objects, with or without space between them, into the objects.

    It finds where an object ends; `decode_json` checks whether it is JSON at all.
    """

    __slots__ = ("_buffer", "_depth", "_in_string", "_position", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._buffer = bytearray()
        self._position = 0  # everything before it was looked at
        self._depth = 0
        self._in_string = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take a piece of the stream; gives the objects that are complete now, one by one.

        Raises where the stream goes wrong, after what came before that.
        """
        self._buffer += data
        while (end := self._end_of_object()) is not None:
            if end > self._size_max:
                raise too_large(self._size_max)
            found = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._position = 0
            yield found
        if len(self._buffer) > self._size_max:
            raise too_large(self._size_max)

    def finish(self) -> None:
        """The stream has ended; raises if that was in the middle of an object."""
        if self._buffer:
            raise _cut_short()

    def _end_of_object(self) -> int | None:
        buffer = self._buffer
        if self._depth == 0:
            del buffer[: len(buffer) - len(buffer.lstrip(_SPACE))]
            if not buffer.startswith(b"{"):
                return self._end_of_null()
        while found := _NEXT[self._in_string].search(buffer, self._position):
            at = found.start()
            match buffer[at : at + 1]:
                case b"\\":
                    if at + 1 == len(buffer):
                        self._position = at  # what it escapes comes with the next piece
                        return None
                    at += 1
                case b'"':
                    self._in_string = not self._in_string
                case b"{" | b"[":
                    self._depth += 1
                case _:
                    self._depth -= 1
            self._position = at + 1
            if self._depth == 0:
                return self._position
        self._position = len(buffer)
        return None

    def _end_of_null(self) -> int | None:
        null = b"null"
        if self._buffer.startswith(null):
            return len(null)
        if null.startswith(self._buffer):  # so far; no bytes at all are the start of anything
            return None
        found = bytes(self._buffer[:1]).decode("latin-1")
        raise ProtocolError(f"a JSON object starts with {{, not {found!r}")


def too_large(size_max: int) -> GrpcError:
    return GrpcError(
        StatusCode.RESOURCE_EXHAUSTED,
        f"the request has more than {size_max:,} bytes of JSON, the most that is read. Send less.",
    )
