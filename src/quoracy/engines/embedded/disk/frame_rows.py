"""Rows for the table `log`, made of the bytes that the commit log has: nothing is encoded twice.

    row of frames   MARK, then of each frame how long its changes are, and these as the frame has them
    any other row   versions, as msgpack

What is in the log goes into the tables by way of a worker, which needs the interpreter lock for all
that is not SQLite's, and has to get it from a busy loop.  So the loop makes the rows, a copy and a
checksum of 64 KiB now and then, and the worker has little left to do but to hand them to SQLite.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from quoracy.engines.embedded.committing.batch import Versions
from quoracy.engines.embedded.disk.journal_file import row_checksum
from quoracy.store.model import KeyValue

__all__ = ["ROW_BYTES", "ROW_VERSIONS", "FrameRow", "FrameRows", "decode_row"]

# A row has no more than this and the last revision in it, so that writing one anew takes a fraction of
# a slice.
ROW_VERSIONS: Final = 512
ROW_BYTES: Final = 64 * 1024

_MARK: Final = 0xC1  # which msgpack never uses
_LENGTH: Final = struct.Struct("<I")

_decode_versions = msgspec.msgpack.Decoder(tuple[KeyValue, ...]).decode
_decode_changes = msgspec.msgpack.Decoder(list[Versions]).decode


class FrameRow:
    """One row, ready to be inserted: the revisions it spans, and how many versions it holds.

    begin: the number of the first frame in it.
    """

    __slots__ = ("begin", "blob", "checksum", "count", "first", "last")

    def __init__(self, begin: int, first: int, last: int, count: int, blob: bytes) -> None:
        self.begin = begin
        self.first, self.last, self.count, self.blob = first, last, count, blob
        self.checksum = row_checksum(first, blob)


class FrameRows:
    """Takes what frames have, in order, and makes rows of it."""

    __slots__ = ("_begin", "_bytes", "_count", "_first", "_last", "_parts", "_rows")

    def __init__(self) -> None:
        self._rows: list[FrameRow] = []
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = [bytes((_MARK,))]
        self._bytes = self._count = self._begin = self._first = self._last = 0

    def add(self, number: int, changes: bytes, first: int, last: int, count: int) -> None:
        """So many versions, of these revisions, as the frame of that number has them."""
        if not self._count:
            self._begin, self._first = number, first
        self._last = last
        self._count += count
        self._bytes += len(changes)
        self._parts.append(_LENGTH.pack(len(changes)))
        self._parts.append(changes)
        if self._bytes >= ROW_BYTES or self._count >= ROW_VERSIONS:
            self._end()

    def take(self) -> list[FrameRow]:
        """All that is there, as rows."""
        if self._count:
            self._end()
        rows, self._rows = self._rows, []
        return rows

    def _end(self) -> None:
        blob = b"".join(self._parts)
        self._rows.append(FrameRow(self._begin, self._first, self._last, self._count, blob))
        self._clear()


def decode_row(blob: bytes) -> Versions:
    """The versions in a row of either kind.  Raises `msgspec.DecodeError`."""
    if not blob or blob[0] != _MARK:
        return _decode_versions(blob)
    versions: list[KeyValue] = []
    at, end = 1, len(blob)
    while at < end:
        start = at + _LENGTH.size
        if start > end:
            raise msgspec.DecodeError("a row of frames ends in the middle of a length")
        (length,) = _LENGTH.unpack_from(blob, at)
        at = start + length
        for changes in _decode_changes(blob[start:at]):
            versions += changes
    if at > end:
        raise msgspec.DecodeError("a row of frames ends in the middle of a frame")
    return tuple(versions)
