"""What a voter must not forget: the newest term it knows of, and for whom it voted in it."""

from __future__ import annotations

import zlib
from typing import Annotated, Protocol

import msgspec

from quoracy.errors import DataUnreadable
from quoracy.membership.decoding import UNREADABLE
from quoracy.membership.elections.messages import TERM_MAX

__all__ = ["SaveVote", "VoteStorage"]

_MAGIC = b"quoracy vote 1\n"


class SaveVote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Make this durable before any effect that follows it in the same list is carried out.

    If that fails, carry out none of them and let the elector go: it has promised what nobody remembers.

    >>> SaveVote.from_bytes(SaveVote(3, "b").to_bytes())
    SaveVote(term=3, voted_for='b')
    """

    term: Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX + 1)]
    voted_for: str | None

    def to_bytes(self) -> bytes:
        """For a file: with a checksum, since half a vote must not be taken for one."""
        body = msgspec.msgpack.encode(self)
        return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body

    @classmethod
    def from_bytes(cls, data: bytes) -> SaveVote:
        """Raises `DataUnreadable` for whatever `to_bytes` did not make."""
        checksum, body = data[len(_MAGIC) : len(_MAGIC) + 4], data[len(_MAGIC) + 4 :]
        if not data.startswith(_MAGIC) or zlib.crc32(body).to_bytes(4, "big") != checksum:
            raise DataUnreadable(
                f"{len(data)} bytes are no saved vote, or are damaged. Without the vote this peer must "
                "not vote in the terms it may have voted in: restore it, or leave the peer out for "
                "good."
            )
        try:
            return msgspec.msgpack.decode(body, type=cls)
        except UNREADABLE as error:
            raise DataUnreadable(f"a saved vote cannot be read: {error}") from error


class VoteStorage(Protocol):
    """Where a voter keeps its vote."""

    def save(self, vote: SaveVote) -> None:
        """Replace what was saved.  On return it is durable; raises if it may not be."""
        ...

    def load(self) -> SaveVote | None:
        """What was saved last; `None` only if nothing ever was."""
        ...
