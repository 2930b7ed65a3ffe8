"""Holders of kazoo's lock, at work on a resource that looks at their tokens.

The token is the czxid of the holder's node in the queue of the lock.  The resource is a file: whoever
brings a smaller token than it has seen is refused, and every write it is asked for is in its book, in
order.  Two processes of these compete, so that one that is stopped holds a lock that the other gets.
"""

from __future__ import annotations

import asyncio
import fcntl
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.cells.kazoos import Unknown, asked, connected
from tests.cells.load import Ending, Settings
from tests.checkers.history import append_records
from tests.checkers.locking import Grant, GuardedWrite

_LOCKS = ("/locks/a", "/locks/b")
_SESSION_S = 2.0
_ACQUIRE_S_MAX = 2.0


class _Contents(msgspec.Struct):
    """What the resource of a lock holds, and the largest token it was shown."""

    token: int = 0
    value: bytes | None = None


class _Resource:
    """What a lock guards.  One file, one process at a time inside."""

    def __init__(self, directory: Path, lock: str) -> None:
        self._lock = lock
        self._path = directory / f"resource{lock.replace('/', '-')}.json"
        self._book = directory / "resource.writes.jsonl"

    def read(self, token: int) -> tuple[bool, bytes | None]:
        """Whether it is allowed, and what is there."""
        with self._inside() as (file, contents):
            if token < contents.token:
                return False, None
            contents.token = token
            _replace(file, contents)
            return True, contents.value

    def write(self, client: int, token: int, *, saw: bytes | None, value: bytes) -> bool:
        with self._inside() as (file, contents):
            accepted = token >= contents.token
            with self._book.open("ab") as book:
                append_records(book, [GuardedWrite(self._lock, client, token, saw, value, accepted)])
            if accepted:
                contents.token, contents.value = token, value
                _replace(file, contents)
            return accepted

    @contextmanager
    def _inside(self) -> Iterator[tuple[IO[bytes], _Contents]]:
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            yield file, msgspec.json.decode(text, type=_Contents) if text else _Contents()


def _replace(file: IO[bytes], contents: _Contents) -> None:
    file.seek(0)
    file.truncate()
    file.write(msgspec.json.encode(contents))
    file.flush()


class _Holder(threading.Thread):
    """One client that wants one lock, again and again."""

    def __init__(self, number: int, hosts: str, lock: str, settings: Settings, ending: Ending) -> None:
        super().__init__(name=f"holder {number}")
        self._number, self._hosts, self._lock = number, hosts, lock
        self._ending = ending
        self._rng = random.Random(f"{settings.seed} holder {number}")
        self._resource = _Resource(Path(settings.directory), lock)
        self._writes = 0
        self._kazoo: Any = connected(hosts, timeout_s=_SESSION_S)
        self.grants: list[Grant] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending:
                self._hold_once()
        except BaseException as error:  # noqa: BLE001  the load raises it
            self.error = error
        finally:
            self._end_session()

    def _hold_once(self) -> None:
        asked_at = time.monotonic()
        lock = self._kazoo.Lock(self._lock, f"client {self._number}")
        try:
            if not lock.acquire(timeout=_ACQUIRE_S_MAX):
                return
            _, stat = asked(self._kazoo.get_async, f"{self._lock}/{lock.node}")
        except (KazooException, KazooTimeoutError, Unknown):
            # Whether there is a node of ours in the queue is not known; with the session it goes.
            self._begin_anew()
            return
        self.grants.append(Grant(self._lock, self._number, stat.czxid, asked_at, time.monotonic()))
        self._work(stat.czxid)
        try:
            lock.release()
        except NoNodeError:
            return  # the session ended meanwhile
        except (KazooException, KazooTimeoutError):
            self._begin_anew()

    def _work(self, token: int) -> None:
        """Read, think, write; a holder that is refused knows that it holds nothing any more."""
        for _ in range(self._rng.randrange(1, 4)):
            allowed, saw = self._resource.read(token)
            if not allowed:
                return
            self._ending.block(self._rng.uniform(0, 0.01))
            self._writes += 1
            value = f"{self._number}.{self._writes}".encode()
            if not self._resource.write(self._number, token, saw=saw, value=value):
                return

    def _begin_anew(self) -> None:
        self._end_session()
        while not self._ending:
            try:
                self._kazoo = connected(self._hosts, timeout_s=_SESSION_S)
            except KazooTimeoutError:
                continue
            return

    def _end_session(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()


async def main(settings: Settings) -> None:
    ending = Ending()
    holders = [
        _Holder(settings.clients_from + number, hosts, _LOCKS[number % len(_LOCKS)], settings, ending)
        for number, hosts in enumerate(settings.zookeepers)
    ]
    settings.tell_ready()
    for holder in holders:
        holder.start()
    for holder in holders:
        await asyncio.to_thread(holder.join)
        settings.write("grants", holder.grants)
        if holder.error is not None:
            raise holder.error


if __name__ == "__main__":
    asyncio.run(main(Settings.read()))
