"""The lock file: a file beside the data that is locked by the process that has it open.

The lock is the operating system's, so it is released when its process ends, in whatever way.  SQLite's
own EXCLUSIVE lock guards the data file as well; this one exists to name the owner, and because POSIX
record locks (SQLite's) are silently lost when the same process closes any other descriptor of the file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from quoracy.errors import DataInUse, DataUnreadable

__all__ = ["Ownership"]


class Ownership:
    """Held from `take` to `release`; a second `take` raises `DataInUse` with the owner's pid."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, data: Path) -> Ownership:
        path = Path(f"{data}.lock")
        try:
            data.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise DataUnreadable(
                f"{data} cannot be used: {error.strerror or error} ({error.filename or path}). "
                "Give a path in a directory that can be written to."
            ) from error
        try:
            if not _lock(fd):
                raise DataInUse(str(data), pid=_read_pid(fd))
            os.ftruncate(fd, 0)
            os.write(fd, b"%d\n" % os.getpid())
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def release(self) -> None:
        # The file stays: removing it would let two processes lock two files of the same name.
        os.ftruncate(self._fd, 0)
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _read_pid(fd: int) -> int | None:
    text = os.read(fd, 32).strip()
    return int(text) if text.isdigit() else None


if sys.platform == "win32":

    def _lock(_fd: int) -> bool:
        # SQLite's own lock excludes other processes there; this file only names the owner.
        return True

else:
    import fcntl

    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
