"""The allocation of the commit log: it gets its length before commits need it.

A file that grows makes every sync write its new size as well, which takes longer.  (To reserve the
space is not enough: what was never written is marked as such, and a sync has to change that.)
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

__all__ = ["FREE_BYTES_MIN", "SEGMENTS_MAX", "SEGMENT_BYTES", "lengthen", "lengthen_beside"]

SEGMENT_BYTES = 4 * 1024**2
# The more there are, the more of what is short-lived is gone before it gets into the tables, and the
# more is to be read after a crash.  The history that is kept of a busy ZooKeeper face fits into half.
SEGMENTS_MAX = 12
# On a disk with less room than this the log takes what it needs when it needs it.
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
    """The same for a file that others write to and sync meanwhile.

    A little at a time is synced here, so that none of them has to wait for all of it.
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
    room = os.statvfs(directory)  # where shutil has it from, which takes 0.4 MB with all it imports
    return room.f_bavail * room.f_frsize
