"""The messages of gossip: MessagePack arrays, checked when they are decoded.

    Sync     "my state has this hash"; no answer if the receiver has the same
    Parts    "mine differs; these are the hashes of its parts"
    Digests  "of these parts, I have these owners, up to these versions"
    News     deltas, and what is wanted, hinted at, or gone

A delta takes a replica of an owner from version `after` to version `upto`.  With `after` 0 it is all of
the owner's state, and replaces what was there.

Invariants
    * `decode` gives a message that makes sense by itself, or raises `ProtocolError`.
    * Decoding takes memory and time in proportion to the size of the data.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from quoracy.errors import ProtocolError
from quoracy.membership import codec
from quoracy.membership.settings import NAME_BYTES_MAX

__all__ = [
    "COUNT_MAX", "PART_BYTES", "Delta", "Digest", "Digests", "Entry", "Message", "News", "Parts",
    "Sync", "decode", "encode",
]  # fmt: skip

# With a margin, so that one more than any received generation or version is still valid.
COUNT_MAX = 2**62
PART_BYTES = 4
_PARTS_MAX = 65_536

_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_Hash = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
_Key = Annotated[str, msgspec.Meta(min_length=1)]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A key as it was last written; no value: it was deleted."""

    key: _Key
    version: _Count
    value: bytes | None


class Delta(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an owner wrote after one version, up to another, in the order of versions.

    floor: with `after` 0, the version up to which deletions are no longer listed.
    """

    owner: _Name
    generation: _Count
    after: _Count
    upto: _Count
    floor: _Count
    entries: list[Entry]


class Digest(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """The version of an owner that the sender knows; 0 and 0: nothing."""

    owner: _Name
    generation: _Count
    version: _Count


class Sync(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False, forbid_unknown_fields=True):
    root: _Hash


class Parts(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False, forbid_unknown_fields=True):
    """Four bytes for each part."""

    hashes: bytes


class Digests(msgspec.Struct, frozen=True, array_like=True, tag=3, forbid_unknown_fields=True):
    """The owners that the sender knows in some of `parts_count` parts.

    one_way: the sender wants to learn, not to teach.
    """

    one_way: bool
    parts_count: Annotated[int, msgspec.Meta(ge=1, le=_PARTS_MAX)]
    parts: list[Annotated[int, msgspec.Meta(ge=0, lt=_PARTS_MAX)]]
    digests: list[Digest]


class News(msgspec.Struct, frozen=True, array_like=True, tag=4, forbid_unknown_fields=True):
    """wants: "send what I lack beyond this".  hints: "I know this version; ask if you do not".
    gone: "this generation of that owner is forgotten here": the owner can then begin another.
    """

    deltas: list[Delta] = []
    wants: list[Digest] = []
    hints: list[Digest] = []
    gone: list[Digest] = []


Message: TypeAlias = Sync | Parts | Digests | News

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message | Delta | Digest) -> bytes:
    """
    >>> decode(encode(Sync(7)), bytes_max=100)
    Sync(root=7)
    """
    return _encoder.encode(message)


def decode(data: bytes, *, bytes_max: int) -> Message:
    """Raises `ProtocolError` for anything that no participant would send."""
    if len(data) > bytes_max:
        raise ProtocolError(f"gossip of {len(data):,} bytes: at most {bytes_max:,} are taken")
    message = codec.decode(_decoder, data, "gossip that cannot be read")
    match message:
        case Parts(hashes):
            if not hashes or len(hashes) % PART_BYTES or len(hashes) > _PARTS_MAX * PART_BYTES:
                raise ProtocolError(f"gossip: {len(hashes)} bytes are not the hashes of parts")
        case Digests(parts_count=count, parts=parts):
            if any(part >= count for part in parts) or len(set(parts)) < len(parts):
                raise ProtocolError(f"gossip: digests of parts that are not, or twice, among {count}")
        case News(deltas):
            for delta in deltas:
                _check(delta)
        case Sync():
            pass
    return message


def _check(delta: Delta) -> None:
    if not delta.generation or not delta.after < delta.upto or delta.floor > delta.upto:
        raise ProtocolError(f"gossip: a delta of {delta.owner!r} whose numbers make no sense")
    if delta.after and delta.floor:
        raise ProtocolError(f"gossip: a delta of {delta.owner!r} that is partial and has a floor")
    version = delta.after
    for entry in delta.entries:
        if entry.version <= version:
            raise ProtocolError(f"gossip: a delta of {delta.owner!r} whose versions do not grow")
        version = entry.version
    if version > delta.upto:
        raise ProtocolError(f"gossip: a delta of {delta.owner!r} that goes beyond its end")
    if len({entry.key for entry in delta.entries}) < len(delta.entries):
        raise ProtocolError(f"gossip: a delta of {delta.owner!r} that has a key twice")
