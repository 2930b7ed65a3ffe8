"""What every load has: settings from the runner, a beginning, an end, and a book of what happened.

A load is a process on the clients' host.  It gets its settings as JSON on the command line, writes
`NAME.ready` when all its clients have connected, works until a line on its standard input tells it to
end, and writes what it saw as JSON lines.  Its times are CLOCK_MONOTONIC, one clock for all of them.

Invariants
    * What surely did nothing is not in a history; it is in the book of refusals, if it was a write.
    * What may have been done is in a history as such, and is never tried again.
    * Anything a client was told that the protocol does not allow ends the load, and so the schedule.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from quoracy.errors import Unavailable
from quoracy.remote.urls import Address, Target
from quoracy.store.api import Store
from tests.checkers.history import append_records

__all__ = ["Ending", "Refused", "Settings", "addresses_of", "epoch", "wait_answering"]

# Keys are used for so long; then others are: a short history per key is quickly judged.
EPOCH_S = 2.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner tells a load.

    stores: where clients ask by etcd's protocol: a client for each entry, which knows these addresses.
    engines: how many clients have the engine in their own process, on the `members`.
    zookeepers: where clients ask by ZooKeeper's protocol, in kazoo's notation.
    began: CLOCK_MONOTONIC when the load as a whole began: keys go by it.
    """

    name: str
    seed: int
    directory: str
    began: float
    clients_from: int
    stores: tuple[tuple[str, ...], ...] = ()
    engines: int = 0
    members: tuple[str, ...] = ()
    zookeepers: tuple[str, ...] = ()
    rate: float = 50.0

    @classmethod
    def read(cls) -> Settings:
        return msgspec.json.decode(sys.argv[1], type=Settings)

    def write(self, what: str, records: Iterable[object]) -> None:
        """Put records into the book: `NAME.WHAT.jsonl`."""
        with Path(self.directory, f"{self.name}.{what}.jsonl").open("ab") as file:
            append_records(file, records)

    def tell_ready(self) -> None:
        Path(self.directory, f"{self.name}.ready").touch()


@dataclass(frozen=True, slots=True)
class Refused:
    """A write that was surely not carried out: nobody may ever see it."""

    key: str
    value: bytes


class Ending:
    """Whether the load is to end, and what everybody must have seen before that.  Made on the loop."""

    def __init__(self) -> None:
        self.revision = 0
        self._is_set = threading.Event()
        self._told = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, daemon=True).start()

    def __bool__(self) -> bool:
        return self._is_set.is_set()

    async def wait(self) -> None:
        await self._told.wait()

    def block(self, seconds: float) -> None:
        """For threads: so long, or until the end."""
        self._is_set.wait(seconds)

    def _listen(self) -> None:
        line = sys.stdin.readline()
        self.revision = int(line or 0)
        self._is_set.set()
        self._loop.call_soon_threadsafe(self._told.set)


async def wait_answering(store: Store) -> None:
    """Until it answers: on a busy machine the first time may be over before it begins."""
    while True:
        try:
            await store.range(b"r/")
        except Unavailable:
            await asyncio.sleep(0.1)
        else:
            return


def epoch(began: float) -> int:
    return int((time.monotonic() - began) / EPOCH_S)


def addresses_of(texts: Sequence[str]) -> Target:
    """From HOST:PORT, several times."""
    pairs = (text.rpartition(":") for text in texts)
    return Target(tuple(Address(host, int(port)) for host, _, port in pairs))
