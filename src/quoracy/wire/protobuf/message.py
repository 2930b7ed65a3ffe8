"""Messages: classes with fields that encode themselves to bytes and decode themselves from them.

    data = PutRequest(key=b"a", value=b"1").encode()
    request = PutRequest.decode(data)

Absence is as in proto3: a field at its default is not sent, and a field that was not received has its
default.  Sub-messages and members of a oneof are None when absent; a member of a oneof is sent even at
its default, because setting it carries meaning.  Repeated fields are sequences; decoded ones are lists,
or `()` if they are empty.

The encoder and the decoder of a class are generated as Python source and compiled when the class is
first used.  What is known about a class (its tags, kinds and defaults) becomes constants in that
source, which saves a table lookup for every field, and calls for bytes, flags and small integers.
`source_of` returns the text:

    def encode(message):
        out = []
        value = message.key
        if value:
            size = len(value)
            ...
        return b"".join(out)

    def decode(data, pos=0, end=None, depth=100, into=None):
        ...
        while pos < end:
            tag = data[pos]
            if tag == 10:
                ...

Only names from our own class definitions go into the text, never anything received.

Invariants
    * `decode` returns a message or raises `ProtocolError`: for malformed or truncated data, text
      that is not UTF-8, varints of more than ten bytes, messages nested more than a hundred deep.
    * What the official parser accepts is accepted with the same meaning: numbers are truncated to the
      width of their kind, the last member of a oneof wins, a message that arrives in parts is merged, a
      field with an unexpected wire type counts as unknown, and unknown fields are dropped.
      Differs from the official parser: the field number 0, which the format forbids, is always refused;
      the official parser accepts it in groups and for some wire types.
    * `encode` raises `InvalidRequest` for a value that its field cannot carry: a number out of range,
      text with surrogates, two members of one oneof, nesting that no parser would accept.
    * A decoder reads its part of the data in place, from `pos` to `end`, and each byte once, so its
      time is linear in the size of the data.  The second part of a message field is decoded `into`
      the first.
    * An encoder only reads attributes, so any object with the same attributes can stand in for a
      message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Self

import msgspec

from quoracy.wire.protobuf import primitives
from quoracy.wire.protobuf.fields import FieldSpec, Kind, fields_of

__all__ = ["Message", "codec_of", "source_of"]


class Message(msgspec.Struct, kw_only=True, gc=False, repr_omit_defaults=True):
    """Base class of all messages; subclasses declare their fields as `fields.py` describes.

    Messages are trees, so the garbage collector does not have to track them.
    """

    def encode(self) -> bytes:
        _install_codec(type(self))
        return self.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        _install_codec(cls)
        return cls.decode(data)


def _install_codec(cls: type[Message]) -> None:
    """Replace the two methods above with the generated functions of the class.

    This happens when a class is first used, so a command that uses few messages starts fast.
    """
    encode, decode = codec_of(cls)
    type.__setattr__(cls, "encode", encode)
    type.__setattr__(cls, "decode", staticmethod(decode))


# -- generating codecs -------------------------------------------------------------------------

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]

VARINT: Final = 0
LENGTH_DELIMITED: Final = 2
TEXTUAL: Final = frozenset({Kind.BYTES, Kind.STRING})
# The functions in `primitives` that write and read a number that does not fit into one byte.
WRITERS: Final = {
    Kind.INT32: "int32",
    Kind.INT64: "int64",
    Kind.UINT32: "uint32",
    Kind.UINT64: "uint64",
    Kind.ENUM: "int32",
}
READERS: Final = {
    Kind.INT32: "read_int32",
    Kind.UINT32: "read_uint32",
    Kind.UINT64: "read_varint",
    Kind.ENUM: "read_int32",
    Kind.BOOL: "read_bool",
}


def codec_of(cls: type[msgspec.Struct]) -> tuple[Encode, Decode]:
    """The encoder and the decoder of a message class."""
    for each in _reachable(cls):
        namespace = _namespace(each)
        for spec in fields_of(each):
            if spec.message is not None:
                inner = _namespace(spec.message)
                namespace[f"encode_{spec.name}"] = inner["encode"]
                namespace[f"decode_{spec.name}"] = inner["decode"]
    namespace = _namespace(cls)
    return namespace["encode"], namespace["decode"]


def source_of(cls: type[msgspec.Struct]) -> str:
    """The text of a message's encoder and decoder."""
    return "\n".join((*_encoder(cls), "", *_decoder(cls), ""))


