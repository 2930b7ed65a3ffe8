"""A type whose fields are keys: how settings are written, read and validated.

A field that is a str is stored as its text and bytes as they are, as everywhere in Quoracy; any other
type as JSON.  To read them, what is stored is put together into one JSON object, which msgspec decodes
and validates as a whole: types, constraints, `__post_init__`.

Invariants
    * Whatever is stored, `decode` returns a valid value or raises `ValueUnreadable`, nothing else.
    * A key of one field cannot pretend to be another: each is a JSON value of its own before it is put
      together with the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from quoracy.client.codec import codec_of
from quoracy.errors import InvalidRequest, ValueUnreadable

__all__ = ["FIELDS_MAX", "Section"]

S = TypeVar("S")

# Writing compares every field in one transaction, and etcd takes no more than this in one.
FIELDS_MAX = 128


class _Form(Enum):
    TEXT = "text"
    BYTES = "bytes"
    JSON = "JSON"


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """stored_as: its name in the store, which a Struct may have renamed."""

    name: str
    stored_as: str
    key: bytes
    form: _Form

    def encode(self, value: object) -> bytes:
        if self.form is _Form.TEXT and isinstance(value, str):
            return codec_of(str).encode(value)
        if self.form is _Form.BYTES and isinstance(value, bytes):
            return value
        if self.form is not _Form.JSON:
            raise InvalidRequest(f"{self.name} is {value!r}; it is stored as {self.form.value}.")
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"{self.name} is {value!r}, which is not JSON: {error}.") from error

    def as_json(self, data: bytes) -> bytes:
        """What is stored, as one JSON value."""
        try:
            if self.form is _Form.TEXT:
                return msgspec.json.encode(data.decode())
            if self.form is _Form.BYTES:
                return msgspec.json.encode(data)
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueUnreadable(self.key, wanted=self.form.value, why=str(error)) from error
        return data


class Section(Generic[S]):
    """The keys under `root`, as one value of a type.  Raises `InvalidRequest` for types that are
    unfit.
    """

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
        """What to store for fields of these names."""
        fields = [(self._field(name), value) for name, value in values.items()]
        return {field.key: field.encode(value) for field, value in fields}

    def decode(self, stored: Mapping[bytes, bytes]) -> S:
        """The value that keys make together.  Raises `ValueUnreadable`."""
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
            # Not only what msgspec raises: `__post_init__` is the program's own.
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
        """What to store to come from one value to another."""
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
        _Field(name, stored_as, root + stored_as.encode(), _form_of(hint))
        for name, stored_as, hint in infos
    ]


def _form_of(hint: object) -> _Form:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return _Form.TEXT if hint is str else _Form.BYTES if hint is bytes else _Form.JSON
