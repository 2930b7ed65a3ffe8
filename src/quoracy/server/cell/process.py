"""One run of etcd: started as a child, its log kept in a file, and ended with us.

The log goes to a file and not through a pipe: a pipe that nobody reads, because this process was
stopped, would block etcd within a few hundred lines.

If this process is killed, Linux kills etcd with it (PR_SET_PDEATHSIG): a member that nobody supervises
would keep the ports and the data from the next one.  Elsewhere it lives on, and the next node waits
until somebody ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from quoracy.clock import Clock
from quoracy.server.cell.program import clean_environment

__all__ = ["LOG_BYTES_MAX", "EtcdRun", "LogFile", "die_with_parent", "start_etcd"]

LOG_BYTES_MAX = 16 * 1024 * 1024

_PR_SET_PDEATHSIG = 1
_READ_BYTES_MAX = 256 * 1024
_SERIOUS = frozenset({"error", "dpanic", "panic", "fatal"})


class LogFile:
    """What etcd says, in a file of bounded size with one older one beside it.

    At the bound the older one is replaced; the few lines written at that moment may be lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began = self._read_to = 0

    def open_for_etcd(self) -> int:
        """A descriptor that appends; what was there before stays."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._began = self._read_to = os.fstat(descriptor).st_size
        return descriptor

    def new_errors(self) -> list[str]:
        """What went wrong since this was last asked, in etcd's words; and keep the file in bounds."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:  # somebody cleaned up; etcd writes on into what has no name now
            return []
        if size <= self._read_to:
            return []
        with self.path.open("rb") as file:
            file.seek(max(self._read_to, size - _READ_BYTES_MAX))
            new = file.read(_READ_BYTES_MAX)
        whole = new[: new.rfind(b"\n") + 1]
        self._read_to = size - (len(new) - len(whole))
        if size > LOG_BYTES_MAX:
            self._set_aside()
        return [said for line in whole.splitlines() if (said := _serious(line)) is not None]

    def last_words(self, lines_max: int = 4) -> list[str]:
        """What etcd said at the end of this run: its complaints, or whatever there is."""
        lines = self._of_this_run()
        return (_complaints(lines) or [_readable(line) for line in lines])[-lines_max:]

    def has_said(self, words: str) -> bool:
        """Whether etcd said this in this run, as far back as is looked."""
        return any(words.encode() in line for line in self._of_this_run())

    def _of_this_run(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._began, size - _READ_BYTES_MAX))
                return file.read(_READ_BYTES_MAX).splitlines()
        except FileNotFoundError:
            return []

    def _set_aside(self) -> None:
        # Copied and cut, not renamed: etcd has the file open and would write on into the renamed one.
        import shutil

        shutil.copyfile(self.path, self.path.with_name(self.path.name + ".1"))
        os.truncate(self.path, 0)
        self._began = self._read_to = 0


class EtcdRun:
    """An etcd that was started; `ended` is done when it has."""

    def __init__(self, process: asyncio.subprocess.Process, clock: Clock) -> None:
        self._process, self._clock = process, clock
        self.ended: asyncio.Task[int] = asyncio.create_task(process.wait(), name="etcd-member")

    @property
    def pid(self) -> int:
        return self._process.pid

    def how_it_ended(self) -> str:
        code = self.ended.result()
        if code >= 0:
            return f"exit code {code}"
        return f"killed by {signal.Signals(-code).name}"

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, which lets it hand on leadership; after `grace_s`, SIGKILL."""
        if not self.ended.done():
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process sees SIGTERM only once it goes on
            bell = asyncio.ensure_future(self._clock.sleep(grace_s))
            try:
                await asyncio.wait({self.ended, bell}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                bell.cancel()
                if not self.ended.done():
                    self._signal(signal.SIGKILL)
        await self.ended

    def _signal(self, number: signal.Signals) -> None:
        # Between its end and our hearing of it there is nobody to tell.
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


async def start_etcd(program: Path, flags: Sequence[str], log: LogFile, clock: Clock) -> EtcdRun:
    output = log.open_for_etcd()
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=clean_environment(),
            # Ctrl-C on our terminal is for us; etcd is stopped when what uses it has been.
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    finally:
        os.close(output)
    return EtcdRun(process, clock)


def die_with_parent() -> Callable[[], None] | None:
    """What the child does before it becomes etcd."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it ended before we asked to be told
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _serious(line: bytes) -> str | None:
    fields = _fields(line)
    if fields is None or fields.get("level") not in _SERIOUS:
        return None
    return _sentence(fields)


def _complaints(lines: Sequence[bytes]) -> list[str]:
    found = []
    in_plain_text = False
    for line in lines:
        fields = _fields(line)
        if fields is None:
            # Of a panic the first line says what happened, and of a help page what was wrong.
            if not in_plain_text:
                found.append(line.decode("utf-8", "replace"))
            in_plain_text = True
            continue
        in_plain_text = False
        if fields.get("level") in _SERIOUS or "error" in fields:
            found.append(_sentence(fields))
    return found


def _readable(line: bytes) -> str:
    fields = _fields(line)
    return line.decode("utf-8", "replace") if fields is None else _sentence(fields)


def _fields(line: bytes) -> dict[str, object] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _sentence(fields: dict[str, object]) -> str:
    said = str(fields.get("msg", ""))
    return f"{said}: {fields['error']}" if "error" in fields else said
