"""What clients asked and what they were told: the one shape every load writes and every checker reads.

An `Op` is one operation on one register, seen from its client.  Load processes write their operations
as JSON lines, a judge reads them all: CLOCK_MONOTONIC is one clock for the whole machine, across
processes and network namespaces, so the times of different files compare.

Rules for whoever records
    * An operation that surely did nothing (Rejected, Unavailable) is not recorded at all.
    * An operation whose outcome is not known (Indeterminate, a timeout, a lost connection) has `done`
      None: it may take effect at any time after `call`, or never.  It must be recorded, since what it
      may have written may be read by others.
    * One client does one operation at a time; after an unknown outcome it may go on.
    * Values should be unique: then who saw what is plain, more is found, and found in less time.
    * `revision` is the one the answer carried.  For a write it is the write's own.  For a read it is
      either the store's when it answered or that of the key's last change, and the same of the two in
      the whole history: then it never goes back for one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeVar

import msgspec

__all__ = ["Kind", "Op", "Verdict", "append_records", "read_history", "read_records", "write_history"]

Kind = Literal["read", "write", "cas"]
Record = TypeVar("Record")
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Op:
    """One operation on one key, as its client saw it.  A value of None is the absence of the key."""

    client: int
    call: float  # monotonic seconds
    done: float | None  # None: whether it took effect is not known
    kind: Kind
    key: str
    value: bytes | None = None  # read: what was read; write or cas: the new value (None deletes)
    expected: bytes | None = None  # cas: the value compared with (None: the key must not exist)
    ok: bool = True  # cas: whether it took
    revision: int | None = None  # of the answer, where the protocol tells one


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a checker found.  `problem` is empty when all is well, and written for a human when not."""

    ok: bool
    checked: int  # how many records were looked at
    problem: str = ""

    def __bool__(self) -> bool:
        return self.ok


def write_history(path: Path, ops: Iterable[Op]) -> None:
    """A whole history as JSON lines."""
    with path.open("wb") as file:
        append_records(file, ops)


def read_history(*paths: Path) -> list[Op]:
    """The operations of several files, in the order they were called."""
    ops = [op for path in paths for op in read_records(path, Op)]
    ops.sort(key=lambda op: op.call)
    return ops


def append_records(file: IO[bytes], records: Iterable[object]) -> None:
    """Add records (operations, grants, any dataclass) to an open file, one line each."""
    file.writelines(_ENCODER.encode(record) + b"\n" for record in records)
    file.flush()


def read_records(path: Path, shape: type[Record]) -> Iterator[Record]:
    """The records of one file.  ValueError if one is not of that shape, or if the last is cut off."""
    decoder = msgspec.json.Decoder(shape)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                raise ValueError(
                    f"{path}: line {number} is cut off: its writer was killed, operations are missing. "
                    "A history that is not whole proves nothing: stop the load before reading it."
                )
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise ValueError(
                    f"{path}: line {number} is not one {shape.__name__}: {error}"
                ) from error
