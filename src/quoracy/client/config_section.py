"""Settings of a type whose fields are keys: how they are written, read and validated.

A field that is a str is stored as its text and bytes as they are, as everywhere in Quoracy; any other
type as JSON.  For reading, the stored fields are put together into one JSON object, which msgspec
decodes and validates as a whole: types, constraints, `__post_init__`.

Invariants
    * Whatever is stored, `decode` returns a valid value or raises `ValueUnreadable`, nothing else.
    * The key of one field cannot set another: each is a JSON value of its own before it is put together
      with the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from quoracy.client.codec import Codec, codec_of
from quoracy.errors import InvalidRequest, ValueUnreadable

__all__ = ["FIELDS_MAX", "Section"]

S = TypeVar("S")

# Writing compares every field in one transaction, and etcd takes no more than this in one.
FIELDS_MAX = 128


def _check_json(data: bytes) -> bytes:
    msgspec.json.decode(data)
    return data


# The encoding of a field of any other type; what is stored is decoded together with the other fields.
_JSON: Codec[Any] = Codec("JSON", msgspec.json.encode, _check_json)


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """stored_as: its name in the store, which a Struct may have renamed."""

    name: str
    stored_as: str
    key: bytes
    codec: Codec[Any]

    def encode(self, value: object) -> bytes:
        try:
            return self.codec.encode(value)
        except InvalidRequest as error:
            kind = "text" if self.codec.type_name == "str" else self.codec.type_name
            raise InvalidRequest(
                f"{self.name} is stored as {kind}, and {value!r} is not {kind}."
            ) from error

    def as_json(self, data: bytes) -> bytes:
        """The stored bytes, as one JSON value."""
        value = self.codec.decode(self.key, data)
        return value if self.codec is _JSON else msgspec.json.encode(value)


class Section(Generic[S]):
    """The keys under `root`, as one value of a type.  Raises `InvalidRequest` for unfit types."""

    def __init__(self, root: bytes, type: type[S]) -> None:
        self._root, self._type = root, type
        self._type_name = getattr(type, "__name__", str(type))
        self._fields = {field.name: field for field in _fields_of(root, type)}
        if len(self._fields) > FIELDS_MAX:
            raise InvalidRequest(
                f"{self._type_name} has {len(self._fields)} fields; a config takes {FIELDS_MAX}. "
                "Put some of them together in a nested value, or make two configs."
            )
        self._forbids_unknown = (
            issubclass(type, msgspec.Struct) and type.__struct_config__.forbid_unknown_fields
        )
        try:
            self._decoder = msgspec.json.Decoder(type)
        except TypeError as error:
            raise InvalidRequest(
                f"{self._type_name} cannot be stored: {error}. See msgspec's types."
            ) from error

    @property
    def keys(self) -> list[bytes]:
        """The key of every field."""
        return [field.key for field in self._fields.values()]

    def key(self, name: str) -> bytes:
        """The key of a field.  Raises `InvalidRequest` if there is no such field."""
        return self._field(name).key

    def encode(self, values: Mapping[str, object]) -> dict[bytes, bytes]:
        """The keys and values to store for fields of these names."""
        fields = [(self._field(name), value) for name, value in values.items()]
        return {field.key: field.encode(value) for field, value in fields}

    def decode(self, stored: Mapping[bytes, bytes]) -> S:
        """The value that stored keys make together.  Raises `ValueUnreadable`."""
        parts = [
            b"%b:%b" % (msgspec.json.encode(field.stored_as), field.as_json(stored[field.key]))
            for field in self._fields.values()
            if field.key in stored
        ]
        if self._forbids_unknown:
            self._refuse_unknown(stored)
        try:
            return self._decoder.decode(b"{%b}" % b",".join(parts))
        except Exception as error:
            # `__post_init__`, which may raise anything, is the program's own.
            raise ValueUnreadable(
                self._root[:-1], wanted=self._type_name, why=str(error) or repr(error)
            ) from error

    def check(self, stored: Mapping[bytes, bytes], writes: Mapping[bytes, bytes | None]) -> None:
        """Raise `InvalidRequest` if what is stored would not be valid after some writes."""
        after = {**stored, **writes}
        try:
            self.decode({key: value for key, value in after.items() if value is not None})
        except ValueUnreadable as error:
            where = error.key.decode("utf-8", "backslashreplace")
            raise InvalidRequest(
                f"that would make {where} no valid {error.wanted}: {error.why}. Nothing was written."
            ) from error

    def difference(self, before: S, after: S) -> dict[bytes, bytes]:
        """The keys and values to store to change one value into another."""
        if not isinstance(after, self._type):
            raise InvalidRequest(f"{after!r} is no {self._type_name}. Nothing was written.")
        names = self.changed(before, after)
        return self.encode({name: getattr(after, name) for name in sorted(names)})

    def changed(self, before: S, after: S) -> frozenset[str]:
        """The names of the fields in which two values differ."""
        return frozenset(name for name in self._fields if getattr(before, name) != getattr(after, name))

    def _field(self, name: str) -> _Field:
        try:
            return self._fields[name]
        except KeyError:
            raise InvalidRequest(
                f"{self._type_name} has no field {name!r}. It has: {', '.join(self._fields)}."
            ) from None

    def _refuse_unknown(self, stored: Mapping[bytes, bytes]) -> None:
        unknown = sorted(set(stored) - set(self.keys))
        if unknown:
            raise ValueUnreadable(
                unknown[0], wanted=f"field of {self._type_name}", why="it forbids unknown fields"
            )


def _fields_of(root: bytes, type: type[object]) -> list[_Field]:
    if issubclass(type, msgspec.Struct):
        if type.__struct_config__.array_like:
            raise InvalidRequest(
                f"{type.__name__} is stored as an array, so its fields cannot be keys."
            )
        infos = [(info.name, info.encode_name, info.type) for info in msgspec.structs.fields(type)]
    elif dataclasses.is_dataclass(type):
        hints = get_type_hints(type, include_extras=True)
        infos = [(info.name, info.name, hints[info.name]) for info in dataclasses.fields(type)]
    else:
        raise InvalidRequest(f"{type!r} has no fields. Give a msgspec.Struct or a dataclass.")
    return [
        _Field(name, stored_as, root + stored_as.encode(), _codec_of(hint))
        for name, stored_as, hint in infos
    ]


def _codec_of(hint: object) -> Codec[Any]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return codec_of(hint) if hint is str or hint is bytes else _JSON
