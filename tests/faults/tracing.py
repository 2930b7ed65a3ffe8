"""System calls made to fail, to wait or to kill, with strace; and what it saw."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["CHANGES", "SYNCS", "Trace"]

# How bytes are made durable, and how files change at all.
SYNCS = "fdatasync,fsync"
CHANGES = f"{SYNCS},pwrite64,ftruncate,unlink"

_LINE = re.compile(
    r"^(?P<pid>\d+) +(?P<call>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)(?P<rest>.*)$"
)


class Trace:
    """A command prefix that runs a program under strace, and the log it leaves."""

    def __init__(
        self, strace: str, log: Path, *, calls: str, inject: str = "", only: tuple[Path, ...] = ()
    ) -> None:
        """`only`: calls on these files, and no others."""
        # Calls are counted by thread: whoever writes commits has a count of its own, and so has whoever
        # puts them into the tables.
        self.log = log
        paths = [part for path in only for part in ("-P", str(path))]
        inject_options = ["-e", f"inject={calls}:{inject}"] if inject else []
        self.command = [
            *(strace, "-f", "--seccomp-bpf", "-qq", "-y", "-o", str(log)),
            *("-e", f"trace={calls}", *inject_options, *paths),
        ]

    def calls(self) -> list[re.Match[str]]:
        """The calls that returned, in order; `-y` shows each descriptor's path."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [match for line in lines if (match := _LINE.match(line))]
