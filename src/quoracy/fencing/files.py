"""Guarded files: a file is replaced only by a holder whose token is not stale.

    report.csv          the file: always whole, of one writer
    report.csv.fence    the highest token that has written it, and the lock between writers; it stays

The new contents are written beside the file first.  Then, under an exclusive lock of the fence (the
system's, so it goes with its process), the token is compared, recorded and synced, and a rename puts
the contents in place.

Invariants
    * Comparing and replacing are one step for all writers that use this, in any number of processes.
    * The token is on the disk before the rename: after a crash between the two the file is the older
      holder's and the fence already refuses that one, never the other way round.
    * A fence that cannot be read refuses everyone, with `DataUnreadable`.
    * Readers need no lock: they see the old file or the new one.

It needs flock, so not Windows, and a file system on which flock holds between all writers: a local
disk, or NFSv4 with its locks on.  It does not guard against writes by other means.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, TextIO, overload

from quoracy.directories import sync_directory
from quoracy.errors import DataUnreadable, TimedOut, Unsupported
from quoracy.fencing.gate import refuse_stale, require_valid

__all__ = ["guarded_file", "write_guarded"]

# A lock of the file system gives no notice when it is free; it is held for about two fsyncs.
_LOOK_AGAIN_S = 0.005
# The token in a fixed width: writing it is one overwrite in place, never a truncation.
_WIDTH = 20


def write_guarded(
    path: str | os.PathLike[str], data: bytes, *, token: int, timeout_s: float = 10.0
) -> None:
    """Replace the file by `data` unless the token is stale; `guarded_file` with the contents at hand.

        write_guarded("report.csv", b"...", token=held.token)

    Blocks on the disk: in a coroutine, `await asyncio.to_thread(write_guarded, ...)`.
    """
    with guarded_file(path, token=token, timeout_s=timeout_s) as file:
        file.write(data)


@overload
@contextmanager
def guarded_file(
    path: str | os.PathLike[str], *, token: int, encoding: None = None, timeout_s: float = 10.0
) -> Iterator[BinaryIO]: ...


@overload
@contextmanager
def guarded_file(
    path: str | os.PathLike[str], *, token: int, encoding: str, timeout_s: float = 10.0
) -> Iterator[TextIO]: ...


@contextmanager
def guarded_file(
    path: str | os.PathLike[str], *, token: int, encoding: str | None = None, timeout_s: float = 10.0
) -> Iterator[IO[bytes] | IO[str]]:
    """Write a file that takes the place of `path` when the block ends, unless the token is stale.

        with guarded_file("report.csv", token=held.token, encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    Binary without `encoding`, text with it.  If the block raises, or the token is stale, `path` stays
    as it is and what was written is removed.  A symbolic link is followed.  Permissions of a file that
    is replaced are kept.

    Raises `StaleToken` (at once if it is stale already, else at the end of the block); `TimedOut` if
    another writer kept the fence for `timeout_s`, as one does that was stopped right there;
    `DataUnreadable` if the fence is damaged.
    """
    target = Path(os.path.realpath(path))
    require_valid(str(target), token)
    with _locked_fence(target, timeout_s) as fence:
        refuse_stale(str(target), token=token, highest=_highest(fence, target))
    beside = target.with_name(f".{target.name}.{os.urandom(8).hex()}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        is_text = encoding is not None
        # Line ends are left to the writer, as the csv module requires.
        with open(
            fd, "w" if is_text else "wb", encoding=encoding, newline="" if is_text else None
        ) as file:
            yield file
            file.flush()
            with suppress(FileNotFoundError):
                os.fchmod(fd, stat.S_IMODE(target.stat().st_mode))
            os.fsync(fd)
        with _locked_fence(target, timeout_s) as fence:
            _admit(fence, target, token)
            beside.replace(target)
            sync_directory(target.parent)
    finally:
        beside.unlink(missing_ok=True)


def _admit(fence: int, target: Path, token: int) -> None:
    highest = _highest(fence, target)
    refuse_stale(str(target), token=token, highest=highest)
    if token > highest:
        os.pwrite(fence, b"%0*d\n" % (_WIDTH, token), 0)
        os.fsync(fence)
        sync_directory(target.parent)  # the fence itself may be new


def _highest(fence: int, target: Path) -> int:
    """The highest token that was recorded; -1 if none ever was."""
    text = os.pread(fence, _WIDTH + 2, 0)
    if not text:
        return -1
    if len(text) != _WIDTH + 1 or not text[:-1].isdigit() or text[-1:] != b"\n":
        raise DataUnreadable(
            f"{target}.fence is damaged, so nobody knows which tokens are stale; nothing is written. "
            f"Write the largest token that was given out to it, as {_WIDTH} digits and a newline."
        )
    return int(text)


@contextmanager
def _locked_fence(target: Path, timeout_s: float) -> Iterator[int]:
    try:
        import fcntl
    except ImportError:
        raise Unsupported("guarded files need flock, which this system does not have.") from None

    fd = os.open(f"{target}.fence", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimedOut(
                        f"waiting for another writer of {target}", timeout_s=timeout_s
                    ) from None
                time.sleep(_LOOK_AGAIN_S)
        try:
            yield fd
        finally:
            # Closing alone would leave it locked if another thread forked a child meanwhile.
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)
