"""kazoo's client as the tests use it: one directory of the tree for each test, and ears for its events.

kazoo carries no types, so a client is `Any` here.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from tests.interop.programs import WAIT_S_MAX, Running
from tests.interop.zookeepers import ZooKeeper

__all__ = ["Clients", "Heard", "States", "held_by_a_process", "in_thread"]

T = TypeVar("T")

# Long enough that no session ends because the machine is busy.
_CALM_TIMEOUT_S = 30.0


class Heard(Generic[T]):
    """What a callback was called with, in order.  Called with several things, it keeps the first."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[T] = queue.SimpleQueue()

    def __call__(self, what: T, *_: object) -> None:
        self._heard.put(what)

    def next(self) -> T:
        return self._heard.get(timeout=WAIT_S_MAX)

    def until(self, wanted: T) -> T:
        """Pass over what comes before it."""
        while (heard := self.next()) != wanted:
            continue
        return heard

    @property
    def is_silent(self) -> bool:
        return self._heard.empty()


class States(Heard[str]):
    """The states of a client's connection, from when it listens on."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        client.add_listener(self)


class Clients:
    """Clients of one server, all in the same new directory; at the end of the block they are gone."""

    def __init__(self, zookeeper: ZooKeeper, directory: str) -> None:
        self.zookeeper = zookeeper
        self.directory = directory
        self._clients: list[Any] = []
        with self:
            self.connect(directory="").ensure_path(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._clients:
            client = self._clients.pop()
            client.stop()
            client.close()

    def connect(self, *, directory: str | None = None, port: int | None = None, **options: Any) -> Any:
        """A client that is connected."""
        client = self.make(directory=directory, port=port, **options)
        client.start(timeout=WAIT_S_MAX)
        return client

    def make(self, *, directory: str | None = None, port: int | None = None, **options: Any) -> Any:
        """A client that is not started."""
        chroot = self.directory if directory is None else directory
        client = KazooClient(
            f"127.0.0.1:{port or self.zookeeper.port}{chroot}",
            **{"timeout": _CALM_TIMEOUT_S, **options},
        )
        assert client.state == KazooState.LOST
        self._clients.append(client)
        return client


def held_by_a_process(clients: Clients, what: str, path: str, *, timeout_s: float) -> Running:
    """A process that holds something of the directory of these clients; see `kazoo_holder`."""
    hosts = clients.zookeeper.address + clients.directory
    return Running(
        [sys.executable, "-m", "tests.interop.kazoo_holder", hosts, str(timeout_s), what, path]
    )


def in_thread(function: Callable[..., T], *arguments: object) -> Future[T]:
    """Run what blocks beside the test."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  whoever takes the result gets it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
