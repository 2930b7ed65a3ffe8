"""For who reads the commonest messages straight from their bytes, and leaves all others to the codec.

Such a reader knows one form of one message, and raises `NotPlain` for any other, right or wrong: then
the message is decoded in full, which finds the words for what is wrong with it.
"""

from __future__ import annotations

__all__ = ["NotPlain", "plain_varint"]


class NotPlain(Exception):
    """Not of the form that is read here."""


def plain_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The number at a position, and the position behind it.  IndexError where the data ends."""
    byte = data[pos]
    if byte < 0x80:
        return byte, pos + 1
    number, shift = byte & 0x7F, 7
    while True:
        pos += 1
        byte = data[pos]
        if byte < 0x80:
            return number | byte << shift, pos + 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise NotPlain  # longer than any number that is sent
