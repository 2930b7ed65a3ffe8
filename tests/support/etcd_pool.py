"""Real etcds that are running before a test wants one: each is new, used by one test, and thrown away.

To start an etcd takes half a second, most of which it waits; a few are started ahead, in threads.
They end with the test session at the latest.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import tempfile
import threading
from pathlib import Path

from tests.differential.etcd_server import etcd_35_program, etcd_binary, running_etcd

__all__ = ["EtcdPool", "etcd_pool"]

_AHEAD = 5
_THREADS = 4


class EtcdPool:
    """New servers of one etcd program."""

    def __init__(self, program: str | Path) -> None:
        self._program = program
        self._running: queue.Queue[tuple[int, contextlib.ExitStack] | BaseException] = queue.Queue()
        self._wanted = threading.Semaphore(_AHEAD)
        self._stopping = False
        self._endings: list[threading.Thread] = []
        self._threads = [
            threading.Thread(target=self._keep_ahead, name="etcd-pool", daemon=True)
            for _ in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self.stop)

    def take(self) -> tuple[int, contextlib.ExitStack]:
        """The port of an etcd with nothing in it, and what ends it, without waiting for that."""
        server = self._running.get()
        self._wanted.release()
        if isinstance(server, BaseException):
            raise RuntimeError("no etcd could be started") from server
        port, running = server
        end = contextlib.ExitStack()
        end.callback(self._end_soon, running)
        return port, end

    def stop(self) -> None:
        self._stopping = True
        self._wanted.release(_THREADS)
        for thread in self._threads + self._endings:
            thread.join(30)
        while not self._running.empty():
            server = self._running.get()
            if not isinstance(server, BaseException):
                server[1].close()

    def _end_soon(self, server: contextlib.ExitStack) -> None:
        ending = threading.Thread(target=server.close, name="etcd-end")
        self._endings = [thread for thread in self._endings if thread.is_alive()] + [ending]
        ending.start()

    def _keep_ahead(self) -> None:
        while self._wanted.acquire() and not self._stopping:
            stack = contextlib.ExitStack()
            try:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="etcd-"))
                port = stack.enter_context(running_etcd(self._program, Path(directory)))
            except BaseException as error:
                stack.close()
                self._running.put(error)
                raise
            self._running.put((port, stack))


_pools: dict[str, EtcdPool] = {}


def etcd_pool(version: str) -> EtcdPool | None:
    """The pool of etcd 3.4 (the system's) or 3.5 (the package's); None if that is not installed."""
    if version not in _pools:
        program = etcd_35_program() if version == "3.5" else etcd_binary()
        if program is None:
            return None
        _pools[version] = EtcdPool(program)
    return _pools[version]
