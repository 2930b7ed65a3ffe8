"""Helpers for readers of the most common messages, which read them straight from their bytes.

Such a reader knows one form of one message, and raises `NotPlain` for any other, valid or not.  The
message is then decoded in full, which reports errors properly.
"""

from __future__ import annotations

__all__ = ["NotPlain", "plain_varint"]


class NotPlain(Exception):
    """The message does not have the form that the reader knows."""


def plain_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The number at a position, and the position after it.  Raises IndexError if the data ends."""
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
