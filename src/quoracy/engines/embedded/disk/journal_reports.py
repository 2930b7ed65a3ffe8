"""What the journal tells of its work: values."""

from __future__ import annotations

import msgspec

__all__ = ["Cleaned", "JournalSize"]


class Cleaned(msgspec.Struct, frozen=True, gc=False):
    """What a slice of cleaning did: versions taken off the list, whether to go on, and its time."""

    done: int
    more: bool
    took_s: float


class JournalSize(msgspec.Struct, frozen=True, gc=False):
    """Bytes on disk: the database file, the part of it that holds nothing, the logs beside it."""

    file_bytes: int
    free_bytes: int
    log_bytes: int