@cache
def _namespace(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """The generated functions of a class, with the names they use except those of inner messages."""
    namespace: dict[str, Any] = {**vars(primitives), "cls": cls}
    for spec in fields_of(cls):
        namespace[f"with_{spec.number}"] = _with_one_byte(_tag(spec))
        if spec.enum is not None:
            namespace[f"enum_{spec.name}"] = {int(member): member for member in spec.enum}.get
            namespace[f"zero_{spec.name}"] = spec.enum(0)
    exec(compile(source_of(cls), f"<protobuf codec of {cls.__name__}>", "exec"), namespace)
    return namespace


@cache
def _with_one_byte(tag: int) -> tuple[bytes, ...]:
    """A tag followed by a varint of one byte: for small numbers and for the length of short fields."""
    return tuple(primitives.varint(tag) + bytes((byte,)) for byte in range(128))


@cache
def _reachable(cls: type[msgspec.Struct]) -> Sequence[type[msgspec.Struct]]:
    """The class, and those of all messages inside its messages."""
    found = [cls]
    for each in found:
        found += (
            spec.message
            for spec in fields_of(each)
            if spec.message is not None and spec.message not in found
        )
    return found


def _is_recursive(cls: type[msgspec.Struct]) -> bool:
    """Whether messages of the class can contain each other, so that nesting needs a limit."""
    return any(spec.message is cls for each in _reachable(cls) for spec in fields_of(each))


def _tag(spec: FieldSpec, wire: int | None = None) -> int:
    if wire is None:
        lengthy = spec.repeated or spec.kind in TEXTUAL or spec.kind is Kind.MESSAGE
        wire = LENGTH_DELIMITED if lengthy else VARINT
    return spec.number << 3 | wire


def _indented(lines: Iterator[str], levels: int = 1) -> Iterator[str]:
    return ("    " * levels + line for line in lines)


# -- encoders --------------------------------------------------------------------------------


def _encoder(cls: type[msgspec.Struct]) -> Iterator[str]:
    if _is_recursive(cls):
        yield f"def encode(message, depth={primitives.DEPTH_MAX}):"
        yield "    if depth < 0:"
        yield f"        raise nested_too_deep({cls.__name__!r})"
    else:
        yield "def encode(message):"
    yield "    out = []"
    for oneof in sorted({spec.oneof for spec in fields_of(cls) if spec.oneof is not None}):
        yield f"    {oneof}_set = False"
    for spec in fields_of(cls):
        yield from _indented(_encode_field(cls, spec))
    yield '    return b"".join(out)'


def _encode_field(cls: type[msgspec.Struct], spec: FieldSpec) -> Iterator[str]:
    if spec.repeated and (spec.kind in TEXTUAL or spec.kind is Kind.MESSAGE):
        yield f"for value in message.{spec.name}:"
        yield from _indented(_encode_value(cls, spec))
        return
    yield f"value = message.{spec.name}"
    if spec.kind is Kind.MESSAGE or spec.oneof is not None:
        yield "if value is not None:"
    else:
        yield "if value:"
    if spec.oneof is not None:
        yield f"    if {spec.oneof}_set:"
        yield f"        raise two_of_oneof({cls.__name__!r}, {spec.oneof!r})"
        yield f"    {spec.oneof}_set = True"
    yield from _indented(_encode_packed(spec) if spec.repeated else _encode_value(cls, spec))


def _encode_value(cls: type[msgspec.Struct], spec: FieldSpec) -> Iterator[str]:
    tag = primitives.varint(_tag(spec))
    match spec.kind:
        case Kind.BOOL:
            true, false = tag + bytes((1,)), tag + bytes((0,))
            yield f"out.append({true!r} if value else {false!r})"
            return
        case Kind.BYTES:
            pass
        case Kind.STRING:
            yield "value = utf8(value)"
        case Kind.MESSAGE:
            depth = ", depth - 1" if _is_recursive(cls) and _is_recursive_field(spec) else ""
            yield f"value = encode_{spec.name}(value{depth})"
        case _:
            yield "if 0 <= value < 128:"
            yield f"    out.append(with_{spec.number}[value])"
            yield "else:"
            yield f"    out.append({tag!r})"
            yield f"    out.append({WRITERS[spec.kind]}(value))"
            return
    yield "size = len(value)"
    yield "if size < 128:"
    yield f"    out.append(with_{spec.number}[size])"
    yield "else:"
    yield f"    out.append({tag!r})"
    yield "    out.append(varint(size))"
    yield "out.append(value)"


def _is_recursive_field(spec: FieldSpec) -> bool:
    return spec.message is not None and _is_recursive(spec.message)


def _encode_packed(spec: FieldSpec) -> Iterator[str]:
    if spec.kind is Kind.BOOL:
        yield "value = bytes(map(bool, value))"
    else:
        yield f'value = b"".join(map({WRITERS[spec.kind]}, value))'
    yield f"out.append({primitives.varint(_tag(spec))!r})"
    yield "out.append(varint(len(value)))"
    yield "out.append(value)"


# -- decoders --------------------------------------------------------------------------------


def _decoder(cls: type[msgspec.Struct]) -> Iterator[str]:
    specs, name = fields_of(cls), cls.__name__
    yield f"def decode(data, pos=0, end=None, depth={primitives.DEPTH_MAX}, into=None):"
    if specs:
        yield "    if into is None:"
        yield from (f"        f_{spec.name} = {_default(spec)}" for spec in specs)
        yield "    else:"
        yield from (f"        f_{spec.name} = into.{spec.name}" for spec in specs)
    yield "    if end is None:"
    yield "        end = len(data)"
    yield "    if depth < 0:"
    yield f"        raise too_deep({name!r})"
    yield "    try:"
    yield "        while pos < end:"
    yield "            tag = data[pos]"
    yield "            if tag > 127:"
    yield "                tag, pos = read_tag(data, pos)"
    keyword = "if"
    for spec in specs:
        for wire in _wires(spec):
            yield f"            {keyword} tag == {_tag(spec, wire)}:"
            yield from _indented(_decode_field(cls, spec, wire), 4)
            keyword = "elif"
    if specs:
        yield "            else:"
        yield "                pos = skip(data, pos + 1, end, tag, depth)"
    else:
        yield "            pos = skip(data, pos + 1, end, tag, depth)"
    yield "    except IndexError:"
    yield f"        raise cut_short({name!r}) from None"
    yield "    except UnicodeDecodeError as error:"
    yield f"        raise not_utf8({name!r}, error) from None"
    yield "    if pos != end:"
    yield f"        raise cut_short({name!r})"
    yield f"    return cls({', '.join(f'{spec.name}=f_{spec.name}' for spec in specs)})"


def _default(spec: FieldSpec) -> str:
    if spec.repeated:
        return "()"
    if spec.kind is Kind.MESSAGE or spec.oneof is not None:
        return "None"
    if spec.kind is Kind.ENUM:
        return f"zero_{spec.name}"
    return {Kind.BYTES: 'b""', Kind.STRING: '""', Kind.BOOL: "False"}.get(spec.kind, "0")


def _wires(spec: FieldSpec) -> tuple[int, ...]:
    """Repeated numbers may be packed or separate; a parser must accept both."""
    if spec.kind in TEXTUAL or spec.kind is Kind.MESSAGE:
        return (LENGTH_DELIMITED,)
    return (LENGTH_DELIMITED, VARINT) if spec.repeated else (VARINT,)


def _decode_field(cls: type[msgspec.Struct], spec: FieldSpec, wire: int) -> Iterator[str]:
    others = [
        f"f_{other.name}"
        for other in fields_of(cls)
        if spec.oneof and other.oneof == spec.oneof and other != spec
    ]
    if others:
        yield " = ".join(others) + " = None"
    if wire == VARINT:
        yield from _decode_number(spec, "pos + 1", "pos += 2")
        yield from _keep(spec, "value")
        return
    yield "size = data[pos + 1]"
    yield "pos += 2"
    yield "if size > 127:"
    yield "    second = data[pos]"
    yield "    if second < 128:"
    yield "        size += (second << 7) - 0x80"
    yield "        pos += 1"
    yield "    else:"
    yield "        size, pos = read_size(data, pos - 1)"
    yield "stop = pos + size"
    if spec.kind in TEXTUAL:
        text = ".decode()" if spec.kind is Kind.STRING else ""
        yield from _keep(spec, f"data[pos:stop]{text}")
        yield "pos = stop"
        return
    # Messages and packed numbers end at an offset of their own, which must not be beyond ours.
    yield "if stop > end:"
    yield f"    raise cut_short({cls.__name__!r})"
    if spec.kind is Kind.MESSAGE:
        first_part = "" if spec.repeated else f", f_{spec.name}"
        yield from _keep(spec, f"decode_{spec.name}(data, pos, stop, depth - 1{first_part})")
        yield "pos = stop"
        return
    yield "while pos < stop:"
    yield from _indented(_decode_number(spec, "pos", "pos += 1"))
    yield from _indented(_keep(spec, "value"))
    yield "if pos != stop:"
    yield f"    raise cut_short({cls.__name__!r})"


def _decode_number(spec: FieldSpec, where: str, step: str) -> Iterator[str]:
    yield f"value = data[{where}]"
    yield step
    yield "if value > 127:"
    if spec.kind is Kind.INT64:  # Most revisions are this large.
        yield "    second = data[pos]"
        yield "    if second > 127 and data[pos + 1] < 128:"
        yield "        value += (second << 7) + (data[pos + 1] << 14) - 0x4080"
        yield "        pos += 2"
        yield "    else:"
        yield "        value, pos = read_varint(data, pos - 1)"
        yield "        if value > 0x7FFFFFFFFFFFFFFF:"
        yield "            value -= 0x10000000000000000"
    else:
        yield f"    value, pos = {READERS[spec.kind]}(data, pos - 1)"
    if spec.kind is Kind.BOOL:
        yield "value = value != 0"
    if spec.kind is Kind.ENUM:
        yield f"value = enum_{spec.name}(value, value)"


def _keep(spec: FieldSpec, value: str) -> Iterator[str]:
    if not spec.repeated:
        yield f"f_{spec.name} = {value}"
        return
    yield f"if f_{spec.name}:"
    yield f"    f_{spec.name}.append({value})"
    yield "else:"
    yield f"    f_{spec.name} = [{value}]"
