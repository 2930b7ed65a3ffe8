"""What a child process tells its test, one line at a time, over its standard output.

A report is written the moment what it says is known, with one system call, so a process that is
killed in the next instruction has still told it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TypeAlias

import msgspec

from quoracy.store.model import KeyValue

__all__ = [
    "Acknowledged",
    "Asked",
    "Closed",
    "Closing",
    "Compact",
    "End",
    "Failed",
    "Grant",
    "Happened",
    "Note",
    "Opened",
    "Opening",
    "Operation",
    "Read",
    "Refused",
    "Remove",
    "Report",
    "Write",
    "command",
    "decode",
    "report",
]


# -- operations: requests in a form that the test can judge by itself ------------------------------


class Write(msgspec.Struct, tag=True, frozen=True):
    """Put (or with no value, delete) these keys in this order, in one transaction."""

    parts: tuple[tuple[bytes, bytes | None], ...]
    lease: int = 0


class Remove(msgspec.Struct, tag=True, frozen=True):
    """Delete every key with a prefix."""

    prefix: bytes


class Grant(msgspec.Struct, tag=True, frozen=True):
    """Make a lease; one that `expires` is never kept alive and may end by itself at any time."""

    lease: int
    ttl_s: float
    expires: bool = False


class End(msgspec.Struct, tag=True, frozen=True):
    lease: int


class Compact(msgspec.Struct, tag=True, frozen=True):
    revision: int


Operation: TypeAlias = Write | Remove | Grant | End | Compact


# -- reports ---------------------------------------------------------------------------------------


class Opening(msgspec.Struct, tag=True, frozen=True):
    pid: int


class Opened(msgspec.Struct, tag=True, frozen=True):
    revision: int
    compact_revision: int
    digest: str


class Asked(msgspec.Struct, tag=True, frozen=True):
    """About to send this operation."""

    id: int
    operation: Operation


class Acknowledged(msgspec.Struct, tag=True, frozen=True):
    """It was done; `revision` is the one it made, if it changed any key."""

    id: int
    revision: int | None = None


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The store said no: nothing was changed."""

    id: int
    error: str


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The store could not: by `kind` it was not done, or may have been."""

    id: int
    kind: str
    error: str


class Read(msgspec.Struct, tag=True, frozen=True):
    """What a read showed; `least` was the newest revision acknowledged before it was sent."""

    prefix: bytes
    least: int
    revision: int
    kvs: tuple[KeyValue, ...]


class Happened(msgspec.Struct, tag=True, frozen=True):
    """What a watch of everything delivered."""

    revision: int
    kvs: tuple[KeyValue, ...]


class Note(msgspec.Struct, tag=True, frozen=True):
    """Anything else a test wants to know."""

    name: str
    number: float = 0
    text: str = ""


class Closing(msgspec.Struct, tag=True, frozen=True):
    pass


class Closed(msgspec.Struct, tag=True, frozen=True):
    pass


Report: TypeAlias = (
    Opening
    | Opened
    | Asked
    | Acknowledged
    | Refused
    | Failed
    | Read
    | Happened
    | Note
    | Closing
    | Closed
)

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Report).decode


def report(what: Report) -> None:
    """Tell the test.  Waits while the pipe is full: nothing is told late or out of order."""
    line = _encode(what) + b"\n"
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]


async def command() -> str:
    """The next line the test says; an empty one if it is gone."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return os.read(sys.stdin.fileno(), 100).decode().strip()


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
