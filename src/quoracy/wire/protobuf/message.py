"""Messages: plain classes with fields, which turn themselves into bytes and back.

    data = PutRequest(key=b"a", value=b"1").encode()
    request = PutRequest.decode(data)

Absent is as in proto3: a field at its default is not sent, and one that did not come has its default.
Sub-messages and members of a oneof are None when absent; a member of a oneof is sent even at its
default, since setting it says something.  Repeated fields are sequences; decoded ones are lists, or
`()` if nothing came.

Invariants
    * `decode` gives a message or raises `ProtocolError`: for malformed or truncated data, text that is
      not UTF-8, varints of more than ten bytes, messages nested more than a hundred deep.
    * What the official parser accepts is accepted with the same meaning: numbers are cut to the width
      of their kind, the last of a oneof counts, a message that comes in parts is merged, a field with
      an unexpected wire type is an unknown field, and unknown fields are dropped.
      Differs from the official parser: the field number 0, which the format forbids, is refused
      everywhere; that one lets it pass in groups and for some wire types.
    * `encode` raises `InvalidRequest` for a value that its field cannot carry: a number out of range,
      text with surrogates, two members of one oneof, nesting that no parser would take.
"""

from __future__ import annotations

from typing import Self

import msgspec

from quoracy.wire.protobuf.generate import codec_of

__all__ = ["Message"]


class Message(msgspec.Struct, kw_only=True, gc=False, repr_omit_defaults=True):
    """Base of all messages; subclasses declare fields as `fields.py` tells.

    Messages are trees, so the garbage collector need not look at them.
    """

    def encode(self) -> bytes:
        _install_codec(type(self))
        return self.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        _install_codec(cls)
        return cls.decode(data)


def _install_codec(cls: type[Message]) -> None:
    """Put the compiled functions in the place of the ones above, which then are never called again.

    Done at the first use: a process compiles what it speaks, and a command that speaks little starts
    fast.
    """
    encode, decode = codec_of(cls)
    type.__setattr__(cls, "encode", encode)
    type.__setattr__(cls, "decode", staticmethod(decode))
