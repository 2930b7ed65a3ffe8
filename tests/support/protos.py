"""The official protobuf library as a second opinion on every message of ours.

Its classes are built from our field declarations, so both speak of the same fields; that the
declarations themselves are right is judged by descriptors others wrote, in the unit tests.
The library has no types that mypy knows, hence `Any`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Any

from hypothesis import strategies as st

from quoracy.wire.protobuf import FieldSpec, Kind, Message, fields_of

MODULES = ("kv", "rpc", "maintenance", "auth", "lock", "election", "health")
TYPES = {  # Kind -> number of the type in descriptor.proto
    Kind.INT64: 3,
    Kind.UINT64: 4,
    Kind.INT32: 5,
    Kind.BOOL: 8,
    Kind.STRING: 9,
    Kind.MESSAGE: 11,
    Kind.BYTES: 12,
    Kind.UINT32: 13,
    Kind.ENUM: 14,
}
RANGES = {
    Kind.INT32: (-(1 << 31), (1 << 31) - 1),
    Kind.INT64: (-(1 << 63), (1 << 63) - 1),
    Kind.UINT32: (0, (1 << 32) - 1),
    Kind.UINT64: (0, (1 << 64) - 1),
    Kind.ENUM: (-(1 << 31), (1 << 31) - 1),
}


def message_classes() -> Iterator[type[Message]]:
    for name in MODULES:
        module = importlib.import_module(f"quoracy.wire.etcd.{name}")
        for member in vars(module).values():
            if (
                isinstance(member, type)
                and issubclass(member, Message)
                and member.__module__ == module.__name__
            ):
                yield member


ALL = tuple(message_classes())


# -- the official classes ------------------------------------------------------------------------


@cache
def official_class(cls: type[Message]) -> Any:
    message_factory = importlib.import_module("google.protobuf.message_factory")
    return message_factory.GetMessageClass(_pool(cls).FindMessageTypeByName(f"ours.{cls.__name__}"))


@cache
def _pool(cls: type[Message]) -> Any:
    """A pool with the message and what it contains (or, for the known messages, with all of them)."""
    descriptor_pool = importlib.import_module("google.protobuf.descriptor_pool")
    if cls in ALL and cls is not ALL[0]:
        return _pool(ALL[0])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_describe(ALL if cls in ALL else (cls, *_contained(cls))))
    return pool


def _contained(cls: type[Message]) -> tuple[type[Message], ...]:
    found = [cls]
    for each in found:
        for spec in fields_of(each):
            if spec.message is not None and spec.message not in found:
                assert issubclass(spec.message, Message)
                found.append(spec.message)
    return tuple(found[1:])


def _describe(classes: tuple[type[Message], ...]) -> Any:
    descriptor_pb2 = importlib.import_module("google.protobuf.descriptor_pb2")
    file = descriptor_pb2.FileDescriptorProto(name="ours.proto", package="ours", syntax="proto3")
    enums: set[type[IntEnum]] = set()
    for cls in classes:
        message = file.message_type.add(name=cls.__name__)
        oneofs: list[str] = []
        for spec in fields_of(cls):
            field = message.field.add(
                name=spec.name,
                number=spec.number,
                type=TYPES[spec.kind],
                label=3 if spec.repeated else 1,
                json_name=spec.json_name,
            )
            if spec.message is not None:
                field.type_name = f".ours.{spec.message.__name__}"
            if spec.enum is not None:
                field.type_name = f".ours.{spec.enum.__name__}"
                enums.add(spec.enum)
            if spec.oneof is not None:
                if spec.oneof not in oneofs:
                    oneofs.append(spec.oneof)
                    message.oneof_decl.add(name=spec.oneof)
                field.oneof_index = oneofs.index(spec.oneof)
    for enum in sorted(enums, key=lambda each: each.__name__):
        described = file.enum_type.add(name=enum.__name__)
        for member in enum:  # The names of values share one scope, so they carry the enum's.
            described.value.add(name=f"{enum.__name__}_{member.name}", number=int(member))
    return file


# -- ours and theirs, made comparable ------------------------------------------------------------


def plain(message: Any) -> dict[str, Any]:
    """Fields and values of a message of ours: absent ones left out, sequences as lists."""
    return {
        spec.name: _plain_value(spec, getattr(message, spec.name))
        for spec in fields_of(type(message))
        if _is_present(spec, getattr(message, spec.name))
    }


def _is_present(spec: FieldSpec, value: Any) -> bool:
    if spec.repeated:
        return len(value) > 0
    return value is not None if spec.oneof or spec.kind is Kind.MESSAGE else bool(value)


def _plain_value(spec: FieldSpec, value: Any) -> Any:
    if spec.repeated:
        return [plain(each) if spec.message else each for each in value]
    return plain(value) if spec.message else value


def plain_official(cls: Any, message: Any) -> dict[str, Any]:
    """The same of an official message, whose fields are those of our class `cls`."""
    result: dict[str, Any] = {}
    for spec in fields_of(cls):
        value = getattr(message, spec.name)
        if spec.repeated:
            values = [plain_official(spec.message, each) if spec.message else each for each in value]
            if values:
                result[spec.name] = values
        elif spec.oneof or spec.message:
            if message.HasField(spec.name):
                result[spec.name] = plain_official(spec.message, value) if spec.message else value
        elif value:
            result[spec.name] = value
    return result


def official_of(message: Message) -> Any:
    """An official message with the values of ours, set field by field."""
    return _fill(official_class(type(message))(), message)


def _fill(theirs: Any, ours: Any) -> Any:
    for spec in fields_of(type(ours)):
        value = getattr(ours, spec.name)
        if not _is_present(spec, value):
            continue
        if spec.repeated and spec.message:
            for each in value:
                _fill(getattr(theirs, spec.name).add(), each)
        elif spec.repeated:
            getattr(theirs, spec.name).extend(value)
        elif spec.message:
            getattr(theirs, spec.name).SetInParent()
            _fill(getattr(theirs, spec.name), value)
        else:
            setattr(theirs, spec.name, value)
    return theirs


def official_verdict(cls: type[Message], data: bytes) -> dict[str, Any] | None:
    """What the official parser makes of the data; None if it refuses it."""
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    theirs = official_class(cls)()
    try:
        theirs.ParseFromString(data)
    except decode_error:
        return None
    return plain_official(cls, theirs)


# -- random messages -----------------------------------------------------------------------------


@cache
def messages(cls: type[Message], levels: int = 3) -> st.SearchStrategy[Any]:
    """Any message of a class; messages inside it end after `levels`."""
    alone = [spec for spec in fields_of(cls) if spec.oneof is None]
    choices = {
        oneof: [spec for spec in fields_of(cls) if spec.oneof == oneof]
        for oneof in sorted({spec.oneof for spec in fields_of(cls) if spec.oneof})
    }

    @st.composite
    def one(draw: st.DrawFn) -> Any:
        values = {spec.name: draw(_values(spec, levels)) for spec in alone}
        for members in choices.values():
            spec = draw(st.none() | st.sampled_from(members))
            if spec is not None:
                values[spec.name] = draw(_present_values(spec, levels))
        return cls(**values)

    return one()


def _values(spec: FieldSpec, levels: int) -> st.SearchStrategy[Any]:
    present = _present_values(spec, levels)
    if spec.repeated:
        return st.just(()) if spec.message and levels == 0 else st.lists(present, max_size=3)
    return st.none() | present if spec.message else present


def _present_values(spec: FieldSpec, levels: int) -> st.SearchStrategy[Any]:
    match spec.kind:
        case Kind.BOOL:
            return st.booleans()
        case Kind.BYTES:
            return st.binary(max_size=20) | st.sampled_from((bytes(127), bytes(128), bytes(20_000)))
        case Kind.STRING:
            return st.text(max_size=20)
        case Kind.MESSAGE:
            assert spec.message is not None
            assert issubclass(spec.message, Message)
            return messages(spec.message, levels - 1) if levels > 0 else st.builds(spec.message)
        case Kind.ENUM:
            assert spec.enum is not None
            return st.sampled_from(tuple(spec.enum)) | integers(spec.kind)
        case _:
            return integers(spec.kind)


def integers(kind: Kind) -> st.SearchStrategy[int]:
    """Small ones, any, and those where a varint becomes one byte longer."""
    low, high = RANGES[kind]
    edges = [edge for bits in range(0, 64, 7) for edge in ((1 << bits) - 1, 1 << bits)]
    kept = sorted({low, high, *(edge for edge in edges if edge <= high)})
    return st.integers(max(low, -2), 200) | st.integers(low, high) | st.sampled_from(kept)
