"""Declarations of the fields of message classes, and their inspection.

    class PutRequest(Message, kw_only=True):
        key: Annotated[bytes, Field(1)] = b""
        lease: Annotated[int, Field(3, INT64)] = 0

The annotation is the Python type, `Field` describes the encoding.  The kind follows from the
annotation, except for integers, which have several encodings:

    bytes, str, bool               BYTES, STRING, BOOL
    int                            INT32, INT64, UINT32 or UINT64: must be named
    AnIntEnum | int                ENUM; numbers that the enum lacks stay plain integers
    AMessage | None                MESSAGE; None is absent
    Sequence[any of the above]     repeated
    any | None with oneof="name"   a member of that oneof; at most one of them is not None
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from enum import Enum, IntEnum
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

__all__ = [
    "BOOL",
    "BYTES",
    "ENUM",
    "INT32",
    "INT64",
    "MESSAGE",
    "STRING",
    "UINT32",
    "UINT64",
    "Field",
    "FieldSpec",
    "Kind",
    "fields_of",
]


class Kind(Enum):
    """The encoding of a value; the names are those of the proto language."""

    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    ENUM = "enum"
    BYTES = "bytes"
    STRING = "string"
    MESSAGE = "message"


INT32: Final = Kind.INT32
INT64: Final = Kind.INT64
UINT32: Final = Kind.UINT32
UINT64: Final = Kind.UINT64
BOOL: Final = Kind.BOOL
ENUM: Final = Kind.ENUM
BYTES: Final = Kind.BYTES
STRING: Final = Kind.STRING
MESSAGE: Final = Kind.MESSAGE

KIND_OF_TYPE: Final[dict[object, Kind]] = {bytes: BYTES, str: STRING, bool: BOOL}
KINDS_OF_INT: Final = frozenset({INT32, INT64, UINT32, UINT64})
NUMBER_MAX: Final = (1 << 29) - 1


class Field(msgspec.Struct, frozen=True):
    """The encoding in a field's declaration."""

    number: int
    kind: Kind | None = None
    oneof: str | None = None


class FieldSpec(msgspec.Struct, frozen=True):
    """A field as declared; `message` and `enum` are set for these two kinds only.

    `json_name` is the name in the canonical JSON mapping (`range_end` is `rangeEnd`).  The members of
    `enum` have the names of the proto file.
    """

    name: str
    json_name: str
    number: int
    kind: Kind
    repeated: bool
    oneof: str | None
    message: type[msgspec.Struct] | None
    enum: type[IntEnum] | None


def fields_of(cls: type[msgspec.Struct]) -> tuple[FieldSpec, ...]:
    """The fields of a message class, in the order of their numbers."""
    return _read_fields(cls)


@cache
def _read_fields(cls: type[msgspec.Struct]) -> tuple[FieldSpec, ...]:
    specs = [
        _read_field(cls, name, hint) for name, hint in get_type_hints(cls, include_extras=True).items()
    ]
    numbers = [spec.number for spec in specs]
    if len(set(numbers)) != len(numbers):
        raise TypeError(f"{cls.__name__} uses a field number twice: {sorted(numbers)}")
    return tuple(sorted(specs, key=lambda spec: spec.number))


def _read_field(cls: type[msgspec.Struct], name: str, hint: Any) -> FieldSpec:
    where = f"{cls.__name__}.{name}"
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{where} does not say its number: write Annotated[type, Field(number)]")
    annotation, declared = hint.__origin__, hint.__metadata__[0]
    if not isinstance(declared, Field) or not 0 < declared.number <= NUMBER_MAX:
        raise TypeError(f"{where} needs Field(number) with a number from 1 to {NUMBER_MAX}")

    repeated = get_origin(annotation) is Sequence
    if repeated:
        (annotation,) = get_args(annotation)
    wanted = _without_none(annotation) if declared.oneof is not None else annotation
    kind, message, enum = _read_type(wanted, declared.kind)
    if kind is None:
        raise TypeError(f"{where}: {annotation} with {declared} is not a type of the wire")
    return FieldSpec(
        name, _json_name(name), declared.number, kind, repeated, declared.oneof, message, enum
    )


def _read_type(
    annotation: Any, declared: Kind | None
) -> tuple[Kind | None, type[msgspec.Struct] | None, type[IntEnum] | None]:
    inner = _without_none(annotation)
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        return MESSAGE, inner, None
    if get_origin(inner) in (Union, types.UnionType):
        enums = [each for each in get_args(inner) if each is not int]
        if len(enums) == 1 and issubclass(enums[0], IntEnum):
            return ENUM, None, enums[0]
    if annotation is int and declared in KINDS_OF_INT:
        return declared, None, None
    return (KIND_OF_TYPE.get(annotation) if declared is None else None), None, None


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    kept = tuple(each for each in get_args(annotation) if each is not types.NoneType)
    return Union[kept]  # noqa: UP007 - built from a tuple of types


def _json_name(name: str) -> str:
    """The rule of the JSON mapping: underscores are removed and the letters after them capitalised."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)
