"""The messages of the elections: one byte of version, then a msgpack array that begins with its kind.

What is decoded is of the right shape and within bounds; whether it makes sense is for the elector to
say.  Nothing is authenticated here: seal the transport if others can reach it.
"""

from __future__ import annotations

from typing import Annotated, Generic, TypeAlias, TypeVar

import msgspec

from quoracy.errors import ProtocolError
from quoracy.membership.codec import decode
from quoracy.membership.elections.elector import PEERS_MAX
from quoracy.membership.settings import NAME_BYTES_MAX

__all__ = ["MESSAGE_BYTES_MAX", "TERM_MAX", "Alive", "Announcement", "Answer", "BullyMessage",
           "Candidacy", "Codec", "Collection", "Coordinator", "Election", "Heartbeat", "HeartbeatReply",
           "Hello", "HopAck", "PreVote", "PreVoteReply", "RingMessage", "TermsMessage", "Token",
           "VoteReply", "VoteRequest", "bully_codec", "ring_codec", "terms_codec"]  # fmt: skip

VERSION = 1

# A thousand terms a second for 285,000 years.  With a margin, so that `term + 1` fits msgpack.
TERM_MAX = 2**53
MESSAGE_BYTES_MAX = 512 + PEERS_MAX * (NAME_BYTES_MAX + 2)

Term: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Hops: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=PEERS_MAX + 1)]


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What all have in common: arrays, of exactly the fields that are named."""


# --- Bully


class _Question(_Message, frozen=True):
    """term_seen: the newest term the sender has heard of."""

    attempt: Number
    term_seen: Term


class Election(_Question, frozen=True, tag="election"):
    """To everyone higher: does one of you live?"""


class Answer(_Question, frozen=True, tag="answer"):
    """From a higher one: I do, and take over from you."""


class Coordinator(_Message, frozen=True, tag="coordinator"):
    """The sender leads.  Said once to everyone, and again as its heartbeat."""

    term: Term


BullyMessage: TypeAlias = Election | Answer | Coordinator


# --- Ring


class _Token(_Message, frozen=True):
    """A token is known by its origin and its nonce; `hop` is what the sender calls this hop."""

    hop: Number
    origin: Name
    nonce: Number


class Candidacy(_Token, frozen=True, tag="candidacy"):
    """Chang and Roberts: passed on only by those whom the origin outranks."""

    hops: Hops
    term_seen: Term


class Collection(_Token, frozen=True, tag="collection"):
    """The collecting variant: everyone who lives adds itself."""

    peers: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=PEERS_MAX)]
    term_seen: Term


class Announcement(_Token, frozen=True, tag="announcement"):
    """`leader` leads.  Goes round once from the peer that found out, then again from the leader."""

    hops: Hops
    leader: Name
    term: Term


class HopAck(_Message, frozen=True, tag="hop"):
    """The token of that hop arrived."""

    hop: Number


class Hello(_Message, frozen=True, tag="hello"):
    """To one that is skipped: are you back?"""


class Alive(_Message, frozen=True, tag="alive"):
    """The answer to a hello."""


Token: TypeAlias = Candidacy | Collection | Announcement
RingMessage: TypeAlias = Token | HopAck | Hello | Alive


# --- Terms


class _Terms(_Message, frozen=True):
    """voters: a checksum of the sender's list of voters."""

    voters: Number
    term: Term


class PreVote(_Terms, frozen=True, tag="prevote"):
    """Would you vote for me in `term`?  Changes nothing at either."""


class PreVoteReply(_Terms, frozen=True, tag="prevoted"):
    """Granted: the term that was asked for.  Refused: the term of the one that refuses."""

    granted: bool


class VoteRequest(_Terms, frozen=True, tag="vote"):
    """Vote for me in `term`."""


class VoteReply(_Terms, frozen=True, tag="voted"):
    """Granted in `term`, or refused by one that is in `term`."""

    granted: bool


class Heartbeat(_Terms, frozen=True, tag="beat"):
    """The sender leads in `term`.  `sent_at` is its own clock, for the reply to carry back."""

    sent_at: float


class HeartbeatReply(_Terms, frozen=True, tag="beaten"):
    """The sender is in `term`; if that is the leader's, it followed the beat of `sent_at`."""

    sent_at: float


TermsMessage: TypeAlias = PreVote | PreVoteReply | VoteRequest | VoteReply | Heartbeat | HeartbeatReply


M = TypeVar("M")


class Codec(Generic[M]):
    """Bytes to messages of one election and back.

    >>> bully_codec.decode(bully_codec.encode(Coordinator(7)))
    Coordinator(term=7)
    >>> bully_codec.decode(b"???")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    quoracy.errors.ProtocolError: a bully message of 3 bytes has version 63; this Quoracy speaks ...
    """

    def __init__(self, what: str, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._what, self._decoder = what, decoder

    def encode(self, message: M) -> bytes:
        return bytes((VERSION,)) + msgspec.msgpack.encode(message)

    def decode(self, data: bytes) -> M:
        """Raises `ProtocolError` for whatever `encode` cannot have made."""
        if len(data) > MESSAGE_BYTES_MAX:
            raise ProtocolError(
                f"a {self._what} message has {len(data):,} bytes; the most is {MESSAGE_BYTES_MAX:,}"
            )
        if not data or data[0] != VERSION:
            version = f"version {data[0]}" if data else "no version"
            raise ProtocolError(
                f"a {self._what} message of {len(data)} bytes has {version}; this Quoracy speaks "
                f"version {VERSION}. Is it no election message, or do the peers run unlike releases?"
            )
        return decode(self._decoder, memoryview(data)[1:], f"a {self._what} message cannot be read")


bully_codec: Codec[BullyMessage] = Codec("bully", msgspec.msgpack.Decoder(BullyMessage))
ring_codec: Codec[RingMessage] = Codec("ring", msgspec.msgpack.Decoder(RingMessage))
terms_codec: Codec[TermsMessage] = Codec("terms", msgspec.msgpack.Decoder(TermsMessage))
