"""The allocation of the commit log: the file is lengthened before commits need the room.

When a file grows, every sync has to write its new size as well, which takes longer.  (To reserve the
space is not enough: blocks that were never written are marked as such, and a sync has to change that.)
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

__all__ = ["FREE_BYTES_MIN", "SEGMENTS_MAX", "SEGMENT_BYTES", "lengthen", "lengthen_beside"]

SEGMENT_BYTES = 4 * 1024**2
# With more segments, more short-lived versions are compacted before they would be copied into the
# tables; but more has to be read after a crash.  The history that is kept of a busy ZooKeeper face fits
# into half.
SEGMENTS_MAX = 12
# On a disk with less free space than this the log is not lengthened in advance.
FREE_BYTES_MIN = 256 * 1024**2

_STEP_BYTES = 1024**2
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def lengthen(file: int, path: Path, wanted: int) -> bool:
    """Fill the file with zeros up to a length; False if there is too little room."""
    length = os.fstat(file).st_size
    zeros = bytes(min(_STEP_BYTES, max(wanted - length, 0)))
    while length < wanted:
        if _free_bytes(path.parent) < FREE_BYTES_MIN:
            return False
        length += os.pwrite(file, zeros[: wanted - length], length)
    return True


def lengthen_beside(path: Path, wanted: int) -> bool:
    """The same for a file that other threads write to and sync meanwhile.

    It is synced here in small steps, so that none of their syncs has to wait for all of it.
    """
    file = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    try:
        length = os.fstat(file).st_size
        while length < wanted:
            length = min(length + _STEP_BYTES, wanted)
            if not lengthen(file, path, length):
                return False
            os.fsync(file)
    except OSError as error:
        if error.errno in _NO_ROOM:
            return False
        raise
    finally:
        os.close(file)
    return True


def _free_bytes(directory: Path) -> int:
    if sys.platform == "win32":
        import shutil

        return shutil.disk_usage(directory).free
    room = os.statvfs(directory)  # not `shutil.disk_usage`, whose import takes memory
    return room.f_bavail * room.f_frsize
