"""What members say to each other: msgpack arrays, each beginning with a small number for its kind.

A packet is an array of messages: one that is meant for the receiver (a probe, an answer), then news
that rides along.  News is encoded once and sent many times, so packets are put together from pieces.
A stream message is one of its own kind and as long as it needs to be.

Invariants
    * `decode_packet` and `decode_stream` raise `ProtocolError` and nothing else, for any bytes.
    * What they return is within the bounds below.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from quoracy.membership.codec import decode
from quoracy.membership.machine import Address
from quoracy.membership.model import Member, MemberState
from quoracy.membership.settings import META_BYTES_MAX, NAME_BYTES_MAX

__all__ = [
    "ADDRESS_CHARS_MAX",
    "BUCKETS",
    "INCARNATION_MAX",
    "Ack",
    "Alive",
    "Dead",
    "Direct",
    "Join",
    "Nack",
    "PacketMessage",
    "Ping",
    "PingRequest",
    "Record",
    "Shout",
    "StreamMessage",
    "Suspect",
    "SyncBuckets",
    "SyncRecords",
    "SyncRoot",
    "Welcome",
    "compose",
    "decode_packet",
    "decode_stream",
    "encode",
    "record_of",
]

ADDRESS_CHARS_MAX = 270  # a domain name of 253, a port, brackets
INCARNATION_MAX = 2**53
BUCKETS = 256

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
_Address: TypeAlias = Annotated[Address, msgspec.Meta(min_length=1, max_length=ADDRESS_CHARS_MAX)]
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=INCARNATION_MAX)]
_Meta: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=META_BYTES_MAX)]
_Bucket: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=BUCKETS)]
_Hash: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Are you there?  Only `target` answers: an address may have a new owner."""

    seq: _Number
    target: _Name
    source: _Name


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """I am, or the one you asked about is."""

    seq: _Number


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """I am, but the one you asked me to try has not answered me."""

    seq: _Number


class PingRequest(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Try whether `target` answers you, and tell me with my `seq`."""

    seq: _Number
    target: _Name
    address: _Address
    wants_nack: bool


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """`name` is here; only it can say so, the rest pass it on."""

    name: _Name
    address: _Address
    incarnation: _Number
    meta: _Meta


class Suspect(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """`accuser` got no answer from `name`."""

    name: _Name
    incarnation: _Number
    accuser: _Name


class Dead(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """`name` did not say in time that it is alive; or, from itself: it leaves."""

    name: _Name
    incarnation: _Number
    accuser: _Name


class Direct(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """A user's message to one member."""

    sender: _Name
    payload: bytes


class Shout(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """A user's message to everyone; origin and number make it one of a kind."""

    origin: _Name
    number: _Number
    payload: bytes


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member in a stream."""

    name: _Name
    address: _Address
    incarnation: _Number
    state: MemberState
    meta: _Meta

    def member(self) -> Member:
        return Member(self.name, self.address, self.incarnation, self.state, self.meta)


class Join(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Here is all I know; tell me all you know."""

    records: list[Record]


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """All I know, for one who joins."""

    records: list[Record]


class SyncRoot(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """A hash of everyone I think is here.  Whoever has the same need not answer."""

    root: _Hash


class SyncBuckets(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """Mine is another; these are the hashes of its parts, eight bytes each."""

    digests: Annotated[bytes, msgspec.Meta(min_length=8 * BUCKETS, max_length=8 * BUCKETS)]


class SyncRecords(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Everyone I know in those parts in which we differ."""

    buckets: Annotated[list[_Bucket], msgspec.Meta(max_length=BUCKETS)]
    records: list[Record]
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


def record_of(member: Member) -> Record:
    return Record(member.name, member.address, member.incarnation, member.state, member.meta)
