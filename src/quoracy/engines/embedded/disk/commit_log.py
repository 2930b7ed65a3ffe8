"""The commit log: where a commit becomes durable, with one write and one sync of one file.

    frame   length, checksum, the log's id, a number that grows by one, how many frames before it were
            still on their way when it was made; then a batch, as msgpack
    segment frames one after the other, from its beginning; when it is full, a free one is begun

A worker thread copies the log into the journal's tables, and does so late: versions that compaction has
removed before that are never written there (`journal`).  A segment is free when nothing in it is needed
any more.  Segments are used again, so the file soon stops growing, and a sync has no new size to write.

A frame takes a fraction of the work of a commit of SQLite, and of its bytes (decision 0012).

Invariants
    * Commits are acknowledged in the order of their frames.  Two frames may be on their way at once
      (`writer`), and after a crash the first may be torn or missing though the second is there: then
      neither was acknowledged, and both are left out.  Every frame says how many before it were on
      their way.  If any other frame is torn or missing, with a frame behind it, that is damage, and an
      error.
    * A frame is identified by the log's id, which is in the journal while the log is in use, and by its
      number.  So frames left over from an earlier use of a segment, or from an earlier log, are never
      taken for part of this one.  After a crash the log gets a new id, so that frames that were left
      out stay out.
    * The journal holds the number up to which frames are in its tables; those are not read any more.

It is assumed, as in SQLite ("powersafe overwrite"), that a write does not change bytes outside its
range, even when power fails.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import msgspec

from quoracy.directories import sync_directory
from quoracy.engines.embedded.committing.group import Batch, Versions
from quoracy.engines.embedded.disk import log_allocation as log_length

__all__ = [
    "FRAMES_UNDER_WAY_MAX",
    "SEGMENTS_MIN",
    "CommitLog",
    "LogDamaged",
    "changes_in",
    "create_log_file",
    "frames_after",
    "open_log_file",
]

# Two syncs at a time each take about as long as one alone, so while one group of commits waits for the
# disk the loop can prepare the next.  A third would gain nothing: the loop is busy then.
FRAMES_UNDER_WAY_MAX = 2

# The least number of segments: one is written while the other is copied into the tables.
SEGMENTS_MIN = 2

# length of the contents, checksum of all that follows, id, number (and, in the bits above the number,
# how many frames before it were on their way; 0 in files of versions that wrote one frame at a time)
_HEADER = struct.Struct("<IIQQ")
_NUMBER_BITS = 56
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1
_CHECKED_FROM = 8
_ID = struct.Struct("<Q")

_encode = msgspec.msgpack.Encoder().encode
_Contents = tuple[list[Versions], list[tuple[int, float | None]], int | None, dict[str, object]]
_decode = msgspec.msgpack.Decoder(_Contents).decode


# How the contents begin, and how they end where there are only changes.
_TUPLE_BYTES = 1
_NOTHING_ELSE = _encode(([], [], None, {}))[_TUPLE_BYTES + 1 :]


class LogDamaged(Exception):
    """Frames that were acknowledged are missing or damaged."""


class CommitLog:
    """Finds the place in the file for the next frame.  Writes nothing itself.

    files: descriptors of the file, one for each frame that may be on its way.
    sequence: the number of the last frame there was; all up to it are in the tables.
    """

    def __init__(
        self,
        files: tuple[int, ...],
        *,
        id: int,
        sequence: int,
        segment_bytes: int,
        segments_count: int = SEGMENTS_MIN,
    ) -> None:
        self.files = files
        self.sequence = sequence
        self.acknowledged = sequence  # up to this one, all frames are acknowledged
        self.segment = 0  # the one being written
        self._id = id
        self._segment_bytes = segment_bytes
        self._offset = 0  # in the segment
        self._last = [sequence] * segments_count  # the last number in each
        self._folded = sequence

    @property
    def segments_count(self) -> int:
        return len(self._last)

    def frame(self, batch: Batch) -> bytes:
        """The batch encoded as the next frame."""
        contents = _encode((batch.changes, batch.leases, batch.compact_revision, batch.meta))
        return framed(contents, self._id, self.sequence + 1, self.sequence - self.acknowledged)

    def fits(self, size: int) -> bool:
        """Whether a frame of this size can be placed at all, in whichever segment."""
        return size <= self._segment_bytes

    def place(self, size: int) -> int:
        """Reserve room for the next frame; returns its offset, or -1 if it must wait for `folded`."""
        offset = self._offset
        if offset + size > self._segment_bytes:
            free = self._free_segment()
            if free < 0:
                return -1
            self.segment, offset = free, 0
        self.sequence += 1
        self._last[self.segment] = self.sequence
        self._offset = offset + size
        return self.segment * self._segment_bytes + offset

    def folded(self, sequence: int) -> None:
        """All frames up to this one are in the tables, as far as they are needed, and on disk there."""
        self._folded = sequence

    def lengthened(self, segments_count: int) -> None:
        """The file has room for this many segments."""
        while len(self._last) < segments_count:
            self._last.append(self._folded)

    @property
    def free_count(self) -> int:
        """How many segments are free, without the one that is being written."""
        count = 0
        for at, last in enumerate(self._last):
            if last <= self._folded and at != self.segment:
                count += 1
        return count

    def last_of_oldest(self, segments_count: int) -> int:
        """The number up to which frames have to be folded so that this many segments are free."""
        lasts = sorted([last for at, last in enumerate(self._last) if at != self.segment])
        return lasts[min(segments_count, len(lasts)) - 1]

    def _free_segment(self) -> int:
        for at, last in enumerate(self._last):
            if last <= self._folded and at != self.segment:
                return at
        return -1


def changes_in(frame: bytes, batch: Batch) -> bytes:
    """The changes of a batch, as its frame has them."""
    if batch.only_changes:
        return frame[_HEADER.size + _TUPLE_BYTES : -len(_NOTHING_ELSE)]
    return _encode(batch.changes)


def framed(contents: bytes, id: int, number: int, under_way: int) -> bytes:
    """A frame."""
    number |= under_way << _NUMBER_BITS
    rest = _HEADER.pack(len(contents), 0, id, number)[_CHECKED_FROM:] + contents
    return _HEADER.pack(len(contents), zlib.crc32(rest), id, number)[:_CHECKED_FROM] + rest


def create_log_file(path: Path) -> None:
    """Create the file, or take one that is left over, and allocate it."""
    # Only the owner may read what is in it.
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        log_length.lengthen(file, path, SEGMENTS_MIN * log_length.SEGMENT_BYTES)
        os.fsync(file)
        sync_directory(path.parent)
    finally:
        os.close(file)


def open_log_file(path: Path) -> tuple[int, ...]:
    """As many descriptors of the file as frames may be under way.

    Each frame has its own, because the kernel reports a failure to write the file back once to every
    descriptor.  If two syncs shared one, only one of them would fail, perhaps not the one whose bytes
    were lost.
    """
    files: list[int] = []
    try:
        while len(files) < FRAMES_UNDER_WAY_MAX:
            files.append(os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)))
    except BaseException:
        for file in files:
            os.close(file)
        raise
    return tuple(files)


def frames_after(data: bytes, *, id: int, sequence: int, segment_bytes: int) -> list[Batch]:
    """The batches after a number, in order, up to the first that is missing.  Raises `LogDamaged`."""
    batches: list[Batch] = []
    # The segment that was begun first has the smaller numbers; one that was never begun has none.
    runs = [_run(data, start, id) for start in range(0, len(data), segment_bytes)]
    runs.sort(key=_first_number)
    last = sequence
    for run in runs:
        for frame in run:
            if frame.number == last + 1:
                batches.append(_batch(frame.contents))
                last += 1
    _check_acknowledged(data, id, last)
    return batches


class _Frame:
    """A frame that was read; `before` is the last that was acknowledged when it was made."""

    __slots__ = ("before", "contents", "number")

    def __init__(self, marked: int, contents: bytes) -> None:
        self.number = marked & _NUMBER_MASK
        self.before = self.number - 1 - (marked >> _NUMBER_BITS)
        self.contents = contents


def _first_number(run: list[_Frame]) -> int:
    return run[0].number if run else 0


def _run(data: bytes, at: int, id: int) -> list[_Frame]:
    """The consecutive frames from an offset on."""
    frames: list[_Frame] = []
    while (frame := _frame_at(data, at, id)) is not None:
        if frames and frame.number != frames[-1].number + 1:
            break
        frames.append(frame)
        at += _HEADER.size + len(frame.contents)
    return frames


def _frame_at(data: bytes, at: int, id: int) -> _Frame | None:
    end = at + _HEADER.size
    if at < 0 or end > len(data):
        return None
    length, checksum, of, marked = _HEADER.unpack_from(data, at)
    if of != id or end + length > len(data):
        return None
    if zlib.crc32(data[at + _CHECKED_FROM : end + length]) != checksum:
        return None
    return _Frame(marked, data[end : end + length])


def _check_acknowledged(data: bytes, id: int, last: int) -> None:
    """Check that every frame was found that any frame in the file records as acknowledged."""
    mark = _ID.pack(id)
    at = data.find(mark)
    while at >= 0:
        frame = _frame_at(data, at - _CHECKED_FROM, id)
        if frame is not None and frame.before > last:
            raise LogDamaged(
                f"commit {last + 1} is missing or damaged, and commit {frame.number} was made after it"
            )
        at = data.find(mark, at + 1)


def _batch(contents: bytes) -> Batch:
    batch = Batch()
    try:
        changes, leases, compact_revision, meta = _decode(contents)
    except msgspec.DecodeError as error:
        raise LogDamaged(str(error)) from error
    batch.changes, batch.leases, batch.compact_revision = changes, leases, compact_revision
    batch.meta = meta
    return batch
