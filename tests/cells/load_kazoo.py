"""Clients of ZooKeeper's protocol, by kazoo: registers by version, sequential nodes, a set of nodes.

A read is a `sync` and a `get`: on a cell that is linearizable, for a sync learns what etcd has.  A
register's revision is its mzxid.  A write by version is a compare-and-swap by value, for no value is
ever written twice.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from tests.cells.kazoos import Unknown, asked, connected
from tests.cells.load import Ending, Settings, epoch
from tests.checkers.acknowledged import Add, Outcome
from tests.checkers.history import Kind, Op
from tests.checkers.sequences import Created

_REGISTERS_COUNT = 2
_SESSION_S = 4.0
_PAUSE_S = 0.03


class _Client(threading.Thread):
    """One client, one thread, one request at a time."""

    def __init__(self, number: int, hosts: str, settings: Settings, ending: Ending) -> None:
        super().__init__(name=f"client {number}")
        self._number, self._settings, self._ending = number, settings, ending
        self._rng = random.Random(f"{settings.seed} kazoo {number}")
        self._values = 0
        self._kazoo: Any = connected(hosts, timeout_s=_SESSION_S)
        for path in ("/r", "/set", "/seq"):
            self._kazoo.ensure_path(path)
        self.ops: list[Op] = []
        self.stale_reads: list[Op] = []
        self.adds: list[Add] = []
        self.created: list[Created] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending:
                try:
                    self._step()
                except Unknown:
                    self._ending.block(_PAUSE_S)
                self._ending.block(self._rng.expovariate(self._settings.rate))
        except BaseException as error:  # noqa: BLE001  the load raises it
            self.error = error
        finally:
            self._kazoo.stop()
            self._kazoo.close()

    def write_book(self) -> None:
        self._settings.write("ops", self.ops)
        self._settings.write("stale", self.stale_reads)
        self._settings.write("adds", self.adds)
        self._settings.write("created", self.created)

    def _step(self) -> None:
        path = f"/r/{epoch(self._settings.began)}-{self._rng.randrange(_REGISTERS_COUNT)}"
        roll = self._rng.random()
        if roll < 0.2:
            self._read(path)
        elif roll < 0.3:
            self._read_plainly(path)
        elif roll < 0.5:
            self._set(path)
        elif roll < 0.75:
            self._swap(path)
        elif roll < 0.9:
            self._create_sequential()
        else:
            self._add()

    def _read(self, path: str) -> tuple[bytes | None, int]:
        """The value and its version."""
        call = time.monotonic()
        asked(self._kazoo.sync_async, path)
        try:
            value, stat = asked(self._kazoo.get_async, path)
        except NoNodeError:
            self._note(call, "read", path, None)
            return None, -1
        self._note(call, "read", path, value, revision=stat.mzxid)
        return value, stat.version

    def _read_plainly(self, path: str) -> None:
        """What the node has, which may be old, and is never older than what this client saw before."""
        call = time.monotonic()
        try:
            value, stat = asked(self._kazoo.get_async, path)
        except NoNodeError:
            return
        done = time.monotonic()
        self.stale_reads.append(Op(self._number, call, done, "read", path, value, revision=stat.mzxid))

    def _set(self, path: str) -> None:
        call, value = time.monotonic(), self._new_value()
        try:
            stat = asked(self._kazoo.set_async, path, value)
        except NoNodeError:
            self._note(call, "read", path, None)
        except Unknown:
            self._note_unknown(call, "write", path, value)
            raise
        else:
            self._note(call, "write", path, value, revision=stat.mzxid)

    def _swap(self, path: str) -> None:
        expected, version = self._read(path)
        call, value = time.monotonic(), self._new_value()
        revision = None
        try:
            if expected is None:
                _, stat = asked(self._kazoo.create_async, path, value, include_data=True)
                revision = stat.czxid
            else:
                revision = asked(self._kazoo.set_async, path, value, version).mzxid
        except (BadVersionError, NodeExistsError):
            self._note(call, "cas", path, value, expected, ok=False)
        except Unknown:
            self._note_unknown(call, "cas", path, value, expected)
            raise
        else:
            self._note(call, "cas", path, value, expected, revision=revision)

    def _create_sequential(self) -> None:
        call = time.monotonic()
        path, stat = asked(
            self._kazoo.create_async, "/seq/n-", self._new_value(), sequence=True, include_data=True
        )
        name = path.removeprefix("/seq/")
        self.created.append(Created("/seq", name, stat.czxid, call, time.monotonic()))

    def _add(self) -> None:
        element = self._new_value()
        outcome: Outcome = "unknown"
        try:
            asked(self._kazoo.create_async, f"/set/{element.decode()}", b"")
            outcome = "acknowledged"
        finally:
            self.adds.append(Add("/set", element, outcome))

    def _new_value(self) -> bytes:
        self._values += 1
        return f"{self._number}.{self._values}".encode()

    def _note(
        self,
        call: float,
        kind: Kind,
        path: str,
        value: bytes | None,
        expected: bytes | None = None,
        *,
        ok: bool = True,
        revision: int | None = None,
    ) -> None:
        done = time.monotonic()
        self.ops.append(Op(self._number, call, done, kind, path, value, expected, ok, revision))

    def _note_unknown(
        self, call: float, kind: Kind, path: str, value: bytes, expected: bytes | None = None
    ) -> None:
        self.ops.append(Op(self._number, call, None, kind, path, value, expected))


async def main(settings: Settings) -> None:
    ending = Ending()
    clients = [
        _Client(settings.clients_from + number, hosts, settings, ending)
        for number, hosts in enumerate(settings.zookeepers)
    ]
    settings.tell_ready()
    for client in clients:
        client.start()
    for client in clients:
        await asyncio.to_thread(client.join)
        client.write_book()
        if client.error is not None:
            raise client.error


if __name__ == "__main__":
    asyncio.run(main(Settings.read()))
