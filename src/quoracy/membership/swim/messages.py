"""The messages of SWIM: msgpack arrays, each beginning with a small number for its kind.

A packet is an array of messages: one that is meant for the receiver (a probe, an answer), then news.
News is encoded once and sent many times, so packets are put together from encoded pieces.  A stream
holds one message of any size.

Invariants
    * `decode_packet` and `decode_stream` raise `ProtocolError` and nothing else, for any bytes.
    * What they return is within the bounds below.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from quoracy.membership.codec import decode
from quoracy.membership.model import BoundedAddress, Incarnation, Member, MemberName, Meta

__all__ = [
    "BUCKETS", "Ack", "Alive", "Dead", "Direct", "Join", "Nack", "PacketMessage", "Ping", "PingRequest",
    "Shout", "StreamMessage", "Suspect", "SyncBuckets", "SyncRecords", "SyncRoot", "Welcome", "compose",
    "decode_packet", "decode_stream", "encode",
]  # fmt: skip

BUCKETS = 256

_Bucket: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=BUCKETS)]
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Hash: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Are you there?  Only `target` answers: an address may have a new owner."""

    seq: _Number
    target: MemberName
    source: MemberName


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """I am, or the member you asked me to try is."""

    seq: _Number


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """I am, but the member you asked me to try has not answered me."""

    seq: _Number


class PingRequest(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Try whether `target` answers you, and tell me with my `seq`."""

    seq: _Number
    target: MemberName
    address: BoundedAddress
    wants_nack: bool


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """`name` is alive; only the member itself says so first, others pass it on."""

    name: MemberName
    address: BoundedAddress
    incarnation: Incarnation
    meta: Meta


class Suspect(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """`accuser` got no answer from `name`."""

    name: MemberName
    incarnation: Incarnation
    accuser: MemberName


class Dead(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """`name` did not say in time that it is alive; or, from itself: it leaves."""

    name: MemberName
    incarnation: Incarnation
    accuser: MemberName


class Direct(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """A user's message to one member."""

    sender: MemberName
    payload: bytes


class Shout(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """A user's message to everyone; origin and number identify it."""

    origin: MemberName
    number: _Number
    payload: bytes


class Join(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Here is all I know; tell me all you know."""

    records: list[Member]


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """The answer to a join: all I know."""

    records: list[Member]


class SyncRoot(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """A hash of all members that are present.  No answer means that yours is the same."""

    root: _Hash


class SyncBuckets(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """My hash differs; these are the hashes of its parts, eight bytes each."""

    digests: Annotated[bytes, msgspec.Meta(min_length=8 * BUCKETS, max_length=8 * BUCKETS)]


class SyncRecords(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """All members I know in the parts in which we differ."""

    buckets: Annotated[list[_Bucket], msgspec.Meta(max_length=BUCKETS)]
    records: list[Member]
    wants_answer: bool


PacketMessage: TypeAlias = Ping | Ack | Nack | PingRequest | Alive | Suspect | Dead | Direct | Shout
StreamMessage: TypeAlias = Ping | Ack | Direct | Join | Welcome | SyncRoot | SyncBuckets | SyncRecords

_packet_decoder = msgspec.msgpack.Decoder(list[PacketMessage])
_stream_decoder: msgspec.msgpack.Decoder[StreamMessage] = msgspec.msgpack.Decoder(StreamMessage)
_encoder = msgspec.msgpack.Encoder()

encode = _encoder.encode


def compose(pieces: list[bytes]) -> bytes:
    """One packet of several encoded messages.

    >>> decode_packet(compose([encode(Ack(7)), encode(Nack(8))]))
    [Ack(seq=7), Nack(seq=8)]
    """
    count = len(pieces)
    head = bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return head + b"".join(pieces)


def decode_packet(data: bytes) -> list[PacketMessage]:
    return decode(_packet_decoder, data, "not a packet of this protocol")


def decode_stream(data: bytes) -> StreamMessage:
    return decode(_stream_decoder, data, "not a stream message of this protocol")
